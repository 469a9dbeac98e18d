"""The self-limiting hinge against all documents of a batch, and which of them may be negatives."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dive_jax.losses.checks import Scalar, check_range, check_scores, row_mask
from dive_jax.numerics.vectors import widened

Mode = Literal["sum", "mean"]
"""Whether the soft maximum over the negatives grows with their number, or not."""


def batch_hinge(
    similarity: Float[Array, "queries documents"],
    positive: Float[Array, " queries"],
    negatives: Bool[Array, "queries documents"],
    *,
    margin: Scalar,
    temperature: Scalar = 0.05,
    mode: Mode = "sum",
) -> Float[Array, " queries"]:
    """Hinge on the lead over a soft maximum of many negatives; silent once the lead suffices.

    With one negative it is the triplet `hinge`. A lead equal to the margin counts as enough.

    Args:
      similarity: Of each query to each document of the batch, cosine units.
      positive: Of each query to the relevant document that it was drawn with.
      negatives: Which documents count for which query; `allowed_negatives` makes it. A query that
        only pads the batch has none, and what its row holds has no effect.
      margin: Wanted lead in cosine units, 0 < margin <= 2.
      temperature: t, above 0, in cosine units; the smaller, the nearer to the hardest negative.
      mode: "sum" takes t log(sum of exp(s / t)), which exceeds the hardest negative by up to
        t log(number of negatives); "mean" takes the mean in place of the sum, and never exceeds it.

    Returns:
      max(0, margin - (positive - soft maximum)), float32 for float16 and bfloat16 input, else in
      the similarities' dtype. Exactly 0, with gradient exactly 0, where there is no negative.

    Raises:
      ValueError: If a hyper-parameter is outside its range, or a shape does not fit.

    Source:
      Ours; the triplet hinge of DIVE, arXiv 2605.20689, carried to the batch.

    Example:
      >>> similarity = jnp.array([[0.25, 0.5], [0.25, 0.5]])
      >>> negatives = jnp.array([[True, False], [False, False]])
      >>> print(batch_hinge(similarity, jnp.array([0.5, 0.0]), negatives, margin=0.5))
      [0.25 0.  ]
    """
    # jax.nn.relu has gradient 0 at 0; that of jnp.maximum is 0.5.
    return jax.nn.relu(_shortfall(similarity, positive, negatives, margin, temperature, mode))


def batch_active(
    similarity: Float[Array, "queries documents"],
    positive: Float[Array, " queries"],
    negatives: Bool[Array, "queries documents"],
    *,
    margin: Scalar,
    temperature: Scalar = 0.05,
    mode: Mode = "sum",
) -> Bool[Array, " queries"]:
    """Tells which queries still have a gradient of `batch_hinge`; the mean is the active ratio.

    Args:
      similarity: Of each query to each document of the batch, cosine units.
      positive: Of each query to the relevant document that it was drawn with.
      negatives: Which documents count for which query.
      margin: Wanted lead in cosine units, 0 < margin <= 2.
      temperature: Above 0, in cosine units.
      mode: As in `batch_hinge`.

    Returns:
      True where `batch_hinge` is above 0; False where a query has no negative.

    Raises:
      ValueError: If a hyper-parameter is outside its range, or a shape does not fit.

    Source:
      DIVE, arXiv 2605.20689, the active ratio.
    """
    return _shortfall(similarity, positive, negatives, margin, temperature, mode) > 0


def allowed_negatives(
    excluded: Bool[Array, "queries documents"],
    rows: Int[Array, " documents"],
    *,
    query_mask: Bool[Array, " queries"] | None = None,
    document_mask: Bool[Array, " documents"] | None = None,
) -> Bool[Array, "queries documents"]:
    """Makes the negatives of `batch_hinge`: each distinct document of the batch once.

    Args:
      excluded: True where a document is judged relevant for the query, or has the text of one that
        is, whether or not that one is in the batch.
      rows: What makes a document the same one again: its row in the collection. The number of its
        text serves as well, and then equal texts count once.
      query_mask: False for queries that only pad the batch: they get no negative.
      document_mask: False for documents that only pad the batch: they are nobody's negative.

    Returns:
      True where the document is a negative of the query.

    Raises:
      ValueError: If a shape does not fit.

    Example:
      >>> excluded = jnp.array([[True, False, True, False], [False, True, False, True]])
      >>> print(allowed_negatives(excluded, jnp.array([7, 8, 7, 8])).astype(int))
      [[0 1 0 0]
       [1 0 0 0]]
    """
    if excluded.ndim != 2 or excluded.dtype != jnp.bool_ or rows.shape != excluded.shape[1:]:
        raise ValueError(
            "excluded and rows: wanted bool [queries documents] and [documents],"
            f" got {excluded.dtype} {list(excluded.shape)} and {list(rows.shape)}"
        )
    real = row_mask(query_mask, excluded.shape[0])
    return real[:, None] & first_occurrence(rows, mask=document_mask)[None, :] & ~excluded


def first_occurrence(
    rows: Int[Array, " documents"], *, mask: Bool[Array, " documents"] | None = None
) -> Bool[Array, " documents"]:
    """Marks the first real place of every distinct row.

    Args:
      rows: Numbers that tell documents apart, with repetitions.
      mask: False for places that only pad the batch: they are not marked, whatever they hold.

    Returns:
      True at the first place of each number among the real ones. Makes a documents x documents
      table of booleans on the way.

    Raises:
      ValueError: If a shape does not fit.

    Example:
      >>> print(first_occurrence(jnp.array([4, 2, 4, 4, 2, 9])).astype(int))
      [1 1 0 0 0 1]
    """
    if rows.ndim != 1 or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise ValueError(f"rows: wanted integers [documents], got {rows.dtype} {list(rows.shape)}")
    real = row_mask(mask, rows.shape[0])
    same = (rows[:, None] == rows[None, :]) & real[None, :]
    return real & ~jnp.any(jnp.tril(same, -1), axis=1)


def _shortfall(
    similarity: Float[Array, "queries documents"],
    positive: Float[Array, " queries"],
    negatives: Bool[Array, "queries documents"],
    margin: Scalar,
    temperature: Scalar,
    mode: Mode,
) -> Float[Array, " queries"]:
    """What is missing from each lead, below 0 if nothing is; -1 where there is no negative."""
    check_scores(similarity, positive, negatives)
    if mode not in get_args(Mode):
        raise ValueError(f"mode: wanted one of {', '.join(get_args(Mode))}, got {mode!r}")
    check_range("margin", margin, high=2.0)
    check_range("temperature", temperature)
    scores = jnp.where(negatives, widened(similarity), 0.0)
    t = jnp.asarray(temperature, scores.dtype)
    some, least = jnp.any(negatives, axis=1), jnp.finfo(scores.dtype).min
    # Taken out of the exponentials, where it cancels; its gradient cancels as well.
    hardest = jnp.max(jnp.where(negatives, scores, least), axis=1, initial=least)
    hardest = jax.lax.stop_gradient(jnp.where(some, hardest, 0.0))
    shares = jnp.exp(jnp.where(negatives, (scores - hardest[:, None]) / t, least))
    total = jnp.sum(shares, axis=1)
    if mode == "mean":
        total = total / jnp.maximum(jnp.sum(negatives, axis=1, dtype=scores.dtype), 1.0)
    above = t * jnp.log(jnp.where(some, total, 1.0))
    lead = jnp.where(some, widened(positive).astype(scores.dtype), 0.0) - (hardest + above)
    return jnp.where(some, jnp.asarray(margin, scores.dtype) - lead, -1.0)
