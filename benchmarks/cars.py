"""CARS for a grid of ranks in one call, against a plain NumPy loop over splits, halves and ranks.

python benchmarks/cars.py --out=DIR writes cars.json and cars.png. Both sides score the same halves
of the same triples; the scores must agree before anything is timed. The loop calls `svd` and `eigh`
once a half and rank; NumPy's own linear algebra computes in float64, whatever it is given.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.operators import half_splits
from dive_jax.operators.cars import score_halves

TRIPLES, DIM, SPLITS, RANKS, BATCH = 1024, 256, 20, (4, 8, 16, 32), 4
LATENT, TOLERANCE = 48, 1e-5


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def triples() -> tuple[np.ndarray, np.ndarray]:
    """Draws queries, and positives less negatives, whose two sides nearly share a geometry."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(2 * TRIPLES, LATENT)) * np.linspace(2, 0.3, LATENT)
    axes = np.linalg.qr(rng.normal(size=(DIM, LATENT)))[0].T
    turned = np.linalg.qr(axes.T + 0.05 * rng.normal(size=(DIM, LATENT)))[0].T
    noise = 0.25 * rng.normal(size=(3, TRIPLES, DIM))
    query = _unit(meaning[:TRIPLES] @ axes + noise[0])
    positive = _unit(meaning[:TRIPLES] @ turned + noise[1])
    negative = _unit(meaning[TRIPLES:] @ turned + noise[2])
    return query, positive - negative


def _difference(moment: np.ndarray, rank: int) -> np.ndarray:
    """Dual less shared fit of one moment at one rank."""
    left, singular, right = np.linalg.svd(moment)
    eigen, axes = np.linalg.eigh((moment + moment.T) / 2)
    eigen, axes = np.maximum(eigen[::-1][:rank], 0), axes[:, ::-1][:, :rank]
    return (left[:, :rank] * singular[:rank]) @ right[:rank] - (axes * eigen) @ axes.T


def loop(query: np.ndarray, apart: np.ndarray, halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The plain side: scores and sizes, [splits, ranks]."""
    scores, sizes = np.zeros((2, len(halves), len(RANKS)))
    for split, pair in enumerate(halves):
        moments = [query[rows].T @ apart[rows] / len(rows) for rows in pair]
        for place, rank in enumerate(RANKS):
            first, other = (_difference(moment, rank) for moment in moments)
            scores[split, place] = np.sum(first * other) - np.sum((first - other) ** 2) / 4
            sizes[split, place] = (np.sum(first**2) + np.sum(other**2)) / 2
    return scores, sizes


def _timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Returns seconds on the wall and seconds of all this process's threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(dtype: np.dtype, pairs: int) -> dict[str, Any]:
    """Compares both sides in one type."""
    query, apart = triples()
    halves = half_splits(TRIPLES, SPLITS, 0)
    expected, sizes = loop(query, apart, halves)
    query, apart = query.astype(dtype), apart.astype(dtype)
    there = [jnp.asarray(array) for array in (query, apart, halves)]
    began = time.perf_counter()
    compiled = score_halves.lower(*there, ranks=RANKS, batch=BATCH).compile()
    seconds = time.perf_counter() - began
    got = compiled(*there)
    one = np.abs(np.asarray(got.by_split) - expected) / sizes
    mean = np.abs(np.asarray(got.score) - expected.mean(axis=0)) / sizes.mean(axis=0)
    if not (one.max() < TOLERANCE and mean.max() < TOLERANCE):
        raise SystemExit(f"cars.py: the two sides differ by {one.max():g}; nothing was timed")
    times = [
        (*_timed(lambda: compiled(*there)), *_timed(lambda: loop(query, apart, halves)))
        for _ in range(pairs)
    ]
    ours, ours_cpu, peer, peer_cpu = np.median(np.array(times), axis=0)
    return {
        "case": np.dtype(dtype).name,
        "ours": "cars",
        "peer": "NumPy loop",
        "ours_ms": 1e3 * float(ours),
        "peer_ms": 1e3 * float(peer),
        "ratio": float(np.median([b / a for a, _, b, _ in times])),
        "ours_cpu_ms": 1e3 * float(ours_cpu),
        "peer_cpu_ms": 1e3 * float(peer_cpu),
        "cpu_ratio": float(np.median([b / a for _, a, _, b in times])),
        "max_error_of_a_split": float(one.max()),
        "max_error": float(mean.max()),
        "ours_compile_s": seconds,
        "score_over_size": (expected.mean(axis=0) / sizes.mean(axis=0)).tolist(),
    }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the time of one call of both sides, in both types."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(rows))
    for shift, side in ((-0.2, "ours"), (0.2, "peer")):
        values = [row[f"{side}_ms"] for row in rows]
        bars = axis.bar(places + shift, values, 0.38, label=rows[0][side])
        axis.bar_label(bars, fmt="%.0f", fontsize=8)
    axis.set_xticks(places, [row["case"] for row in rows])
    axis.set_ylabel("ms a call")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5, help="how often each side is timed")
    given = parser.parse_args()
    rows = [measure(np.dtype(np.float32), given.pairs)]
    with jax.enable_x64(True):
        rows.append(measure(np.dtype(np.float64), given.pairs))
    given.out.mkdir(parents=True, exist_ok=True)
    told = {
        "device": jax.devices()[0].device_kind,
        "processor": platform.processor() or platform.machine(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
        "load": os.getloadavg()[0],
        "jax": jax.__version__,
        "numpy": np.__version__,
        "shape": {"triples": TRIPLES, "dim": DIM, "splits": SPLITS, "ranks": RANKS},
        "rows": rows,
    }
    (given.out / "cars.json").write_text(json.dumps(told, indent=2) + "\n")
    plot(rows, given.out / "cars.png")
    for row in rows:
        print(
            f"{row['case']}: cars {row['ours_ms']:.0f} ms, loop {row['peer_ms']:.0f} ms, ratio "
            f"{row['ratio']:.1f} ({row['cpu_ratio']:.1f} in CPU time); greatest error of a split "
            f"{row['max_error_of_a_split']:.1e}, of the mean {row['max_error']:.1e}"
        )


if __name__ == "__main__":
    main()
