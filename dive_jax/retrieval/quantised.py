"""Search over vectors kept as float16, int8 or bits: what a smaller number costs in quality.

Queries stay in float: only what is stored is rounded. Binary search compares the signs of both
sides and then scores a few candidates again with the float query.

Which fits which width: float16 and int8 fit any. Bits alone hold too little of a narrow vector;
engines advise them from 1,024 wide, and one falls back to int8 below 384 (see `remark`).
"""

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Float16, Int, Int8, Integer, UInt8

from dive_jax.retrieval.exact import Ranking, Rows, top_k
from dive_jax.types import InputError

Kind: TypeAlias = Literal["float32", "float16", "int8", "binary"]
Rescore: TypeAlias = Literal["float32", "int8"]

KINDS = ("float32", "float16", "int8", "binary")
LEVELS = 255
"""Values an int8 coordinate takes: -127 to 127."""

_HALF_LEVELS = LEVELS // 2
_WORD_BYTES = 8
_QUERY_ROWS = 256
_BINARY_FROM, _BINARY_ADVISED = 384, 1024


class Ranges(NamedTuple):
    """Where each dimension's values lie; what is outside is clipped.

    Attributes:
      low: float32 [dim], the value of int8 code -127.
      high: float32 [dim], the value of code 127, at least `low`.
    """

    low: np.ndarray
    high: np.ndarray


def calibrate(sample: Float[np.ndarray, "rows dim"], *, coverage: float = 1.0) -> Ranges:
    """Fits the range of each dimension to a sample of the vectors that will be stored.

    Args:
      sample: At least one row, finite.
      coverage: Central share of the sample's values to cover, 0 < coverage <= 1. 1 takes least and
        greatest; less gives finer steps and clips outliers.

    Returns:
      The ranges.

    Raises:
      InputError: If the sample is empty or not finite, or the coverage is out of range.

    Example:
      >>> calibrate(np.array([[-1.0, 2.0], [3.0, 2.0]], np.float32))
      Ranges(low=array([-1.,  2.], dtype=float32), high=array([3., 2.], dtype=float32))
    """
    if not 0 < coverage <= 1:
        raise InputError(f"coverage: wanted above 0 and at most 1, got {coverage}")
    if not len(sample):
        raise InputError("calibration sample: wanted at least one row, got none")
    _check_finite(sample, "calibration sample")
    outside = (1 - coverage) / 2
    low, high = np.quantile(sample.astype(np.float32), [outside, 1 - outside], axis=0)
    return Ranges(low.astype(np.float32), high.astype(np.float32))


def to_int8(x: Float[np.ndarray, "rows dim"], ranges: Ranges) -> Int8[np.ndarray, "rows dim"]:
    """Rounds each coordinate to one of 255 evenly spaced values of its range.

    Args:
      x: Finite vectors.
      ranges: What `calibrate` returned. Values outside are clipped first.

    Returns:
      Codes from -127 to 127; 0 throughout a dimension whose range is a single value.

    Raises:
      InputError: If the widths differ or a range is not one.

    Example:
      >>> to_int8(np.array([[-1.0], [0.0], [0.5], [9.0]]), Ranges(np.array([-1.0]), np.array([1.0])))
      array([[-127],
             [   0],
             [  64],
             [ 127]], dtype=int8)
    """
    middle, step = _middle_and_step(ranges, x.shape[1])
    inside = np.clip(x, ranges.low, ranges.high).astype(np.float64)
    codes = np.rint((inside - middle) / np.where(step == 0, 1.0, step))
    # Where the step underflows, or a range lies far from 0, rounding may reach over the end.
    return np.clip(codes, -_HALF_LEVELS, _HALF_LEVELS).astype(np.int8)


def from_int8(codes: Int8[np.ndarray, "rows dim"], ranges: Ranges) -> Float[np.ndarray, "rows dim"]:
    """Returns the float32 values that int8 codes stand for.

    A value inside its range comes back within half a step, (high - low) / 508. Rows are no longer
    exactly of unit length; their products with a query are estimates of cosines.

    Raises:
      InputError: If the widths differ or a range is not one.
    """
    middle, step = _middle_and_step(ranges, codes.shape[1])
    return (middle + codes * step).astype(np.float32)


def _middle_and_step(ranges: Ranges, dim: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.asarray(each, np.float64) for each in ranges)
    if low.shape != (dim,) or high.shape != (dim,):
        raise InputError(
            f"calibration: wanted one range for each of {dim} dimensions, got shapes {low.shape} "
            f"and {high.shape}; calibrate on vectors of this width"
        )
    bad = ~(np.isfinite(low) & np.isfinite(high) & (low <= high))
    if bad.any():
        at = bad.argmax()
        raise InputError(
            f"calibration: wanted finite low <= high, got {low[at]:g} and {high[at]:g} in "
            f"dimension {at}"
        )
    return (low + high) / 2, (high - low) / (LEVELS - 1)


def to_float16(x: Float[np.ndarray, "rows dim"]) -> Float16[np.ndarray, "rows dim"]:
    """Rounds to float16: 11 significant bits.

    Raises:
      InputError: If a value is not finite, or too large for float16 (65,504).
    """
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16)
    _check_finite(rounded, "vectors as float16")
    return rounded


def to_binary(x: Float[np.ndarray, "rows dim"]) -> UInt8[np.ndarray, "rows bytes"]:
    """Keeps one bit a coordinate, 1 where it is above 0, eight to a byte, the first one highest.

    Nothing is subtracted first. Missing bits of the last byte are 0, so they add to no distance.

    Example:
      >>> to_binary(np.array([[0.1, -0.2, 0.0, 0.3, 0.4, -0.1, -0.1, -0.1, 0.2]]))
      array([[152, 128]], dtype=uint8)
    """
    return np.packbits(x > 0, axis=1)


def bytes_per_vector(kind: Kind, dim: int, *, rescore: Rescore | None = None) -> int:
    """Returns the bytes that the searched table spends on one document.

    Args:
      kind: What is stored.
      dim: Coordinates kept, at least 1.
      rescore: Adds the second copy that binary search scores its candidates with; None leaves it
        out, as where it lies on disk.

    Example:
      >>> [bytes_per_vector(kind, 100) for kind in KINDS]
      [400, 200, 100, 13]
      >>> bytes_per_vector("binary", 100, rescore="int8")
      113
    """
    _check_kind(kind)
    if dim < 1:
        raise InputError(f"dim: wanted at least 1, got {dim}")
    sizes = {"float32": 4 * dim, "float16": 2 * dim, "int8": dim, "binary": -(-dim // 8)}
    return sizes[kind] + (0 if rescore is None else sizes[rescore])


def remark(kind: Kind, dim: int) -> str | None:
    """Returns what a reader should know of a kind at a width, None if it fits.

    Example:
      >>> remark("int8", 64), remark("binary", 64)
      (None, 'binary at 64 wide: few bits a vector; engines fall back to int8 below 384')
    """
    _check_kind(kind)
    if kind != "binary" or dim >= _BINARY_ADVISED:
        return None
    if dim < _BINARY_FROM:
        why = f"few bits a vector; engines fall back to int8 below {_BINARY_FROM}"
    else:
        why = f"advised from {_BINARY_ADVISED:,} wide on; go by the measured figure"
    return f"binary at {dim} wide: {why}"


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
    _check_kind(kind)
    _check_settings(calibration, kind, rescore, oversampling)
    stored = rescore if kind == "binary" else kind

    def as_stored(x: Any) -> np.ndarray:
        if stored == "int8" and calibration is not None:
            return from_int8(to_int8(x, calibration), calibration)
        return to_float16(x) if stored == "float16" else x

    if kind != "binary":
        return top_k(queries, documents, k=k, chunk_rows=chunk_rows, transform=as_stored)
    # An empty search checks k, chunk_rows and the documents, and says how many are wanted.
    k = top_k(queries[:0], documents, k=k, chunk_rows=chunk_rows).rows.shape[1]
    _check_finite(queries, "queries")
    wanted = min(k * oversampling, documents.shape[0])
    candidates = _nearest(to_binary(queries), _Chunks(documents, queries.shape[1], chunk_rows), wanted)
