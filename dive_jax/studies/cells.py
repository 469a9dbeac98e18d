"""One method on one dataset: fitted, scored, and kept, so that nothing is done twice."""

import dataclasses
import json
import resource
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dive_jax.data.splits import check_manifest, manifest
from dive_jax.files import write_json
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, load
from dive_jax.methods.registry import find
from dive_jax.methods.tuning import held_kind, resolved
from dive_jax.options import TrainOptions
from dive_jax.report.plots import PANELS, training_curves
from dive_jax.scoring import Scores, score
from dive_jax.studies.folder import versions
from dive_jax.studies.histories import keep_history
from dive_jax.studies.job import Job
from dive_jax.studies.results import compare, summarise
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.loop import History, Logged
from dive_jax.training.mesh import chosen

FORMAT_VERSION = 1


class Watch(NamedTuple):
    """Where a run tells how it goes.

    Attributes:
      note: Takes one line.
      progress: Called with a total, a label and a unit; returns a context whose value has
        `update(done, text)`.
    """

    note: Callable[[str], None]
    progress: Callable[[int, str, str], AbstractContextManager[Any]]


def _told(logged: Logged) -> str:
    """Returns an epoch's log as a few words, means over the seeds."""
    shown = ("loss", "triplet", "view", "geometry")
    terms = [f"{name} {np.mean(logged[name]):.4f}" for name in shown if name in logged]
    if "active_ratio" in logged:
        terms.append(f"active {100 * np.mean(logged['active_ratio']):.1f} %")
    return ", ".join(terms)


def joint_seeds(method: str, options: TrainOptions) -> bool:
    """Says whether a method's seeds decide together, so that one more changes what all become."""
    found = find(method)
    return method == "auto" or held_kind(resolved(options, found.stops), found.tunes) is not None


def fitted_names(method: str, seeds: tuple[int, ...]) -> dict[str, str]:
    """Returns seed -> name of a fitted method's files; the seed is empty without chance."""
    if not find(method).seeded:
        return {"": method}
    return {str(seed): f"{method}-{seed}" for seed in seeds}


def _fit(job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch) -> Fitted:
    store = job.source.store
    about = {
        "encoder": store.encoder,
        "width": store.dim,
        "fingerprint": store.encoder_fingerprint,
        "vectors": store.fingerprint,
    }
    # Seeds that an earlier start has finished are not trained again, so each set has its own place.
    at = folder / "checkpoints" / method / "-".join(map(str, options.seeds))
    fitting = Fitting(
        seeds=options.seeds,
        chunk_rows=options.chunk_rows,
        checkpoints=lambda stage="": Checkpoints(at / stage, about),
        checkpoint_seconds=options.checkpoint_seconds,
        note=watch.note,
        devices=chosen(options.devices),
    )
    if not find(method).seeded:
        return find(method).fit(job.material, options, fitting)
    with watch.progress(_epochs(job, method, options), f"training {method}", "epochs") as bar:
        told = fitting._replace(report=lambda epoch, logged: bar.update(epoch, _told(logged)))
        return find(method).fit(job.material, options, told)


def _epochs(job: Job, method: str, options: TrainOptions) -> int:
    documents = method == "autoencoder"  # of these it trains on, not on triplets
    return options.passes(
        len(job.source.ids.document) if documents else len(job.material.triplets.query)
    )


def _fitted(
    job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch
) -> dict[str, Compressor]:
    """Fits a method, or loads what an earlier start has fitted."""
    names = fitted_names(method, options.seeds)
    paths = {seed: folder / "adapters" / name for seed, name in names.items()}
    missing = [seed for seed, path in paths.items() if not path.is_dir()]
    if missing and joint_seeds(method, options):
        missing = list(paths)
    if missing:
        seeds = tuple(int(seed) for seed in missing if seed) or options.seeds
        todo = dataclasses.replace(options, seeds=seeds)
        fitted = _fit(job, method, todo, folder, watch)
        if fitted.history:
            _keep_history(fitted.history, job, method, todo, folder)
        if fitted.first_history:
            place = folder / "histories" / f"{method}-validation.csv"
            keep_history(place, fitted.first_history, todo.seeds)
        if fitted.train_seconds:
            times = {"compile": fitted.compile_seconds, "train": fitted.train_seconds}
            keep_timing(folder, **{f"{method}_{name}": value for name, value in times.items()})
        for seed, compressor in zip(missing, fitted.compressors, strict=True):
            if not paths[seed].is_dir():
                compressor.save(paths[seed])
    return {seed: load(path) for seed, path in paths.items()}


def _keep_history(
    history: History, job: Job, method: str, options: TrainOptions, folder: Path
) -> None:
    place = folder / "histories" / method
    keep_history(place.with_suffix(".csv"), history, options.seeds)
    if any(panel.key in history for panel in PANELS):
        title = f"{method}: {job.source.dataset}, {job.source.store.encoder}, {options.dim} wide"
        training_curves(history, place.with_suffix(".png"), title=title)


def keep_timing(folder: Path, **seconds: float) -> None:
    """Adds wall times of this process, in seconds, and its greatest memory to timing.json."""
    path = folder / "timing.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept |= {f"{name}_seconds": round(value, 3) for name, value in seconds.items()}
    kept["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    write_json(path, kept)


def score_compressor(job: Job, compressor: Compressor, chunk_rows: int) -> Scores:
    """Scores one compressor on the job's queries."""
    return score(
        job.source.vectors,
        job.source.ids,
        job.scored,
        compress=compressor.sides(chunk_rows),
        chunk_rows=chunk_rows,
    )


def _scored(
    job: Job, name: str, compressor: Compressor, options: TrainOptions, folder: Path
) -> Scores:
    path = folder / "scores" / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    scores = score_compressor(job, compressor, options.chunk_rows)
    write_json(path, scores)
    return scores


class Cells(NamedTuple):
    """What was measured on one dataset.

    Attributes:
      scores: Method -> seed (empty for a method without chance) -> query -> measure -> value.
      dims: Method -> coordinates kept.
    """

    scores: dict[str, dict[str, Scores]]
    dims: dict[str, int]


def measure(
    job: Job, methods: Sequence[str], options: TrainOptions, folder: Path, watch: Watch
) -> Cells:
    """Fits and scores methods one after another, and keeps each as it is finished.

    Args:
      job: The dataset and its split.
      methods: Names of methods.
      options: Their settings.
      folder: Where adapters, scores, checkpoints and histories lie.
      watch: Where to tell how it goes.
    """
    keep_split(job, folder)
    introduce(job, options, watch)
    scores: dict[str, dict[str, Scores]] = {}
    dims: dict[str, int] = {}
    for method in methods:
        scores[method], dims[method] = measure_one(job, method, options, folder, watch)
    return Cells(scores, dims)


def measure_one(
    job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch
) -> tuple[dict[str, Scores], int]:
    """Fits and scores one method; returns its scores by seed, and the coordinates it keeps."""
    compressors = _fitted(job, method, options, folder, watch)
    names = fitted_names(method, options.seeds)
    scores = {
        seed: _scored(job, names[seed], each, options, folder) for seed, each in compressors.items()
    }
    return scores, next(iter(compressors.values())).dim


def keep_split(job: Job, folder: Path) -> None:
    """Writes split.json, or refuses a folder that holds another split."""
    if (folder / "split.json").exists():
        check_manifest(folder / "split.json", job.split)
    else:
        write_json(folder / "split.json", manifest(job.split))


def introduce(job: Job, options: TrainOptions, watch: Watch) -> None:
    """Tells what a dataset holds and what was dropped."""
    dataset = job.source.dataset
    for what, count in (job.source.counts | dict(job.split.counts)).items():
        watch.note(f"{dataset}: {count} {what}")
    watch.note(
        f"{dataset}: {len(job.source.ids.document):,} documents, {len(job.trained):,} training and "
        f"{len(job.scored):,} scored queries, {len(job.material.triplets.query):,} triplets, "
        f"{job.source.store.dim} to {options.dim} coordinates"
    )


def describe(
    job: Job, options: TrainOptions, cells: Cells, pairs: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Returns what metrics.json holds, but for what concerns training alone.

    Args:
      job: The dataset and its split.
      options: The settings.
      cells: What was measured.
      pairs: Methods whose difference is tested.
    """
    listed = {name: list(by_seed.values()) for name, by_seed in cells.scores.items()}
    store = job.source.store
    return {
        "format_version": FORMAT_VERSION,
        "dataset": job.source.dataset,
        "encoder": store.encoder,
        "full_dim": store.dim,
        "dim": options.dim,
        "split": options.split,
        "protocol": options.protocol,
        "seeds": list(options.seeds),
        "queries": {
            "train": len(job.trained),
            "test": len(job.scored),
            "test_unseen": len(job.unseen),
        },
        "overlap": job.overlap._asdict(),
        "methods": {
            name: summarise(by_seed, cells.dims[name], job.unseen)
            for name, by_seed in listed.items()
        },
        "comparisons": {
            f"{first} - {other}": compare(listed[first], listed[other]) for first, other in pairs
        },
        "dropped": job.source.counts | dict(job.split.counts),
        "versions": versions(),
        "fingerprints": {
            "encoder": store.encoder_fingerprint,
            "vectors": store.fingerprint,
            "texts": job.source.collection.fingerprint,
            "split": manifest(job.split)["fingerprint"],
        },
    }
