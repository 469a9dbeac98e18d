"""What a shared projection cannot express of a known target, and what a dual one cannot."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from dive_jax.operators.checks import Rank, check_rank, check_square
from dive_jax.operators.fits import symmetric_part
from dive_jax.operators.ordering import after


class ApproximationGap(NamedTuple):
    """Squared Frobenius errors of the best operators of bounded rank.

    Attributes:
      shared_error: Of the best semi-definite one: skew + negative + tail.
      dual_error: Of the best one of any sign.
      gap: shared_error - dual_error, at least 0.
      skew: What no symmetric matrix reaches: the squared norm of the skew part.
      negative: Squares of the negative eigenvalues of the symmetric part.
      tail: Squares of its positive eigenvalues beyond the rank.
    """

    shared_error: Float[Array, ""]
    dual_error: Float[Array, ""]
    gap: Float[Array, ""]
    skew: Float[Array, ""]
    negative: Float[Array, ""]
    tail: Float[Array, ""]


def approximation_gap(target: Float[Array, "dim dim"], rank: Rank) -> ApproximationGap:
    """Splits the approximation errors of both families at a known target.

    Args:
      target: Square, any sign. Where it is not finite, neither is the result.
      rank: Rank of both families, 1 <= rank <= dim; may be traced, so a grid can be mapped over.

    Returns:
      The errors, their gap and the three terms of the shared one. Finite gradients everywhere;
      where values repeat across the rank, one of the sub-gradients.

    Raises:
      ValueError: If the target is not square, or the rank is out of range.

    Source:
      arXiv 2609.32488, the approximation gap.

    Example:
      >>> print(approximation_gap(jnp.array([[2.0, 1.0], [-1.0, -1.0]]), 1).skew)
      2.0
    """
    target = check_square("target", target)
    check_rank(rank, target.shape[0])
    singular = jnp.linalg.svd(target, compute_uv=False)
    eigen = jnp.linalg.eigvalsh(after(singular, symmetric_part(target)))[::-1]
    positive = jnp.where(eigen <= 0, 0.0, eigen)
    outside = jnp.arange(target.shape[0]) >= rank
    skew = jnp.sum(((target - target.T) / 2) ** 2)
    negative = jnp.sum((eigen - positive) ** 2)
    tail = jnp.sum(jnp.where(outside, positive, 0.0) ** 2)
    dual_error = jnp.sum(jnp.where(outside, singular, 0.0) ** 2)
    # No eigenvalue of the symmetric part exceeds the singular value of its place.
    lead = singular - positive
    terms = jnp.where(lead <= 0, 0.0, lead) * (singular + positive)
    gap = jnp.sum(jnp.where(outside, 0.0, terms))
    return ApproximationGap(skew + negative + tail, dual_error, gap, skew, negative, tail)
