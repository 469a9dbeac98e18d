"""Stein's unbiased risk estimate as a choice between the families, and how well it chooses."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.operators.checks import Rank, Scalar, check_square, reals
from dive_jax.operators.chi_squared import lower_tail, upper_tail
from dive_jax.operators.tangent import dual_only_dimension, dual_only_energy


class SureSelection(NamedTuple):
    """A choice between the families, and what it rests on.

    Attributes:
      statistic: Squared norm of the dual-only part of the observation, scaled by the count.
      threshold: 2 variance kappa.
      signal: Unbiased estimate of the squared dual-only signal: statistic - variance kappa.
      dual: Whether the statistic exceeds the threshold; at equality the choice is shared.
    """

    statistic: Float[Array, ""]
    threshold: Float[Array, ""]
    signal: Float[Array, ""]
    dual: Bool[Array, ""]


def sure_select(
    axes: Float[Array, "rank dim"],
    observation: Float[Array, "dim dim"],
    *,
    variance: Scalar,
    count: Scalar = 1.0,
) -> SureSelection:
    """Chooses dual if its unbiased risk estimate is the lower one.

    Args:
      axes: Orthonormal rows that span the target's range.
      observation: The scaled deviation Z; or, with `count`, the observed moment itself or its
        deviation from the target, whose dual-only part is 0.
      variance: Noise variance of an entry of Z, or of the moment of one triple.
      count: How many triples the observed moment is a mean of; 1 for Z.

    Returns:
      The choice. An observation that is not finite gives a statistic that is not, and shared.

    Raises:
      ValueError: If the shapes do not fit.

    Source:
      arXiv 2609.32488, the SURE rule.

    Example:
      >>> moment = jnp.array([[1.0, 4.0], [0.0, 9.0]])
      >>> print(*sure_select(jnp.eye(2)[:1], moment, variance=1.0))
      8.0 2.0 7.0 True
    """
    observation = check_square("observation", observation)
    energy = dual_only_energy(axes, observation)
    variance, count = (value.astype(energy.dtype) for value in reals(variance, count))
    statistic, kappa = count * energy, dual_only_dimension(observation.shape[0], axes.shape[0])
    cost = variance * kappa
    return SureSelection(statistic, 2 * cost, statistic - cost, statistic > 2 * cost)


def sure_power(kappa: Rank, *, signal: Scalar, variance: Scalar = 1.0) -> Float[Array, ""]:
    """Gives the probability that the SURE rule chooses dual.

    Args:
      kappa: Dual-only dimensions, as `dual_only_dimension` counts them; 0 to 10^6.
      signal: Squared norm of the dual-only part of the local direction, at least 0.
      variance: Noise variance, at least 0. Without noise any signal makes the choice certain.

    Returns:
      Pr(chi^2 > 2 kappa), non-central with kappa degrees of freedom and non-centrality
      signal / variance, within 1e-10 in float64 and 1e-5 in float32. It has a gradient by signal
      and variance.

    Raises:
      ValueError: If kappa is below 0.

    Source:
      arXiv 2609.32488, power of the SURE rule.

    Example:
      >>> print(f"{sure_power(30, signal=30.0):.4f}")
      0.4735
    """
    kappa, noncentrality, _, _ = _scaled(kappa, signal, variance)
    return upper_tail(kappa, noncentrality)


def sure_regret(kappa: Rank, *, signal: Scalar, variance: Scalar = 1.0) -> Float[Array, ""]:
    """Gives the expected extra risk of the SURE rule over the better family.

    Args:
      kappa: Dual-only dimensions, as `dual_only_dimension` counts them; 0 to 10^6.
      signal: Squared norm of the dual-only part of the local direction, at least 0.
      variance: Noise variance, at least 0.

    Returns:
      The difference of the two limiting risks times the probability of the wrong choice, in units
      of the signal.

    Raises:
      ValueError: If kappa is below 0.

    Source:
      arXiv 2609.32488, regret of the SURE rule.

    Example:
      >>> print(f"{sure_regret(30, signal=60.0):.3f}")
      0.917
    """
    kappa, noncentrality, signal, cost = _scaled(kappa, signal, variance)
    too_often = (cost - signal) * upper_tail(kappa, noncentrality)
    too_rarely = (signal - cost) * lower_tail(kappa, noncentrality)
    return jnp.where(signal <= cost, too_often, too_rarely)


def _scaled(kappa: Rank, signal: Scalar, variance: Scalar) -> tuple[Array, Array, Array, Array]:
    """Returns kappa, the non-centrality, the signal and the cost; without noise, no NaN."""
    if isinstance(kappa, int) and kappa < 0:
        raise ValueError(f"kappa: wanted at least 0, got {kappa}")
    signal, variance = reals(signal, variance)
    kappa = jnp.asarray(kappa, jnp.int32)
    # Past 10^8 the choice is certain, and the quotient's gradient may be no number.
    silent = (variance <= 0) | (signal > 1e8 * variance)
    certain = jnp.where(signal > 0, jnp.inf, 0.0).astype(signal.dtype)
    noncentrality = jnp.where(silent, certain, signal / jnp.where(silent, 1.0, variance))
    return kappa, noncentrality, signal, variance * kappa.astype(signal.dtype)
