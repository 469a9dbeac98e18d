"""CARS: whether the difference of the two fits repeats itself on disjoint halves of the data."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dive_jax.operators.asymmetry import Asymmetry, asymmetry_of, inner
from dive_jax.operators.checks import check_array, check_rank, check_same, product

_ENTRIES = 1 << 22  # of the moments of one batch
_ROUNDING = 4  # units of rounding, of the fits' squared norms, that no score is told apart from 0


class Cars(NamedTuple):
    """Scores of a grid of ranks, and what they rest on.

    Attributes:
      score: Mean over the splits, [ranks]. Its sign decides.
      dual: Whether the score exceeds `rounding`; a tie goes to shared.
      spread: Sample deviation of the score over the splits; 0 for one split. The splits share
        their rows, so it is no standard error.
      by_split: Each split's score, [splits, ranks].
      size: Mean of the squared norm of dual fit - shared fit of a half: what the score is part of.
      rounding: What rounding alone could make of a score that is 0.
      positive: How many positive eigenvalues the symmetric part of each half's moment had, beyond
        rounding, among the `max(ranks)` greatest, [splits, 2].
    """

    score: Float[Array, " ranks"]
    dual: Bool[Array, " ranks"]
    spread: Float[Array, " ranks"]
    by_split: Float[Array, "splits ranks"]
    size: Float[Array, " ranks"]
    rounding: Float[Array, " ranks"]
    positive: Int[Array, "splits two"]


def corrected(
    across: Float[Array, "..."], first: Float[Array, "..."], other: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Corrects an inner product across halves for what the whole data's noise will cost.

    Args:
      across: <V1, V2>, V being dual fit - shared fit of a half.
      first: |V1|^2.
      other: |V2|^2.

    Returns:
      <V1, V2> - |V1 - V2|^2 / 4, which is |(V1 + V2) / 2|^2 - |V1 - V2|^2 / 2.

    Source:
      arXiv 2609.32488, the CARS score.

    Example:
      >>> print(corrected(jnp.array(1.0), jnp.array(1.0), jnp.array(1.0)))
      1.0
    """
    return across - (first + other - 2 * across) / 4


def half_splits(count: int, splits: int, seed: int) -> Int[np.ndarray, "splits two half"]:
    """Draws pairs of disjoint halves of floor(count / 2) rows; an odd count leaves one row out.

    They are drawn on the host, each split by itself: they depend on the seed, the count and the
    place of the split alone.

    Args:
      count: Rows to split, at least 2.
      splits: How many splits, at least 1.
      seed: At least 0.

    Returns:
      Row numbers, int32, ascending in each half.

    Raises:
      ValueError: If a value is below its least.

    Source:
      arXiv 2609.32488, the CARS score.

    Example:
      >>> half_splits(5, 1, 0).shape
      (1, 2, 2)
    """
    for name, value, least in (("rows", count, 2), ("splits", splits, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name}: wanted at least {least}, got {value}")
    half = count // 2
    orders = [np.random.default_rng([seed, place]).permutation(count) for place in range(splits)]
    halves = np.stack(orders)[:, : 2 * half].reshape(splits, 2, half)
    return np.sort(halves, axis=2).astype(np.int32)


def cars(
    query: Float[Array, "triples dim"],
    positive: Float[Array, "triples dim"],
    negative: Float[Array, "triples dim"],
    *,
    ranks: Sequence[int],
    seed: int = 0,
    splits: int = 20,
    batch: int | None = None,
) -> Cars:
    """Decides for each rank of a grid whether queries and documents deserve two projections.

    Args:
      query: Query vectors, one a triple; at least 2 triples.
      positive: Vectors of the relevant documents.
      negative: Vectors of the documents that should rank below them.
      ranks: Ranks to decide for, each from 1 to dim, in any order.
      seed: Of the random halves, at least 0; they depend on nothing else but the count.
      splits: How many random pairs of halves.
      batch: Splits worked on at a time; by default as many as keep the moments of a batch to some
        tens of MiB. Only the last digits depend on it.

    Returns:
      The scores and choices. Where vectors are not finite the scores are not, and the choice is
      shared. At a tie of singular values across a rank the fits, and so the score of that rank,
      are the solver's choice.

    Raises:
      ValueError: If shapes or types differ, a rank or count is out of range, or there are fewer
        than 2 triples.

    Source:
      arXiv 2609.32488, the cross-fitted asymmetry score (CARS).

    Example:
      >>> turn = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
      >>> x = jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [2.0, 1.0]])
      >>> print(cars(x, x @ turn, 0 * x, ranks=(1, 2)).dual)
      [ True  True]
    """
    check_same("query, positive and negative", query, positive, negative)
    query = check_array("query", query, "triples dim")
    for rank in (ranks := tuple(ranks)):
        check_rank(rank, query.shape[1])
    halves = half_splits(query.shape[0], splits, seed)
    width = min(query.shape[1], 2 * halves.shape[2])
    largest = max(1, min(splits, 8, _ENTRIES // (4 * width * width))) if batch is None else batch
    if not ranks or largest < 1:
        raise ValueError(f"ranks and batch: wanted some and at least 1, got {ranks} and {batch}")
    apart = positive.astype(query.dtype) - negative.astype(query.dtype)
    return score_halves(query, apart, jnp.asarray(halves), ranks=ranks, batch=largest)


@partial(jax.jit, static_argnames=("ranks", "batch"))
def score_halves(
    query: Float[Array, "triples dim"],
    apart: Float[Array, "triples dim"],
    halves: Int[Array, "splits two half"],
    *,
    ranks: tuple[int, ...],
    batch: int,
) -> Cars:
    """Scores given halves; `apart` is positive - negative."""
    splits, _, half = halves.shape
    steps = -(-splits // batch)
    # Chunks alike, the last filled with repeats: a remainder would be a second call at once.
    places = np.arange(steps * -(-splits // steps)) % splits
    chunks = halves[places].reshape(steps, -1, 2, half)
    count = min(max(ranks), query.shape[1], 2 * half)

    def score(chunk: Int[Array, "batch two half"]) -> tuple[Array, Array, Array, Array]:
        rows = chunk.reshape(-1, half)
        fits = _fits(query[rows], apart[rows], count)
        first = jax.tree.map(lambda leaf: leaf[::2], fits)
        other = jax.tree.map(lambda leaf: leaf[1::2], fits)
        one, two = inner(first, first), inner(other, other)
        scores = corrected(inner(first, other), one, two)
        return scores, (one + two) / 2, first.scale + other.scale, fits.positive.reshape(-1, 2)

    result = jax.lax.map(score, chunks)
    # A fit beyond the rank that the rows can have is the fit of that rank.
    columns = np.minimum(ranks, count) - 1
    scores, sizes, scales = (leaf.reshape(-1, count)[:splits][:, columns] for leaf in result[:3])
    mean = jnp.mean(scores, axis=0)
    rounding = _ROUNDING * jnp.finfo(mean.dtype).eps * jnp.mean(scales, axis=0)
    spread = jnp.std(scores, axis=0, ddof=1) if splits > 1 else jnp.zeros_like(mean)
    size, positive = jnp.mean(sizes, axis=0), result[3].reshape(-1, 2)[:splits]
    return Cars(mean, mean > rounding, spread, scores, size, rounding, positive)


def _fits(
    query: Float[Array, "batch half dim"], apart: Float[Array, "batch half dim"], count: int
) -> Asymmetry:
    """Fits each half's moment, in the space its rows span where that is cheaper.

    Finding that space costs as much as it saves once it has some 0.9 of the width.
    """
    half, dim = query.shape[1:]
    if 4 * (2 * half) > 3 * dim:
        return asymmetry_of(product(jnp.swapaxes(query, 1, 2), apart) / half, count)
    rows = jnp.concatenate([query, apart], axis=1)
    basis, _ = jnp.linalg.qr(jnp.swapaxes(rows, 1, 2))  # [batch, dim, 2 half]
    query, apart = product(query, basis), product(apart, basis)
    fits = asymmetry_of(product(jnp.swapaxes(query, 1, 2), apart) / half, count)
    return fits._replace(left=product(basis, fits.left), right=product(basis, fits.right))
