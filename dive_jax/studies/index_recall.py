"""What each kind of index finds of what exact search finds, by width, and what it costs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.methods.protocol import Compressor, load
from dive_jax.metrics.trec import per_query, spread
from dive_jax.options import StudyOptions, TrainOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.retrieval import indexes
from dive_jax.retrieval.exact import Ranking, to_run, top_k
from dive_jax.scoring import DEPTH, mean
from dive_jax.sources import check_at_hand, parts
from dive_jax.studies.cells import Watch, fitted_names
from dive_jax.studies.job import Job
from dive_jax.studies.keeping import kept
from dive_jax.studies.rows import Jobs, Row
from dive_jax.studies.rows import measure as measure_rows
from dive_jax.types import InputError

DEPTHS = (10, 100)
"""Where recall against exact search is cut."""

COLUMNS = (
    Column("dataset", "dataset", align="left"),
    Column("dim", "width"),
    Column("kind", "index", align="left"),
    Column("bytes", "bytes a vector", 1),
    *(Column(f"recall@{depth}", f"recall of exact {depth}", 4) for depth in DEPTHS),
    Column("ndcg@10", "nDCG@10", 4),
)
"""Columns of the table; means and deviations over seeds. Bytes are those of the index's file."""


def recall(found: Ranking, exact: Ranking, depth: int) -> float:
    """Returns which share of the exact first documents an index has among its first.

    Args:
      found: What the index found.
      exact: What exact search found.
      depth: Where both are cut; fewer where there are fewer documents.

    Returns:
      The mean over queries.

    Example:
      >>> exact = Ranking(np.zeros((1, 2), np.float32), np.array([[4, 7]], np.int32))
      >>> recall(exact._replace(rows=np.array([[7, -1]], np.int32)), exact, 2)
      0.5
    """
    shares = [
        np.isin(wanted[:depth], got[:depth]).mean()
        for wanted, got in zip(exact.rows, found.rows, strict=True)
    ]
    return float(np.mean(shares))


def _built(kind: str, documents: Float[np.ndarray, "rows dim"]) -> Any:
    """Returns an index in memory, as `python -m dive_jax.index` builds it."""
    rows, dim = documents.shape
    chosen = indexes.parameters(indexes.Settings(kind), rows, dim)
    index = indexes.empty(kind, dim, chosen)
    indexes.train(index, documents[indexes.sample_rows(rows)])
    indexes.add(index, documents, chosen)
    return index


def _kinds(documents: int) -> list[str]:
    """Returns the kinds that are possible for as many documents."""
    possible = []
    for kind in indexes.KINDS:
        try:
            indexes.parameters(indexes.Settings(kind), documents, 1)
        except InputError:
            continue
        possible.append(kind)
    return possible


def _measured(job: Job, compressor: Compressor, chunk_rows: int) -> dict[str, dict[str, float]]:
    """Returns kind -> bytes a vector, recalls and nDCG@10 of one adapter's vectors."""
    vectors, ids = job.source.vectors, job.source.ids
    rows = [row for row, each in enumerate(ids.query) if each in job.scored]
    searched = [ids.query[row] for row in rows]
    queries = compressor.compress(vectors.query[rows], side="query", chunk_rows=chunk_rows)
    documents = compressor.compress(vectors.document, chunk_rows=chunk_rows)
    exact = top_k(queries, documents, k=max(DEPTHS), chunk_rows=chunk_rows)
    told = {}
    for kind in _kinds(len(documents)):
        index = _built(kind, documents)
        # Each depth is a search of its own: how hard an index looks depends on how much is wanted.
        found = {depth: indexes.search(index, queries, depth) for depth in (*DEPTHS, DEPTH + 1)}
        scored = _whole(found[DEPTH + 1], ids.document)
        run = to_run(scored, searched, [*ids.document, ""], depth=DEPTH)
        told[kind] = {
            "bytes": indexes.size(index) / len(documents),
            **{f"recall@{depth}": recall(found[depth], exact, depth) for depth in DEPTHS},
            "ndcg@10": mean(per_query(job.scored, run), "ndcg@10"),
        }
    return told


def _kept(job: Job, cell: Path, name: str, chunk_rows: int) -> dict[str, dict[str, float]]:
    """Returns what was measured of an adapter of a cell, now or before."""
    return kept(
        cell / "indexes" / f"{name}.json",
        lambda: _measured(job, load(cell / "adapters" / name), chunk_rows),
    )


def _whole(found: Ranking, ids: Sequence[str]) -> Ranking:
    """Puts a row behind all documents, which nobody judged, where an index found none."""
    none = found.rows < 0
    scores = np.where(none, np.finfo(np.float32).min / 2, found.scores)
    return Ranking(scores, np.where(none, len(ids), found.rows).astype(np.int32))


def _narrowed(width: int, options: TrainOptions, full_dim: int) -> TrainOptions:
    """Returns options of a width, with as many heads as fit."""
    heads = max(1, min(options.heads, full_dim // width))
    return dataclasses.replace(options, dim=width, heads=heads)


def _rows(options: StudyOptions, full_dim: int) -> list[Row]:
    widths = [each for each in options.widths if each <= full_dim]
    if not widths:
        raise InputError(f"--widths: wanted one up to the full width {full_dim}")
    widths = widths[:2] if options.smoke else widths
    return [Row(str(each), options.method, _narrowed(each, options, full_dim)) for each in widths]


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a dataset, width and kind; finished cells are read.

    Args:
      options: Datasets, method, widths, seeds; --smoke takes two widths.
      folder: Where finished cells lie; adapters lie where all studies of the folder share them.
      watch: Where to tell how it goes.
    """
    indexes.library()
    datasets = [part for name in options.datasets or (options.dataset,) for part in parts(name)]
    jobs, listed = Jobs(), []
    for dataset in datasets:
        check_at_hand(dataset, options.root)
        job = jobs.of(options, dataset)
        rows = _rows(options, job.source.store.dim)
        part = str(Path(folder.name) / "fits")
        table = measure_rows(rows, [dataset], folder.parent, part, watch, jobs)
        names = fitted_names(options.method, options.seeds).values()
        with watch.progress(len(table.rows), f"indexing {dataset}", "widths") as bar:
            for done, (label, row) in enumerate(table.rows.items(), 1):
                cells = [
                    _kept(job, table.folders[dataset][label], name, options.chunk_rows)
                    for name in names
                ]
                listed += _summary(dataset, row.options.dim, cells)
                bar.update(done, f"{label} wide")
    return listed


def _summary(
    dataset: str, dim: int, cells: Sequence[dict[str, dict[str, float]]]
) -> list[dict[str, Any]]:
    """Returns a row a kind, means and deviations over seeds."""
    rows = []
    for kind in cells[0]:
        row: dict[str, Any] = {"dataset": dataset, "dim": dim, "kind": kind}
        for name in cells[0][kind]:
            found = spread([each[kind][name] for each in cells])
            row[name] = found.mean if name == "bytes" else (found.mean, found.std)
        rows.append(row)
    return rows


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws recall and nDCG@10 against the width, a line a kind, a panel a measure and dataset."""
    names = {f"recall@{depth}": f"recall of the exact {depth}" for depth in DEPTHS}
    names["ndcg@10"] = "nDCG@10"
    shown = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for name, title in names.items():
            lines: dict[str, list[Point]] = {}
            for row in rows:
                if row["dataset"] == dataset:
                    lines.setdefault(row["kind"], []).append(Point(row["dim"], *row[name]))
            shown.append(Panel(f"{dataset}: {title}", lines))
    panels(
        shown,
        path,
        title="Indexes of compressed vectors",
        x="width kept",
        y="0 to 1",
        octaves=True,
        zero=False,
    )
