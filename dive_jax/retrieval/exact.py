"""Exact inner-product search in bounded memory, and its hand-over to the measures."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from dive_jax.retrieval import shards
from dive_jax.retrieval.blocks import Best
from dive_jax.retrieval.shards import Chunk, Devices, Transform
from dive_jax.retrieval.shards import Rows as Rows
from dive_jax.types import InputError, Run

_LEAST_STEP = np.float32(1e-30)


class Ranking(NamedTuple):
    """The best documents of each query, best first.

    Attributes:
      scores: float32 [queries, k], inner products, never increasing along a row.
      rows: int32 [queries, k], rows of the documents.
    """

    scores: np.ndarray
    rows: np.ndarray


class Held:
    """Documents that stay on the devices, for many searches.

    Args:
      documents: Vectors [documents, full_dim], float16, float32 or float64; held as float32. On a
        CPU, float32 rows whose memory is aligned, such as those of a memory-mapped file, are used
        where they lie: leave them as they are.
      chunk_rows: Documents searched at once, at least 1.
      transform: Applied to each chunk before it is held; see `top_k`.
      devices: Devices to spread each chunk over; default all.

    Raises:
      InputError: If these are no vectors, or `chunk_rows` is below 1.

    Example:
      >>> held = Held(np.eye(3, dtype=np.float32))
      >>> held.top_k(np.array([[0.0, 2.0, 1.0]], np.float32), k=2).rows
      array([[1, 2]], dtype=int32)
    """

    def __init__(
        self,
        documents: Rows,
        *,
        chunk_rows: int = 65536,
        transform: Transform | None = None,
        devices: Devices | None = None,
    ) -> None:
        _check_least(chunk_rows=chunk_rows)
        self.documents = shards.count(documents)
        self._devices = devices
        self._chunks = list(
            shards.chunks(documents, chunk_rows, width=None, transform=transform, devices=devices)
        )

    def top_k(
        self, queries: Float[np.ndarray, "queries dim"], *, k: int, query_rows: int = 256
    ) -> Ranking:
        """Finds the k documents with the greatest inner product to each query; see `top_k`."""
        _check_least(k=k, query_rows=query_rows)
        for chunk in self._chunks[:1]:
            if queries.shape[1] != chunk.vectors.shape[2]:
                raise InputError(
                    f"queries: wanted width {chunk.vectors.shape[2]} to match the documents, got "
                    f"{queries.shape[1]}"
                )
        k = min(k, self.documents)
        return _search(queries, iter(self._chunks), k, query_rows, self._devices)


def top_k(
    queries: Float[np.ndarray, "queries dim"],
    documents: Rows,
    *,
    k: int,
    chunk_rows: int = 16384,
    query_rows: int = 256,
    transform: Transform | None = None,
    devices: Devices | None = None,
) -> Ranking:
    """Finds the k documents with the greatest inner product to each query, exactly.

    Documents are read and transformed once, chunk by chunk; scores are formed for `query_rows`
    queries and `chunk_rows` documents at most, so memory is O(query_rows * chunk_rows + queries *
    (dim + k)) whatever the number of documents. The last chunk and the last block of queries
    reach back over rows already seen instead of being shorter, so every shape is compiled once.

    Tie rule: of two documents with the same float32 score, the one in the lower row comes first,
    wherever the chunks end. (-0.0 and 0.0 are the same score.)

    Args:
      queries: Query vectors.
      documents: Vectors [documents, full_dim], float16, float32 or float64; used as float32.
      k: Documents wanted per query, at least 1.
      chunk_rows: Documents held at once, at least 1.
      query_rows: Queries scored at once, at least 1.
      transform: Applied to each chunk (float32 [rows, full_dim]) before the search, for example to
        compress and normalise it. Each row's result must depend on that row alone.
      devices: Devices to spread each chunk over; default all.

    Returns:
      A `Ranking` with min(k, documents) columns.

    Raises:
      InputError: If a setting is below 1, widths differ, or a score is not finite.

    Example:
      >>> documents = np.array([[1, 0], [0, 1], [1, 0]], np.float16)
      >>> top_k(np.array([[2.0, 1.0]], np.float32), documents, k=2).rows
      array([[0, 2]], dtype=int32)
    """
    _check_least(k=k, chunk_rows=chunk_rows, query_rows=query_rows)
    k = min(k, shards.count(documents))
    read = shards.chunks(
        documents, chunk_rows, width=queries.shape[1], transform=transform, devices=devices
    )
    return _search(queries, read, k, query_rows, devices)


def _check_least(**settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise InputError(f"{name}: wanted at least 1, got {value}")


def _search(
    queries: np.ndarray,
    chunks: Iterator[Chunk],
    k: int,
    query_rows: int,
    devices: Devices | None,
) -> Ranking:
    if not (k and len(queries)):
        return Ranking(
            np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int32)
        )
    starts = _starts(len(queries), query_rows)
    rows = min(query_rows, len(queries))
    blocks = shards.on_all(_blocks(queries, starts, rows), devices)
    best = shards.nothing_yet((len(starts), rows), k, devices)
    for chunk in chunks:
        before = best
        best = shards.merged(best, blocks, chunk, devices)
        jax.block_until_ready(before)  # At most two chunks are alive: this one and the last.
    return _collect(shards.collected(best), starts, len(queries))


def _starts(rows: int, step: int) -> list[int]:
    """Returns where blocks of `step` rows begin; the last is moved back to end with the rows."""
    return [max(0, min(start, rows - step)) for start in range(0, rows, step)]


def _blocks(
    queries: np.ndarray, starts: list[int], rows: int
) -> Float[np.ndarray, "blocks rows dim"]:
    bad = ~np.isfinite(queries).all(axis=1)
    if bad.any():
        raise InputError(f"query row {bad.argmax()}: wanted finite values, got NaN or infinity")
    return np.stack([np.asarray(queries[start : start + rows], np.float32) for start in starts])


def _collect(best: Best, starts: list[int], queries: int) -> Ranking:
    """Copies the blocks' results to their queries; a row of two blocks is equal in both."""
    rows, k = best.scores.shape[1:]
    ranking = Ranking(np.empty((queries, k), np.float32), np.empty((queries, k), np.int32))
    finite = np.empty(queries, bool)
    for block, start in enumerate(starts):
        where = slice(start, start + rows)
        ranking.scores[where] = best.scores[block]
        ranking.rows[where] = best.rows[block]
        finite[where] = best.finite[block]
    if not finite.all():
        raise InputError(
            f"query row {finite.argmin()}: wanted finite scores, got NaN or infinity with some "
            "document; check both for NaN, infinities and values whose products overflow"
        )
    return ranking


def to_run(
    ranking: Ranking,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    *,
    depth: int = 10,
) -> Run:
    """Turns a ranking into a run that the measures order exactly as the search did.

    A document whose id equals the query's id is dropped before the cut (search `depth + 1`
    documents). trec_eval reads scores as float32 and orders equal ones by document id, descending;
    so a score that does not fall is lowered to just below the one before it.

    Args:
      ranking: What `top_k` returned for these queries and documents.
      query_ids: One distinct id per row of the ranking.
      document_ids: One distinct id per document row.
      depth: Documents kept per query, at least 1.

    Returns:
      Query id -> document id -> score, best first, strictly falling in float32.

    Raises:
      InputError: If ids and ranking do not fit together.

    Example:
      >>> ranking = Ranking(np.ones((1, 3), np.float32), np.array([[0, 1, 2]], np.int32))
      >>> {query: list(kept) for query, kept in to_run(ranking, ["b"], ["a", "b", "c"]).items()}
      {'b': ['a', 'c']}
    """
    if depth < 1:
        raise InputError(f"depth: wanted at least 1, got {depth}")
    if not len(set(query_ids)) == len(query_ids) == len(ranking.scores):
        raise InputError(
            f"query_ids: wanted {len(ranking.scores)} distinct ids, got {len(query_ids)} of which "
            f"{len(set(query_ids))} are distinct"
        )
    if ranking.rows.size and ranking.rows.max() >= len(document_ids):
        raise InputError(
            f"document_ids: wanted more than {ranking.rows.max()}, got {len(document_ids)}"
        )
    scores = _strictly_falling(ranking.scores).tolist()
    run = {}
    for query, values, rows in zip(query_ids, scores, ranking.rows.tolist(), strict=True):
        found = ((document_ids[row], value) for row, value in zip(rows, values, strict=True))
        run[query] = dict([each for each in found if each[0] != query][:depth])
    return run


def _strictly_falling(scores: np.ndarray) -> np.ndarray:
    scores = np.array(scores, np.float32)
    for column in range(1, scores.shape[1]):
        above = scores[:, column - 1]
        # Around 0 the next float is subnormal, which some machines read as 0: go further there.
        below = np.minimum(np.nextafter(above, np.float32(-np.inf)), above - _LEAST_STEP)
        scores[:, column] = np.minimum(scores[:, column], below)
    return scores
