"""Distribution-free bounds: how much either family can fit to random signs."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dive_jax.operators.checks import Scalar, check_array, check_rank, check_same, product
from dive_jax.operators.fits import symmetric_part
from dive_jax.operators.ordering import after
from dive_jax.operators.separation import root_of_squares


class RademacherBound(NamedTuple):
    """Empirical Rademacher complexities of both families, and the bound of both.

    Attributes:
      shared: Of semi-definite matrices, at most `dual`.
      dual: Of all matrices of the rank and norm: bound x mean of the norm of Q's rank-r part.
      limit: bound x radius / sqrt(triples), whatever the rank.
      error: Standard error of `dual` over the draws of signs; 0 for one draw.
      radius: Greatest norm of query (positive - negative)^T over the triples.
    """

    shared: Float[Array, ""]
    dual: Float[Array, ""]
    limit: Float[Array, ""]
    error: Float[Array, ""]
    radius: Float[Array, ""]


def rademacher_bound(
    query: Float[Array, "triples dim"],
    positive: Float[Array, "triples dim"],
    negative: Float[Array, "triples dim"],
    signs: Float[Array, "draws triples"],
    *,
    rank: int,
    bound: Scalar = 1.0,
) -> RademacherBound:
    """Estimates both complexities of bilinear scores on given triples by drawn signs.

    Args:
      query: Query vectors, one a triple.
      positive: Vectors of the relevant documents.
      negative: Vectors of the documents that should rank below them.
      signs: Independent signs, -1 or 1, one row a draw, as of `jax.random.rademacher`.
      rank: Rank of both families, 1 <= rank <= dim.
      bound: Frobenius norm that the matrices may have.

    Returns:
      The estimates. With Q the mean of sign x query (positive - negative)^T, the supremum of a
      draw is the norm of the leading singular values of Q (dual), or of the leading positive
      eigenvalues of its symmetric part (shared).

    Raises:
      ValueError: If the shapes or types differ, or the rank is out of range.

    Source:
      arXiv 2609.32488, the distribution-free bound.
    """
    check_same("query, positive and negative", query, positive, negative)
    query = check_array("query", query, "triples dim")
    signs = check_array("signs", signs, "draws triples").astype(query.dtype)
    if signs.shape[1] != query.shape[0]:
        got = list(signs.shape)
        raise ValueError(f"signs: wanted shape [draws, {query.shape[0]}], got {got}")
    check_rank(rank, query.shape[1])
    apart = positive.astype(query.dtype) - negative.astype(query.dtype)
    shared, dual = _suprema(query, apart, signs, rank)
    bound = jnp.asarray(bound).astype(query.dtype)
    radius = jnp.max(jax.vmap(root_of_squares)(query) * jax.vmap(root_of_squares)(apart))
    draws, rows = signs.shape
    spread = jnp.std(dual, ddof=1) if draws > 1 else jnp.zeros((), query.dtype)
    return RademacherBound(
        bound * jnp.mean(shared),
        bound * jnp.mean(dual),
        bound * radius / rows**0.5,
        bound * spread / draws**0.5,
        radius,
    )


@partial(jax.jit, static_argnames="rank")
def _suprema(
    query: Float[Array, "triples dim"],
    apart: Float[Array, "triples dim"],
    signs: Float[Array, "draws triples"],
    rank: int,
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """For each draw of signs, the supremum over the shared and over the dual unit ball."""

    def draw(row: Float[Array, " triples"]) -> tuple[Array, Array]:
        mean = product(query.T, row[:, None] * apart) / row.shape[0]
        singular = jnp.linalg.svd(mean, compute_uv=False)
        eigen = jnp.linalg.eigvalsh(after(singular, symmetric_part(mean)))[::-1]
        positive = jnp.where(eigen <= 0, 0.0, eigen)
        return root_of_squares(positive[:rank]), root_of_squares(singular[:rank])

    return jax.lax.map(draw, signs)
