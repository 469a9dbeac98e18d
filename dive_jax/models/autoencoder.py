"""An autoencoder with one hidden layer on each side of its code."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Float


def _layer(inputs: int, outputs: int, gain: float, rngs: nnx.Rngs) -> nnx.Linear:
    init = nnx.initializers.normal((gain / inputs) ** 0.5)
    return nnx.Linear(inputs, outputs, kernel_init=init, rngs=rngs)


class Autoencoder(nnx.Module):
    """full_dim -> hidden -> dim -> hidden -> full_dim; code and reconstruction are linear outputs.

    Args:
      full_dim: Width of the frozen vectors.
      hidden_dim: Width of both hidden layers.
      dim: Width of the code.
      rngs: Source of the weights, N(0, 2 / inputs) before an activation, else N(0, 1 / inputs).
      activation: Follows both hidden layers.
    """

    def __init__(
        self,
        full_dim: int,
        hidden_dim: int,
        dim: int,
        *,
        rngs: nnx.Rngs,
        activation: Callable = jax.nn.relu,
    ):
        self.encoder_hidden = _layer(full_dim, hidden_dim, 2.0, rngs)
        self.encoder_out = _layer(hidden_dim, dim, 1.0, rngs)
        self.decoder_hidden = _layer(dim, hidden_dim, 2.0, rngs)
        self.decoder_out = _layer(hidden_dim, full_dim, 1.0, rngs)
        self.activation = activation

    def encode(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows dim"]:
        """Returns the codes, not normalised."""
        return self.encoder_out(self.activation(self.encoder_hidden(vectors)))

    def __call__(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows full_dim"]:
        """Returns the reconstruction of each row."""
        hidden = self.activation(self.decoder_hidden(self.encode(vectors)))
        return self.decoder_out(hidden)
