"""Linear maps that start as the identity on the leading coordinates."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class LinearAdapter(nnx.Module):
    """z -> W z with W = [I 0] at the start: the first `width` coordinates.

    Args:
      full_dim: Width of the frozen vectors.
      width: Output columns.
      rngs: Not used; every seed starts the same and differs by its batches.
    """

    def __init__(self, full_dim: int, width: int, *, rngs: nnx.Rngs):
        del rngs
        self.kernel = nnx.Param(jnp.eye(full_dim, width))

    def __call__(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows width"]:
        """Returns the mapped rows, not normalised."""
        return vectors @ self.kernel[...]
