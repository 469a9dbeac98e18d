"""Rows of a study: methods under settings, each measured once and kept for every later study."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.data.splits import manifest
from dive_jax.files import sha256_json, write_json, write_text
from dive_jax.methods.registry import find
from dive_jax.methods.tuning import resolved
from dive_jax.options import (
    AdapterOptions,
    SourceOptions,
    SplitOptions,
    TrainOptions,
    TripletOptions,
)
from dive_jax.scoring import Scores
from dive_jax.studies.cells import (
    Cells,
    Watch,
    describe,
    introduce,
    joint_seeds,
    keep_split,
    measure_one,
)
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.quantising import quantised_scores, summarised
from dive_jax.studies.results import compare, mean_of_parts, per_query_csv
from dive_jax.types import InputError

CELLS = "cells"

_READ = {"frozen": (), "truncate": ("dim",), "random_projection": ("dim",)}
_READ |= {"pca": ("dim", "pca_center")}


class Row(NamedTuple):
    """One line of a study's table.

    Attributes:
      label: Its name there.
      method: Name of the method.
      options: What it runs under; of these, seeds and data are the study's.
      adapt: Fits the options to the full width, where that is not known before; None leaves them.
    """

    label: str
    method: str
    options: TrainOptions
    adapt: Callable[[TrainOptions, int], TrainOptions] | None = None

    def at(self, full_dim: int) -> "Row":
        """Returns the row for vectors of a width."""
        if self.adapt is None:
            return self
        return self._replace(options=self.adapt(self.options, full_dim), adapt=None)


class Measured(NamedTuple):
    """A table of a study.

    Attributes:
      rows: Label -> row, of those that could be run.
      datasets: Dataset -> what metrics.json would hold; its "methods" go by label.
      means: Label -> equal means over the datasets.
      left_out: Label -> why it could not be run.
      folders: Dataset -> label -> where its adapters, scores and history lie.
    """

    rows: dict[str, Row]
    datasets: dict[str, dict[str, Any]]
    means: dict[str, Any]
    left_out: dict[str, str]
    folders: dict[str, dict[str, Path]]


def _values(options: AdapterOptions, *groups: type[Any]) -> dict[str, Any]:
    names = [field.name for group in groups for field in dataclasses.fields(group)]
    return {name: getattr(options, name) for name in names}


def settings_of(job: Job, row: Row) -> dict[str, Any]:
    """Returns all that decides what a row measures; of its seeds, where they decide together.

    Settings at their defaults are not named, so that a setting that a later version adds does not
    part a folder from what it holds.
    """
    defaults = {each.name: each.default for each in dataclasses.fields(TrainOptions)}
    defaults["early_stopping"] = "off"
    options = resolved(row.options, find(row.method).stops)
    chosen = _values(options, AdapterOptions, TripletOptions)
    read = _READ.get(row.method, tuple(chosen))
    chosen = {name: chosen[name] for name in read if chosen[name] != defaults[name]}
    joint = {"seeds": list(row.options.seeds)} if joint_seeds(row.method, row.options) else {}
    return {
        "method": row.method,
        "settings": chosen,
        **joint,
        "protocol": row.options.protocol,
        "encoder": job.source.store.encoder,
        "vectors": job.source.store.fingerprint,
        "texts": job.source.collection.fingerprint,
        "split": manifest(job.split)["fingerprint"],
    }


def cell_folder(folder: Path, job: Job, row: Row) -> Path:
    """Returns where a row's adapters and scores lie, the same in every study of the folder."""
    name = f"{row.method}-{sha256_json(settings_of(job, row))[:12]}"
    return folder / CELLS / Path(job.source.dataset) / name


class Jobs:
    """Prepares datasets, and keeps the last one in case the next row wants it again."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Job] | None = None

    def of(self, options: TrainOptions, dataset: str) -> Job:
        """Returns the job of these options on a dataset."""
        groups = (SourceOptions, SplitOptions, TripletOptions)
        key = _values(options, *groups) | {"dataset": dataset}
        if self._kept is None or self._kept[0] != key:
            self._kept = key, prepare(options, dataset, ())
        return self._kept[1]


def _fitting(rows: Sequence[Row], job: Job) -> tuple[list[Row], dict[str, str]]:
    """Returns the rows that are possible on a dataset, and why the others are not."""
    possible, left_out = [], {}
    for row in (each.at(job.source.store.dim) for each in rows):
        try:
            if (check := find(row.method).check) is not None:
                check(job.material, row.options)
        except InputError as error:
            left_out[row.label] = str(error)
        else:
            possible.append(row)
    return possible, left_out


def check_rows(rows: Sequence[Row], job: Job, *, strict: bool) -> None:
    """Raises `InputError` if no row is possible on a dataset, or, where strict, if one is not.

    Args:
      rows: Of a study.
      job: The dataset.
      strict: Whether every row must be possible.
    """
    possible, left_out = _fitting(rows, job)
    if left_out and (strict or not possible):
        raise InputError(next(iter(left_out.values())))


def best_two(methods: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """Returns the two rows of the highest mean nDCG@10 but frozen; None if there are not two."""
    ranked = sorted(
        (name for name in methods if name != "frozen"),
        key=lambda name: -methods[name]["ndcg@10"]["mean"],
    )
    return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def _told(job: Job, row: Row, cells: Cells) -> dict[str, Any]:
    told = describe(job, row.options, cells, [])
    listed = {name: list(by_seed.values()) for name, by_seed in cells.scores.items()}
    if (pair := best_two(told["methods"])) is not None:
        first, second = (listed[name] for name in pair)
        told["comparisons"] = {" - ".join(pair): compare(first, second)}
    full = listed.get("frozen") if job.unseen else None
    told["unseen_comparisons"] = {
        f"{name} - frozen": compare(scores, full, job.unseen)
        for name, scores in listed.items()
        if full is not None and name != "frozen"
    }
    return told


def measure(
    rows: Sequence[Row],
    datasets: Sequence[str],
    folder: Path,
    part: str,
    watch: Watch,
    jobs: Jobs,
    *,
    strict: bool = False,
    quantised: bool = False,
) -> Measured:
    """Measures rows on datasets, and their equal means.

    Args:
      rows: At least one; all under one encoder, split and protocol.
      datasets: At least one.
      folder: The folder of the studies.
      part: Folder, within it, of this table's splits and scores by query.
      watch: Where to tell how it goes.
      jobs: Where prepared datasets come from.
      strict: Whether every row's width must be possible; else such rows are left out.
      quantised: Whether the compressed vectors are also scored as smaller numbers.

    Raises:
      InputError: If no row's width is possible, or, where strict, one is not.
    """
    entries: dict[str, dict[str, Any]] = {}
    folders: dict[str, dict[str, Path]] = {}
    possible, left_out = list(rows), {}
    for dataset in datasets:
        job = jobs.of(rows[0].options, dataset)
        check_rows(rows, job, strict=strict)
        possible, left_out = _fitting(rows, job)
        for label, why in left_out.items():
            watch.note(f"{label} is left out: {why}")
        place = folder / part / Path(dataset)
        keep_split(job, place)
        introduce(job, rows[0].options, watch)
        scores: dict[str, dict[str, Scores]] = {}
        dims: dict[str, int] = {}
        small: dict[str, Any] = {}
        folders[dataset] = {}
        for row in possible:
            own = jobs.of(row.options, dataset)
            at = folders[dataset][row.label] = cell_folder(folder, own, row)
            if not (at / "cell.json").is_file():
                write_json(at / "cell.json", settings_of(own, row))
            scores[row.label], dims[row.label] = measure_one(
                own, row.method, row.options, at, watch
            )
            if quantised:
                found = quantised_scores(own, row.method, row.options, at, watch)
                small[row.label] = summarised(found, dims[row.label], own.unseen)
        entries[dataset] = _told(job, rows[0], Cells(scores, dims))
        if quantised:
            entries[dataset]["quantised"] = small
        write_text(place / "per_query.csv", per_query_csv(scores, job.unseen))
    means = {
        row.label: mean_of_parts([each["methods"][row.label] for each in entries.values()])
        for row in possible
    }
    return Measured({row.label: row for row in possible}, entries, means, left_out, folders)
