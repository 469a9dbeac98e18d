"""Search over vectors kept as float16, int8 or bits: what a smaller number costs in quality.

Queries stay in float: only what is stored is rounded. Binary search compares the signs of both
sides and then scores a few candidates again with the float query.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from dive_jax.retrieval.codes import KINDS as KINDS
from dive_jax.retrieval.codes import Kind, Ranges, Rescore, check_finite, check_kind
from dive_jax.retrieval.codes import bytes_per_vector as bytes_per_vector
from dive_jax.retrieval.codes import calibrate as calibrate
from dive_jax.retrieval.codes import from_int8 as from_int8
from dive_jax.retrieval.codes import remark as remark
from dive_jax.retrieval.codes import to_binary as to_binary
from dive_jax.retrieval.codes import to_float16 as to_float16
from dive_jax.retrieval.codes import to_int8 as to_int8
from dive_jax.retrieval.exact import Ranking, Rows, top_k
from dive_jax.types import InputError

RESCORES = ("float32", "int8")

_WORD_BYTES = 8
_QUERY_ROWS = 256
_RESCORED_AT_ONCE = 32


def search(
    queries: Float[np.ndarray, "queries dim"],
    documents: Rows,
    *,
    kind: Kind,
    k: int,
    calibration: Ranges | None = None,
    oversampling: int = 4,
    rescore: Rescore = "float32",
    chunk_rows: int = 16384,
) -> Ranking:
    """Finds the k best documents as an engine with a quantised table would.

    float32, float16 and int8: the inner product of the float query and the stored document, exactly
    searched. binary: the k * oversampling documents of least Hamming distance between sign bits
    (ties: the lower row), then those ordered by the inner product of the float query and the
    document's `rescore` copy. In all kinds equal scores are ordered by row.

    Memory is O(chunk_rows * dim) for documents and O(256 * chunk_rows) for scores or distances.

    Args:
      queries: Query vectors, unit length.
      documents: Compressed unit vectors [documents, dim], read by slices, twice for binary.
      kind: How documents are kept.
      k: Documents wanted per query, at least 1.
      calibration: Ranges for int8, as a kind or to rescore with.
      oversampling: Candidates per wanted document in binary search, at least 1.
      rescore: What binary candidates are scored again with.
      chunk_rows: Documents held at once, at least 1.

    Returns:
      A `Ranking` with min(k, documents) columns.

    Raises:
      InputError: If a setting is unknown or out of range, ranges are missing where int8 is asked
        for, widths differ, or a value is not finite.
    """
    check_kind(kind)
    _check_settings(calibration, kind, rescore, oversampling)
    stored = rescore if kind == "binary" else kind

    def as_stored(x: Any) -> np.ndarray:
        if stored == "int8" and calibration is not None:
            return from_int8(to_int8(x, calibration), calibration)
        return to_float16(x) if stored == "float16" else x

    if kind != "binary":
        return top_k(queries, documents, k=k, chunk_rows=chunk_rows, transform=as_stored)
    # An empty search checks k, chunk_rows and the documents, and tells how many are found.
    empty = top_k(queries[:0], documents, k=k, chunk_rows=chunk_rows)
    if not len(queries):
        return empty
    k = empty.rows.shape[1]
    check_finite(queries, "queries")
    if documents.shape[1] != queries.shape[1]:
        raise InputError(
            f"documents: wanted width {queries.shape[1]} to match the queries, got "
            f"{documents.shape[1]}"
        )
    candidates = _nearest(queries, documents, min(k * oversampling, documents.shape[0]), chunk_rows)
    scores = _rescored(queries, documents, candidates, as_stored, chunk_rows)
    order = np.lexsort((candidates, -scores), axis=1)[:, :k]
    return Ranking(
        np.take_along_axis(scores, order, axis=1),
        np.take_along_axis(candidates, order, axis=1).astype(np.int32),
    )


def hamming(
    a: UInt8[np.ndarray, "rows_a bytes"], b: UInt8[np.ndarray, "rows_b bytes"]
) -> Int[np.ndarray, "rows_a rows_b"]:
    """Counts the bits in which packed rows differ, each of `a` with each of `b`.

    Args:
      a: What `to_binary` returned.
      b: The same, of the same width.

    Returns:
      int32 distances. Eight bytes are compared at once; memory is about 13 bytes a pair.

    Example:
      >>> hamming(np.array([[0b101]], np.uint8), np.array([[0b100], [0b10]], np.uint8))
      array([[1, 3]], dtype=int32)
    """
    words_a, words_b = _words(a), _words(b)
    distances = np.zeros((len(a), len(b)), np.int32)
    for column in range(words_a.shape[1]):
        distances += np.bitwise_count(words_a[:, column, None] ^ words_b[None, :, column])
    return distances


def _words(packed: np.ndarray) -> np.ndarray:
    """Returns the same bits in 64-bit words, with zeros behind."""
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % _WORD_BYTES)))
    return np.ascontiguousarray(padded).view(np.uint64)


def _chunks(documents: Rows, chunk_rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the first row and the float32 values of each chunk."""
    for start in range(0, documents.shape[0], chunk_rows):
        chunk = np.asarray(documents[start : start + chunk_rows], np.float32)
        check_finite(chunk, f"documents from row {start}")
        yield start, chunk


def _nearest(
    queries: np.ndarray, documents: Rows, count: int, chunk_rows: int
) -> Int[np.ndarray, "queries count"]:
    """Returns the rows of least Hamming distance to each query, nearest first."""
    asked, total = to_binary(queries), documents.shape[0]
    best = np.empty((len(queries), 0), np.int64)
    for start, chunk in _chunks(documents, chunk_rows):
        stored, rows = to_binary(chunk), start + np.arange(len(chunk))
        parts = []
        for first in range(0, len(queries), _QUERY_ROWS):
            block = slice(first, first + _QUERY_ROWS)
            # One number orders by distance, then by row, and no two are equal.
            keys = hamming(asked[block], stored) * np.int64(total) + rows
            keys = np.concatenate([best[block], keys], axis=1)
            if keys.shape[1] > count:
                keys = np.partition(keys, count - 1, axis=1)[:, :count]
            parts.append(keys)
        best = np.concatenate(parts)
    return np.sort(best, axis=1) % max(1, total)


def _rescored(
    queries: np.ndarray,
    documents: Rows,
    candidates: Int[np.ndarray, "queries count"],
    as_stored: Callable[[np.ndarray], np.ndarray],
    chunk_rows: int,
) -> Float[np.ndarray, "queries count"]:
    """Returns the inner product of each query with each of its candidates, summed in float64."""
    scores = np.zeros(candidates.shape, np.float32)
    for start, chunk in _chunks(documents, chunk_rows):
        stored = as_stored(chunk)
        for first in range(0, len(queries), _RESCORED_AT_ONCE):
            places = candidates[first : first + _RESCORED_AT_ONCE] - start
            query, column = np.nonzero((places >= 0) & (places < len(stored)))
            pairs = queries[first + query], stored[places[query, column]]
            products = np.einsum("ij,ij->i", *(each.astype(np.float64) for each in pairs))
            scores[first + query, column] = products
    return scores


def _check_settings(calibration: Ranges | None, kind: str, rescore: str, oversampling: int) -> None:
    if rescore not in RESCORES:
        raise InputError(f"rescore: wanted one of {', '.join(RESCORES)}, got {rescore!r}")
    if oversampling < 1:
        raise InputError(f"oversampling: wanted at least 1, got {oversampling}")
    if calibration is None and "int8" in (kind, rescore if kind == "binary" else None):
        raise InputError("calibration: int8 needs the ranges that `calibrate` returns, got none")
