"""Dual - shared by rank and number of training queries, with queries turned by a right angle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dive_jax.methods.projections import ProjectionSettings
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies import turned
from dive_jax.studies.cells import Watch
from dive_jax.studies.operator_losses import RANKS

DEGREES, RATE = 90, 3e-4
SIZES = (32, 64, 128, 256, 512, 1024, 2048)

COLUMNS = (
    Column("dataset", "dataset", align="left"),
    Column("rank", "rank"),
    Column("n", "n"),
    Column("shared", "shared nDCG@10", 4),
    Column("dual", "dual nDCG@10", 4),
    Column("gap", "dual - shared", 4),
)
"""Columns of the table; mean and deviation over seeds, the difference paired."""


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a dataset, rank and number of training queries; finished cells are read.

    Sizes beyond what a dataset trains on are left out.

    Args:
      options: Datasets and seeds; --smoke takes one rank and the smallest size.
      folder: Where finished cells lie.
      watch: Where to tell how it goes.
    """
    settings = ProjectionSettings(learning_rates=(RATE,))
    rows = []
    for bench in turned.benches(options):
        known = bench.job.material.hold_out
        held = 0 if known is None else len(known("validation").qrels)
        most = len(bench.job.trained) - held
        sizes = [size for size in SIZES if size <= most] or [most]
        cells = [(rank, size) for rank in RANKS for size in sizes]
        cells = cells[:1] if options.smoke else cells
        with watch.progress(len(cells), f"rank by data, {bench.dataset}", "cells") as bar:
            for done, (rank, size) in enumerate(cells, 1):
                setting = turned.Setting(DEGREES, size, rank)
                found = turned.cell(bench, setting, options, settings, folder / bench.dataset)
                rows.append(
                    {"dataset": bench.dataset, "rank": rank, "n": size} | turned.summary(found)
                )
                bar.update(done, f"rank {rank}, n {size}")
    return rows


def told(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns by number of training queries in how many cells dual has the higher mean."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        entry = found.setdefault(str(row["n"]), {"dual": 0, "cells": 0})
        entry["cells"] += 1
        entry["dual"] += row["gap"][0] > 0
    return {"dual_wins": found}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the difference against the number of queries, a panel a dataset, a line a rank."""
    parts = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        lines: dict[str, list[Point]] = {}
        for row in rows:
            if row["dataset"] == dataset:
                lines.setdefault(f"rank {row['rank']}", []).append(Point(row["n"], *row["gap"]))
        parts.append(Panel(dataset, lines))
    panels(
        parts,
        path,
        title="Dual - shared, queries turned by 90 degrees",
        x="training queries",
        y="nDCG@10",
        octaves=True,
    )
