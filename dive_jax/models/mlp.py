"""The adapter of DIVE's first version: three layers, batch normalisation after the first."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

_MOMENTUM = 0.9  # of the running statistics: what one batch leaves of them
_EPSILON = 1e-5


def _normal(inputs: int, gain: float) -> Any:
    return nnx.initializers.normal((gain / inputs) ** 0.5)


def _layer(inputs: int, outputs: int, gain: float, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, kernel_init=_normal(inputs, gain), rngs=rngs)


class MLPAdapter(nnx.Module):
    """z -> W3 relu(W2 relu(BatchNorm(W1 z + b1)) + b2) + b3.

    Args:
      full_dim: Width of the frozen vectors.
      widths: Of the two hidden layers.
      width: Output columns, dim * heads.
      rngs: Source of the weights, N(0, 2 / inputs) before an activation, else N(0, 1 / inputs).

    Source:
      Zhao, DIVE, first version.
    """

    def __init__(self, full_dim: int, widths: tuple[int, int], width: int, *, rngs: nnx.Rngs):
        self.first = nnx.Param(_normal(full_dim, 2.0)(rngs.params(), (full_dim, widths[0])))
        self.first_bias = nnx.Param(jnp.zeros(widths[0]))
        self.norm = nnx.BatchNorm(
            widths[0],
            momentum=_MOMENTUM,
            epsilon=_EPSILON,
            use_fast_variance=False,  # the difference of two moments would lose digits
            rngs=rngs,
        )
        self.second = _layer(widths[0], widths[1], 2.0, rngs)
        self.out = _layer(widths[1], width, 1.0, rngs)

    def __call__(
        self, vectors: Float[Array, "rows full_dim"], *, mask: Bool[Array, " rows"] | None = None
    ) -> Float[Array, "rows width"]:
        """Returns the adapted rows, not normalised.

        Args:
          vectors: Frozen vectors.
          mask: Training: rows that count in the batch's statistics, which the rows are normalised
            by and the running statistics move towards. None: the running statistics serve.
        """
        # The batch's mean takes b1 away again: its gradient is 0 but for rounding, which Adam would
        # scale up to a full step.
        bias = jax.lax.stop_gradient(self.first_bias[...])
        hidden = vectors @ self.first[...] + bias[None]
        where = None if mask is None else mask[:, None]
        hidden = self.norm(hidden, use_running_average=mask is None, mask=where)
        return self.out(jax.nn.relu(self.second(jax.nn.relu(hidden))))


def folded(params: Any, statistics: Any, dim: int) -> dict[str, np.ndarray]:
    """Returns a trained adapter's first `dim` outputs as the layers of an `mlp`.

    The running statistics, scale and shift of the normalisation go into W1 and b1, in float64.

    Args:
      params: What was trained, host arrays.
      statistics: The running mean and variance.
      dim: Columns kept: head 1.

    Returns:
      Weights [out, in] and biases, by name.
    """
    norm, spread = params["norm"], np.asarray(statistics["norm"]["var"], np.float64)
    scale = norm["scale"] / np.sqrt(spread + _EPSILON)
    return {
        "weight_0": (params["first"] * scale).T,
        "bias_0": (params["first_bias"] - statistics["norm"]["mean"]) * scale + norm["bias"],
        "weight_1": params["second"]["kernel"].T,
        "bias_1": params["second"]["bias"],
        "weight_2": params["out"]["kernel"][:, :dim].T,
        "bias_2": params["out"]["bias"][:dim],
    }


def parameters(full_dim: int, widths: tuple[int, int], width: int) -> int:
    """Returns how many numbers are trained, b1 among them; the running statistics are not.

    Example:
      >>> parameters(4096, (2048, 1024), 512)
      11017728
    """
    first = full_dim * widths[0] + 3 * widths[0]  # bias, and the normalisation's scale and shift
    return first + (widths[0] + 1) * widths[1] + (widths[1] + 1) * width
