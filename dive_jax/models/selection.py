"""Choosing which coordinates to keep, by scores that are learnt."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from dive_jax.numerics.vectors import widened


def selected(scores: Float[Array, " dim"], count: int) -> Int[Array, " count"]:
    """Returns the `count` coordinates of the highest scores, ascending, without any chance.

    Args:
      scores: One a coordinate.
      count: How many to keep, within 1 to dim.

    Returns:
      Distinct int32 coordinates. Of equal scores the lower coordinate is kept.

    Example:
      >>> print(selected(jnp.array([1.0, 3.0, 1.0, 2.0]), 3))
      [0 1 3]
    """
    return jnp.sort(jax.lax.top_k(scores, count)[1])


def straight_through(
    scores: Float[Array, " dim"],
    noise: Float[Array, " dim"],
    count: int,
    *,
    temperature: float = 1.0,
) -> Float[Array, " dim"]:
    """Marks the `count` greatest shares of a noisy soft-max; gradients see the shares.

    Args:
      scores: One a coordinate.
      noise: Added to the scores; of Gumbel's distribution while training.
      count: How many to keep, within 1 to dim.
      temperature: Of the soft-max, above 0.

    Returns:
      Exactly 1 at `count` coordinates and 0 elsewhere, with the gradient of
      softmax((scores + noise) / temperature).

    Source:
      Zhang et al., SMEC, 2025, adaptive dimension selection.

    Example:
      >>> print(straight_through(jnp.array([1.0, 3.0, 1.0]), jnp.zeros(3), 2))
      [1. 1. 0.]
    """
    logits = (widened(scores) + noise) / temperature
    shares = jax.nn.softmax(logits)
    # The order of the shares, without their ties by rounding.
    chosen = jax.lax.top_k(jax.lax.stop_gradient(logits), count)[1]
    hard = jnp.zeros_like(shares).at[chosen].set(1.0)
    return hard + (shares - jax.lax.stop_gradient(shares))


def gumbel(key: UInt[Array, " words"], count: int) -> tuple[UInt[Array, " words"], Array]:
    """Draws noise of Gumbel's distribution.

    Args:
      key: A random key's data, as `jax.random.key_data` gives it; plain integers can be kept in a
        checkpoint.
      count: How many values.

    Returns:
      The next key's data, and float32 values [count].
    """
    following, here = jax.random.split(jax.random.wrap_key_data(key))
    return jax.random.key_data(following), jax.random.gumbel(here, (count,))
