"""Shared or dual: the selector's answer for one dataset, with its evidence and both operators."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.artefact import Artefact, save
from dive_jax.files import write_json
from dive_jax.operators import Operator, cars, dual, factors, shared
from dive_jax.options import GeometryOptions, TrainOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies.cells import FORMAT_VERSION, Watch
from dive_jax.studies.folder import check_folder, claimed, versions
from dive_jax.studies.job import Job, prepare
from dive_jax.studies.keeping import kept
from dive_jax.studies.operator_losses import moment_of
from dive_jax.studies.triples import Triples, sizes, triples_of
from dive_jax.types import InputError

LEAST = 4
"""Fewest queries: two disjoint halves of two."""

TABLE = (
    Column("rank", "rank"),
    Column("choice", "choice", align="left"),
    Column("score", "score"),
    Column("spread", "over splits"),
    Column("signal", "signal"),
    Column("cost", "cost"),
    Column("changes_at", "changes at"),
)
"""Columns of what the command prints; `table_rows` makes the rows."""


def boundary(counts: np.ndarray, scores: np.ndarray) -> dict[str, float | None]:
    """Fits score = signal - cost / n to scores of samples of several sizes.

    The noise of a score falls as 1 / n, so each counts with n squared.

    Args:
      counts: Sample sizes n, one a score.
      scores: CARS scores of one rank.

    Returns:
      signal, cost (both in units of the squared norm of the moment; the cost is that of one query)
      and changes_at: the n at which the sign is expected to change, None where it never does.

    Source:
      arXiv 2609.32488: the mean of the score is signal - variance * kappa / n near a shared target.

    Example:
      >>> n = np.array([32.0, 64.0, 128.0])
      >>> found = boundary(n, 2.0 - 100.0 / n)
      >>> round(found["signal"], 6), round(found["cost"], 6), round(found["changes_at"], 6)
      (2.0, 100.0, 50.0)
    """
    if len(set(counts.tolist())) < 2:
        return {"signal": None, "cost": None, "changes_at": None}
    weights = counts.astype(float)
    design = np.stack([np.ones_like(weights), -1 / weights], axis=1) * weights[:, None]
    (signal, cost), *_ = np.linalg.lstsq(design, scores * weights, rcond=None)
    at = float(cost / signal) if signal > 0 and cost > 0 else None
    return {"signal": float(signal), "cost": float(cost), "changes_at": at}


def _scores(triples: Triples, options: GeometryOptions, seed: int) -> dict[str, Any]:
    found = cars(
        jnp.asarray(triples.query),
        jnp.asarray(triples.positive),
        jnp.asarray(triples.negative),
        ranks=options.ranks,
        seed=seed,
        splits=options.splits,
    )
    found = jax.device_get(found)
    return {
        "score": found.score.tolist(),
        "spread": found.spread.tolist(),
        "size": found.size.tolist(),
        "dual": found.dual.tolist(),
    }


def _sampled(
    triples: Triples, options: GeometryOptions, folder: Path, watch: Watch
) -> dict[int, list[dict[str, Any]]]:
    """Returns size -> what was scored on each subsample of it; finished ones are read."""
    count = len(triples.ids)
    todo = [
        (size, draw)
        for size in sizes(count)
        for draw in range(options.draws if size < count else 1)
    ]
    found: dict[int, list[dict[str, Any]]] = {}
    with watch.progress(len(todo), "scoring subsamples", "subsamples") as bar:
        for done, (size, draw) in enumerate(todo, 1):
            path = folder / "scores" / f"{size}-{draw}.json"
            order = np.random.default_rng([options.seed, draw]).permutation(count)
            some = triples.take(np.sort(order[:size]))
            scored = kept(path, lambda some=some: _scores(some, options, options.seed))
            found.setdefault(size, []).append(scored)
            bar.update(done, f"{size} queries")
    return found


def _save_operators(triples: Triples, job: Job, options: GeometryOptions, folder: Path) -> None:
    """Writes both families at every rank as adapters that `compress` applies to either side."""
    moment = moment_of(triples)
    fits: dict[str, Operator] = {
        "dual": dual(moment, max(options.ranks)),
        "shared": shared(moment, max(options.ranks)),
    }
    for family, fit in fits.items():
        sides = jax.device_get(factors(fit))
        for rank in options.ranks:
            name = f"{family}-{rank}"
            about = {"family": family, "rank": rank, "queries": len(triples.ids)}
            meta = job.material.meta(name, rank, **about) | {"normalized": False}
            query, document = (np.ascontiguousarray(side[:rank]) for side in sides)
            artefact = (
                Artefact("linear", {"weight": query}, meta)
                if family == "shared"
                else Artefact("sided", {"query_weight": query, "document_weight": document}, meta)
            )
            save(artefact, folder / "adapters" / name)


def table_rows(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns one row a rank.

    Args:
      metrics: What geometry.json holds.
    """

    def short(value: float | None) -> str | None:
        return None if value is None else f"{value:.3g}"

    rows = []
    for rank, each in metrics["ranks"].items():
        row = {name: short(each[name]) for name in ("score", "spread", "signal", "cost")}
        at = each["changes_at"]
        words = "never" if at is None else f"{at:,.0f} queries"
        rows.append({"rank": int(rank), "choice": each["choice"], **row, "changes_at": words})
    return rows


def _draw(
    found: Mapping[int, list[dict[str, Any]]], options: GeometryOptions, title: str, folder: Path
) -> None:
    lines = {}
    for place, rank in enumerate(options.ranks):
        points = []
        for size, draws in found.items():
            shares = [each["score"][place] / max(each["size"][place], 1e-30) for each in draws]
            points.append(Point(size, float(np.mean(shares)), float(np.std(shares))))
        lines[f"rank {rank}"] = points
    panels(
        [Panel("above 0: dual, below: shared", lines)],
        folder / "geometry.png",
        title=title,
        x="training queries",
        y="score / size of the difference",
        octaves=True,
    )


def _prepared(options: GeometryOptions) -> tuple[Job, Triples]:
    """Loads a dataset and makes its triples.

    Raises:
      InputError: If there are fewer than 4 queries, no negatives, or a rank exceeds the width.
    """
    shown = {
        name: getattr(options, name)
        for name in ("dataset", "encoder", "data_root", "lsa_dim", "verify", "judgments", "split")
    }
    shown |= {"split_seed": options.split_seed, "protocol": options.protocol}
    job = prepare(TrainOptions(**shown), options.dataset, ())
    width = job.source.store.dim
    if max(options.ranks) > width:
        raise InputError(
            f"--ranks: wanted at most the full width {width}, got {max(options.ranks)}"
        )
    triples = triples_of(job.source, job.material, job.train_qrels, options.chunk_rows)
    if len(triples.ids) < LEAST:
        raise InputError(
            f"{options.dataset}: wanted at least {LEAST} training queries with a negative, got "
            f"{len(triples.ids)}; choose --judgments=all or another --split"
        )
    return job, triples


def run(options: GeometryOptions, folder: Path, watch: Watch) -> dict[str, Any]:
    """Decides for every rank, and writes the evidence, a plot and the operators.

    Killed, it goes on where it stopped.

    Args:
      options: Dataset, ranks, splits.
      folder: Where everything goes: geometry.json, geometry.png and adapters/.
      watch: Where to tell how it goes.

    Returns:
      What geometry.json holds.

    Raises:
      InputError: For wrong data or options, or a folder begun with others.
    """
    check_folder(folder, options)
    finished = folder / "geometry.json"
    if finished.is_file():
        watch.note(f"{folder} is finished; nothing to do")
        return json.loads(finished.read_text(encoding="utf-8"))
    job, triples = _prepared(options)
    with claimed(folder, options, watch.note):
        count = len(triples.ids)
        watch.note(f"{options.dataset}: {count:,} triples, {job.source.store.dim} wide")
        found = _sampled(triples, options, folder, watch)
        _save_operators(triples, job, options, folder)
        (last,) = found[count]
        ranks = {}
        for place, rank in enumerate(options.ranks):
            pairs = [(n, each["score"][place]) for n, draws in found.items() for each in draws]
            counts, scores = (np.array(each) for each in zip(*pairs, strict=True))
            ranks[str(rank)] = {
                "choice": "dual" if last["dual"][place] else "shared",
                "score": last["score"][place],
                "spread": last["spread"][place],
                "size": last["size"][place],
                **boundary(counts, scores),
                "by_size": {str(n): [each["score"][place] for each in found[n]] for n in found},
            }
        metrics = {
            "format_version": FORMAT_VERSION,
            "dataset": options.dataset,
            "encoder": job.source.store.encoder,
            "full_dim": job.source.store.dim,
            "queries": count,
            "splits": options.splits,
            "ranks": ranks,
            "versions": versions(),
        }
        title = f"{options.dataset}, {job.source.store.encoder}, {count:,} queries"
        _draw(found, options, title, folder)
        write_json(finished, metrics)
        return metrics
