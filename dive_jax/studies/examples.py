"""Queries to look at: chosen by their scores alone, with what both kinds of vectors find."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dive_jax.data import beir, python_docs
from dive_jax.data.qrels import relevant
from dive_jax.methods.protocol import Compressor
from dive_jax.report.page_queries import DEPTH, SHOWN, Example, Group, Hit, Missed
from dive_jax.retrieval.exact import to_run, top_k
from dive_jax.sources import BUILT_IN_DATASET, Source
from dive_jax.types import InputError, Qrels, Run

EACH = 5
"""Queries at either end."""


class Ends(NamedTuple):
    """Ids of the queries whose difference is highest, highest first, and lowest, lowest first."""

    highest: tuple[str, ...]
    lowest: tuple[str, ...]


def choose(before: Mapping[str, float], after: Mapping[str, float], each: int = EACH) -> Ends:
    """Chooses queries by the difference of two scores, after less before; equal ones by id.

    Args:
      before: Query id -> score.
      after: The same queries' scores.
      each: Queries at either end; where there are fewer than two ends' worth, no query is in both.

    Example:
      >>> scores = {"a": 0.5, "b": 0.5, "c": 0.9}
      >>> choose(dict.fromkeys("abc", 0.5), scores, each=1)
      Ends(highest=('c',), lowest=('a',))
    """
    change = {query: after[query] - score for query, score in before.items()}
    highest = sorted(change, key=lambda query: (-change[query], query))
    highest = highest[: min(each, -(-len(change) // 2))]
    rest = [query for query in change if query not in highest]
    lowest = sorted(rest, key=lambda query: (change[query], query))
    return Ends(tuple(highest), tuple(lowest[:each]))


class Scored(NamedTuple):
    """What the chosen queries have: scores of both kinds of vectors, and who is unseen."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    unseen: frozenset[str]


class Texts(NamedTuple):
    """Texts by id, of those that are shown; empty where no texts are at hand."""

    queries: dict[str, str]
    documents: dict[str, tuple[str, str]]


def _search(
    source: Source, queries: tuple[str, ...], compressor: Compressor, chunk_rows: int
) -> Run:
    """Searches as the run was scored: exactly, a document with the query's own id left out."""
    row_of = source.store.sides.query.row_of
    known = [query for query in queries if query in row_of]
    compress = compressor.sides(chunk_rows)
    ranking = top_k(
        compress.query(source.vectors.query[np.array([row_of[query] for query in known], int)]),
        source.vectors.document,
        k=DEPTH + 1,
        chunk_rows=chunk_rows,
        transform=compress.document,
    )
    return to_run(ranking, known, source.ids.document, depth=DEPTH)


def _texts(dataset: str, root: str, queries: set[str], documents: set[str]) -> Texts:
    """Reads the texts that are shown, in one pass over the files that are at hand."""
    folder = python_docs.build() if dataset == BUILT_IN_DATASET else Path(root) / dataset
    found = Texts({}, {})
    try:
        found.queries.update((q.id, q.text) for q in beir.iter_queries(folder) if q.id in queries)
        for each in beir.iter_documents(folder):
            if each.id in documents:
                found.documents[each.id] = each.title, each.text
    except InputError:  # a store of vectors may come without texts
        pass
    return found


def _ranks(found: Mapping[str, float]) -> dict[str, int]:
    return {document: place for place, document in enumerate(found, 1)}


def _hits(
    found: Mapping[str, float], other: dict[str, int], wanted: set[str], texts: Texts
) -> list[Hit]:
    hits = []
    for document, rank in list(_ranks(found).items())[:SHOWN]:
        title, text = texts.documents.get(document, ("", None))
        score, relevant_ = float(found[document]), document in wanted
        hits.append(Hit(document, title, text, score, relevant_, rank, other.get(document)))
    return hits


def _example(
    query: str, scored: Scored, wanted: set[str], runs: tuple[Run, Run], texts: Texts
) -> Example:
    frozen, compressed = (run.get(query, {}) for run in runs)
    ranks = _ranks(frozen), _ranks(compressed)
    before = _hits(frozen, ranks[1], wanted, texts)
    after = _hits(compressed, ranks[0], wanted, texts)
    shown = {hit.id for hit in (*before, *after)}
    missed = [
        Missed(
            document, *texts.documents.get(document, ("", None)), *(r.get(document) for r in ranks)
        )
        for document in sorted(wanted - shown)
    ]
    return Example(
        query,
        texts.queries.get(query),
        query in scored.unseen,
        len(wanted),
        scored.before[query],
        scored.after[query],
        before,
        after,
        missed,
    )


def examples(
    source: Source,
    qrels: Qrels,
    scored: Scored,
    frozen: Compressor,
    compressed: Compressor,
    *,
    root: str,
    chunk_rows: int,
) -> list[Group]:
    """Searches the chosen queries with both kinds of vectors and reads their texts.

    Args:
      source: Vectors and ids.
      qrels: Judgments of the scored queries.
      scored: Their scores.
      frozen: Leaves vectors at full width.
      compressed: What is compared with it.
      root: Folder of the datasets.
      chunk_rows: Documents held at once.
    """
    ends = choose(scored.before, scored.after)
    chosen = (*ends.highest, *ends.lowest)
    runs = (
        _search(source, chosen, frozen, chunk_rows),
        _search(source, chosen, compressed, chunk_rows),
    )
    wanted = {query: set(relevant(qrels[query])) for query in chosen}
    needed = set().union(*wanted.values(), *(list(run[q])[:SHOWN] for run in runs for q in run))
    texts = _texts(source.dataset, root, set(chosen), needed)
    made = {query: _example(query, scored, wanted[query], runs, texts) for query in chosen}
    return [
        Group("Highest differences", [made[query] for query in ends.highest]),
        Group("Lowest differences", [made[query] for query in ends.lowest]),
    ]
