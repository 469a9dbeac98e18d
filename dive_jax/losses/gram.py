"""Gram distillation: the similarities of a batch should stay those of the frozen vectors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.losses.checks import Scalar, check_array, check_range, row_mask
from dive_jax.numerics.vectors import widened


def smooth_l1(difference: Float[Array, "*shape"], *, beta: Scalar = 1.0) -> Float[Array, "*shape"]:
    """Half the squared difference over beta up to beta, the absolute one less beta / 2 beyond.

    Args:
      difference: Any array of differences.
      beta: Where the square ends, above 0, in the differences' units.

    Returns:
      The loss of each entry, in the input's dtype. Its slope is difference / beta, cut to [-1, 1].

    Raises:
      ValueError: If beta is not above 0 and finite.

    Source:
      Girshick, Fast R-CNN, 2015, equation 3; equal to Huber's loss with delta = beta, over beta.

    Example:
      >>> print(smooth_l1(jnp.array([-3.0, 0.0, 0.5])))
      [2.5   0.    0.125]
    """
    check_range("beta", beta)
    bound = jnp.asarray(beta, difference.dtype)
    inside = jnp.clip(difference, -bound, bound)
    return (inside / bound) * (difference - 0.5 * inside)


def gram_distillation(
    student: Float[Array, "rows dim"],
    teacher: Float[Array, "rows full_dim"],
    *,
    beta: Scalar = 1.0,
    mask: Bool[Array, " rows"] | None = None,
) -> Float[Array, " rows"]:
    """Compares every pair's inner product between the compressed and the frozen vectors.

    Args:
      student: Compressed vectors, unit rows.
      teacher: Frozen vectors of the same rows, unit rows; no gradient reaches them.
      beta: Where the square of `smooth_l1` ends, above 0, in cosine units.
      mask: False for rows that only pad the batch: whatever they hold, they meet no other row.

    Returns:
      For each row the mean of smooth_l1(student_i . student_j - teacher_i . teacher_j) over the
      other valid rows j, float32 for float16 and bfloat16 students, else in the student's dtype. 0
      for masked rows, and where there is no other valid row. The mean over the valid rows is the
      mean over all off-diagonal pairs.

    Raises:
      ValueError: If beta is not above 0 and finite, or a shape does not fit.

    Source:
      DIVE, arXiv 2605.20689, geometry distillation.

    Example:
      >>> print(gram_distillation(jnp.eye(3)[:, :2], jnp.ones((3, 1))))
      [0.5 0.5 0.5]
    """
    check_array("student", student, "rows dim")
    check_array("teacher", teacher, "rows full_dim")
    rows = student.shape[0]
    if teacher.shape[0] != rows:
        raise ValueError(
            f"student and teacher: wanted as many rows, got {rows} and {teacher.shape[0]}"
        )
    valid = row_mask(mask, rows)
    small = jnp.where(valid[:, None], widened(student), 0.0)
    full = jnp.where(valid[:, None], teacher.astype(small.dtype), 0.0)
    difference = _gram(small) - _gram(jax.lax.stop_gradient(full))
    pairs = valid[:, None] & valid[None, :] & ~jnp.eye(rows, dtype=bool)
    losses = smooth_l1(jnp.where(pairs, difference, 0.0), beta=beta)
    others = jnp.maximum(jnp.sum(pairs, axis=1, dtype=losses.dtype), 1.0)
    return jnp.sum(losses, axis=1) / others


def _gram(rows: Float[Array, "rows dim"]) -> Float[Array, "rows rows"]:
    return jnp.matmul(rows, rows.T, precision=jax.lax.Precision.HIGHEST)
