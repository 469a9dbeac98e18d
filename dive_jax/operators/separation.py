"""Whitened views and how far each family can separate positives from independent documents."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dive_jax.operators.checks import (
    Rank,
    check_array,
    check_rank,
    check_same,
    check_square,
    check_weights,
    product,
)
from dive_jax.operators.fits import symmetric_part
from dive_jax.operators.ordering import after
from dive_jax.types import TwoSided


class Views(NamedTuple):
    """Centred second moments of relevant pairs.

    Attributes:
      cross: Mean of query document^T about the means, [dim, dim].
      query: Covariance of the queries, [dim, dim].
      document: Covariance of their relevant documents, [dim, dim].
    """

    cross: Float[Array, "dim dim"]
    query: Float[Array, "dim dim"]
    document: Float[Array, "dim dim"]


class Whitened(NamedTuple):
    """The cross moment in coordinates where both views have unit covariance.

    Attributes:
      matrix: T, the cross moment between the whitened views, [dim, dim].
      whiteners: Inverse square roots of the two covariances, each [dim, dim], symmetric, 0 along
        directions that were cut.
      ranks: How many directions of each view were kept.
    """

    matrix: Float[Array, "dim dim"]
    whiteners: TwoSided
    ranks: TwoSided


class Separation(NamedTuple):
    """Greatest separation of each family, in deviations of the scores of independent pairs.

    Attributes:
      dual: By any matrix of bounded rank.
      shared: By a semi-definite one in the whitened coordinates, at most `dual`.
    """

    dual: Float[Array, ""]
    shared: Float[Array, ""]


def views(
    query: Float[Array, "pairs dim"],
    document: Float[Array, "pairs dim"],
    *,
    weights: Float[Array, " pairs"] | None = None,
) -> Views:
    """Takes the centred moments of queries and their relevant documents.

    Args:
      query: Query vectors, one a pair.
      document: Vectors of the relevant documents.
      weights: Weight of each pair, at least 0, some above 0; 1 each if not given.

    Returns:
      The population moments.

    Raises:
      ValueError: If the shapes or types differ.

    Source:
      arXiv 2609.32488, whitening.
    """
    check_same("query and document", query, document)
    query = check_array("query", query, "pairs dim")
    document = document.astype(query.dtype)
    weights = check_weights(weights, query.shape[0], query.dtype)
    shares = (weights / jnp.sum(weights))[:, None]
    query, document = (
        side - jnp.sum(shares * side, axis=0, keepdims=True) for side in (query, document)
    )
    return Views(
        product(query.T, shares * document),
        product(query.T, shares * query),
        product(document.T, shares * document),
    )


def whiten(moments: Views, *, cutoff: float = 1e-6) -> Whitened:
    """Moves the cross moment to coordinates in which both views are white.

    Args:
      moments: Cross moment and covariances, as `views` returns them. The cross moment is that of
        relevant pairs; it equals the moment of triples only if negatives are independent of the
        query and centred, not if they are hard.
      cutoff: Eigenvalues of a covariance at or below this part of its greatest are dropped,
        0 <= cutoff < 1.

    Returns:
      T, both whiteners and the ranks kept.

    Raises:
      ValueError: If the moments are not square and alike, or the cutoff is out of range.

    Source:
      arXiv 2609.32488, whitening; the cut-off is ours.

    Example:
      >>> cross = jnp.diag(jnp.array([1.0, 0.0]))
      >>> print(whiten(Views(cross, 4 * cross, cross)).matrix)
      [[0.5 0. ]
       [0.  0. ]]
    """
    check_same("moments", *moments)
    if not 0 <= cutoff < 1:
        raise ValueError(f"cutoff: wanted 0 <= cutoff < 1, got {cutoff}")
    cross = check_square("moments", moments.cross)
    covariances = jnp.stack([moments.query, moments.document]).astype(cross.dtype)
    values, columns = jnp.linalg.eigh(covariances)
    cut = values <= cutoff * jnp.maximum(values[:, -1:], 0.0)
    scales = jnp.where(cut, 0.0, 1 / jnp.sqrt(jnp.where(cut, 1.0, values)))
    roots = product(columns * scales[:, None, :], jnp.swapaxes(columns, 1, 2))
    kept: Int[Array, " two"] = jnp.sum(values > cutoff * values[:, -1:], axis=1, dtype=jnp.int32)
    matrix = product(product(roots[0], cross), roots[1])
    return Whitened(matrix, TwoSided(*roots), TwoSided(*kept))


def separation(whitened: Float[Array, "dim dim"], rank: Rank) -> Separation:
    """Gives the greatest separation that projections of bounded rank reach.

    Separation is the mean score of a relevant pair over the deviation of the score of independent
    ones; the optimum of the dual family is `separating`.

    Args:
      whitened: T of `whiten`.
      rank: 1 <= rank <= dim; may be traced, so that a grid can be mapped over.

    Returns:
      Root of the sum of the `rank` greatest squared singular values of T, and of the squared
      positive eigenvalues of its symmetric part.

    Raises:
      ValueError: If T is not square, or the rank is out of range.

    Source:
      arXiv 2609.32488, separation.

    Example:
      >>> turned = separation(0.5 * jnp.array([[0.6, -0.8], [0.8, 0.6]]), 1)
      >>> print(f"{turned.dual:.3f} {turned.shared:.3f}")
      0.500 0.300
    """
    whitened = check_square("whitened", whitened)
    check_rank(rank, whitened.shape[0])
    singular = jnp.linalg.svd(whitened, compute_uv=False)
    eigen = jnp.linalg.eigvalsh(after(singular, symmetric_part(whitened)))[::-1]
    inside = jnp.arange(whitened.shape[0]) < rank
    positive = jnp.where(eigen <= 0, 0.0, eigen)
    dual, shared = (jnp.where(inside, values, 0.0) for values in (singular, positive))
    return Separation(root_of_squares(dual), root_of_squares(shared))


def separating(whitened: Whitened, rank: int) -> Float[Array, "dim dim"]:
    """Returns the matrix of bounded rank that separates best, in the original coordinates.

    Args:
      whitened: What `whiten` returned.
      rank: Wanted rank, 1 <= rank <= dim.

    Returns:
      A matrix whose scores of independent pairs have unit deviation; all 0 if T is.

    Raises:
      ValueError: If the rank is out of range.

    Source:
      arXiv 2609.32488, separation.
    """
    check_rank(rank, whitened.matrix.shape[0])
    left, values, right = jnp.linalg.svd(whitened.matrix)
    length = root_of_squares(values[:rank])
    values = values[:rank] / jnp.where(length <= 0, 1.0, length)
    best = product(left[:, :rank], values[:, None] * right[:rank])
    return product(product(whitened.whiteners.query, best), whitened.whiteners.document)


def separation_of(matrix: Float[Array, "dim dim"], moments: Views) -> Float[Array, ""]:
    """Measures the separation that one matrix reaches.

    Args:
      matrix: Any square matrix of scores query^T M document.
      moments: Cross moment and covariances.

    Returns:
      Mean score of a relevant pair over the deviation of independent ones; 0 for a matrix that
      scores nothing.

    Raises:
      ValueError: If the shapes or types differ.

    Source:
      arXiv 2609.32488, separation.
    """
    check_same("matrix and moments", matrix, *moments)
    matrix = check_square("matrix", matrix)
    spread = product(product(moments.query, matrix), moments.document)
    variance = jnp.sum(matrix * spread)
    silent = variance <= 0
    score = jnp.sum(matrix * moments.cross)
    return jnp.where(silent, 0.0, score / jnp.sqrt(jnp.where(silent, 1.0, variance)))


def root_of_squares(values: Float[Array, " values"]) -> Float[Array, ""]:
    """Returns the length of a vector, with gradient 0 at 0."""
    squares = jnp.sum(values**2)
    silent = squares <= 0
    return jnp.where(silent, 0.0, jnp.sqrt(jnp.where(silent, 1.0, squares)))
