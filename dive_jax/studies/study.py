"""One study from start to end: what its plan asks for is measured, tabled, drawn and kept."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dive_jax.files import write_json, write_text
from dive_jax.options import CompareOptions
from dive_jax.report.published import table_rows as published_rows
from dive_jax.report.tables import Column, csv_text, markdown
from dive_jax.sources import check_at_hand, parts
from dive_jax.studies import quantising
from dive_jax.studies.cells import FORMAT_VERSION, Watch
from dive_jax.studies.drawing import draw, fits
from dive_jax.studies.folder import check_folder, claimed, versions
from dive_jax.studies.plans import PLANS, Outcome
from dive_jax.studies.results import TABLE, several, table_rows
from dive_jax.studies.rows import Jobs, Measured, Row, check_rows, measure
from dive_jax.types import InputError

COLUMNS = (Column("dataset", "dataset", align="left"), *TABLE)
"""Columns of a study's table, in files."""


def rows_of(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the table of a study: a row a dataset and label, and the means over several.

    Args:
      metrics: What the study's JSON file holds.
    """
    rows = [
        {"dataset": dataset, **row}
        for dataset, entry in metrics["datasets"].items()
        for row in table_rows(entry["methods"])
    ]
    return rows + [{"dataset": "mean", **row} for row in table_rows(several(metrics))]


def _datasets(options: CompareOptions) -> list[str]:
    datasets = [part for name in options.datasets or (options.dataset,) for part in parts(name)]
    if len(set(datasets)) != len(datasets):
        raise InputError("--datasets: wanted each dataset once")
    for dataset in datasets:
        check_at_hand(dataset, options.root)
    return datasets


def _metrics(name: str, options: CompareOptions, outcome: Outcome) -> dict[str, Any]:
    table = outcome.table
    one = next(iter(table.datasets.values()))
    asked = options.datasets or (options.dataset,)
    return {
        "format_version": FORMAT_VERSION,
        "study": name,
        **{key: one[key] for key in ("encoder", "full_dim", "dim", "split", "protocol")},
        "seeds": list(options.seeds),
        "datasets": table.datasets,
        "methods": table.means,
        **outcome.told,
        "left_out": table.left_out,
        "published": [row for each in asked for row in published_rows(each, options.dim)],
        "versions": versions(),
    }


def _write(name: str, metrics: dict[str, Any], table: Measured, folder: Path) -> None:
    rows = rows_of(metrics)
    write_text(folder / f"{name}.csv", csv_text(rows, COLUMNS))
    write_text(folder / f"{name}.md", markdown(rows, COLUMNS))
    if any("quantised" in entry for entry in metrics["datasets"].values()):
        small = quantising.table_rows(metrics)
        write_text(folder / "quantised.csv", csv_text(small, quantising.TABLE))
        write_text(folder / "quantised.md", markdown(small, quantising.TABLE))
    draw(name, metrics, rows, table, folder)
    write_json(folder / f"{name}.json", metrics)


def run(name: str, options: CompareOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Runs a study and writes its table, plots and numbers.

    Killed, it goes on where it stopped. What was measured under the same settings by any study of
    this folder is not measured again.

    Args:
      name: Which study, of `plans.PLANS`.
      options: Datasets, methods, settings.
      folder: Where everything goes: <name>.json, .csv, .md and .png, and what was fitted.
      watch: Where to tell how it goes.

    Returns:
      What <name>.json holds.

    Raises:
      InputError: For wrong data or options, or a folder begun with others.
      TrainingError: If a loss is not finite.
    """
    options = options.effective()
    flags = f"{name}.flags"
    check_folder(folder, options, flags)
    finished = folder / f"{name}.json"
    if finished.is_file():
        watch.note(f"{folder}: {name} is finished; nothing to do")
        return json.loads(finished.read_text(encoding="utf-8"))
    datasets, jobs = _datasets(options), Jobs()
    _rehearse(name, options, datasets[0], jobs)
    with claimed(folder, options, watch.note, flags):

        def ask(rows: Sequence[Row], part: str) -> Measured:
            place = str(Path(name) / part)
            strict = name == "compare"
            small = strict and options.quantised
            return measure(
                rows, datasets, folder, place, watch, jobs, strict=strict, quantised=small
            )

        outcome = PLANS[name](options, ask)
        if name == "dynamics":
            outcome = outcome._replace(told=fits(outcome.table, options))
        metrics = _metrics(name, options, outcome)
        _write(name, metrics, outcome.table, folder)
        return metrics


class _RehearsalError(Exception):
    """Ends a rehearsal."""


def _rehearse(name: str, options: CompareOptions, dataset: str, jobs: Jobs) -> None:
    """Raises `InputError` for what can be known to be wrong before the folder is made."""

    def ask(rows: Sequence[Row], part: str) -> Measured:
        check_rows(rows, jobs.of(rows[0].options, dataset), strict=name == "compare")
        raise _RehearsalError

    try:
        PLANS[name](options, ask)
    except _RehearsalError:
        return
