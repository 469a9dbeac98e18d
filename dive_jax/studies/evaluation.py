"""A finished run's adapters, scored again: on the run's own queries or on other embeddings."""

from pathlib import Path
from typing import Any

from dive_jax.artefact import check_encoder
from dive_jax.files import write_json, write_text
from dive_jax.methods.protocol import load
from dive_jax.options import TrainOptions
from dive_jax.scoring import Scores
from dive_jax.sources import parts
from dive_jax.studies.cells import Cells, describe, fitted_names, score_compressor
from dive_jax.studies.experiment import methods_of, pairs_of
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.results import per_query_csv
from dive_jax.types import InputError


def _as_foreign(job: Job) -> Job:
    """Marks every query as unseen: nothing was trained on the documents of another dataset."""
    seen = job.overlap._replace(seen_documents=0, unseen_queries=len(job.scored))
    return job._replace(unseen=tuple(job.scored), overlap=seen)


def evaluate(run: Path, before: TrainOptions, now: TrainOptions, out: Path) -> dict[str, Any]:
    """Scores all adapters of a run and writes metrics.json and per_query.csv to a folder.

    Args:
      run: Folder of the finished run.
      before: The run's options.
      now: The options to score under: dataset, encoder, split, judgments, protocol.
      out: Where the results go.

    Returns:
      What metrics.json holds.

    Raises:
      InputError: If an adapter is missing or damaged, or is another encoder's, or the run's own
        dataset is to be split another way: queries that trained would be scored.
    """
    if parts(now.dataset) != (now.dataset,):
        raise InputError(f"--dataset: name one of {', '.join(parts(now.dataset))}")
    folder = run if parts(before.dataset) == (before.dataset,) else run / Path(now.dataset).name
    foreign = now.dataset not in parts(before.dataset)
    if not foreign and (now.split, now.judgments) != (before.split, before.judgments):
        raise InputError(
            f"--split and --judgments: this run was trained under {before.split}, "
            f"{before.judgments}; another split of {now.dataset} would score queries that trained"
        )
    job = prepare(now, now.dataset, ())
    if foreign:
        job = _as_foreign(job)
    store = job.source.store
    scores: dict[str, dict[str, Scores]] = {}
    dims: dict[str, int] = {}
    for method in methods_of(before):
        scores[method] = {}
        for seed, name in fitted_names(method, before.seeds).items():
            compressor = load(folder / "adapters" / name)
            check_encoder(
                compressor.artefact,
                encoder=store.encoder,
                fingerprint=store.encoder_fingerprint,
                dim=store.dim,
            )
            scores[method][seed] = score_compressor(job, compressor, now.chunk_rows)
            dims[method] = compressor.dim
    metrics = describe(job, now, Cells(scores, dims), pairs_of(before))
    metrics["method"] = before.method
    write_text(out / "per_query.csv", per_query_csv(scores, job.unseen))
    write_json(out / "metrics.json", metrics)
    return metrics
