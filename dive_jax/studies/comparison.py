"""Every compressor side by side: the same triplets, the same split, one table."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.files import write_json, write_text
from dive_jax.methods.registry import METHODS, find
from dive_jax.options import CompareOptions
from dive_jax.report.compare_plots import bars, curves
from dive_jax.report.published import table_rows as published_rows
from dive_jax.report.tables import Column, csv_text, markdown
from dive_jax.sources import check_at_hand, parts
from dive_jax.studies.cells import FORMAT_VERSION, Watch, describe, measure
from dive_jax.studies.folder import check_folder, claimed, versions
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.results import TABLE, compare, mean_of_parts, per_query_csv, table_rows
from dive_jax.types import InputError

COLUMNS = (Column("dataset", "dataset", align="left"), *TABLE)
"""Columns of the table, in files."""

_RESULT = "compare.json"


def chosen(options: CompareOptions) -> tuple[str, ...]:
    """Returns the methods of a comparison, in the order of the registry unless they are named."""
    names = options.methods or tuple(METHODS)
    for name in names:
        find(name)
    return names


def best_two(methods: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """Returns the two compressed methods of the highest mean nDCG@10; None if there are not two."""
    ranked = sorted(
        (name for name in methods if name != "frozen"),
        key=lambda name: -methods[name]["ndcg@10"]["mean"],
    )
    return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def _one(job: Job, options: CompareOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Measures all methods on one dataset."""
    cells = measure(job, chosen(options), options, folder, watch)
    told = describe(job, options, cells, [])
    if (pair := best_two(told["methods"])) is not None:
        first, second = (list(cells.scores[name].values()) for name in pair)
        told["comparisons"] = {" - ".join(pair): compare(first, second)}
    write_text(folder / "per_query.csv", per_query_csv(cells.scores, job.unseen))
    write_json(folder / "metrics.json", told)
    return told


def _joined(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the methods' equal means over the datasets."""
    first = next(iter(entries.values()))
    return {
        name: mean_of_parts([each["methods"][name] for each in entries.values()])
        for name in first["methods"]
    }


def rows_of(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the table of a comparison: a row a dataset and method, and the means if several.

    Args:
      metrics: What compare.json holds.
    """
    several = len(metrics["datasets"]) > 1
    rows = [
        {"dataset": dataset, **row}
        for dataset, entry in metrics["datasets"].items()
        for row in table_rows(entry["methods"])
    ]
    if several:
        rows += [{"dataset": "mean", **row} for row in table_rows(metrics["methods"])]
    return rows


def _histories(folder: Path, methods: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """Reads what was logged of the trained methods: column -> [epochs, seeds]."""
    found = {}
    for method in methods:
        if not (path := folder / "histories" / f"{method}.csv").is_file():
            continue
        with open(path, newline="", encoding="utf-8") as stream:
            lines = list(csv.DictReader(stream))
        seeds = len({line["seed"] for line in lines})
        names = [name for name in lines[0] if name not in ("epoch", "seed")]
        found[method] = {
            name: np.array([float(line[name]) for line in lines]).reshape(-1, seeds)
            for name in names
        }
    return found


def _draw(metrics: Mapping[str, Any], folder: Path, methods: Sequence[str]) -> None:
    rows = [row for row in rows_of(metrics) if row["dataset"] != "mean"]
    title = f"{metrics['encoder']}, {metrics['full_dim']} to {metrics['dim']} wide"
    bars(rows, folder / "compare.png", title=title)
    for dataset in metrics["datasets"]:
        histories = _histories(folder / Path(dataset), methods)
        if any("active_ratio" in each for each in histories.values()):
            place = folder / Path(dataset) / "curves.png"
            curves(histories, "active_ratio", place, title=f"{dataset}: active triplets")


def run(options: CompareOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Compares methods on one or several datasets and writes table, plots and numbers.

    Killed, it goes on where it stopped: a method that is finished on a dataset is not run again.

    Args:
      options: Datasets, methods, settings.
      folder: Where everything goes: a folder a dataset, compare.json, .csv, .md and .png.
      watch: Where to tell how it goes.

    Returns:
      What compare.json holds.

    Raises:
      InputError: For wrong data or options, or a folder begun with others.
      TrainingError: If a loss is not finite.
    """
    options = options.effective()
    methods = chosen(options)
    check_folder(folder, options)
    if (folder / _RESULT).is_file():
        watch.note(f"{folder} is finished; nothing to do")
        return json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    datasets = [part for name in options.datasets or (options.dataset,) for part in parts(name)]
    if len(set(datasets)) != len(datasets):
        raise InputError("--datasets: wanted each dataset once")
    for dataset in datasets:
        check_at_hand(dataset, options.root)
    first = prepare(options, datasets[0])
    with claimed(folder, options, watch.note):
        entries = {}
        for dataset in datasets:
            job = first if dataset == datasets[0] else prepare(options, dataset)
            entries[dataset] = _one(job, options, folder / Path(dataset), watch)
        one = next(iter(entries.values()))
        metrics = {
            "format_version": FORMAT_VERSION,
            **{name: one[name] for name in ("encoder", "full_dim", "dim", "split", "protocol")},
            "seeds": list(options.seeds),
            "datasets": entries,
            "methods": _joined(entries),
            "published": [row for name in datasets for row in published_rows(name, options.dim)],
            "versions": versions(),
        }
        table = rows_of(metrics)
        write_text(folder / "compare.csv", csv_text(table, COLUMNS))
        write_text(folder / "compare.md", markdown(table, COLUMNS))
        _draw(metrics, folder, methods)
        write_json(folder / _RESULT, metrics)
        return metrics
