"""Principal axes on the host in float64: rank, cut-off and sign are decided here."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from dive_jax.types import InputError

_ASYMMETRY = 1e-10  # of the greatest entry; rounding of a float64 sum stays far below


class Axes(NamedTuple):
    """An orthonormal basis of the whole space, strongest direction first.

    Attributes:
      values: Mean square along each axis, [dim], descending, none negative.
      axes: One axis a row, [dim, dim]; `x @ axes.T` are the coordinates of x.
      rank: How many values exceed the cut-off, greatest value x dim x float64's epsilon. The axes
        from there on are an arbitrary basis of what is left.
    """

    values: Float64[np.ndarray, " dim"]
    axes: Float64[np.ndarray, "dim dim"]
    rank: int


def principal_axes(second_moment: Float64[np.ndarray, "dim dim"]) -> Axes:
    """Finds the principal axes of a second moment, all of them, also when it is rank deficient.

    Signs: the entry of greatest magnitude of every axis is positive, the first such on a tie.
    Within a repeated value the basis is the solver's.

    Args:
      second_moment: Symmetric and positive semi-definite up to rounding.

    Returns:
      Values in descending order, axes as rows, and the numerical rank.

    Raises:
      InputError: If the matrix is not square, not finite, not symmetric, or has a value that is
        negative beyond rounding.

    Example:
      >>> principal_axes(np.diag([1.0, 0.0, 4.0]))
      Axes(values=array([4., 1., 0.]), axes=array([[0., 0., 1.],
             [1., 0., 0.],
             [0., 1., 0.]]), rank=2)
    """
    matrix = _symmetric(second_moment)
    ascending, columns = np.linalg.eigh(matrix)
    values, axes = ascending[::-1], columns.T[::-1]
    cutoff = np.abs(values).max() * len(values) * np.finfo(np.float64).eps
    if values[-1] < -_ASYMMETRY * np.abs(values).max():
        raise InputError(
            "principal axes: wanted a positive semi-definite matrix, "
            f"got an eigenvalue of {values[-1]:.3g}"
        )
    rank = int(np.count_nonzero(values > cutoff))
    return Axes(np.maximum(values, 0.0), _signed(axes), rank)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    """Returns the symmetric part, after checking that there is hardly another."""
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"principal axes: wanted a square matrix, got {list(matrix.shape)}")
    if not np.isfinite(matrix).all():
        raise InputError("principal axes: wanted finite values, got a NaN or infinity")
    apart, greatest = np.abs(matrix - matrix.T).max(), np.abs(matrix).max()
    if apart > _ASYMMETRY * greatest:
        raise InputError(
            f"principal axes: wanted a symmetric matrix, got entries {apart:.3g} apart "
            f"(greatest entry {greatest:.3g})"
        )
    return (matrix + matrix.T) / 2


def _signed(axes: np.ndarray) -> np.ndarray:
    """Turns each row so that its first entry of greatest magnitude is positive."""
    leading = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return np.where(leading < 0, -axes, axes) + 0.0  # no negative zeros
