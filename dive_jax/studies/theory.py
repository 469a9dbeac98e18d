"""Studies with tables of their own, of the operator theory and of indexes: rows in, plots out."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.files import write_json, write_text
from dive_jax.options import StudyOptions
from dive_jax.report.tables import Column, csv_text, markdown
from dive_jax.studies import (
    calibration,
    estimation,
    index_recall,
    operator_risk,
    rank_by_data,
    rotation,
    selection,
    two_view,
)
from dive_jax.studies.cells import FORMAT_VERSION, Watch
from dive_jax.studies.folder import check_folder, claimed, versions


class Theory(NamedTuple):
    """A study whose table is of its own kind.

    Attributes:
      title: What its table shows.
      columns: Of the table.
      measure: Options, the folder of finished parts, and a watch -> rows.
      draw: Rows and the PNG file to write.
      told: Rows -> what else the JSON file holds.
    """

    title: str
    columns: Sequence[Column]
    measure: Callable[[StudyOptions, Path, Watch], list[dict[str, Any]]]
    draw: Callable[[Sequence[dict[str, Any]], Path], None]
    told: Callable[[Sequence[dict[str, Any]]], dict[str, Any]] = lambda rows: {}


STUDIES: dict[str, Theory] = {
    "calibration": Theory(
        "local risks and choices against their limits",
        calibration.COLUMNS,
        calibration.measure,
        calibration.draw,
    ),
    "two_view": Theory(
        "dual - shared on two views, one of them turned",
        two_view.COLUMNS,
        two_view.measure,
        two_view.draw,
        lambda rows: {"first_positive": two_view.contour(rows)},
    ),
    "selection": Theory(
        "regret of three rules: always shared, always dual, CARS",
        selection.COLUMNS,
        selection.measure,
        selection.draw,
        selection.told,
    ),
    "operator_risk": Theory(
        "held-out losses of both families by sample size",
        operator_risk.COLUMNS,
        operator_risk.measure,
        operator_risk.draw,
        operator_risk.told,
    ),
    "estimation": Theory(
        "evidence for dual against the held-out gain",
        estimation.COLUMNS,
        estimation.measure,
        estimation.draw,
        estimation.told,
    ),
    "rotation": Theory(
        "trained projections, queries turned by an angle",
        rotation.COLUMNS,
        rotation.measure,
        rotation.draw,
    ),
    "rank_by_data": Theory(
        "trained projections by rank and number of training queries, turned by 90 degrees",
        rank_by_data.COLUMNS,
        rank_by_data.measure,
        rank_by_data.draw,
        rank_by_data.told,
    ),
    "indexes": Theory(
        "what indexes of compressed vectors find of what exact search finds, and its quality",
        index_recall.COLUMNS,
        index_recall.measure,
        index_recall.draw,
    ),
}
"""Every such study by name."""


def run(name: str, options: StudyOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Runs a study and writes its table, plot and numbers; killed, it goes on where it stopped.

    Args:
      name: Which study, of `STUDIES`.
      options: Its settings.
      folder: Where everything goes: <name>.json, .csv, .md and .png, and finished parts.
      watch: Where to tell how it goes.

    Returns:
      What <name>.json holds.

    Raises:
      InputError: For wrong options, or a folder begun with others.
    """
    options = options.effective()
    flags, finished = f"{name}.flags", folder / f"{name}.json"
    check_folder(folder, options, flags)
    if finished.is_file():
        watch.note(f"{folder}: {name} is finished; nothing to do")
        return json.loads(finished.read_text(encoding="utf-8"))
    study = STUDIES[name]
    with claimed(folder, options, watch.note, flags):
        rows = study.measure(options, folder / name, watch)
        metrics = {
            "format_version": FORMAT_VERSION,
            "study": name,
            "rows": rows,
            **study.told(rows),
            "versions": versions(),
        }
        write_text(folder / f"{name}.csv", csv_text(rows, study.columns))
        write_text(folder / f"{name}.md", markdown(rows, study.columns))
        study.draw(rows, folder / f"{name}.png")
        write_json(finished, metrics)
        return metrics
