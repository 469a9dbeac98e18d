"""Every form as plain dense layers, for runtimes that know nothing else."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from dive_jax.artefact import Artefact
from dive_jax.forms import steps

_Arrays = Mapping[str, np.ndarray]


class Layer(NamedTuple):
    """One dense layer: x <- weight x + bias, then perhaps a relu.

    Attributes:
      weight: [out, in].
      bias: [out]; None for 0.
      relu: Whether what is negative becomes 0.
    """

    weight: Float32[np.ndarray, "out into"]
    bias: Float32[np.ndarray, " out"] | None
    relu: bool


def sides(artefact: Artefact) -> dict[str, str]:
    """Returns the maps of an artefact by name, each with the side it is for.

    Most forms map both sides alike, so there is one, called adapter.

    Example:
      >>> sides(Artefact("sided", {}, {"sides": "both"}))
      {'query': 'query', 'document': 'document'}
      >>> sides(Artefact("linear", {}, {"sides": "both"}))
      {'adapter': 'document'}
    """
    if artefact.form != "sided":
        return {"adapter": "document"}
    only = artefact.meta["sides"]
    return {side: side for side in ("query", "document") if only in ("both", side)}


def layers(artefact: Artefact, side: str = "document") -> list[Layer]:
    """Returns dense layers that compute, one after another, what an artefact does.

    What a residual block adds to its input cannot pass a relu as it is: it passes in two halves, x
    and -x, of which one is 0, and their difference is x again, exactly.

    Args:
      artefact: A sound artefact.
      side: Whose map, "query" or "document"; only form sided asks.

    Returns:
      Layers from full_dim to dim wide; nothing is normalised in them. A linear map has one layer.
    """
    arrays = {
        name: np.asarray(each, np.float32) if each.dtype.kind == "f" else each
        for name, each in artefact.arrays.items()
    }
    dim, full_dim = artefact.meta["dim"], artefact.meta["full_dim"]
    if artefact.form == "mlp":
        count = steps("mlp", arrays)
        return [
            Layer(arrays[f"weight_{t}"], arrays[f"bias_{t}"], t < count - 1) for t in range(count)
        ]
    if artefact.form == "chain":
        return [layer for t in range(steps("chain", arrays)) for layer in _stage(arrays, f"_{t}")]
    if artefact.form == "residual":
        base = arrays.get("base", np.eye(dim, full_dim, dtype=np.float32))
        return _residual(arrays, base, np.arange(dim))
    if artefact.form == "prefix":
        return [Layer(np.eye(dim, full_dim, dtype=np.float32), None, False)]
    name = f"{side}_weight" if artefact.form == "sided" else "weight"
    return [Layer(arrays[name], arrays.get("offset"), False)]


def _stage(arrays: _Arrays, end: str) -> list[Layer]:
    """Returns the layers of one stage of a chain: a block of which some coordinates are kept."""
    kept = arrays["kept" + end]
    width = len(arrays["out_bias" + end])
    return _residual(arrays, np.eye(width, dtype=np.float32)[kept], kept, end)


def _residual(
    arrays: _Arrays, base: Float[np.ndarray, "out into"], kept: np.ndarray, end: str = ""
) -> list[Layer]:
    """Returns base x and those outputs `kept` of a block, added, as two layers."""
    bias, out = arrays["hidden_bias" + end], arrays["out_weight" + end][kept]
    identity = np.eye(len(base), dtype=np.float32)
    return [
        Layer(
            np.concatenate([arrays["hidden_weight" + end], base, -base]),
            np.concatenate([bias, np.zeros(2 * len(base), np.float32)]),
            True,
        ),
        Layer(
            np.concatenate([out, identity, -identity], axis=1),
            arrays["out_bias" + end][kept],
            False,
        ),
    ]
