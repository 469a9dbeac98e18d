"""Norms and absolute values whose value and gradient are finite everywhere. JAX only."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SHORTEST = 1e-12
"""Rows shorter than this have no direction: `unit` maps them to 0, with gradient 0."""


def widened(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns float16 and bfloat16 as float32, and anything wider as it is."""
    return x.astype(jnp.float32) if jnp.finfo(x.dtype).bits < 32 else x


def squared_norms(x: Float[Array, "*rows dim"]) -> Float[Array, "*rows"]:
    """Returns the sum of squares along the last axis.

    Args:
      x: Vectors along the last axis.

    Returns:
      One value a row, float32 for float16 and bfloat16 input, else in the input's dtype.

    Example:
      >>> print(squared_norms(jnp.array([[3.0, 4.0], [0.0, 0.0]])))
      [25.  0.]
    """
    wide = widened(x)
    return jnp.sum(wide * wide, axis=-1)


def unit(x: Float[Array, "*rows dim"]) -> Float[Array, "*rows dim"]:
    """Divides each row by its length; a row without a direction becomes 0, with gradient 0.

    The plain quotient has a NaN or huge gradient at 0, which ruins an optimiser's second moment.
    Rows are divided by their greatest entry first, so that no square overflows or vanishes.

    Args:
      x: Vectors along the last axis, of any finite length.

    Returns:
      x / |x| along the last axis, in the input's dtype, computed in float32 or wider. Value and
      gradient are exactly 0 where |x| < 1e-12.

    Example:
      >>> print(unit(jnp.array([[3.0, 4.0], [0.0, 0.0]])))
      [[0.6 0.8]
       [0.  0. ]]
    """
    wide = widened(x)
    # The result does not depend on this factor, so neither does the gradient.
    greatest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1, keepdims=True))
    # Within bounds, because a reciprocal of the least or greatest numbers is not a normal number.
    factor = jnp.clip(greatest, 1e-20, float(jnp.finfo(wide.dtype).max) / 100)
    scaled = wide / factor
    squares = squared_norms(scaled)[..., None]
    silent = factor * jnp.sqrt(jax.lax.stop_gradient(squares)) < SHORTEST
    lengths = jnp.sqrt(jnp.where(silent, 1.0, squares))
    return jnp.where(silent, 0.0, scaled / lengths).astype(x.dtype)


def absolute(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns |x| with gradient sign(x), which is 0 at 0.

    The gradient of `jnp.abs` at 0 is 1: an L1 term that starts at 0 would push every coordinate.

    Args:
      x: Any array.

    Returns:
      |x|, in the input's dtype.

    Example:
      >>> print(jax.vmap(jax.grad(absolute))(jnp.array([-2.0, 0.0, 3.0])))
      [-1.  0.  1.]
    """
    return x * jnp.sign(x)
