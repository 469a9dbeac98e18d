"""The residual adapter of DIVE: the frozen vector plus a correction that starts at zero."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental.layout import Layout, with_layout_constraint
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
      narrow: Whether the products take bfloat16 factors; weights, biases and sums stay float32.

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
        narrow: bool = False,
    ):
        self.narrow = narrow
        self.hidden = nnx.Linear(
            full_dim,
            hidden_dim,
            kernel_init=nnx.initializers.normal((2.0 / full_dim) ** 0.5),
            rngs=rngs,
        )
        self.out = nnx.Linear(
            hidden_dim, width, kernel_init=nnx.initializers.zeros_init(), rngs=rngs
        )

    def __call__(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows width"]:
        """Returns the adapted leading columns, not normalised."""
        kept = vectors[:, : self.out.out_features]
        if self.narrow:
            return kept + _narrow(self.out, jax.nn.relu(_narrow(self.hidden, vectors)))
        return kept + self.out(jax.nn.relu(self.hidden(vectors)))


def _narrow(layer: nnx.Linear, rows: Float[Array, "rows inner"]) -> Float[Array, "rows outer"]:
    """Applies a layer with bfloat16 factors."""
    product = narrow_product(rows, layer.kernel[...])
    return product if layer.bias is None else product + layer.bias[...][None]


@jax.custom_vjp
def narrow_product(
    left: Float[Array, "rows inner"], right: Float[Array, "inner columns"]
) -> Float[Array, "rows columns"]:
    """Multiplies two matrices rounded to bfloat16, forward and backward, with float32 sums.

    Processors with matrix units for bfloat16 do this at a multiple of their float32 rate.

    Args:
      left: float32 rows.
      right: float32 columns.

    Returns:
      float32, as are the gradients.

    Example:
      >>> print(narrow_product(jnp.eye(2), jnp.array([[1.0], [1.001]])))
      [[1.]
       [1.]]
    """
    return _sums(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), (1, 0))


def _sums(left: Array, right: Array, axes: tuple[int, int]) -> Array:
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


def _narrow_forward(left: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
    narrow = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
    return _sums(*narrow, (1, 0)), narrow


def _narrow_backward(saved: tuple[Array, Array], pull: Array) -> tuple[Array, Array]:
    (left, right), pull = saved, pull.astype(jnp.bfloat16)
    turned = left.T
    if jax.default_backend() == "cpu":
        # Else the compiler turns nothing round, and its product along the first axes is slow.
        turned = with_layout_constraint(turned, Layout(major_to_minor=(0, 1)))
    return _sums(pull, right, (1, 1)), _sums(turned, pull, (1, 0))


narrow_product.defvjp(_narrow_forward, _narrow_backward)


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
