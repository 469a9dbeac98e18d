"""The network that guesses a query from a document; it serves training only."""

import jax
from flax import nnx
from jaxtyping import Array, Float


class Predictor(nnx.Module):
    """x -> W2 relu(W1 x + b1) + b2, with no path around it.

    Args:
      full_dim: Width of the vectors taken and given.
      hidden_dim: Hidden width.
      rngs: Source of W1 ~ N(0, 2 / full_dim) and W2 ~ N(0, 1 / hidden_dim); biases start at 0.

    Source:
      Yoon et al., Search-Adaptor, 2024, the prediction loss; shape and start are our choice.
    """

    def __init__(self, full_dim: int, hidden_dim: int, *, rngs: nnx.Rngs):
        normal = nnx.initializers.normal
        self.hidden = nnx.Linear(
            full_dim, hidden_dim, kernel_init=normal((2.0 / full_dim) ** 0.5), rngs=rngs
        )
        self.out = nnx.Linear(
            hidden_dim, full_dim, kernel_init=normal((1.0 / hidden_dim) ** 0.5), rngs=rngs
        )

    def __call__(self, vectors: Float[Array, "rows full_dim"]) -> Float[Array, "rows full_dim"]:
        """Returns one predicted query a document."""
        return self.out(jax.nn.relu(self.hidden(vectors)))
