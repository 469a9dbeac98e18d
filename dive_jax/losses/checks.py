"""What the losses refuse while they are traced, with what was wanted and what came."""

import math

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

Scalar = float | int | Float[Array, ""]
"""A hyper-parameter: a Python number, or a scalar array that may be traced."""


def check_range(name: str, value: Scalar, *, high: float = math.inf) -> None:
    """Raises `ValueError` unless 0 < value <= high and it is finite; traced values pass."""
    if isinstance(value, Tracer):
        return
    if not (0 < value <= high and math.isfinite(value)):
        wanted = f"0 < {name}" + (f" <= {high:g}" if math.isfinite(high) else " and finite")
        raise ValueError(f"{name}: wanted {wanted}, got {value}")


def check_array(name: str, array: Array, axes: str) -> None:
    """Raises `ValueError` unless the array is of floats, with one axis for each word of `axes`."""
    if array.ndim != len(axes.split()):
        raise ValueError(f"{name}: wanted shape [{axes}], got {list(array.shape)}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name}: wanted floats, got {array.dtype}")


def check_same(names: str, first: Array, second: Array) -> None:
    """Raises `ValueError` unless both arrays have one shape."""
    if first.shape != second.shape:
        raise ValueError(
            f"{names}: wanted one shape, got {list(first.shape)} and {list(second.shape)}"
        )


def check_scores(similarity: Array, positive: Array, negatives: Array) -> None:
    """Raises `ValueError` unless scores, each query's positive and its negatives fit together."""
    check_array("similarity", similarity, "queries documents")
    check_array("positive", positive, "queries")
    if positive.shape != similarity.shape[:1]:
        raise ValueError(
            "positive: wanted one value for each query of similarity,"
            f" got {list(positive.shape)} for {list(similarity.shape)}"
        )
    if negatives.shape != similarity.shape or negatives.dtype != jnp.bool_:
        raise ValueError(
            f"negatives: wanted bool {list(similarity.shape)},"
            f" got {negatives.dtype} {list(negatives.shape)}"
        )


def row_mask(mask: Bool[Array, " rows"] | None, rows: int) -> Bool[Array, " rows"]:
    """Returns the mask, all true when there is none.

    Raises:
      ValueError: If its shape is not [rows], or it is not of booleans.
    """
    if mask is None:
        return jnp.ones(rows, bool)
    if mask.shape != (rows,) or mask.dtype != jnp.bool_:
        raise ValueError(f"mask: wanted bool [{rows}], got {mask.dtype} {list(mask.shape)}")
    return mask
