"""Tangent spaces of both families at a symmetric target, and the risks they lead to."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.operators.checks import (
    Rank,
    Scalar,
    check_axes,
    check_rank,
    check_square,
    product,
    reals,
)
from dive_jax.operators.fits import symmetric_part


class TangentDimensions(NamedTuple):
    """How many free numbers each family has near a symmetric target of the given rank.

    Attributes:
      dual: 2 dim rank - rank^2.
      shared: dim rank - rank (rank - 1) / 2.
      dual_only: The difference, called kappa: rank (2 dim - rank - 1) / 2.
    """

    dual: Rank
    shared: Rank
    dual_only: Rank


class LocalRisks(NamedTuple):
    """Limits of the scaled risks near a shared target.

    Attributes:
      shared: variance x dimension + signal: what the shared fit misses is the signal.
      dual: variance x dimension.
      cost: variance x kappa, what the extra freedom of the dual fit costs.
      dual_better: Whether the signal exceeds the cost; at equality the shared fit is as good.
    """

    shared: Float[Array, ""]
    dual: Float[Array, ""]
    cost: Float[Array, ""]
    dual_better: Bool[Array, ""]


def tangent_dual(
    axes: Float[Array, "rank dim"], direction: Float[Array, "dim dim"]
) -> Float[Array, "dim dim"]:
    """Projects a direction onto the tangent space of the matrices of one rank.

    Args:
      axes: Orthonormal rows that span the target's range; its values do not matter.
      direction: Any square matrix.

    Returns:
      P Z + Z P - P Z P, where P projects onto the axes.

    Raises:
      ValueError: If the shapes do not fit.

    Source:
      arXiv 2609.32488, tangent spaces.

    Example:
      >>> print(tangent_dual(jnp.eye(2)[:1], jnp.ones((2, 2))))
      [[1. 1.]
       [1. 0.]]
    """
    direction = check_square("direction", direction)
    axes = check_axes(axes, direction.shape[0])
    rows = product(axes, direction)  # [rank, dim]
    columns = product(direction, axes.T)  # [dim, rank]
    beyond = columns - product(axes.T, product(rows, axes.T))
    return product(axes.T, rows) + product(beyond, axes)


def tangent_shared(
    axes: Float[Array, "rank dim"], direction: Float[Array, "dim dim"]
) -> Float[Array, "dim dim"]:
    """Projects a direction onto the tangent space of the semi-definite matrices of one rank.

    Args:
      axes: Orthonormal rows that span the target's range; its values do not matter.
      direction: Any square matrix.

    Returns:
      The projection, symmetric.

    Raises:
      ValueError: If the shapes do not fit.

    Source:
      arXiv 2609.32488, tangent spaces.

    Example:
      >>> print(tangent_shared(jnp.eye(2)[:1], jnp.array([[1.0, 4.0], [0.0, 9.0]])))
      [[1. 2.]
       [2. 0.]]
    """
    return tangent_dual(axes, symmetric_part(check_square("direction", direction)))


def dual_only(
    axes: Float[Array, "rank dim"], direction: Float[Array, "dim dim"]
) -> Float[Array, "dim dim"]:
    """Returns the part of a direction that only a dual projection can follow.

    Args:
      axes: Orthonormal rows that span the target's range; its values do not matter.
      direction: Any square matrix.

    Returns:
      tangent_dual less tangent_shared: the dual tangent projection of the skew part, itself skew.

    Raises:
      ValueError: If the shapes do not fit.

    Source:
      arXiv 2609.32488, the dual-only part.

    Example:
      >>> print(dual_only(jnp.eye(2)[:1], jnp.array([[1.0, 4.0], [0.0, 9.0]])))
      [[ 0.  2.]
       [-2.  0.]]
    """
    direction = check_square("direction", direction)
    return tangent_dual(axes, (direction - direction.T) / 2)


def dual_only_energy(
    axes: Float[Array, "rank dim"], direction: Float[Array, "dim dim"]
) -> Float[Array, ""]:
    """Returns the squared Frobenius norm of `dual_only`, without forming it.

    Args:
      axes: Orthonormal rows that span the target's range; its values do not matter.
      direction: Any square matrix.

    Raises:
      ValueError: If the shapes do not fit.

    Source:
      arXiv 2609.32488, the dual-only part.

    Example:
      >>> print(dual_only_energy(jnp.eye(2)[:1], jnp.array([[1.0, 4.0], [0.0, 9.0]])))
      8.0
    """
    direction = check_square("direction", direction)
    axes = check_axes(axes, direction.shape[0])
    rows = product(axes, (direction - direction.T) / 2)
    # Twice the columns along the axes, of which the block on the axes was counted twice.
    return 2 * jnp.sum(rows**2) - jnp.sum(product(rows, axes.T) ** 2)


def tangent_dimensions(dim: Rank, rank: Rank) -> TangentDimensions:
    """Counts the dimensions of both tangent spaces and of what only the dual one holds.

    Args:
      dim: Width of the vectors.
      rank: Rank of the target, 1 <= rank <= dim.

    Returns:
      The three counts, integers of the kind given.

    Raises:
      ValueError: If the rank is out of range.

    Source:
      arXiv 2609.32488, tangent dimensions.

    Example:
      >>> tangent_dimensions(12, 3)
      TangentDimensions(dual=63, shared=33, dual_only=30)
    """
    if isinstance(dim, int):
        check_rank(rank, dim)
    dual = 2 * dim * rank - rank * rank
    shared = dim * rank - rank * (rank - 1) // 2
    return TangentDimensions(dual, shared, dual - shared)


def dual_only_dimension(dim: Rank, rank: Rank) -> Rank:
    """Returns kappa = rank (2 dim - rank - 1) / 2, the dimensions that only a dual fit has.

    Args:
      dim: Width of the vectors.
      rank: Rank of the target, 1 <= rank <= dim.

    Raises:
      ValueError: If the rank is out of range.

    Source:
      arXiv 2609.32488, tangent dimensions.

    Example:
      >>> dual_only_dimension(256, 16)
      3960
    """
    return tangent_dimensions(dim, rank).dual_only


def local_risks(dim: Rank, rank: Rank, *, signal: Scalar, variance: Scalar = 1.0) -> LocalRisks:
    """Gives the risks that both fits tend to as a shared target is left at the rate of the noise.

    Args:
      dim: Width of the vectors.
      rank: Rank of the target, 1 <= rank <= dim.
      signal: Squared norm of the dual-only part of the local direction, at least 0.
      variance: Noise variance of one entry of the moment of one triple, at least 0.

    Returns:
      The two limits, the cost of the extra freedom, and which family is better.

    Raises:
      ValueError: If the rank is out of range.

    Source:
      arXiv 2609.32488, the local boundary.

    Example:
      >>> risks = local_risks(12, 3, signal=60.0)
      >>> print(risks.shared, risks.dual, risks.dual_better)
      93.0 63.0 True
    """
    signal, variance = reals(signal, variance)
    sizes = tangent_dimensions(dim, rank)
    dual, shared, cost = (variance * jnp.asarray(size).astype(signal.dtype) for size in sizes)
    return LocalRisks(shared + signal, dual, cost, signal > cost)
