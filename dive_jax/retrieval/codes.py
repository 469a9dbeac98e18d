"""Vectors in fewer bytes: float16, int8 within calibrated ranges, and bits.

Which fits which width: float16 and int8 fit any. Bits alone hold too little of a narrow vector;
engines advise them from 1,024 wide, and one falls back to int8 below 384 (see `remark`).
"""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Float16, Int8, UInt8

from dive_jax.types import InputError

Kind: TypeAlias = Literal["float32", "float16", "int8", "binary"]
Rescore: TypeAlias = Literal["float32", "int8"]

KINDS = ("float32", "float16", "int8", "binary")
LEVELS = 255
"""Values an int8 coordinate takes: -127 to 127."""

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
    check_finite(sample, "calibration sample")
    outside = (1 - coverage) / 2
    low, high = np.quantile(sample.astype(np.float64), [outside, 1 - outside], axis=0)
    return Ranges(low.astype(np.float32), high.astype(np.float32))


def to_int8(x: Float[np.ndarray, "rows dim"], ranges: Ranges) -> Int8[np.ndarray, "rows dim"]:
    """Rounds each coordinate to one of 255 evenly spaced values of its range.

    Args:
      x: Finite vectors.
      ranges: What `calibrate` returned. Values outside are clipped first.

    Returns:
      Codes from -127 to 127; 0 throughout a dimension whose range is a single value.

    Raises:
      InputError: If the widths differ, a range is not one, or a value is not finite.

    Example:
      >>> ranges = Ranges(low=np.float32([-1, 0]), high=np.float32([1, 2]))
      >>> to_int8(np.float32([[0.5, 0], [9, 1]]), ranges)
      array([[  64, -127],
             [ 127,    0]], dtype=int8)
    """
    middle, step = _middle_and_step(ranges, x.shape[1])
    check_finite(x, "vectors for int8")
    inside = np.clip(x, ranges.low, ranges.high).astype(np.float64)
    return np.rint((inside - middle) / np.where(step == 0, 1.0, step)).astype(np.int8)


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
    check_finite(rounded, "vectors as float16")
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
    check_kind(kind)
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
    check_kind(kind)
    if kind != "binary" or dim >= _BINARY_ADVISED:
        return None
    if dim < _BINARY_FROM:
        why = f"few bits a vector; engines fall back to int8 below {_BINARY_FROM}"
    else:
        why = f"advised from {_BINARY_ADVISED:,} wide on; go by the measured figure"
    return f"binary at {dim} wide: {why}"


def check_finite(x: np.ndarray, what: str) -> None:
    """Raises `InputError` that names the first of the given rows with NaN or infinity."""
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise InputError(
            f"{what}: wanted finite values, got NaN or infinity in row {bad.argmax()} of these "
            f"{len(x)}"
        )


def check_kind(kind: str) -> None:
    """Raises `InputError` unless `kind` is one of `KINDS`."""
    if kind not in KINDS:
        raise InputError(f"kind: wanted one of {', '.join(KINDS)}, got {kind!r}")
