"""Triples for `cars_throughput.py`, and CARS as a plain NumPy loop over splits, halves and ranks.

The loop calls `svd` and `eigh` once a half and rank; NumPy's own linear algebra computes in
float64, whatever it is given.
"""

from typing import Any

import numpy as np
from worker import Ready

LATENT = 48


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def triples(count: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws queries, and positives less negatives, whose two sides nearly share a geometry."""
    rng = np.random.default_rng(0)
    latent = min(LATENT, dim)
    meaning = rng.normal(size=(2 * count, latent)) * np.linspace(2, 0.3, latent)
    axes = np.linalg.qr(rng.normal(size=(dim, latent)))[0].T
    turned = np.linalg.qr(axes.T + 0.05 * rng.normal(size=(dim, latent)))[0].T
    noise = 0.25 * rng.normal(size=(3, count, dim))
    query = _unit(meaning[:count] @ axes + noise[0])
    positive = _unit(meaning[:count] @ turned + noise[1])
    negative = _unit(meaning[count:] @ turned + noise[2])
    return query, positive - negative


def _difference(moment: np.ndarray, rank: int) -> np.ndarray:
    """Dual less shared fit of one moment at one rank."""
    left, singular, right = np.linalg.svd(moment)
    eigen, axes = np.linalg.eigh((moment + moment.T) / 2)
    eigen, axes = np.maximum(eigen[::-1][:rank], 0), axes[:, ::-1][:, :rank]
    return (left[:, :rank] * singular[:rank]) @ right[:rank] - (axes * eigen) @ axes.T


def loop(
    query: np.ndarray, apart: np.ndarray, halves: np.ndarray, ranks: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Returns scores and sizes, [splits, ranks]."""
    scores, sizes = np.zeros((2, len(halves), len(ranks)))
    for split, pair in enumerate(halves):
        moments = [query[rows].T @ apart[rows] / len(rows) for rows in pair]
        for place, rank in enumerate(ranks):
            first, other = (_difference(moment, rank) for moment in moments)
            scores[split, place] = np.sum(first * other) - np.sum((first - other) ** 2) / 4
            sizes[split, place] = (np.sum(first**2) + np.sum(other**2)) / 2
    return {"scores": scores, "sizes": sizes}


def build(count: int, dim: int, ranks: tuple[int, ...], dtype: str, halves: np.ndarray) -> Ready:
    """Scores the same halves; the result is that of float64."""
    query, apart = triples(count, dim)
    expected = loop(query, apart, halves, ranks)
    query, apart = query.astype(dtype), apart.astype(dtype)

    def run() -> Any:
        return loop(query, apart, halves, ranks)

    return Ready(run, expected)
