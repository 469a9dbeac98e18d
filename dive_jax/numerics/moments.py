"""Second moments of rows, streamed in float64 and mergeable: the rows need not fit in memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from dive_jax.types import InputError

_BLOCK_ENTRIES = 1 << 22  # 32 MiB of float64 at a time


@dataclass(frozen=True, eq=False)
class Moment:
    """Sums over rows; means follow from them.

    Attributes:
      count: Rows seen.
      total: Sum of the rows, [dim].
      second: Sum of the rows' outer products, [dim, dim], symmetric.
    """

    count: int
    total: Float64[np.ndarray, " dim"]
    second: Float64[np.ndarray, "dim dim"]


def empty(dim: int) -> Moment:
    """Returns the moment of no rows, `dim` wide."""
    if dim < 1:
        raise InputError(f"moment: wanted a width of at least 1, got {dim}")
    return Moment(0, np.zeros(dim), np.zeros((dim, dim)))


def add(moment: Moment, rows: Float[np.ndarray, "rows dim"]) -> Moment:
    """Returns the moment with more rows in it.

    Args:
      moment: What was seen before; it is not changed.
      rows: float16, float32 or float64; a memory map is read block by block.

    Returns:
      A new moment.

    Raises:
      InputError: If the width differs, the rows are no floats, or a value is not finite.

    Example:
      >>> add(empty(2), np.array([[1.0, 2.0], [3.0, 4.0]])).second
      array([[10., 14.],
             [14., 20.]])
    """
    dim = moment.total.shape[0]
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise InputError(f"moment: wanted rows of shape [rows, {dim}], got {list(rows.shape)}")
    if not np.issubdtype(rows.dtype, np.floating):
        raise InputError(f"moment: wanted float16, float32 or float64 rows, got {rows.dtype}")
    total, second = moment.total.copy(), moment.second.copy()
    step = max(1, _BLOCK_ENTRIES // dim)
    for start in range(0, rows.shape[0], step):
        block = np.asarray(rows[start : start + step], np.float64)
        _check_finite(block, start)
        total += block.sum(axis=0)
        second += block.T @ block
    return Moment(moment.count + rows.shape[0], total, second)


def merge(first: Moment, other: Moment) -> Moment:
    """Returns the moment of both sets of rows together.

    Raises:
      InputError: If the widths differ.
    """
    if first.total.shape != other.total.shape:
        widths = f"{first.total.shape[0]} and {other.total.shape[0]}"
        raise InputError(f"moment: wanted two moments of one width, got {widths}")
    total, second = first.total + other.total, first.second + other.second
    return Moment(first.count + other.count, total, second)


def stream(chunks: Iterable[Float[np.ndarray, "_ _"]]) -> Moment:
    """Returns the moment of all rows of all chunks, holding one chunk at a time.

    Args:
      chunks: Arrays [rows, dim] of one width.

    Raises:
      InputError: If there is no chunk, or as `add` does.
    """
    moment = None
    for chunk in chunks:
        moment = add(empty(chunk.shape[-1]) if moment is None else moment, chunk)
    if moment is None:
        raise InputError("moment: wanted at least one chunk of rows, got none")
    return moment


def mean(moment: Moment) -> Float64[np.ndarray, " dim"]:
    """Returns the mean row.

    Raises:
      InputError: If no row was seen.
    """
    return moment.total / _rows(moment)


def uncentred(moment: Moment) -> Float64[np.ndarray, "dim dim"]:
    """Returns the mean outer product of a row with itself.

    Raises:
      InputError: If no row was seen.
    """
    return moment.second / _rows(moment)


def centred(moment: Moment) -> Float64[np.ndarray, "dim dim"]:
    """Returns the population covariance: the mean outer product about the mean row.

    It is a difference of two moments, so about as many digits are lost as the squared mean exceeds
    the variance; on unit vectors in float64 that is of no account.

    Raises:
      InputError: If no row was seen.
    """
    middle = mean(moment)
    return uncentred(moment) - np.outer(middle, middle)


def _rows(moment: Moment) -> int:
    if moment.count < 1:
        raise InputError("moment: wanted at least one row before taking a mean, got none")
    return moment.count


def _check_finite(block: np.ndarray, start: int) -> None:
    finite = np.isfinite(block).all(axis=1)
    if not finite.all():
        row = start + int(np.argmin(finite))
        raise InputError(f"moment: wanted finite values, got a NaN or infinity in row {row}")
