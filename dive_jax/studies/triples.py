"""Triples of a dataset's queries, as the operator theory wants them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.judgments import make_judgments
from dive_jax.methods.neighbours import hard_negatives
from dive_jax.methods.protocol import Material
from dive_jax.sources import Source
from dive_jax.types import InputError, Qrels

_SMALLEST = 32


class Triples(NamedTuple):
    """Unit vectors, a row a query.

    Attributes:
      ids: Ids of the queries, sorted.
      query: Query vectors.
      positive: Of each query's first relevant document.
      negative: Of the best document, before any projection, that is not judged relevant.
    """

    ids: tuple[str, ...]
    query: Float[np.ndarray, "triples dim"]
    positive: Float[np.ndarray, "triples dim"]
    negative: Float[np.ndarray, "triples dim"]

    def take(self, rows: np.ndarray) -> "Triples":
        """Returns some of the triples."""
        columns = (column[rows] for column in self[1:])
        return Triples(tuple(self.ids[row] for row in rows), *columns)


def triples_of(source: Source, material: Material, qrels: Qrels, chunk_rows: int) -> Triples:
    """Makes one triple of every query that has a negative.

    Args:
      source: The dataset.
      material: Its vectors.
      qrels: Judgments of the queries, in the order of their files.
      chunk_rows: Documents held at once.

    Raises:
      InputError: If no query has a negative.

    Source:
      arXiv 2609.32488, selection: first labelled positive, highest-ranked unlabelled document.
    """
    vectors, rows, queries = source.vectors, source.store.sides, sorted(qrels)
    known = make_judgments(
        queries,
        qrels,
        query_rows=rows.query.row_of,
        document_rows=rows.document.row_of,
        documents=len(source.ids.document),
        digests=source.collection.digests_of(source.ids.document),
    )
    best = hard_negatives(material._replace(judgments=known), 1, chunk_rows)[:, 0].tolist()
    found = []
    for query, row, negative in zip(queries, known.query.tolist(), best, strict=True):
        first = next(document for document, gain in qrels[query].items() if gain > 0)
        if negative >= 0:
            found.append((query, row, rows.document.row_of[first], negative))
    if not found:
        raise InputError(
            f"{source.dataset}: no negatives: every document is relevant for every query; take "
            "more documents"
        )
    ids, *places = zip(*found, strict=True)
    query, positive, negative = (np.array(each, np.int64) for each in places)
    return Triples(
        tuple(ids),
        unit_rows(vectors.query, query),
        unit_rows(vectors.document, positive),
        unit_rows(vectors.document, negative),
    )


def sizes(count: int) -> list[int]:
    """Returns sample sizes: doubling from 32, then all.

    Example:
      >>> sizes(100)
      [32, 64, 100]
    """
    found, size = [], min(_SMALLEST, count)
    while size < count:
        found.append(size)
        size *= 2
    return [*found, count]
