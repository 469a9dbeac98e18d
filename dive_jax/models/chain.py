"""Residual blocks in a row: each halves the width by keeping some of its coordinates."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from dive_jax.models.residual import ResidualAdapter, published_parameters
from dive_jax.models.selection import selected

Params: TypeAlias = Any


class Width(NamedTuple):
    """A stage's width, the width it keeps, and the hidden width of its block."""

    given: int
    kept: int
    hidden: int


def stage_widths(full_dim: int, dim: int, hidden: int) -> list[Width]:
    """Halves the width until `dim`; the last stage goes there from wherever it is.

    Args:
      full_dim: Width of the frozen vectors.
      dim: Coordinates kept in the end, at most full_dim.
      hidden: Hidden width at full_dim; that of a stage is in proportion to its width.

    Example:
      >>> [(each.given, each.kept) for each in stage_widths(768, 128, 384)]
      [(768, 384), (384, 192), (192, 128)]
    """
    widths = [full_dim]
    while widths[-1] // 2 >= dim and widths[-1] > 1:
        widths.append(widths[-1] // 2)
    if widths[-1] != dim or len(widths) == 1:
        widths.append(dim)
    pairs = itertools.pairwise(widths)
    return [Width(a, b, max(1, hidden * a // full_dim)) for a, b in pairs]


def parameters(stages: list[Width]) -> int:
    """Returns how many numbers all stages train: one block and one score a coordinate each.

    Example:
      >>> parameters(stage_widths(4096, 128, 2048))
      22367616
    """
    return sum(published_parameters(each.given, each.hidden) + each.given for each in stages)


class Block(NamedTuple):
    """A stage's residual block as pure functions.

    Attributes:
      init: Key -> parameters.
      apply: Parameters and rows [..., width] -> adapted rows.
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def block_of(stage: Width) -> Block:
    """Returns the block of a stage, which begins as the identity."""

    def make(rngs: nnx.Rngs) -> ResidualAdapter:
        return ResidualAdapter(stage.given, stage.hidden, stage.given, rngs=rngs)

    graph, _ = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))

    def init(key: Array) -> Params:
        return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1])

    def apply(params: Params, rows: Array) -> Array:
        flat = rows.reshape(-1, rows.shape[-1])
        return nnx.merge(graph, nnx.State(params))(flat).reshape(rows.shape)

    return Block(init, apply)


def passed(
    earlier: tuple[Params, ...], stages: list[Width], rows: Float[Array, "rows full_dim"]
) -> Float[Array, "rows width"]:
    """Returns what finished stages make of frozen vectors: the next stage's input."""
    for stage, params in zip(stages, earlier, strict=True):
        adapted = block_of(stage).apply(params["block"], rows)
        rows = adapted[:, selected(params["scores"], stage.kept)]
    return rows


def chain_arrays(finished: tuple[Params, ...], stages: list[Width]) -> dict[str, np.ndarray]:
    """Returns the arrays of the form "chain" for stages that are trained."""
    arrays: dict[str, np.ndarray] = {}
    for t, (params, stage) in enumerate(zip(finished, stages, strict=True)):
        hidden, out = params["block"]["hidden"], params["block"]["out"]
        arrays |= {
            f"hidden_weight_{t}": np.ascontiguousarray(hidden["kernel"].T),
            f"hidden_bias_{t}": np.asarray(hidden["bias"]),
            f"out_weight_{t}": np.ascontiguousarray(out["kernel"].T),
            f"out_bias_{t}": np.asarray(out["bias"]),
            f"kept_{t}": np.asarray(selected(jnp.asarray(params["scores"]), stage.kept)),
        }
    return arrays
