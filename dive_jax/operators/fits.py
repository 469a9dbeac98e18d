"""Least-squares operators of bounded rank: any matrix (dual) or a semi-definite one (shared)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dive_jax.numerics.vectors import widened
from dive_jax.operators.checks import check_array, check_rank, check_square, product
from dive_jax.types import TwoSided


class Operator(NamedTuple):
    """A matrix of bounded rank, the sum of values[j] times the outer product of two axes.

    Attributes:
      query: Orthonormal axes of the query side, [rank, dim], strongest first. Of each, the entry
        of greatest magnitude is positive, the first such on a tie.
      values: Strength along each pair of axes, [rank], none negative, 0 at or below the cut-off.
      document: Orthonormal axes of the document side; those of the query side if it is shared.
      kept: How many values are above the cut-off.
      cutoff: Greatest magnitude in the spectrum x dim x machine epsilon.
    """

    query: Float[Array, "*batch rank dim"]
    values: Float[Array, "*batch rank"]
    document: Float[Array, "*batch rank dim"]
    kept: Int[Array, "*batch"]
    cutoff: Float[Array, "*batch"]

    @property
    def matrix(self) -> Float[Array, "*batch dim dim"]:
        """The matrix itself, [dim, dim]: `query @ matrix @ document` is a score."""
        scaled = self.values[..., None] * self.document
        return product(jnp.swapaxes(self.query, -1, -2), scaled)


def dual(moment: Float[Array, "dim dim"], rank: int) -> Operator:
    """Finds the matrix of bounded rank that is nearest to the moment: its truncated SVD.

    Any rank up to the given one is a prefix of the result, so one call serves a grid of ranks.

    Args:
      moment: Square, any sign; row index of the queries, column index of the documents. Where it
        is not finite, neither are the values, and `kept` is 0.
      rank: Wanted rank, 1 <= rank <= dim.

    Returns:
      The operator. Where singular values repeat, its axes are the solver's choice; where they
      repeat across the rank, so is the matrix, but not its distance to the moment.

    Raises:
      ValueError: If the moment is not square, or the rank is out of range.

    Source:
      arXiv 2609.32488, the dual fit.

    Example:
      >>> print(dual(jnp.array([[0.0, 2.0], [-1.0, 0.0]]), 1).matrix)
      [[0. 2.]
       [0. 0.]]
    """
    moment = check_square("moment", moment)
    check_rank(rank, moment.shape[0])
    left, values, right = jnp.linalg.svd(moment)
    query, document = left.T[:rank], right[:rank]
    signs = signs_of(query)
    return cut_off(signs * query, values[:rank], signs * document, values[0], moment.shape[0])


def shared(moment: Float[Array, "dim dim"], rank: int) -> Operator:
    """Finds the positive semi-definite matrix of bounded rank that is nearest to the moment.

    It keeps the greatest positive eigenvalues of the symmetric part, fewer than `rank` where fewer
    are positive. Any rank up to the given one is a prefix of the result.

    Args:
      moment: Square, any sign; row index of the queries, column index of the documents. Where it
        is not finite, neither are the values, and `kept` is 0.
      rank: Greatest rank, 1 <= rank <= dim.

    Returns:
      The operator, both sides alike. Its axes are the leading eigenvectors of the symmetric part,
      by signed value, also where the value is not positive and therefore 0 here.

    Raises:
      ValueError: If the moment is not square, or the rank is out of range.

    Source:
      arXiv 2609.32488, the shared fit.

    Example:
      >>> print(shared(jnp.array([[4.0, 2.0], [-2.0, -3.0]]), 2).values)
      [4. 0.]
    """
    moment = check_square("moment", moment)
    check_rank(rank, moment.shape[0])
    ascending, columns = jnp.linalg.eigh(symmetric_part(moment))
    greatest = jnp.max(jnp.abs(ascending))
    axes = columns.T[::-1][:rank]
    axes = signs_of(axes) * axes
    return cut_off(axes, ascending[::-1][:rank], axes, greatest, moment.shape[0])


def symmetric_part(matrix: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """Returns half the sum of the matrix and its transpose."""
    return (matrix + matrix.T) / 2


def factors(operator: Operator) -> TwoSided:
    """Splits an operator into two projections whose inner products are its scores.

    Args:
      operator: A fit of `dual` or `shared`.

    Returns:
      Two arrays [rank, dim], `query` A and `document` B, with matrix = A.T @ B: each axis times
      the square root of its value. Rows of zeros beyond `operator.kept`. The split fixes inner
      products only; cosines of the projected vectors depend on how the values are shared out.

    Source:
      arXiv 2609.32488, shared and dual projections.

    Example:
      >>> print(factors(shared(jnp.diag(jnp.array([1.0, 4.0])), 1)).query)
      [[0. 2.]]
    """
    silent = operator.values <= 0
    roots = jnp.where(silent, 0.0, jnp.sqrt(jnp.where(silent, 1.0, operator.values)))
    return TwoSided(roots[..., None] * operator.query, roots[..., None] * operator.document)


def bilinear(
    projections: TwoSided, query: Float[Array, "*rows dim"], document: Float[Array, "*rows dim"]
) -> Float[Array, "*rows"]:
    """Scores queries and documents, row by row, by the inner product of their projections.

    Args:
      projections: Two arrays [rank, dim], as `factors` returns them.
      query: Query vectors.
      document: Document vectors, as many.

    Returns:
      One score a row, not normalised.

    Raises:
      ValueError: If the projections are not matrices of one shape.

    Source:
      arXiv 2609.32488, the bilinear score.

    Example:
      >>> sides = TwoSided(jnp.eye(2), jnp.array([[0.0, 1.0], [1.0, 0.0]]))
      >>> print(bilinear(sides, jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 4.0]])))
      [10.]
    """
    sides = [check_array(name, side, "rank dim") for name, side in projections._asdict().items()]
    if sides[0].shape != sides[1].shape:
        shapes = " and ".join(str(list(side.shape)) for side in sides)
        raise ValueError(f"projections: wanted two of one shape, got {shapes}")
    ours = product(widened(query), sides[0].T)
    return jnp.sum(ours * product(widened(document), sides[1].T), axis=-1)


def signs_of(axes: Float[Array, "rank dim"]) -> Float[Array, "rank 1"]:
    """Returns the sign of each row's entry of greatest magnitude, the first on a tie."""
    places = jnp.argmax(jnp.abs(axes), axis=1)[:, None]
    leading = jnp.take_along_axis(axes, places, axis=1)
    return jnp.where(leading < 0, -1.0, 1.0).astype(axes.dtype)


def cut_off(
    query: Float[Array, "rank dim"],
    values: Float[Array, " rank"],
    document: Float[Array, "rank dim"],
    greatest: Float[Array, ""],
    dim: int,
) -> Operator:
    """Cuts what rounding alone could have made; a NaN stays one."""
    cutoff = greatest * dim * jnp.finfo(values.dtype).eps
    kept = jnp.sum(values > cutoff, dtype=jnp.int32)
    return Operator(query, jnp.where(values <= cutoff, 0.0, values), document, kept, cutoff)
