"""Gram distillation: the similarities of a batch should stay those of the frozen vectors."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
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
    check_range("beta", beta)
    valid = row_mask(mask, rows)
    # Masked rows are 0 on both sides, so their products differ by 0.
    small = jnp.where(valid[:, None], widened(student), 0.0)
    full = jnp.where(valid[:, None], teacher.astype(small.dtype), 0.0)
    wanted = _gram_by_quarters(jax.lax.stop_gradient(full))
    losses = _row_losses(small, wanted, jnp.asarray(beta, small.dtype))
    return losses / jnp.maximum(jnp.sum(valid, dtype=losses.dtype) - 1.0, 1.0)


def _gram(rows: Float[Array, "rows dim"]) -> Float[Array, "rows rows"]:
    return jnp.matmul(rows, rows.T, precision=jax.lax.Precision.HIGHEST)


_HALVED_ROWS = 192
"""Fewest rows whose Gram matrix is worth cutting into quarters."""


def _gram_by_quarters(rows: Float[Array, "rows dim"]) -> Float[Array, "rows rows"]:
    """Returns `_gram`, one of the two quarters off the diagonal mirrored, those on it likewise.

    Cut twice it takes 5/8 of the whole product.
    """
    count = len(rows)
    if count < _HALVED_ROWS:
        return _gram(rows)
    first, second = rows[: count // 2], rows[count // 2 :]
    across = jnp.matmul(first, second.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.block([[_gram_by_quarters(first), across], [across.T, _gram_by_quarters(second)]])


def _apart(
    rows: Float[Array, "rows dim"], wanted: Float[Array, "rows rows"]
) -> Float[Array, "rows rows"]:
    """Differences of the inner products from the wanted ones; 0 where a row meets itself."""
    place = jnp.arange(len(rows))
    return jnp.where(place[:, None] == place[None, :], 0.0, _gram(rows) - wanted)


@jax.custom_jvp
def _row_losses(
    rows: Float[Array, "rows dim"], wanted: Float[Array, "rows rows"], beta: Float[Array, ""]
) -> Float[Array, " rows"]:
    """Sums smooth_l1 over each row's differences."""
    return jnp.sum(smooth_l1(_apart(rows, wanted), beta=beta), axis=1)


def _row_losses_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Moves one side of the symmetric block only: its slopes serve both, at one product for two.

    The wanted products come from frozen vectors, which do not move.
    """
    (rows, wanted, beta), (moved, _, widening) = primals, tangents
    slopes = jnp.clip(_apart(rows, wanted) / beta, -1.0, 1.0)
    change = jnp.zeros(len(rows), rows.dtype)
    if not isinstance(moved, SymbolicZero):
        pulls = slopes * jnp.matmul(moved, rows.T, precision=jax.lax.Precision.HIGHEST)
        change += jnp.sum(pulls, axis=1) + jnp.sum(pulls, axis=0)
    if not isinstance(widening, SymbolicZero):
        change -= 0.5 * jnp.sum(slopes**2, axis=1) * widening
    return _row_losses(rows, wanted, beta), change


_row_losses.defjvp(_row_losses_jvp, symbolic_zeros=True)
