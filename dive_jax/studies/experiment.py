"""The main job: fit the methods, score them on held-out queries, keep everything in one folder."""

import json
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dive_jax.data.splits import check_manifest, manifest
from dive_jax.files import write_json, write_text
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, load
from dive_jax.methods.registry import METHODS, find
from dive_jax.models.residual import held_parameters, published_parameters
from dive_jax.options import TrainOptions
from dive_jax.report.plots import training_curves
from dive_jax.scoring import Scores, score
from dive_jax.sources import check_at_hand, parts
from dive_jax.studies.folder import check_folder, claimed, versions
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.results import (
    compare,
    history_csv,
    joined,
    per_query_csv,
    summarise,
)
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.loop import Logged
from dive_jax.types import TwoSided

FORMAT_VERSION = 1
MAIN = "dive"


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


def fitted_names(method: str, seeds: tuple[int, ...]) -> dict[str, str]:
    """Returns seed -> name of a fitted method's files; the seed is empty without chance."""
    if not find(method).seeded:
        return {"": method}
    return {str(seed): f"{method}-{seed}" for seed in seeds}


def _fit(job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch) -> Fitted:
    fitting = Fitting(
        seeds=options.seeds,
        chunk_rows=options.chunk_rows,
        checkpoints=lambda: Checkpoints(folder / "checkpoints"),
        checkpoint_seconds=options.checkpoint_seconds,
    )
    if not find(method).seeded:
        return find(method).fit(job.material, options, fitting)
    with watch.progress(options.epochs, f"training {method}", "epochs") as bar:
        told = fitting._replace(report=lambda epoch, logged: bar.update(epoch, _told(logged)))
        return find(method).fit(job.material, options, told)


def _fitted(
    job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch
) -> dict[str, Compressor]:
    """Fits a method, or loads what an earlier start of this run has fitted."""
    names = fitted_names(method, options.seeds)
    paths = {seed: folder / "adapters" / name for seed, name in names.items()}
    if all(path.is_dir() for path in paths.values()):
        return {seed: load(path) for seed, path in paths.items()}
    fitted = _fit(job, method, options, folder, watch)
    if fitted.history:
        title = f"{job.source.dataset}, {job.source.store.encoder}, {options.dim} wide"
        write_text(folder / "history.csv", history_csv(fitted.history, options.seeds))
        training_curves(fitted.history, folder / "training.png", title=title)
        _keep_timing(folder, compile=fitted.compile_seconds, train=fitted.train_seconds)
    compressors = dict(zip(paths, fitted.compressors, strict=True))
    for seed, path in paths.items():
        compressors[seed].save(path)
    return compressors


def _keep_timing(folder: Path, **seconds: float) -> None:
    """Adds wall times of this process, in seconds, and its greatest memory to timing.json."""
    path = folder / "timing.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept |= {f"{name}_seconds": round(value, 3) for name, value in seconds.items()}
    kept["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    write_json(path, kept)


def score_compressor(job: Job, compressor: Compressor, chunk_rows: int) -> Scores:
    """Scores one compressor on the job's queries."""

    def side(name: str) -> Callable[[Any], Any]:
        return lambda rows: compressor.compress(rows, side=name, chunk_rows=chunk_rows)

    return score(
        job.source.vectors,
        job.source.ids,
        job.scored,
        compress=TwoSided(query=side("query"), document=side("document")),
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


def describe(
    job: Job, options: Any, dim: int, scores: dict[str, dict[str, Scores]], dims: dict[str, int]
) -> dict[str, Any]:
    """Returns what metrics.json holds, but for what concerns training alone."""
    listed = {name: list(by_seed.values()) for name, by_seed in scores.items()}
    store = job.source.store
    return {
        "format_version": FORMAT_VERSION,
        "dataset": job.source.dataset,
        "encoder": store.encoder,
        "full_dim": store.dim,
        "dim": dim,
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
            name: summarise(by_seed, dims[name], job.unseen) for name, by_seed in listed.items()
        },
        "comparisons": {
            f"{MAIN} - {name}": compare(listed[MAIN], listed[name])
            for name in listed
            if name != MAIN
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


def _run_part(job: Job, options: TrainOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Fits, scores and keeps the results of one dataset."""
    began, dataset = time.perf_counter(), job.source.dataset
    for what, count in (job.source.counts | dict(job.split.counts)).items():
        watch.note(f"{dataset}: {count} {what}")
    if (folder / "split.json").exists():
        check_manifest(folder / "split.json", job.split)
    else:
        write_json(folder / "split.json", manifest(job.split))
    full_dim = job.source.store.dim
    watch.note(
        f"{dataset}: {len(job.source.ids.document):,} documents, {len(job.trained):,} training and "
        f"{len(job.scored):,} scored queries, {len(job.material.triplets.query):,} triplets, "
        f"{full_dim} to {options.dim} coordinates"
    )
    scores: dict[str, dict[str, Scores]] = {}
    dims: dict[str, int] = {}
    for method in METHODS:
        compressors = _fitted(job, method, options, folder, watch)
        names = fitted_names(method, options.seeds)
        scores[method] = {
            seed: _scored(job, names[seed], each, options, folder)
            for seed, each in compressors.items()
        }
        dims[method] = next(iter(compressors.values())).dim
    metrics = describe(job, options, options.dim, scores, dims)
    metrics["parameters"] = _parameters(options, full_dim)
    write_text(folder / "per_query.csv", per_query_csv(scores, job.unseen))
    _keep_timing(folder, wall=time.perf_counter() - began)
    write_json(folder / "metrics.json", metrics)
    return metrics


def _parameters(options: TrainOptions, full_dim: int) -> dict[str, int]:
    hidden = options.hidden(full_dim)
    return {
        "published": published_parameters(full_dim, hidden),
        "held": held_parameters(full_dim, hidden, options.dim * options.heads),
        "deployed": held_parameters(full_dim, hidden, options.dim),
    }


def run(options: TrainOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Fits every method, scores it on held-out queries and keeps all results in a folder.

    A killed run goes on where it stopped when called again; a finished one is only read.

    Args:
      options: What to run.
      folder: The run's folder.
      watch: Where to tell how it goes.

    Returns:
      What metrics.json holds.

    Raises:
      InputError: For wrong data or options, or a folder begun with others.
      TrainingError: If a loss is not finite.
    """
    options = options.effective()
    check_folder(folder, options)
    if (finished := _finished(folder)) is not None:
        watch.note(f"{folder} is finished; nothing to do")
        return finished
    check_at_hand(options.dataset, options.root)
    datasets = parts(options.dataset)
    # Prepared before the folder is made: a mistake in data or options leaves nothing behind.
    first = prepare(options, datasets[0])
    with claimed(folder, options, watch.note):
        if datasets == (options.dataset,):
            return _run_part(first, options, folder, watch)
        entries = []
        for dataset in datasets:
            place = folder / Path(dataset).name
            if (finished := _finished(place)) is None:
                job = first if dataset == datasets[0] else prepare(options, dataset)
                finished = _run_part(job, options, place, watch)
            entries.append(finished)
        metrics = joined(entries, options.dataset)
        write_json(folder / "metrics.json", metrics)
        return metrics


def _finished(folder: Path) -> dict[str, Any] | None:
    path = folder / "metrics.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
