"""What the operators refuse while they are traced, and the product they all use."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from dive_jax.numerics.vectors import widened

Rank = int | Int[Array, ""]
"""A rank, a dimension or a count: a Python integer, or a scalar array that may be traced."""

Scalar = float | int | Float[Array, ""]
"""A real quantity: a Python number, or a scalar array that may be traced."""


def reals(*values: Scalar) -> list[Float[Array, ""]]:
    """Returns scalars as arrays of one type: the widest of the arrays among them, else default."""
    dtypes = [widened(value).dtype for value in values if isinstance(value, jax.Array)]
    dtype = max(dtypes, key=lambda dtype: dtype.itemsize, default=jnp.zeros(()).dtype)
    return [jnp.asarray(value).astype(dtype) for value in values]


def product(first: Float[Array, "..."], other: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the matrix product in full precision on every device."""
    return jnp.matmul(first, other, precision=jax.lax.Precision.HIGHEST)


def check_array(name: str, array: Array, axes: str) -> Array:
    """Returns the array, float32 or wider, if it has one axis for each word of `axes`.

    Raises:
      ValueError: If it has another number of axes, an empty one, or holds no floats.
    """
    if array.ndim != len(axes.split()) or 0 in array.shape:
        raise ValueError(f"{name}: wanted shape [{axes}], none 0, got {list(array.shape)}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name}: wanted floats, got {array.dtype}")
    return widened(array)


def check_square(name: str, matrix: Array) -> Array:
    """Returns the matrix, float32 or wider.

    Raises:
      ValueError: If it is not a square matrix of floats.
    """
    matrix = check_array(name, matrix, "dim dim")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}: wanted a square matrix, got {list(matrix.shape)}")
    return matrix


def check_same(names: str, *arrays: Array) -> None:
    """Raises `ValueError` unless all arrays have one shape and one type."""
    kinds = [f"{array.dtype}{list(array.shape)}" for array in arrays]
    if len(set(kinds)) > 1:
        raise ValueError(f"{names}: wanted one shape and type, got {', '.join(kinds)}")


def check_rank(rank: Rank, dim: int) -> None:
    """Raises `ValueError` unless 1 <= rank <= dim; a traced rank passes."""
    if not isinstance(rank, Tracer) and not 1 <= int(rank) <= dim:
        raise ValueError(f"rank: wanted 1 <= rank <= {dim}, got {rank}")


def check_axes(axes: Array, dim: int) -> Array:
    """Returns the axes, float32 or wider.

    Raises:
      ValueError: If they are not of shape [rank, dim] with 1 <= rank <= dim.
    """
    axes = check_array("axes", axes, "rank dim")
    if axes.shape[1] != dim or axes.shape[0] > dim:
        raise ValueError(f"axes: wanted [rank, {dim}], rank <= {dim}, got {list(axes.shape)}")
    return axes


def check_weights(weights: Array | None, rows: int, dtype: jnp.dtype) -> Array:
    """Returns the weights in the given type, all 1 when there are none.

    Raises:
      ValueError: If they are not floats of shape [rows].
    """
    if weights is None:
        return jnp.ones(rows, dtype)
    if weights.shape != (rows,) or not jnp.issubdtype(weights.dtype, jnp.floating):
        got = f"{weights.dtype}{list(weights.shape)}"
        raise ValueError(f"weights: wanted floats of shape [{rows}], got {got}")
    return weights.astype(dtype)
