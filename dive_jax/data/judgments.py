"""Judgments by row: which documents are relevant for the queries that train, and how much."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt64

from dive_jax.data.qrels import relevant
from dive_jax.types import Qrels, TwoSided


class Judgments(NamedTuple):
    """Relevant documents of the queries that train, padded to one width.

    Attributes:
      query: Row of each query among the query vectors.
      document: Rows of its relevant documents, -1 where there is none.
      gain: Their gains, 0 where there is none.
      text: For every document of the collection the number of its text; identical texts share one.
    """

    query: Int32[np.ndarray, " queries"]
    document: Int32[np.ndarray, "queries judged"]
    gain: Float32[np.ndarray, "queries judged"]
    text: Int32[np.ndarray, " documents"]


def make_judgments(
    query_ids: Sequence[str],
    qrels: Qrels,
    *,
    query_rows: Mapping[str, int],
    document_rows: Mapping[str, int],
    documents: int,
    digests: UInt64[np.ndarray, " documents"] | None,
) -> Judgments:
    """Puts the judgments of some queries into arrays; gains of 0 and below are left out.

    Args:
      query_ids: Queries that train.
      qrels: Their judgments.
      query_rows: Id -> row of the query vectors.
      document_rows: Id -> row of the document vectors.
      documents: Number of documents.
      digests: Digest of each document's text; None where texts are unknown, then all differ.

    Example:
      >>> made = make_judgments(["q"], {"q": {"d": 2}}, query_rows={"q": 5},
      ...                       document_rows={"d": 1}, documents=3, digests=None)
      >>> made.document, made.gain
      (array([[1]], dtype=int32), array([[2.]], dtype=float32))
    """
    found = [sorted(relevant(qrels[query])) for query in query_ids]
    width = max((len(each) for each in found), default=1)
    document = np.full((len(found), width), -1, np.int32)
    gain = np.zeros((len(found), width), np.float32)
    for place, (query, ids) in enumerate(zip(query_ids, found, strict=True)):
        document[place, : len(ids)] = [document_rows[id] for id in ids]
        gain[place, : len(ids)] = [qrels[query][id] for id in ids]
    text = np.arange(documents)
    if digests is not None:
        text = np.unique(digests, return_inverse=True)[1]
    rows = np.array([query_rows[query] for query in query_ids], np.int32)
    return Judgments(rows, document, gain, text.astype(np.int32))


class Placed(NamedTuple):
    """Judgments among the rows that train, as `training.batches.Relations` wants them."""

    judged: Int32[np.ndarray, "queries judged"]
    gains: Float32[np.ndarray, "queries judged"]
    judged_text: Int32[np.ndarray, "queries judged"]
    text: Int32[np.ndarray, " documents"]


def place(judgments: Judgments, used: TwoSided) -> Placed:
    """Renumbers judgments over the rows that train.

    Args:
      judgments: Of at least the queries of `used`.
      used: Rows that train, sorted, int32 a side; see `triplets.compact`.

    Returns:
      One row a query of `used.query`. A relevant document that does not train keeps its text, so
      that its twins are still known.
    """
    order = np.argsort(judgments.query)
    places = order[np.searchsorted(judgments.query[order], used.query)]
    document, gain = judgments.document[places], judgments.gain[places]
    new = np.full(len(judgments.text) + 1, -1, np.int32)  # the last entry answers for -1
    new[used.document] = np.arange(len(used.document), dtype=np.int32)
    text = np.append(judgments.text, -1).astype(np.int32)
    return Placed(new[document], gain, text[document], judgments.text[used.document])
