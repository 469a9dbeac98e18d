"""The fits of both families straight from triples: n^2 dim of work where they are few."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dive_jax.operators.checks import check_array, check_rank, check_same, product
from dive_jax.operators.fits import Operator, cut_off, dual, shared, signs_of, symmetric_part
from dive_jax.operators.ordering import after


def dual_from_triples(
    query: Float[Array, "triples dim"],
    positive: Float[Array, "triples dim"],
    negative: Float[Array, "triples dim"],
    rank: int,
) -> Operator:
    """Fits what `dual` fits to the moment of triples, which is never formed where they are few.

    The moment of n triples is the product of two thin matrices. Decomposing those costs n^2 dim
    instead of dim^3.

    Args:
      query: Query vectors, one a triple.
      positive: Vectors of the relevant documents.
      negative: Vectors of the documents that should rank below them.
      rank: Wanted rank, 1 <= rank <= dim.

    Returns:
      The operator; see `dual`.

    Raises:
      ValueError: If shapes or types differ, or the rank is out of range.

    Source:
      arXiv 2609.32488, the dual fit.

    Example:
      >>> x = jnp.array([[0.0, 0.0, 3.0]])
      >>> y = jnp.array([[0.0, 2.0, 0.0]])
      >>> print(dual_from_triples(x, y, 0 * y, 1).values)
      [6.]
    """
    query, apart = _sides(query, positive, negative, rank)
    few = 4 * query.shape[0] <= 3 * query.shape[1] and rank <= query.shape[0]
    return _thin_dual(query, apart, rank) if few else dual(_moment(query, apart), rank)


def shared_from_triples(
    query: Float[Array, "triples dim"],
    positive: Float[Array, "triples dim"],
    negative: Float[Array, "triples dim"],
    rank: int,
) -> Operator:
    """Fits what `shared` fits to the moment of triples, which is never formed where they are few.

    Args:
      query: Query vectors, one a triple.
      positive: Vectors of the relevant documents.
      negative: Vectors of the documents that should rank below them.
      rank: Greatest rank, 1 <= rank <= dim.

    Returns:
      The operator; see `shared`. Where fewer than `rank` values are positive, the axes of the
      others need not be those of `shared`: nothing but their value, 0, counts.

    Raises:
      ValueError: If shapes or types differ, or the rank is out of range.

    Source:
      arXiv 2609.32488, the shared fit.

    Example:
      >>> x = jnp.array([[3.0, 0.0, 0.0]])
      >>> print(shared_from_triples(x, x, 0 * x, 1).values)
      [9.]
    """
    query, apart = _sides(query, positive, negative, rank)
    both = 2 * query.shape[0]
    few = 4 * both <= 3 * query.shape[1] and rank <= both
    return _thin_shared(query, apart, rank) if few else shared(_moment(query, apart), rank)


def _sides(query: Array, positive: Array, negative: Array, rank: int) -> tuple[Array, Array]:
    check_same("query, positive and negative", query, positive, negative)
    query = check_array("query", query, "triples dim")
    check_rank(rank, query.shape[1])
    return query, positive.astype(query.dtype) - negative.astype(query.dtype)


def _moment(query: Float[Array, "n dim"], apart: Float[Array, "n dim"]) -> Float[Array, "dim dim"]:
    return product(query.T, apart) / query.shape[0]


@partial(jax.jit, static_argnames="rank")
def _thin_dual(
    query: Float[Array, "triples dim"], apart: Float[Array, "triples dim"], rank: int
) -> Operator:
    """With query^T = Q R and apart^T = P S the moment is Q (R S^T / n) P^T."""
    ours, mine = jnp.linalg.qr(query.T)
    theirs, other = jnp.linalg.qr(after(mine, apart).T)
    left, values, right = jnp.linalg.svd(product(mine, other.T) / query.shape[0])
    axes, document = product(ours, left[:, :rank]).T, product(theirs, right[:rank].T).T
    signs = signs_of(axes)
    return cut_off(signs * axes, values[:rank], signs * document, values[0], query.shape[1])


@partial(jax.jit, static_argnames="rank")
def _thin_shared(
    query: Float[Array, "triples dim"], apart: Float[Array, "triples dim"], rank: int
) -> Operator:
    """Works in the space that both sides' rows span; beside it the symmetric part is 0."""
    count, dim = query.shape
    basis, parts = jnp.linalg.qr(jnp.concatenate([query, apart]).T)
    core = product(parts[:, :count], parts[:, count:].T) / count
    ascending, columns = jnp.linalg.eigh(symmetric_part(core))
    axes = product(basis, columns[:, ::-1][:, :rank]).T
    axes = signs_of(axes) * axes
    greatest = jnp.max(jnp.abs(ascending))
    return cut_off(axes, ascending[::-1][:rank], axes, greatest, dim)
