"""Tails of the non-central chi-squared distribution at twice its dimension, in plain JAX.

A Poisson mixture, each of its two series summed outward from its mode over a window of fixed
length, so that it can be compiled. Every series is normalised by its own sum, which needs no gamma
function and keeps float32 exact to some units of 1e-7 where a * log(b) would lose four digits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_WINDOW = 1 << 14
"""Terms of each series: nine deviations up to a dimension and a non-centrality of 10^6."""


class Tails(NamedTuple):
    """Probabilities of both sides, each summed by itself: neither is a difference from 1.

    Attributes:
      upper: Of more than twice the dimension.
      lower: Of at most that.
      slope: Derivative of `upper` by the non-centrality.
    """

    upper: Float[Array, ""]
    lower: Float[Array, ""]
    slope: Float[Array, ""]


@jax.jit
def tails_at_twice(dimension: Int[Array, ""], noncentrality: Float[Array, ""]) -> Tails:
    """Returns the tails beyond and below 2 x dimension.

    With a = dimension / 2 and y = dimension, a chi-squared variable of a + j pairs exceeds 2 y
    with the probability that a Poisson variable of mean y stays below a + j (on the half integers
    for odd dimensions), and j is a Poisson variable of mean noncentrality / 2.

    Args:
      dimension: Degrees of freedom, 0 to 10^6; beyond that, digits are lost.
      noncentrality: At least 0, in the type of the result; infinity is certainty.

    Returns:
      Both tails, within 1e-10 in float64 and 1e-5 in float32.
    """
    dtype = noncentrality.dtype
    mean = dimension.astype(dtype)
    half = dimension // 2  # place of the term with index a
    offset = (dimension % 2).astype(dtype) / 2
    places = jnp.maximum(dimension - _WINDOW // 2, 0) + jnp.arange(_WINDOW, dtype=jnp.int32)
    # Below the first half integer the mass is erfc(sqrt(mean)); there is none below 0.
    bottom = jnp.where(dimension % 2 == 1, jax.scipy.special.erfc(jnp.sqrt(mean)), 0.0)
    mass = _poisson(places.astype(dtype) + offset, mean) * (1 - bottom)
    beyond, upto, here = _mixture(places - half, noncentrality)
    below = jnp.where(places < half, mass, 0.0)
    within = jnp.where(places < half, 0.0, mass)
    upper = bottom + jnp.sum(below) + jnp.sum(within * beyond)
    return Tails(upper, jnp.sum(within * upto), jnp.sum(within * here) / 2)


def _mixture(
    counts: Int[Array, " window"], noncentrality: Float[Array, ""]
) -> tuple[Float[Array, " window"], Float[Array, " window"], Float[Array, " window"]]:
    """For the Poisson count of mean noncentrality / 2: P(> k), P(<= k) and P(= k), at each k."""
    dtype = noncentrality.dtype
    # Above this, whatever the dimension, the count is beyond every term.
    mean = jnp.clip(noncentrality / 2, jnp.finfo(dtype).tiny, 1e8)
    first = jnp.maximum(jnp.floor(mean).astype(jnp.int32) - _WINDOW // 2, 0)
    places = first + jnp.arange(_WINDOW, dtype=jnp.int32)
    chance = _poisson(places.astype(dtype), mean)
    upto = jnp.cumsum(chance)
    beyond = jnp.cumsum(chance[::-1])[::-1] - chance
    index = counts - first
    inside = jnp.clip(index, 0, _WINDOW - 1)
    low, high = index < 0, index >= _WINDOW
    return (
        jnp.where(low, 1.0, jnp.where(high, 0.0, beyond[inside])),
        jnp.where(low, 0.0, jnp.where(high, 1.0, upto[inside])),
        jnp.where(low | high, 0.0, chance[inside]),
    )


def _poisson(points: Float[Array, " window"], mean: Float[Array, ""]) -> Float[Array, " window"]:
    """mean^x / Gamma(x + 1) at points one apart, made to sum to 1.

    The logarithms of the ratios of neighbours are small where it matters; they are added up away
    from the mode, so that errors stay relative to the distance from it.
    """
    positive = points > 0
    ratio = jnp.log1p(jnp.where(positive, (mean - points) / jnp.where(positive, points, 1.0), 0.0))
    # The first point has no neighbour below it.
    ratio = ratio.at[0].set(0.0)
    above = points > mean
    rising = jnp.where(above, 0.0, ratio)
    climb = jnp.cumsum(jnp.where(above, ratio, 0.0))
    remaining = jnp.cumsum(rising[::-1])[::-1] - rising
    weights = jnp.exp(climb - remaining)
    return weights / jnp.sum(weights)


@jax.custom_jvp
def upper_tail(dimension: Int[Array, ""], noncentrality: Float[Array, ""]) -> Float[Array, ""]:
    """The upper tail alone, with its derivative by the non-centrality."""
    return tails_at_twice(dimension, noncentrality).upper


@jax.custom_jvp
def lower_tail(dimension: Int[Array, ""], noncentrality: Float[Array, ""]) -> Float[Array, ""]:
    """The lower tail alone, with its derivative by the non-centrality."""
    return tails_at_twice(dimension, noncentrality).lower


@upper_tail.defjvp
def _upper_slope(primals: tuple, tangents: tuple) -> tuple:
    tails = tails_at_twice(*primals)
    return tails.upper, tails.slope * tangents[1]


@lower_tail.defjvp
def _lower_slope(primals: tuple, tangents: tuple) -> tuple:
    tails = tails_at_twice(*primals)
    return tails.lower, -tails.slope * tangents[1]
