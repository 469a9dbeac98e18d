"""From per-query scores to metrics.json, per_query.csv and the rows of the table."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dive_jax.metrics.paired import randomisation_test
from dive_jax.metrics.trec import spread
from dive_jax.report.tables import Column
from dive_jax.scoring import Scores, mean

MEASURES = ("ndcg@10", "recall@10")
TABLE = (
    Column("method", "method", align="left"),
    Column("dim", "width"),
    Column("bytes", "bytes a vector"),
    Column("ndcg@10", "nDCG@10", 4),
    Column("recall@10", "Recall@10", 4),
    Column("unseen", "nDCG@10, unseen documents", 4),
)
"""Columns of a run's table; `table_rows` makes the rows."""

_FLOAT_BYTES = 4


def _summary(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Returns mean, sample deviation and the values of all seeds; None where nothing is scored."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle, deviation = spread(known)
    return {"mean": middle, "std": deviation, "per_seed": known}


def summarise(by_seed: Sequence[Scores], dim: int, unseen: Sequence[str]) -> dict[str, Any]:
    """Returns one method's entry of metrics.json.

    Args:
      by_seed: Scores of every query, one mapping a seed; one only for a method without chance.
      dim: Coordinates kept.
      unseen: Queries none of whose relevant documents occur in training.

    Returns:
      dim, bytes a vector (float32), and for every measure mean, std and per_seed, over all scored
      queries and, under "unseen", over those of `unseen`.
    """
    over_all = {name: _summary([mean(each, name) for each in by_seed]) for name in MEASURES}
    over_unseen = {
        name: _summary([mean(each, name, unseen) for each in by_seed]) for name in MEASURES
    }
    return {"dim": dim, "bytes": dim * _FLOAT_BYTES, **over_all, "unseen": over_unseen}


def compare(
    first: Sequence[Scores], second: Sequence[Scores], queries: Sequence[str] | None = None
) -> dict[str, Any]:
    """Tests the difference of two methods' nDCG@10, each query's mean over seeds, paired.

    Args:
      first: Scores of every query, one mapping a seed.
      second: Those of the other method.
      queries: Those that count; None for all.
    """
    kept = tuple(first[0]) if queries is None else queries

    def by_query(scores: Sequence[Scores]) -> np.ndarray:
        return np.mean([[each[query]["ndcg@10"] for query in kept] for each in scores], axis=0)

    return randomisation_test(by_query(first), by_query(second))._asdict()


def mean_of_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the equal mean of one method's entries over the parts of a dataset, seed by seed."""

    def averaged(entries: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
        known = [each["per_seed"] for each in entries if each is not None]
        return _summary(np.mean(known, axis=0).tolist()) if known else None

    unseen = {name: averaged([part["unseen"][name] for part in parts]) for name in MEASURES}
    over_all = {name: averaged([part[name] for part in parts]) for name in MEASURES}
    return {"dim": parts[0]["dim"], "bytes": parts[0]["bytes"], **over_all, "unseen": unseen}


def joined(entries: Sequence[Mapping[str, Any]], dataset: str) -> dict[str, Any]:
    """Returns metrics.json of a dataset in parts: equal means over the parts, sums of counts."""
    first = entries[0]
    methods = {
        name: mean_of_parts([each["methods"][name] for each in entries])
        for name in first["methods"]
    }
    queries = {name: sum(each["queries"][name] for each in entries) for name in first["queries"]}
    return {
        **first,
        "dataset": dataset,
        "parts": [each["dataset"] for each in entries],
        "queries": queries,
        "methods": methods,
        "overlap": {
            name: sum(each["overlap"][name] for each in entries) for name in first["overlap"]
        },
        "comparisons": {},
        "unseen_comparisons": {},
        "dropped": {each["dataset"]: each["dropped"] for each in entries},
        "fingerprints": {each["dataset"]: each["fingerprints"] for each in entries},
    }


def several(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the means of those methods of a study that lie in more than one of its datasets."""
    held = Counter(name for entry in metrics["datasets"].values() for name in entry["methods"])
    return {name: entry for name, entry in metrics["methods"].items() if held[name] > 1}


def best_unseen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the test against frozen of the row that is best on unseen documents, by its words."""
    tests = entry.get("unseen_comparisons", {})
    if not tests:
        return {}
    best = max(tests, key=lambda pair: tests[pair]["difference"])
    return {f"{best}, unseen documents": tests[best]}


def table_rows(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row a method: names, width, bytes, and (mean, std) pairs."""

    def cell(entry: Mapping[str, Any] | None, seeds: int) -> tuple[float, float | None] | None:
        if entry is None:
            return None
        return entry["mean"], entry["std"] if seeds > 1 else None

    rows = []
    for name, entry in methods.items():
        seeds = len(entry["ndcg@10"]["per_seed"])
        rows.append(
            {
                "method": name,
                "dim": entry["dim"],
                "bytes": entry["bytes"],
                "ndcg@10": cell(entry["ndcg@10"], seeds),
                "recall@10": cell(entry["recall@10"], seeds),
                "unseen": cell(entry["unseen"]["ndcg@10"], seeds),
            }
        )
    return rows


def per_query_csv(scores: Mapping[str, Mapping[str, Scores]], unseen: Sequence[str]) -> str:
    """Writes every query's scores as CSV: query_id, method, seed, unseen, then the measures.

    Args:
      scores: Method -> seed (empty text for a method without chance) -> scores.
      unseen: Queries none of whose relevant documents occur in training.
    """
    text, new = io.StringIO(), set(unseen)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query_id", "method", "seed", "unseen", *MEASURES])
    for method, by_seed in scores.items():
        for seed, each in by_seed.items():
            for query, values in each.items():
                shown = [repr(values[name]) for name in MEASURES]
                writer.writerow([query, method, seed, int(query in new), *shown])
    return text.getvalue()


def paired_lines(comparisons: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns one line a tested difference."""
    return [
        f"{pair}: {test['difference']:+.4f} nDCG@10, p = {test['p_value']:.4f} "
        f"(paired randomisation, {test['queries']} queries)"
        for pair, test in comparisons.items()
    ]


def remarks(metrics: Mapping[str, Any]) -> list[str]:
    """Returns what a reader of the table must also know: tests, sizes, and a warning if due."""
    seen = metrics["overlap"]
    lines = [
        f"overlap: {seen['seen_documents']:,} of the {seen['documents']:,} relevant documents of "
        "these queries are also relevant for a training query"
    ]
    lines += paired_lines(metrics["comparisons"])
    methods = metrics["methods"]
    main = metrics.get("method", "dive")
    least = methods[main]["ndcg@10"]["mean"]
    better = [name for name, entry in methods.items() if entry["ndcg@10"]["mean"] > least]
    if better and main != "frozen":
        lines.append(f"warning: {main} scores below {', '.join(better)} on these queries")
    if sizes := metrics.get("parameters"):
        lines.append(
            f"parameters: {sizes['published']:,} as published, {sizes['held']:,} held in training, "
            f"{sizes['deployed']:,} in a deployed adapter"
        )
    return lines
