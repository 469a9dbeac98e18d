"""Triples for `operator_fits.py`, the same for both sides; NumPy only."""

import numpy as np

RANK, PROBES = 16, 4


def triples(dim: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws queries, and positives less negatives: RANK shared directions above noise."""
    rng = np.random.default_rng([dim, count])
    axes = np.linalg.qr(rng.standard_normal((dim, RANK)))[0].T
    meaning = rng.standard_normal((2, count, RANK)) * np.linspace(2, 1, RANK)
    noise = 0.3 / np.sqrt(dim) * rng.standard_normal((2, count, dim))
    query = meaning[0] @ axes + noise[0]
    apart = meaning[0] @ axes - meaning[1] @ axes + noise[1]
    return query.astype(np.float32), apart.astype(np.float32)


def probes(dim: int) -> np.ndarray:
    """Returns a few vectors that a fitted matrix is applied to."""
    return np.random.default_rng(0).standard_normal((dim, PROBES)).astype(np.float32)
