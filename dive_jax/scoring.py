"""Vectors and judgments in, per-query scores out: search and measures behind one call."""

from collections.abc import Sequence

import numpy as np

from dive_jax.metrics.trec import per_query
from dive_jax.retrieval.exact import to_run, top_k
from dive_jax.types import Qrels, TwoSided

DEPTH = 10
"""Where nDCG and recall are cut."""

Scores = dict[str, dict[str, float]]
"""Query id -> measure ("ndcg@10", "recall@10") -> value."""


def score(
    vectors: TwoSided,
    ids: TwoSided,
    qrels: Qrels,
    *,
    compress: TwoSided,
    chunk_rows: int,
) -> Scores:
    """Searches all documents exactly and measures every judged query.

    A document whose id is the query's own is dropped from that query's results before the cut, so
    one result more is searched for.

    Args:
      vectors: Frozen vectors, [rows, full_dim] a side; documents may be memory-mapped.
      ids: Ids of the rows.
      qrels: Judgments; the queries named here are searched, and no others.
      compress: Maps frozen rows to the vectors compared, a side each.
      chunk_rows: Documents held at once.

    Returns:
      nDCG@10 and recall@10 of every query of `qrels` with a relevant document; 0 for one that has
      no vector.
    """
    rows = [row for row, each in enumerate(ids.query) if each in qrels]
    queries = compress.query(vectors.query[rows])
    ranking = top_k(
        queries,
        vectors.document,
        k=DEPTH + 1,
        chunk_rows=chunk_rows,
        transform=compress.document,
    )
    searched = [ids.query[row] for row in rows]
    run = to_run(ranking, searched, ids.document, depth=DEPTH)
    return per_query(qrels, run)


def mean(scores: Scores, measure: str, queries: Sequence[str] | None = None) -> float | None:
    """Returns the mean of a measure over all queries, or over some of them; None over none."""
    chosen = list(scores) if queries is None else [each for each in queries if each in scores]
    if not chosen:
        return None
    return float(np.mean([scores[each][measure] for each in chosen]))
