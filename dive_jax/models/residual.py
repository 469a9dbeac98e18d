"""The residual adapter of DIVE: the frozen vector plus a correction that starts at zero."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float


class ResidualAdapter(nnx.Module):
    """z -> z[:width] + W2 relu(W1 z + b1) + b2, with W2 = b2 = b1 = 0 at the start.

    Only the `width` leading output columns are held: no loss of DIVE reads the others, so they get
    no gradient and never matter.

    Args:
      full_dim: Width of the frozen vectors.
      hidden_dim: Hidden width r.
      width: Output columns held: dim * heads while training.
      rngs: Source of W1 ~ N(0, 2 / full_dim).
      dtype: Type that the products take; weights stay float32. Default that of the vectors.

    Source:
      Zhao, DIVE, section 3.1.
    """

    def __init__(
        self,
        full_dim: int,
        hidden_dim: int,
        width: int,
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike | None = None,
    ):
        self.hidden = nnx.Linear(
            full_dim,
            hidden_dim,
            kernel_init=nnx.initializers.normal((2.0 / full_dim) ** 0.5),
            dtype=dtype,
            rngs=rngs,
        )
        self.out = nnx.Linear(
            hidden_dim, width, kernel_init=nnx.initializers.zeros_init(), dtype=dtype, rngs=rngs
        )

    def __call__(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows width"]:
        """Returns the adapted leading columns, not normalised."""
        kept = vectors[:, : self.out.out_features]
        return kept + self.out(jax.nn.relu(self.hidden(vectors)))


def published_parameters(full_dim: int, hidden_dim: int) -> int:
    """Returns the count of the adapter with all output columns: 2 d r + r + d.

    Example:
      >>> published_parameters(4096, 2048)
      16783360
    """
    return 2 * full_dim * hidden_dim + hidden_dim + full_dim


def held_parameters(full_dim: int, hidden_dim: int, width: int) -> int:
    """Returns the count of the adapter with only `width` output columns held.

    Example:
      >>> held_parameters(4096, 2048, 512)
      9439744
    """
    return full_dim * hidden_dim + hidden_dim + hidden_dim * width + width


def split_heads(outputs: Float[Array, "rows width"], heads: int) -> Float[Array, "rows heads dim"]:
    """Cuts adapted vectors into heads of equal width, not normalised."""
    rows, width = outputs.shape
    return jnp.reshape(outputs, (rows, heads, width // heads))
