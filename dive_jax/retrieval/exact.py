"""Exact inner-product search in bounded memory, and its hand-over to the measures."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dive_jax.types import InputError, Run

_LEAST_STEP = np.float32(1e-30)


@runtime_checkable
class Rows(Protocol):
    """Vectors read by slices of rows: a numpy array, a memory-mapped file, or alike."""

    @property
    def shape(self) -> Any:
        """Rows and width."""
        ...

    @property
    def dtype(self) -> Any:
        """A numpy floating type."""
        ...

    def __getitem__(self, key: slice, /) -> Any:
        """Returns the rows of a slice."""
        ...


Transform = Callable[[np.ndarray], Any]
"""Maps float32 [rows, full_dim] to the vectors that are searched, [rows, dim], row by row."""


class Ranking(NamedTuple):
    """The best documents of each query, best first.

    Attributes:
      scores: float32 [queries, k], inner products, never increasing along a row.
      rows: int32 [queries, k], rows of the documents.
    """

    scores: np.ndarray
    rows: np.ndarray


class _Best(NamedTuple):
    """The best so far of every block of queries, and whether all its scores were finite."""

    scores: Float[Array, "*blocks rows k"]
    rows: Int[Array, "*blocks rows k"]
    finite: Bool[Array, "*blocks rows"]


def top_k(
    queries: Float[np.ndarray, "queries dim"],
    documents: Rows,
    *,
    k: int,
    chunk_rows: int = 16384,
    query_rows: int = 256,
    transform: Transform | None = None,
) -> Ranking:
    """Finds the k documents with the greatest inner product to each query, exactly.

    Documents are read and transformed once, chunk by chunk; scores are formed for `query_rows`
    queries and `chunk_rows` documents at a time, so memory is O(query_rows * chunk_rows + queries
    * (dim + k)) whatever the number of documents. The last chunk and the last block of queries
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

    Returns:
      A `Ranking` with min(k, documents) columns.

    Raises:
      InputError: If a setting is below 1, widths differ, or a score is not finite.

    Example:
      >>> documents = np.array([[1, 0], [0, 1], [1, 0]], np.float16)
      >>> top_k(np.array([[2.0, 1.0]], np.float32), documents, k=2).rows
      array([[0, 2]], dtype=int32)
    """
    for name, value in (("k", k), ("chunk_rows", chunk_rows), ("query_rows", query_rows)):
        if value < 1:
            raise InputError(f"{name}: wanted at least 1, got {value}")
    total = _document_count(documents)
    k = min(k, total)
    if not (k and len(queries)):
        return Ranking(
            np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int32)
        )
    starts = _starts(len(queries), query_rows)
    blocks = _blocks(queries, starts, min(query_rows, len(queries)))
    best = _nothing_yet(blocks.shape[0], blocks.shape[1], k)
    chunk_rows = min(chunk_rows, total)
    for seen in range(0, total, chunk_rows):
        first = min(seen, total - chunk_rows)
        chunk = _chunk(documents[first : first + chunk_rows], transform, queries.shape[1])
        before = best
        best = _merge(best, blocks, jnp.asarray(chunk), np.int32(first), np.int32(seen))
        jax.block_until_ready(before)  # At most two chunks are alive: this one and the last.
    return _collect(best, starts, len(queries))


def _document_count(documents: Rows) -> int:
    if len(documents.shape) != 2:
        raise InputError(f"documents: wanted [rows, width], got shape {tuple(documents.shape)}")
    if np.dtype(documents.dtype).kind != "f":
        raise InputError(f"documents: wanted floating-point vectors, got {documents.dtype}")
    return int(documents.shape[0])


def _starts(rows: int, step: int) -> list[int]:
    """Returns where blocks of `step` rows begin; the last is moved back to end with the rows."""
    return [max(0, min(start, rows - step)) for start in range(0, rows, step)]


def _blocks(queries: np.ndarray, starts: list[int], rows: int) -> Float[Array, "blocks rows dim"]:
    bad = ~np.isfinite(queries).all(axis=1)
    if bad.any():
        raise InputError(f"query row {bad.argmax()}: wanted finite values, got NaN or infinity")
    parts = [np.asarray(queries[start : start + rows], np.float32) for start in starts]
    return jnp.asarray(np.stack(parts))


def _nothing_yet(blocks: int, rows: int, k: int) -> _Best:
    shape = (blocks, rows, k)
    return _Best(
        jnp.full(shape, -jnp.inf, jnp.float32),
        jnp.zeros(shape, jnp.int32),
        jnp.ones(shape[:2], jnp.bool_),
    )


def _chunk(
    documents: np.ndarray, transform: Transform | None, width: int
) -> Float[np.ndarray, "rows dim"]:
    vectors = np.asarray(documents, np.float32)
    rows = len(vectors)
    if transform is not None:
        vectors = np.asarray(transform(vectors), np.float32)
    if vectors.shape != (rows, width):
        made = "documents" if transform is None else "transform(documents)"
        raise InputError(
            f"{made}: wanted shape {(rows, width)} to match the queries, got {vectors.shape}"
        )
    return vectors


@jax.jit
def _merge(
    best: _Best,
    blocks: Float[Array, "blocks rows dim"],
    chunk: Float[Array, "documents dim"],
    first: Int[Any, ""],
    seen: Int[Any, ""],
) -> _Best:
    """Takes a chunk into the best so far: its rows begin at `first`, those below `seen` are old."""
    # lax.map goes block after block, so the scores of one block alone are in memory.
    step = functools.partial(_merge_block, chunk=chunk, first=first, seen=seen)
    return lax.map(lambda both: step(*both), (best, blocks))


def _merge_block(
    best: _Best,
    queries: Float[Array, "rows dim"],
    *,
    chunk: Float[Array, "documents dim"],
    first: Int[Any, ""],
    seen: Int[Any, ""],
) -> _Best:
    scores = jnp.matmul(
        queries, chunk.T, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )
    # top_k puts -0.0 below 0.0, and the lower place first where scores are equal.
    scores = jnp.where(scores == 0, jnp.zeros_like(scores), scores)
    values, places = lax.top_k(scores, min(best.scores.shape[1], len(chunk)))
    rows = first + places
    # Old rows can only repeat what `best` already holds: dropping them here loses no document.
    values = jnp.where(rows < seen, -jnp.inf, values)
    values = jnp.concatenate([best.scores, values], axis=1)
    rows = jnp.concatenate([best.rows, rows], axis=1)
    values, places = lax.top_k(values, best.scores.shape[1])
    finite = jnp.isfinite(scores.max(axis=1)) & jnp.isfinite(scores.min(axis=1))
    return _Best(values, jnp.take_along_axis(rows, places, axis=1), best.finite & finite)


def _collect(best: _Best, starts: list[int], queries: int) -> Ranking:
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
