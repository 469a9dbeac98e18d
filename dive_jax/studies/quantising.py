"""Compressed vectors kept as smaller numbers: bytes a vector against quality."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.files import write_json
from dive_jax.methods.protocol import Compressor, load
from dive_jax.metrics.trec import per_query
from dive_jax.options import TrainOptions
from dive_jax.report.tables import Column
from dive_jax.retrieval.codes import Kind
from dive_jax.retrieval.exact import to_run
from dive_jax.retrieval.quantised import KINDS, bytes_per_vector, calibrate, search
from dive_jax.scoring import DEPTH, Scores
from dive_jax.studies.cells import Watch, fitted_names
from dive_jax.studies.job import Job
from dive_jax.studies.results import summarise

OVERSAMPLING = 4
"""Candidates of a binary search for each document wanted."""

SAMPLE = 1000
"""Documents, evenly spaced, whose values give the ranges of int8."""

TABLE = (
    Column("dataset", "dataset", align="left"),
    Column("method", "method", align="left"),
    Column("kind", "kept as", align="left"),
    Column("searched", "bytes searched"),
    Column("kept", "bytes kept"),
    Column("ndcg@10", "nDCG@10", 4),
    Column("recall@10", "Recall@10", 4),
)
"""Columns of the table; binary search also keeps an int8 copy, to score its candidates again."""


class _Compressed:
    """Documents that are compressed when they are read, chunk by chunk."""

    def __init__(self, compressor: Compressor, vectors: Any, chunk_rows: int) -> None:
        self._compressor, self._vectors, self._chunk_rows = compressor, vectors, chunk_rows
        self.shape = (len(vectors), compressor.dim)
        self.dtype = np.dtype(np.float32)
        self.ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = self._vectors[rows]
        if not len(chosen):
            return np.zeros((0, self.shape[1]), np.float32)
        return self._compressor.compress(chosen, chunk_rows=self._chunk_rows)


def score_quantised(job: Job, compressor: Compressor, chunk_rows: int) -> dict[str, Scores]:
    """Searches a compressor's vectors in every kind of storage but float32.

    Args:
      job: The dataset and who is scored.
      compressor: What compresses.
      chunk_rows: Documents held at once while compressing.

    Returns:
      Kind -> scores of every query. Queries stay in float32; binary candidates are scored again
      with the int8 copy.
    """
    vectors, ids = job.source.vectors, job.source.ids
    rows = [row for row, each in enumerate(ids.query) if each in job.scored]
    queries = compressor.compress(vectors.query[rows], side="query", chunk_rows=chunk_rows)
    documents = _Compressed(compressor, vectors.document, chunk_rows)
    spaced = np.linspace(0, len(documents) - 1, min(SAMPLE, len(documents))).astype(int)
    ranges, searched, found = calibrate(documents[spaced]), [ids.query[row] for row in rows], {}
    for kind in KINDS:
        if kind == "float32":
            continue
        ranking = search(
            queries,
            documents,
            kind=kind,
            k=DEPTH + 1,
            calibration=ranges,
            oversampling=OVERSAMPLING,
            rescore="int8",
            chunk_rows=chunk_rows,
        )
        run = to_run(ranking, searched, ids.document, depth=DEPTH)
        found[kind] = per_query(job.scored, run)
    return found


def quantised_scores(
    job: Job, method: str, options: TrainOptions, folder: Path, watch: Watch
) -> dict[str, dict[Kind, Scores]]:
    """Returns seed -> kind -> scores of a fitted method, kept in its folder."""
    found = {}
    for seed, name in fitted_names(method, options.seeds).items():
        path = folder / "quantised" / f"{name}.json"
        if not path.is_file():
            watch.note(f"{job.source.dataset}: {name} as float16, int8 and bits")
            compressor = load(folder / "adapters" / name)
            write_json(path, score_quantised(job, compressor, options.chunk_rows))
        found[seed] = json.loads(path.read_text(encoding="utf-8"))
    return found


def summarised(
    by_seed: Mapping[str, Mapping[Kind, Scores]], dim: int, unseen: tuple[str, ...]
) -> dict[str, Any]:
    """Returns kind -> bytes, means and deviations over seeds.

    Args:
      by_seed: Seed -> kind -> scores.
      dim: Coordinates kept.
      unseen: Queries of unseen documents.
    """
    kinds = next(iter(by_seed.values())).keys()
    told = {}
    for kind in kinds:
        entry = summarise([each[kind] for each in by_seed.values()], dim, unseen)
        copy = bytes_per_vector("int8", dim) if kind == "binary" else 0
        size = bytes_per_vector(kind, dim)
        told[kind] = entry | {"bytes": size, "bytes_kept": size + copy}
    return told


def table_rows(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns one row a dataset, method and kind, float32 first.

    Args:
      metrics: What compare.json holds.
    """
    rows = []
    for dataset, entry in metrics["datasets"].items():
        for method, kinds in entry["quantised"].items():
            full = entry["methods"][method]
            for kind, each in {"float32": full, **kinds}.items():
                seeds = len(each["ndcg@10"]["per_seed"])
                row = {"dataset": dataset, "method": method, "kind": kind}
                row |= {"searched": each["bytes"], "kept": each.get("bytes_kept", each["bytes"])}
                for name in ("ndcg@10", "recall@10"):
                    spread = each[name]["std"] if seeds > 1 else None
                    row[name] = each[name]["mean"], spread
                rows.append(row)
    return rows


def points(metrics: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Returns method -> (bytes searched, nDCG@10), means over the datasets, for a plot."""
    found: dict[str, dict[float, list[float]]] = {}
    for row in table_rows(metrics):
        sizes = found.setdefault(row["method"], {})
        sizes.setdefault(row["searched"], []).append(row["ndcg@10"][0])
    return {
        method: [(size, float(np.mean(values))) for size, values in sizes.items()]
        for method, sizes in found.items()
    }
