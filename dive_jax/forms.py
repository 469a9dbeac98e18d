"""What a compressor may compute, form by form: its arrays, their checks, and the map itself.

Standard library and NumPy only; the map is written once, for NumPy's arrays and for JAX's.

* prefix: the first dim coordinates.
* linear: weight x + offset.
* residual: base x + out_weight relu(hidden_weight x + hidden_bias) + out_bias.
* mlp: layers t = 0, 1, ..., x <- weight_t x + bias_t, with a relu between two of them.
* sided: weight x, of a weight for queries and one for documents.
* chain: stages t = 0, 1, ..., each a residual block that then keeps some of its coordinates,
  x <- (x + out_weight_t relu(hidden_weight_t x + hidden_bias_t) + out_bias_t)[kept_t].

Offset and base may be missing: 0, and the first dim coordinates. Nothing is normalised here.
"""

from collections.abc import Callable, Mapping
from reprlib import repr as short  # one line, cut to about 30 characters
from typing import Any, TypeAlias

import numpy as np

from dive_jax.types import InputError

Axes: TypeAlias = dict[str, tuple[str, ...]]
"""Arrays of a form with their axes by name, "?" after an array that may be missing."""

_FIXED: dict[str, Axes] = {
    "prefix": {},
    "linear": {"weight": ("dim", "full_dim"), "offset?": ("dim",)},
    "sided": {"query_weight": ("dim", "full_dim"), "document_weight": ("dim", "full_dim")},
    "residual": {
        "hidden_weight": ("hidden", "full_dim"),
        "hidden_bias": ("hidden",),
        "out_weight": ("dim", "hidden"),
        "out_bias": ("dim",),
        "base?": ("dim", "full_dim"),
    },
}
_STEPS = {"mlp": "weight_", "chain": "kept_"}  # there is one such array a step
_CHOSEN = "kept_"

FORMS = (*_FIXED, *_STEPS)
"""Names of all forms."""


def steps(form: str, names: Mapping[str, Any]) -> int:
    """Returns how many layers or stages arrays of these names have, as far as one can tell.

    Example:
      >>> steps("mlp", dict.fromkeys(["weight_0", "bias_0", "weight_1", "bias_1"]))
      2
    """
    return sum(name.startswith(_STEPS[form]) for name in names)


def _axes(form: str, names: Mapping[str, Any]) -> Axes:
    """Returns the arrays that a form wants, in an order that tells each width before its use."""
    if form in _FIXED:
        return _FIXED[form]
    count = max(1, steps(form, names))
    width = {t: f"width_{t}" for t in range(count)} | {0: "full_dim", count: "dim"}
    wanted: Axes = {}
    for t in range(count):
        if form == "mlp":
            wanted |= {f"weight_{t}": (width[t + 1], width[t]), f"bias_{t}": (width[t + 1],)}
            continue
        wanted |= {
            f"hidden_weight_{t}": (f"hidden_{t}", width[t]),
            f"hidden_bias_{t}": (f"hidden_{t}",),
            f"out_weight_{t}": (width[t], f"hidden_{t}"),
            f"out_bias_{t}": (width[t],),
            f"{_CHOSEN}{t}": (width[t + 1],),
        }
    return wanted


def check(form: str, arrays: Mapping[str, np.ndarray], *, dim: int, full_dim: int) -> None:
    """Checks that exactly the arrays of a form are there, and that their axes fit together.

    Args:
      form: One of `FORMS`.
      arrays: The arrays by name.
      dim: Columns of the result.
      full_dim: Width of the vectors taken.

    Raises:
      InputError: If an array is missing, is none of the form's, or has another shape or type; or
        if coordinates that are kept do not exist or do not ascend.

    Example:
      >>> layer = {"weight_0": np.ones((1, 2)), "bias_0": np.ones(1)}
      >>> check("mlp", layer, dim=1, full_dim=2)
    """
    wanted = _axes(form, arrays)
    axes_of = {name.rstrip("?"): axes for name, axes in wanted.items()}
    needed = wanted.keys() & axes_of.keys()
    if not needed <= arrays.keys() <= axes_of.keys():
        raise InputError(
            f"form {form!r}: wanted the arrays {short(sorted(needed))}, perhaps "
            f"{short(sorted(axes_of.keys() - needed))}, got {short(sorted(arrays))}"
        )
    known, within = {"dim": dim, "full_dim": full_dim}, "full_dim"
    for name in (name for name in axes_of if name in arrays):
        axes, values = axes_of[name], arrays[name]
        for axis, size in zip(axes, values.shape, strict=False):
            known.setdefault(axis, size)
        chosen = name.startswith(_CHOSEN)
        right_type = values.dtype == np.int32 if chosen else values.dtype.kind == "f"
        if not right_type or values.shape != tuple(known.get(axis) for axis in axes):
            kind = "int32" if chosen else "floats"
            shape = ", ".join(f"{axis} {known.get(axis, '')}".strip() for axis in axes)
            raise InputError(
                f"array {name!r}: wanted {kind} [{shape}], got {values.dtype} {values.shape}"
            )
        if chosen:
            _check_chosen(name, values, known[within])
            within = axes[0]


def _check_chosen(name: str, kept: np.ndarray, width: int) -> None:
    """Checks that coordinates ascend, each once, and lie within the width they are chosen from."""
    if not kept.size or kept[0] < 0 or kept[-1] >= width or (kept[1:] <= kept[:-1]).any():
        raise InputError(
            f"array {name!r}: wanted ascending coordinates of 0 to {width - 1}, each at most once, "
            f"got {short(kept.tolist())}"
        )


def mapped(
    form: str,
    arrays: Mapping[str, Any],
    rows: Any,
    dim: int,
    *,
    dot: Callable,
    side: str = "document",
) -> Any:
    """Maps rows, each on its own; for arrays of NumPy or of JAX, as given.

    Args:
      form: One of `FORMS`.
      arrays: The arrays of the form, sound by `check`, float32 but for the kept coordinates.
      rows: float32 [rows, full_dim].
      dim: Columns of the result.
      dot: Product of two matrices.
      side: Whose rows they are, "query" or "document"; only form sided asks.

    Returns:
      float32 [rows, dim], not normalised.
    """
    if form == "mlp":
        return _mlp(arrays, rows, steps(form, arrays), dot)
    if form == "chain":
        for t in range(steps(form, arrays)):
            moved = rows + _block(arrays, rows, dot, end=f"_{t}")
            rows = moved[:, arrays[f"{_CHOSEN}{t}"]]
        return rows
    if form == "sided":
        return dot(rows, arrays[f"{side}_weight"].T)
    if form == "linear":
        out = dot(rows, arrays["weight"].T)
        return out + arrays["offset"][None, :] if "offset" in arrays else out
    out = dot(rows, arrays["base"].T) if "base" in arrays else rows[:, :dim]
    return out + _block(arrays, rows, dot) if form == "residual" else out


def _mlp(arrays: Mapping[str, Any], rows: Any, layers: int, dot: Callable) -> Any:
    for t in range(layers):
        rows = rows.clip(min=0) if t else rows
        rows = dot(rows, arrays[f"weight_{t}"].T) + arrays[f"bias_{t}"][None, :]
    return rows


def _block(arrays: Mapping[str, Any], rows: Any, dot: Callable, end: str = "") -> Any:
    """Returns out_weight relu(hidden_weight x + hidden_bias) + out_bias."""
    hidden = dot(rows, arrays["hidden_weight" + end].T) + arrays["hidden_bias" + end][None, :]
    out = dot(hidden.clip(min=0), arrays["out_weight" + end].T)
    return out + arrays["out_bias" + end][None, :]
