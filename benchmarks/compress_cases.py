"""Adapters and files of vectors for `compress_throughput.py`, alike for all sides; NumPy only."""

from pathlib import Path
from typing import Any

import numpy as np

DRAWN = 8192


def arrays(form: str, full_dim: int, dim: int) -> dict[str, np.ndarray]:
    """Draws a linear map, or DIVE's residual block: hidden width 2,048, or half of less."""
    rng = np.random.default_rng(full_dim)

    def weight(out: int, width: int) -> np.ndarray:
        return (rng.standard_normal((out, width)) / np.sqrt(width)).astype(np.float32)

    if form == "linear":
        return {"weight": weight(dim, full_dim)}
    hidden = 2048 if full_dim >= 2048 else full_dim // 2
    return {
        "hidden_weight": weight(hidden, full_dim),
        "hidden_bias": 0.1 * weight(hidden, 1)[:, 0],
        "out_weight": weight(dim, hidden),
        "out_bias": 0.1 * weight(dim, 1)[:, 0],
    }


def flops(form: str, full_dim: int, dim: int, rows: int) -> float:
    """Returns the operations of the products alone."""
    held = arrays(form, full_dim, dim)
    return 2.0 * rows * sum(each.size for each in held.values() if each.ndim == 2)


def draw(path: Path, rows: int, width: int) -> str:
    """Writes vectors of length 1 in float32."""
    rng = np.random.default_rng([rows, width])
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    for start in range(0, rows, DRAWN):
        block = rng.standard_normal((min(DRAWN, rows - start), width), np.float32)
        out[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return str(path)


def ready(vectors: str, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Opens the vectors, and makes room for what comes out."""
    rows = np.load(vectors, mmap_mode="r")
    return rows, np.zeros((len(rows), dim), np.float32)


def sample(out: np.ndarray) -> Any:
    """Returns some rows to hold against the other side's."""
    return out[:: max(1, len(out) // 512)].copy()
