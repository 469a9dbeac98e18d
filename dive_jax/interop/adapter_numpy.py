# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The dive_jax authors. Use, copy, change and pass it on freely, as the MIT
# licence says, with these lines kept; it comes without warranty of any kind.
"""Reads and applies an adapter that dive_jax fitted: one file, NumPy only, to be copied."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
_FORMS = ("prefix", "linear", "sided", "residual", "mlp", "chain")


def load(folder: str | Path) -> "Adapter":
    """Reads adapter.json and adapter.safetensors; raises ValueError if they are not sound."""
    try:
        meta = json.loads((Path(folder) / "adapter.json").read_text("utf-8"))
        data = (Path(folder) / "adapter.safetensors").read_bytes()
        if meta["format_version"] != 1 or meta["form"] not in _FORMS:
            raise ValueError("made by a newer version than this file is")
        if hashlib.sha256(data).hexdigest() != meta["sha256"]:
            raise ValueError("adapter.safetensors is not the one that adapter.json describes")
        if not 1 <= meta["dim"] <= meta["full_dim"] <= 10**6:
            raise ValueError(f"widths of {meta['dim']} and {meta['full_dim']}")
        adapter = Adapter(_arrays(data), meta)
        for side in ("query", "document") if meta["sides"] == "both" else (meta["sides"],):
            if adapter.compress(np.ones((1, meta["full_dim"])), side).shape != (1, meta["dim"]):
                raise ValueError("the arrays give another width than adapter.json says")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder}: no sound adapter: {error!r}") from error
    return adapter


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    stop = 8 + int.from_bytes(data[:8], "little")
    header, body, arrays = json.loads(data[8:stop].decode()), data[stop:], {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not 0 <= begin <= end <= len(body) or end - begin != math.prod(shape) * int(dtype[2]):
            raise ValueError(f"array {name!r} lies outside the file, or is of another size")
        values = np.frombuffer(body[begin:end], dtype).reshape(shape)
        arrays[name] = values.astype(np.float32 if dtype[1] == "f" else np.int64)
        if not np.isfinite(arrays[name]).all() or (dtype[1] == "i" and (values < 0).any()):
            raise ValueError(f"array {name!r} has a value that is not finite, or no coordinate")
    return arrays


def _unit(rows: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length < 1e-12, np.float32(np.inf), length)


class Adapter:
    """Maps frozen vectors to the width kept; `meta` says of which encoder they must be."""

    def __init__(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        self.arrays, self.meta = arrays, meta

    def _affine(self, rows: np.ndarray, weight: str, bias: str = "") -> np.ndarray:
        out = rows @ self.arrays[weight].T
        if bias and self.arrays[bias].shape != out.shape[1:]:
            raise ValueError(f"array {bias!r} is not as wide as {weight!r}")
        return out + self.arrays[bias] if bias else out

    def _block(self, rows: np.ndarray, end: str = "") -> np.ndarray:
        hidden = self._affine(rows, "hidden_weight" + end, "hidden_bias" + end)
        return self._affine(hidden.clip(min=0), "out_weight" + end, "out_bias" + end)

    def compress(self, vectors: np.ndarray, side: str = "document") -> np.ndarray:
        """Returns float32 [rows, dim] of vectors [rows, full_dim]; a zero row is mapped as it is.

        `side` says whose vectors they are, "query" or "document".
        """
        form, dim, full_dim = (self.meta[key] for key in ("form", "dim", "full_dim"))
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != full_dim:
            raise ValueError(f"wanted vectors [rows, {full_dim}], got {vectors.shape}")
        if side not in ("query", "document") or self.meta["sides"] not in ("both", side):
            raise ValueError(f"the adapter maps the side {self.meta['sides']}, not {side!r}")
        peak = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
        rows = _unit(vectors / np.where(peak > 0, peak, 1))  # no square overflows
        if form == "sided":
            rows = self._affine(rows, f"{side}_weight")
        elif form == "linear":
            rows = self._affine(rows, "weight", "offset" if "offset" in self.arrays else "")
        elif form in ("prefix", "residual"):
            base = self._affine(rows, "base") if "base" in self.arrays else rows[:, :dim]
            rows = base + self._block(rows) if form == "residual" else base
        for t in range(sum(name.startswith(("weight_", "kept_")) for name in self.arrays)):
            if form == "mlp":
                rows = self._affine(rows.clip(min=0) if t else rows, f"weight_{t}", f"bias_{t}")
            else:
                rows = (rows + self._block(rows, f"_{t}"))[:, self.arrays[f"kept_{t}"]]
        return _unit(rows) if self.meta["normalized"] else rows
