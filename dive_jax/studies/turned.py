"""Trained projections on queries that are turned by an angle, scored on all documents."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dive_jax.data.embeddings import unit_rows
from dive_jax.methods.pca import rotation
from dive_jax.methods.projections import Projecting, ProjectionSettings, best_rate, prepare
from dive_jax.methods.protocol import Fitting, Material
from dive_jax.methods.tuning import held_out, scorer, without
from dive_jax.operators import rotate_queries
from dive_jax.options import StudyOptions
from dive_jax.scoring import mean, score
from dive_jax.sources import parts
from dive_jax.studies.job import Job
from dive_jax.studies.job import prepare as prepare_job
from dive_jax.studies.keeping import kept
from dive_jax.studies.operator_losses import moment_of
from dive_jax.studies.triples import triples_of
from dive_jax.training.mesh import chosen
from dive_jax.types import TwoSided

PLANES = 8
"""Turned planes: of the 16 strongest eigenvectors of the symmetric moment, two by two."""

FAMILIES = ("shared", "dual")
SAMPLE_SEED = 20260924


class Setting(NamedTuple):
    """One cell: how far queries are turned, how many of them train, and the rank."""

    degrees: int
    queries: int
    rank: int


class Bench(NamedTuple):
    """One dataset, ready for every cell.

    Attributes:
      dataset: Its name.
      job: Its split; training queries train, those of its validation part validate.
      planes: Axes that are turned, [16, full_dim].
      axes: Principal axes of the documents.
    """

    dataset: str
    job: Job
    planes: Float[np.ndarray, "count full_dim"]
    axes: Float[np.ndarray, "full_dim full_dim"]


def benches(options: StudyOptions) -> Any:
    """Yields every dataset of the options, ready."""
    final = dataclasses.replace(options, protocol="final")
    datasets = [part for name in options.datasets or (options.dataset,) for part in parts(name)]
    for dataset in datasets:
        job = prepare_job(final, dataset, ())
        triples = triples_of(job.source, job.material, job.train_qrels, options.chunk_rows)
        moment = np.asarray(moment_of(triples), np.float64)
        count = 2 * min(PLANES, moment.shape[0] // 2)
        values, vectors = np.linalg.eigh((moment + moment.T) / 2)
        strongest = vectors[:, np.argsort(-values)[:count]].T
        axes = rotation(job.material, options.chunk_rows)
        yield Bench(dataset, job, strongest.astype(np.float32), axes)


def turned(bench: Bench, degrees: int) -> TwoSided:
    """Returns the vectors of a dataset with all queries turned; documents stay."""
    query = unit_rows(bench.job.source.vectors.query, np.arange(len(bench.job.source.ids.query)))
    angle = float(np.deg2rad(degrees))
    moved = rotate_queries(jnp.asarray(query), jnp.asarray(bench.planes), angle)
    return TwoSided(np.asarray(moved), bench.job.source.vectors.document)


def fewer(material: Material, queries: int) -> Material:
    """Returns material of some of the queries that train, nested samples of one seed."""
    known = material.judgments
    if known is None or queries >= len(known.query):
        return material
    chosen = np.random.default_rng(SAMPLE_SEED).permutation(len(known.query))[:queries]
    chosen = np.sort(chosen)
    rows = known.query[chosen]
    some = known._replace(query=rows, document=known.document[chosen], gain=known.gain[chosen])
    triplets = material.triplets
    left = np.isin(triplets.query, rows)
    return material._replace(
        triplets=type(triplets)(*(column[left] for column in triplets)), judgments=some
    )


def cell(
    bench: Bench,
    setting: Setting,
    options: StudyOptions,
    settings: ProjectionSettings,
    folder: Path,
) -> dict[str, list[float]]:
    """Returns family -> nDCG@10 on test queries by seed; a finished cell is read.

    Args:
      bench: The dataset.
      setting: Angle, training queries, rank.
      options: Seeds; epochs and steps bound the paper's.
      settings: Rates, and how projections are trained.
      folder: Where finished cells lie.
    """
    name = "-".join(map(str, setting))
    return kept(folder / f"{name}.json", lambda: _cell(bench, setting, options, settings))


def _cell(
    bench: Bench, setting: Setting, options: StudyOptions, settings: ProjectionSettings
) -> dict[str, list[float]]:
    job, chunk_rows = bench.job, options.chunk_rows
    vectors = turned(bench, setting.degrees)
    held = held_out(job.material, "validation")
    unturned = fewer(without(job.material, held), setting.queries)
    seen = unturned._replace(vectors=vectors)
    validate = scorer(job.material._replace(vectors=vectors), held, chunk_rows)
    fitting = Fitting(options.seeds, chunk_rows, validate=validate, devices=chosen(options.devices))
    ready = prepare(seen, fitting, settings.hard, mined_on=unturned)
    found = {}
    for family in FAMILIES:
        todo = Projecting(seen, ready, bench.axes[: setting.rank], family, f"linear_{family}")
        fitted = best_rate(todo, options, fitting, settings)
        scores = (
            score(
                vectors,
                job.source.ids,
                job.scored,
                compress=each.sides(chunk_rows),
                chunk_rows=chunk_rows,
            )
            for each in fitted.compressors
        )
        found[family] = [mean(each, "ndcg@10") for each in scores]
    return found


def summary(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Returns means and deviations of both families and of their paired difference, over seeds."""
    one, other = (np.array(found[family]) for family in FAMILIES)

    def spread(values: np.ndarray) -> tuple[float, float]:
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0

    return {"shared": spread(one), "dual": spread(other), "gap": spread(other - one)}
