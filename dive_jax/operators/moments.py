"""The relevance moment of training triples: what an operator is fitted to."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dive_jax.operators.checks import check_array, check_same, check_weights, product


class RelevanceMoment(NamedTuple):
    """Sums over triples; they add up over streams, and the moment follows from them.

    Attributes:
      total: Sum of weight x query (positive - negative)^T, [dim, dim].
      weight: Sum of the weights: the number of triples, if they weigh 1.
    """

    total: Float[Array, "dim dim"]
    weight: Float[Array, ""]

    @property
    def matrix(self) -> Float[Array, "dim dim"]:
        """The weighted mean, [dim, dim]; all 0 where nothing weighs anything."""
        silent = self.weight <= 0
        mean = self.total / jnp.where(silent, 1.0, self.weight)
        return jnp.where(silent, 0.0, mean)


def relevance_moment(
    query: Float[Array, "triples dim"],
    positive: Float[Array, "triples dim"],
    negative: Float[Array, "triples dim"],
    *,
    weights: Float[Array, " triples"] | None = None,
    before: RelevanceMoment | None = None,
    block: int = 4096,
) -> RelevanceMoment:
    """Sums query (positive - negative)^T over triples, block by block.

    Args:
      query: Query vectors, one a triple.
      positive: Vectors of the relevant documents.
      negative: Vectors of the documents that should rank below them.
      weights: Weight of each triple, at least 0; 1 each if not given. A weight of 0 drops the
        triple, so it may pad a batch, as long as its vectors are finite.
      before: What earlier calls returned: the triples need not fit in memory together.
      block: Triples summed at a time, at least 1. Only the last digits depend on it.

    Returns:
      The sums, in the vectors' type, float32 for float16 and bfloat16; `.matrix` is the moment.

    Raises:
      ValueError: If the shapes or types differ, or the block is below 1.

    Source:
      arXiv 2609.32488, the relevance moment.

    Example:
      >>> ones = jnp.ones((3, 1))
      >>> print(relevance_moment(ones, 2 * ones, -ones).matrix)
      [[3.]]
    """
    check_same("query, positive and negative", query, positive, negative)
    query = check_array("query", query, "triples dim")
    if block < 1:
        raise ValueError(f"block: wanted at least 1, got {block}")
    weights = check_weights(weights, query.shape[0], query.dtype)
    apart = positive.astype(query.dtype) - negative.astype(query.dtype)
    mine = RelevanceMoment(_summed(query, apart, weights, block), jnp.sum(weights))
    return mine if before is None else jax.tree.map(jnp.add, before, mine)


@partial(jax.jit, static_argnames="block")
def _summed(
    query: Float[Array, "triples dim"],
    apart: Float[Array, "triples dim"],
    weights: Float[Array, " triples"],
    block: int,
) -> Float[Array, "dim dim"]:
    """Sums weight x query apart^T, a block at a time and then what is left."""
    whole, rest = divmod(query.shape[0], block)

    def part(start: Array | int, length: int) -> Array:
        here = (
            jax.lax.dynamic_slice_in_dim(array, start, length) for array in (query, apart, weights)
        )
        ours, difference, mass = here
        return product(ours.T, mass[:, None] * difference)

    total = part(whole * block, rest) if rest else jnp.zeros((query.shape[1],) * 2, query.dtype)
    if whole:
        starts = jnp.arange(whole) * block
        total, _ = jax.lax.scan(lambda sum, start: (sum + part(start, block), None), total, starts)
    return total
