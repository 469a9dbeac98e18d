"""Dual - shared as queries are turned away from documents, trained and scored on all documents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dive_jax.methods.projections import ProjectionSettings
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies import turned
from dive_jax.studies.cells import Watch

ANGLES = (0, 15, 30, 45, 60, 75, 90)
RANK, QUERIES = 16, 1024

COLUMNS = (
    Column("dataset", "dataset", align="left"),
    Column("degrees", "degrees"),
    Column("shared", "shared nDCG@10", 4),
    Column("dual", "dual nDCG@10", 4),
    Column("gap", "dual - shared", 4),
)
"""Columns of the table; mean and deviation over seeds, the difference paired."""


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a dataset and angle; finished cells are read.

    Args:
      options: Datasets and seeds; --smoke takes the right angle, a rank of 4 and one rate.
      folder: Where finished cells lie.
      watch: Where to tell how it goes.
    """
    angles = ANGLES[-1:] if options.smoke else ANGLES
    settings = ProjectionSettings()
    if options.smoke:
        settings = ProjectionSettings(learning_rates=settings.learning_rates[:1])
    rows = []
    for bench in turned.benches(options):
        with watch.progress(len(angles), f"turning {bench.dataset}", "angles") as bar:
            for done, degrees in enumerate(angles, 1):
                setting = turned.Setting(degrees, QUERIES, 4 if options.smoke else RANK)
                found = turned.cell(bench, setting, options, settings, folder / bench.dataset)
                rows.append({"dataset": bench.dataset, "degrees": degrees} | turned.summary(found))
                bar.update(done, f"{degrees} degrees")
    return rows


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the difference against the angle, a line a dataset."""
    lines: dict[str, list[Point]] = {}
    for row in rows:
        lines.setdefault(row["dataset"], []).append(Point(row["degrees"], *row["gap"]))
    panels(
        [Panel("above 0: dual", lines)],
        path,
        title="Dual - shared as queries are turned",
        x="degrees",
        y="nDCG@10",
    )
