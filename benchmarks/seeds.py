"""Three seeds of DIVE in one program: one after another (lax.map) against side by side (vmap).

python benchmarks/seeds.py --out=DIR writes seeds.json and seeds.png. Both sides train the same
seeds on the same batches; their parameters must agree before anything is timed.
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
import numpy as np

from dive_jax.methods import dive
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Data, epoch_rows
from dive_jax.training.epoch import Schedule, compile_epoch, place
from dive_jax.types import Triplets

SHAPES = ((768, 128), (512, 64), (384, 64))
SEEDS, BATCH, STEPS, PAIRS = (1, 2, 3), 128, 12, 7


def _unit(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    vectors = rng.normal(size=(rows, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _side(full_dim: int, dim: int, side_by_side: bool) -> tuple[Callable[[], Any], float]:
    """Returns a function that trains one epoch from the same start, and the compile time."""
    rng = np.random.default_rng(0)
    data = Data(_unit(rng, 500, full_dim), _unit(rng, 3000, full_dim))
    count = BATCH * STEPS
    triplets = Triplets(*(rng.integers(0, n, count).astype(np.int32) for n in (500, 3000, 3000)))
    schedule = Schedule(SEEDS, 1, BATCH, 2e-4, 1e-4)
    task = dive.task(full_dim, AdapterOptions(dim=dim))
    placed = place(task, data, triplets, schedule, None)
    rows = epoch_rows(SEEDS, 0, count, BATCH)
    began = time.perf_counter()
    epoch = compile_epoch(task, placed, rows.shape, side_by_side=side_by_side)
    seconds = time.perf_counter() - began
    there = jax.device_put(rows, placed.by_seed)
    return lambda: epoch(jax.tree.map(lambda leaf: leaf.copy(), placed.state), there), seconds


def _timed(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def measure(full_dim: int, dim: int) -> dict[str, Any]:
    """Compares both sides at one shape."""
    (ours, ours_compile), (peer, peer_compile) = (
        _side(full_dim, dim, side_by_side) for side_by_side in (False, True)
    )
    one, other = jax.device_get((ours()[0].params, peer()[0].params))
    error = max(
        float(np.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
    if error > 1e-4:
        raise SystemExit(f"seeds.py: the two sides differ by {error:g}; nothing was timed")
    pairs = [(_timed(ours), _timed(peer)) for _ in range(PAIRS)]
    steps = STEPS * len(SEEDS)
    return {
        "case": f"{full_dim} to {dim}",
        "ours": "lax.map",
        "peer": "vmap",
        "ours_ms_a_step": 1e3 * float(np.median([a for a, _ in pairs])) / steps,
        "peer_ms_a_step": 1e3 * float(np.median([b for _, b in pairs])) / steps,
        "ratio": float(np.median([b / a for a, b in pairs])),
        "max_error": error,
        "ours_compile_s": ours_compile,
        "peer_compile_s": peer_compile,
    }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the time of a step of one seed, both ways, at every shape."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(rows))
    for shift, side in ((-0.2, "ours"), (0.2, "peer")):
        values = [row[f"{side}_ms_a_step"] for row in rows]
        bars = axis.bar(places + shift, values, 0.38, label=rows[0][side])
        axis.bar_label(bars, fmt="%.1f", fontsize=8)
    axis.set_xticks(places, [row["case"] for row in rows])
    axis.set_ylabel("ms a step and seed")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    rows = [measure(*shape) for shape in SHAPES]
    out.mkdir(parents=True, exist_ok=True)
    told = {
        "device": jax.devices()[0].device_kind,
        "processor": platform.processor() or platform.machine(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "jax": jax.__version__,
        "rows": rows,
    }
    (out / "seeds.json").write_text(json.dumps(told, indent=2) + "\n")
    plot(rows, out / "seeds.png")
    for row in rows:
        print(
            f"{row['case']}: lax.map {row['ours_ms_a_step']:.2f} ms, vmap "
            f"{row['peer_ms_a_step']:.2f} ms a step and seed, ratio {row['ratio']:.2f}"
        )


if __name__ == "__main__":
    main()
