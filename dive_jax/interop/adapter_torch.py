# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The dive_jax authors. Use, copy, change and pass it on freely, as the MIT
# licence says, with these lines kept; it comes without warranty of any kind.
# pyright: reportMissingImports=false
"""An adapter that dive_jax fitted, as a module of PyTorch: one file, to be copied."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_arrays

_BAD = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError)
_FORMS = ("prefix", "linear", "sided", "residual", "mlp", "chain")


def load(folder: str | Path) -> "Adapter":
    """Reads adapter.json and adapter.safetensors; raises ValueError if they are not sound.

    The weights ask for no gradient; `requires_grad_()` makes them trainable.
    """
    try:
        meta = json.loads((Path(folder) / "adapter.json").read_text("utf-8"))
        data = (Path(folder) / "adapter.safetensors").read_bytes()
        if meta["format_version"] != 1 or meta["form"] not in _FORMS:
            raise ValueError("made by a newer version than this file is")
        if hashlib.sha256(data).hexdigest() != meta["sha256"]:
            raise ValueError("adapter.safetensors is not the one that adapter.json describes")
        if not 1 <= meta["dim"] <= meta["full_dim"] <= 10**6:
            raise ValueError(f"widths of {meta['dim']} and {meta['full_dim']}")
        adapter = Adapter(read_arrays(data), meta).requires_grad_(False).eval()
        side = "document" if meta["sides"] == "both" else meta["sides"]
        if adapter(torch.ones(1, meta["full_dim"]), side).shape != (1, meta["dim"]):
            raise ValueError("the arrays give another width than adapter.json says")
    except _BAD as error:
        raise ValueError(f"{folder}: no sound adapter: {error!r}") from error
    return adapter


def _unit(rows: torch.Tensor) -> torch.Tensor:
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length < 1e-12, torch.inf, length)


class Adapter(torch.nn.Module):
    """Maps frozen vectors to the width kept; `meta` says of which encoder they must be."""

    def __init__(self, arrays: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        super().__init__()
        self.meta = meta
        for name, values in arrays.items():
            if values.is_floating_point():
                self.register_parameter(name, torch.nn.Parameter(values.float()))
            else:
                self.register_buffer(name, values.long())  # coordinates that a chain keeps
        self.steps = sum(name.startswith(("weight_", "kept_")) for name in arrays)

    def _affine(self, rows: torch.Tensor, weight: str, bias: str = "") -> torch.Tensor:
        offset = getattr(self, bias) if bias else None
        return torch.nn.functional.linear(rows, getattr(self, weight), offset)

    def _block(self, rows: torch.Tensor, end: str = "") -> torch.Tensor:
        hidden = self._affine(rows, "hidden_weight" + end, "hidden_bias" + end)
        return self._affine(hidden.relu(), "out_weight" + end, "out_bias" + end)

    def _mapped(self, rows: torch.Tensor, side: str) -> torch.Tensor:
        form = self.meta["form"]
        if form == "sided":
            return self._affine(rows, f"{side}_weight")
        if form == "linear":
            return self._affine(rows, "weight", "offset" if hasattr(self, "offset") else "")
        if form in ("prefix", "residual"):
            base = rows[:, : self.meta["dim"]]
            if hasattr(self, "base"):
                base = self._affine(rows, "base")
            return base + self._block(rows) if form == "residual" else base
        for t in range(self.steps):
            if form == "mlp":
                rows = self._affine(rows.relu() if t else rows, f"weight_{t}", f"bias_{t}")
            else:
                rows = (rows + self._block(rows, f"_{t}"))[:, getattr(self, f"kept_{t}")]
        return rows

    def forward(self, vectors: torch.Tensor, side: str = "document") -> torch.Tensor:
        """Returns float32 [rows, dim] of vectors [rows, full_dim]; a zero row is mapped as it is.

        `side` says whose vectors they are, "query" or "document".
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.meta["full_dim"]:
            full_dim, shape = self.meta["full_dim"], tuple(vectors.shape)
            raise ValueError(f"wanted vectors [rows, {full_dim}], got {shape}")
        if side not in ("query", "document") or self.meta["sides"] not in ("both", side):
            raise ValueError(f"the adapter maps the side {self.meta['sides']}, not {side!r}")
        vectors = vectors.float()
        peak = vectors.abs().amax(dim=1, keepdim=True)
        rows = _unit(vectors / torch.where(peak > 0, peak, 1))  # no square overflows
        weight = next(self.parameters(), rows)
        out = self._mapped(rows.to(weight.dtype), side).float()
        return _unit(out) if self.meta["normalized"] else out
