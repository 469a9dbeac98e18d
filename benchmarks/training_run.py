"""Three seeds of DIVE on SciFact, from frozen vectors to the table of nDCG@10, against PyTorch.

python benchmarks/training_run.py --out=DIR [--torch_python=PATH] writes training_run.json and
training_run.png. Ours trains all seeds in one compiled program, which every run reads back from
disk as a second start does, and measures the gradient energies on top; PyTorch loops over the
seeds, from the same weights, over the same batches, and has compiled before it is timed. The losses
of the first epoch must agree to 1e-4 and the final nDCG@10 to 0.01. Needs $DIVE_JAX_DATA with
scifact and its all-mpnet-base-v2 vectors; --quick draws a small one.
"""

from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Side

FULL: dict[str, Any] = {
    "dataset": "scifact", "encoder": "all-mpnet-base-v2", "dim": 128, "epochs": 50,
}  # fmt: skip
QUICK: dict[str, Any] = {"dataset": "drawn", "encoder": "drawn", "dim": 8, "epochs": 3}
SEEDS = (2027, 2028, 2029)
FIRST_LOSS, NDCG = 1e-4, 0.01


def agreement(ours: Any, peer: Any) -> float:
    """Holds the first epoch's losses and the final table against the peer's."""
    first = harness.close(ours["loss"][0], peer["loss"][0], FIRST_LOSS)
    tables = np.array(ours["ndcg@10"]) - np.array(peer["ndcg@10"])
    if not np.abs(tables).max() <= NDCG:
        raise SystemExit(f"nDCG@10 differs by {np.abs(tables).max():.4f}; nothing was timed")
    return first


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Moves the tables that a row's sides told of into the row."""
    return [
        row | {f"{side}_ndcg@10": row[f"{side}_told"]["ndcg@10"] for side in ("ours", "peer")}
        for row in rows
    ]


def peers(run: dict[str, Any], python: str) -> list[Side]:
    """Returns the PyTorch sides: the module as published, and one that skips columns."""
    return [
        Side(
            f"torch {name}",
            "train_torch",
            "build",
            lambda ours, columns=columns, compiled=compiled: (
                run | {"starts": ours["starts"], "all_columns": columns, "compiled": compiled}
            ),
            python=python,
        )
        for name, columns, compiled in (
            ("eager, all columns", True, False),
            ("compiled, all columns", True, True),
            ("compiled", False, True),
        )
    ]


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the seconds of each side, by cores."""
    from matplotlib.figure import Figure

    every = sorted({row["cores"] for row in rows})
    figure = Figure(figsize=(4.5 * len(every), 3), layout="constrained")
    axes = figure.subplots(1, len(every), squeeze=False)[0]
    for axis, cores in zip(axes, every, strict=True):
        here = [row for row in rows if row["cores"] == cores]
        bars = {"ours": here[0]["ours_s"]} | {row["peer"]: row["peer_s"] for row in here}
        drawn = axis.barh(list(bars), list(bars.values()), color=["C1"] + ["C0"] * (len(bars) - 1))
        axis.bar_label(drawn, fmt=" %.0f s", fontsize=8)
        axis.invert_yaxis()
        axis.set_xlabel(f"seconds to the table, {cores} core(s)")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    run = (QUICK if given.quick else FULL) | {"seeds": SEEDS[:2] if given.quick else SEEDS}
    one = run | {"seeds": SEEDS[:1]}
    settings = {"pairs": min(given.pairs, 3), "repeats": 1, "memory": False, "warm": False}
    for cores in given.cores:
        ours = Side("ours", "train_jax", "build", run)
        name = f"{run['dataset']}, {len(run['seeds'])} seeds"
        jobs = {
            "torch": (name, peers(run, given.torch_python), agreement),
            "one": (f"{name} against one", [Side("ours, one seed", "train_jax", "build", one)],
                    lambda ours, peer: abs(ours["ndcg@10"][0] - peer["ndcg@10"][0])),
        }  # fmt: skip
        for only, (case, others, check) in jobs.items():
            if given.only in only:
                rows = harness.compare(case, ours, others, cores=cores, check=check, **settings)
                harness.save(given.out, "training_run", tables(rows), about=run, plot=plot)


if __name__ == "__main__":
    main()
