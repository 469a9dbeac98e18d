"""The main job: DIVE beside its references on held-out queries, everything in one folder."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from dive_jax.files import replacing, write_json, write_text
from dive_jax.methods.registry import find
from dive_jax.models.residual import held_parameters, published_parameters
from dive_jax.options import TrainOptions
from dive_jax.sources import check_at_hand, parts
from dive_jax.studies.cells import Watch, describe, keep_timing, measure
from dive_jax.studies.folder import check_folder, claimed
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.page import Searched, keep_page, keep_pages
from dive_jax.studies.results import joined, per_query_csv

RESIDUAL = ("dive", "dive_principal", "dive_batch")
"""Methods whose adapter is DIVE's, and whose parameters are counted as it counts."""

REFERENCES = ("frozen", "truncate", "pca")
"""What every adapter is measured beside."""


def methods_of(options: TrainOptions) -> tuple[str, ...]:
    """Returns the references, then the method that is trained."""
    find(options.method)
    return (*(name for name in REFERENCES if name != options.method), options.method)


def pairs_of(options: TrainOptions) -> list[tuple[str, str]]:
    """Returns the differences that are tested."""
    return [(options.method, name) for name in methods_of(options) if name != options.method]


def _run_part(job: Job, options: TrainOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Fits, scores and keeps the results of one dataset."""
    began = time.perf_counter()
    cells = measure(job, methods_of(options), options, folder, watch)
    metrics = describe(job, options, cells, pairs_of(options))
    metrics["method"] = options.method
    if options.method in RESIDUAL:
        metrics["parameters"] = _parameters(options, job.source.store.dim)
    for end, name in ((".csv", "history.csv"), (".png", "training.png")):
        if (kept := folder / "histories" / f"{options.method}{end}").is_file():
            with replacing(folder / name) as aside:
                shutil.copyfile(kept, aside)
    write_text(folder / "per_query.csv", per_query_csv(cells.scores, job.unseen))
    keep_timing(folder, wall=time.perf_counter() - began)
    write_json(folder / "metrics.json", metrics)
    keep_page(folder, options, watch.note, Searched(job.source, job.scored))
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
        keep_pages(folder, options, watch.note)
        return finished
    check_at_hand(options.dataset, options.root)
    datasets = parts(options.dataset)
    # Prepared before the folder is made: a mistake in data or options leaves nothing behind.
    first = prepare(options, datasets[0], methods_of(options))
    with claimed(folder, options, watch.note):
        if datasets == (options.dataset,):
            return _run_part(first, options, folder, watch)
        entries = []
        for dataset in datasets:
            place = folder / Path(dataset).name
            if (finished := _finished(place)) is None:
                job = (
                    first
                    if dataset == datasets[0]
                    else prepare(options, dataset, methods_of(options))
                )
                finished = _run_part(job, options, place, watch)
            entries.append(finished)
        metrics = joined(entries, options.dataset)
        write_json(folder / "metrics.json", metrics)
        keep_page(folder, options, watch.note)
        return metrics


def _finished(folder: Path) -> dict[str, Any] | None:
    path = folder / "metrics.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
