"""Head-wise NT-Xent, value and gradient, against PyTorch and optax: time and memory by batch.

python benchmarks/loss_throughput.py --out=DIR [--torch_python=PATH] writes loss_throughput.json and
loss_throughput.png. BH counts the rows of the block, batch times heads; four heads of 128
coordinates, temperature 0.1. optax leaves a head's other positives out of the denominator: with two
heads there are none, so it is held against ours there, its gradient along the sphere.
"""

import argparse
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Side

DIM, HEADS, TEMPERATURE = 128, 4, 0.1
ROWS = (256, 512, 1024, 2048, 4096, 8192)
OPTAX_ROWS = (256, 512, 1024)
TILE = 256
VALUE, GRADIENT = 1e-5, 1e-5


def unit_heads(rows: int, heads: int) -> np.ndarray:
    """Draws unit vectors [rows / heads, heads, DIM] whose heads of one sample are alike."""
    rng = np.random.default_rng(rows)
    drawn = rng.normal(size=(rows // heads, 1, DIM)) + rng.normal(size=(rows // heads, heads, DIM))
    return (drawn / np.linalg.norm(drawn, axis=2, keepdims=True)).astype(np.float32)


def agreement(ours: Any, peer: Any) -> float:
    """Holds value and gradient against the peer's."""
    value = harness.close(ours[0], peer[0], VALUE)
    return max(value, harness.close(ours[1], peer[1], GRADIENT))


def _along(heads: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns the part of a gradient along the sphere; optax makes unit vectors itself."""
    return gradient - heads * np.sum(heads * gradient, axis=2, keepdims=True)


def flops(rows: int) -> float:
    """Returns the operations of the three products of a value and gradient."""
    return 3 * 2 * rows**2 * DIM


def against_torch(rows: int, tile: int | None, cores: int, given: argparse.Namespace) -> Any:
    """Compares ours, dense or tiled, with PyTorch eager and compiled."""
    shared = {"heads": unit_heads(rows, HEADS), "temperature": TEMPERATURE}
    return harness.compare(
        f"BH {rows:,}, " + ("dense" if tile is None else f"tiles of {tile}"),
        Side("ours", "ntxent_jax", "ours", shared | {"tile": tile}),
        [
            Side(f"torch {name}", "ntxent_torch", "build", shared | {"compiled": compiled},
                 python=given.torch_python)
            for name, compiled in (("eager", False), ("compiled", True))
        ],
        cores=cores, check=agreement, pairs=given.pairs, flops=flops(rows), rows=rows,
    )  # fmt: skip


def against_optax(rows: int, cores: int, given: argparse.Namespace) -> Any:
    """Compares ours with optax, two heads a sample."""
    heads = unit_heads(rows, 2)
    shared = {"heads": heads, "temperature": TEMPERATURE}
    return harness.compare(
        f"BH {rows:,}, two heads",
        Side("ours", "ntxent_jax", "ours", shared | {"tile": None}),
        [Side("optax", "ntxent_jax", "theirs", shared)],
        cores=cores,
        check=lambda ours, peer: agreement(
            (ours[0], _along(heads, ours[1])), (peer[0], _along(heads, peer[1]))
        ),
        pairs=given.pairs, rows=rows,
    )  # fmt: skip


def tiled_against_dense(rows: int, cores: int, given: argparse.Namespace) -> Any:
    """Compares ours in tiles with ours dense: what the memory saved costs."""
    shared = {"heads": unit_heads(rows, HEADS), "temperature": TEMPERATURE}
    return harness.compare(
        f"BH {rows:,}, tiles of {TILE}",
        Side("ours", "ntxent_jax", "ours", shared | {"tile": TILE}),
        [Side("ours dense", "ntxent_jax", "ours", shared | {"tile": None})],
        cores=cores, check=agreement, pairs=given.pairs, flops=flops(rows), rows=rows,
    )  # fmt: skip


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws time and memory by batch, one line a side, on the least number of cores."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    axes = figure.subplots(1, 2)
    cores = min(row["cores"] for row in rows)
    lines: dict[str, dict[int, tuple[float, float]]] = {}
    for row in rows:
        if row["cores"] == cores:
            shape = row["case"].split(", ", 1)[1]
            ours = lines.setdefault(f"ours, {shape}", {})
            ours[row["rows"]] = row["ours_s"], row["ours_peak_mb"]
            if row["peer"] != "ours dense":
                name = row["peer"] + (", two heads" if row["peer"] == "optax" else "")
                lines.setdefault(name, {})[row["rows"]] = row["peer_s"], row["peer_peak_mb"]
    for name, points in lines.items():
        sizes = sorted(points)
        for axis, index in zip(axes, (0, 1), strict=True):
            values = [max(points[size][index], 1e-2 * index) for size in sizes]
            axis.loglog(sizes, values, marker=".", label=name, base=2)
    for axis, label in zip(axes, (f"seconds, {cores} core(s)", "MiB a call"), strict=True):
        axis.set_xlabel("BH")
        axis.set_ylabel(label)
        axis.set_yscale("log", base=10)
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    sizes, optax_sizes = (ROWS, OPTAX_ROWS) if not given.quick else ((256,), (256,))
    for cores in given.cores:
        jobs = [
            *((f"torch {n}", against_torch, (n, tile)) for n in sizes for tile in (None, TILE)),
            *((f"optax {n}", against_optax, (n,)) for n in optax_sizes),
            *((f"dense {n}", tiled_against_dense, (n,)) for n in sizes if n >= 1024),
        ]
        for name, job, shape in jobs:
            if given.only in name:
                rows = job(*shape, cores, given)
                harness.save(
                    given.out, "loss_throughput", rows,
                    about={"dim": DIM, "heads": HEADS, "temperature": TEMPERATURE}, plot=plot,
                )  # fmt: skip


if __name__ == "__main__":
    main()
