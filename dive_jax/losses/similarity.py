"""Cosines on nested prefixes of the coordinates, and how far they lie from the frozen ones.

Prefixes share their coordinates. So the inner products of all widths come from one product of the
greatest width, cut into blocks of columns that are added up one after the other.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.losses.checks import check_array, row_mask
from dive_jax.numerics.vectors import SHORTEST, squared_norms, widened

_ROUNDING = 32  # Measured: at most 10, for 128 to 4,096 coordinates and cosines up to 0.9.


def prefix_similarities(
    queries: Float[Array, "queries dim"],
    documents: Float[Array, "documents dim"],
    *,
    widths: Sequence[int],
) -> Float[Array, "widths queries documents"]:
    """Cosines of the first m coordinates, for several m at the cost of the greatest.

    Args:
      queries: Vectors of any finite length.
      documents: Vectors of any finite length.
      widths: The numbers m of leading coordinates, ascending, within 1 to dim.

    Returns:
      cos(query[:m], document[:m]) for each m, float32 for float16 and bfloat16 input, else in the
      queries' dtype. Value and gradient are exactly 0 where one of the two is shorter than 1e-12,
      or than 1e-12 of its row's greatest entry.

    Raises:
      ValueError: If the widths do not ascend or leave their range, or a shape does not fit.

    Source:
      Yoon et al., Matryoshka-Adaptor, 2024: similarities on the first m coordinates.

    Example:
      >>> queries, documents = jnp.array([[3.0, 4.0]]), jnp.array([[1.0, 0.0]])
      >>> print(prefix_similarities(queries, documents, widths=(1, 2))[:, 0, 0])
      [1.  0.6]
    """
    check_array("queries", queries, "queries dim")
    check_array("documents", documents, "documents dim")
    if queries.shape[1] != documents.shape[1]:
        raise ValueError(
            "queries and documents: wanted one dim,"
            f" got {list(queries.shape)} and {list(documents.shape)}"
        )
    left = widened(queries)
    right = widened(documents).astype(left.dtype)
    return _cosines(_prefixes(left, widths), _prefixes(right, widths))


def prefix_cosines(
    rows: Float[Array, "rows dim"], *, widths: Sequence[int]
) -> Float[Array, "widths rows rows"]:
    """Cosines of all pairs of rows on the first m coordinates.

    Args:
      rows: Vectors of any finite length.
      widths: The numbers m of leading coordinates, ascending, within 1 to dim.

    Returns:
      `prefix_similarities` of the rows among themselves.

    Raises:
      ValueError: If the widths do not ascend or leave their range, or the shape does not fit.
    """
    check_array("rows", rows, "rows dim")
    prefixes = _prefixes(rows, widths)
    return _cosines(prefixes, prefixes)


def pair_distillation(
    adapted: Float[Array, "rows dim"],
    frozen: Float[Array, "rows full_dim"],
    *,
    widths: Sequence[int],
    mask: Bool[Array, " rows"] | None = None,
) -> Float[Array, "widths rows"]:
    """Holds the cosines of a batch, on every prefix, to those of the frozen vectors.

    Args:
      adapted: Vectors after the adapter, of any length.
      frozen: Frozen vectors of the same rows; no gradient reaches them.
      widths: The numbers m of leading coordinates, ascending, within 1 to dim.
      mask: False for rows that only pad or repeat: whatever they hold, they meet no other row.

    Returns:
      For each m and row i, the mean of |cos(frozen_i, frozen_j) - cos(adapted_i[:m],
      adapted_j[:m])| over the other valid rows j, float32 for float16 and bfloat16 input, else in
      adapted's dtype. 0 for masked rows, and where there is no other valid row. A difference within
      rounding (32 units in the last place of 1) counts as 0, so that an adapter that changes
      nothing gets no gradient.

    Raises:
      ValueError: If the widths do not ascend or leave their range, or a shape does not fit.

    Source:
      Yoon et al., Matryoshka-Adaptor, 2024, the pairwise similarity loss.

    Example:
      >>> print(pair_distillation(jnp.eye(2), jnp.ones((2, 1)), widths=(1, 2)))
      [[1. 1.]
       [1. 1.]]
    """
    check_array("adapted", adapted, "rows dim")
    check_array("frozen", frozen, "rows full_dim")
    rows = adapted.shape[0]
    if frozen.shape[0] != rows:
        raise ValueError(
            f"adapted and frozen: wanted as many rows, got {rows} and {frozen.shape[0]}"
        )
    valid = row_mask(mask, rows)
    small = jnp.where(valid[:, None], widened(adapted), 0.0)
    full = jnp.where(valid[:, None], jax.lax.stop_gradient(frozen).astype(small.dtype), 0.0)
    wanted = prefix_cosines(full, widths=(full.shape[1],))
    pairs = valid[:, None] & valid[None, :] & ~jnp.eye(rows, dtype=bool)
    return _mean_gap(prefix_cosines(small, widths=widths), wanted, pairs)


def neighbour_distillation(
    adapted: Float[Array, "rows dim"],
    neighbours: Float[Array, "rows neighbours dim"],
    frozen: Float[Array, "rows neighbours"],
    *,
    widths: Sequence[int],
    mask: Bool[Array, "rows neighbours"] | None = None,
) -> Float[Array, "widths rows"]:
    """Holds the cosines of each row to its neighbours, on every prefix, to the frozen ones.

    Args:
      adapted: Vectors after the adapter, of any length.
      neighbours: Those of each row's neighbours, after the same adapter.
      frozen: Frozen cosines of each row and its neighbours; no gradient reaches them.
      widths: The numbers m of leading coordinates, ascending, within 1 to dim.
      mask: False for neighbours that only pad; a row that only pads has no other. What they hold
        has no effect.

    Returns:
      For each m and row i, the mean of |frozen_ij - cos(adapted_i[:m], neighbours_ij[:m])| over its
      valid neighbours j, float32 for float16 and bfloat16 input, else in adapted's dtype. 0 where
      there is none. A difference within rounding counts as 0, as in `pair_distillation`.

    Raises:
      ValueError: If the widths do not ascend or leave their range, or a shape does not fit.

    Source:
      Yoon et al., Matryoshka-Adaptor, 2024, the top-k similarity loss.
    """
    check_array("adapted", adapted, "rows dim")
    check_array("neighbours", neighbours, "rows neighbours dim")
    check_array("frozen", frozen, "rows neighbours")
    rows, count, dim = neighbours.shape
    if adapted.shape != (rows, dim) or frozen.shape != (rows, count):
        raise ValueError(
            "adapted, neighbours and frozen: wanted [rows dim], [rows neighbours dim] and"
            f" [rows neighbours], got {list(adapted.shape)}, {list(neighbours.shape)} and"
            f" {list(frozen.shape)}"
        )
    valid = jnp.ones((rows, count), bool) if mask is None else mask
    if valid.shape != (rows, count) or valid.dtype != jnp.bool_:
        raise ValueError(
            f"mask: wanted bool {[rows, count]}, got {valid.dtype} {list(valid.shape)}"
        )
    own = jnp.where(jnp.any(valid, axis=1)[:, None], widened(adapted), 0.0)
    theirs = jnp.where(valid[:, :, None], neighbours.astype(own.dtype), 0.0)
    wanted = jnp.where(valid, jax.lax.stop_gradient(frozen).astype(own.dtype), 0.0)
    left, right = _prefixes(own, widths), _prefixes(theirs, widths)
    products = [
        jnp.sum(mine[:, None, :] * other, axis=2)
        for mine, other in zip(left.blocks, right.blocks, strict=True)
    ]
    kept = _running(products) * left.scales[:, :, None] * right.scales
    return _mean_gap(kept, wanted[None], valid)


class _Prefixes(NamedTuple):
    """Rows cut where a prefix ends, and what makes each prefix a unit vector."""

    blocks: list[Float[Array, "*rows block"]]
    scales: Float[Array, "widths ..."]


def _prefixes(rows: Float[Array, "*rows dim"], widths: Sequence[int]) -> _Prefixes:
    ends, dim = tuple(widths), rows.shape[-1]
    if not ends or any(b <= a for a, b in zip((0, *ends), ends, strict=False)) or ends[-1] > dim:
        raise ValueError(f"widths: wanted numbers that ascend within 1 to {dim}, got {list(ends)}")
    wide = widened(rows)[..., : ends[-1]]
    # The cosine does not depend on this factor. It keeps every square in range, as in `unit`.
    greatest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1))
    factor = jnp.clip(greatest, 1e-20, float(jnp.finfo(wide.dtype).max) / 100)
    scaled = wide / factor[..., None]
    blocks = jnp.split(scaled, ends[:-1], axis=-1)
    squares = _running([squared_norms(block) for block in blocks])
    shortest = SHORTEST / jnp.minimum(factor, 1.0)
    silent = jnp.sqrt(jax.lax.stop_gradient(squares)) < shortest[None]
    lengths = jnp.sqrt(jnp.where(silent, 1.0, squares))
    return _Prefixes(blocks, jnp.where(silent, 0.0, 1.0 / lengths))


def _running(parts: Sequence[Float[Array, "*shape"]]) -> Float[Array, "parts ..."]:
    """Stacks the sums of the first part, of the first two, and so on."""
    return jnp.stack(list(accumulate(parts)))


def _cosines(left: _Prefixes, right: _Prefixes) -> Float[Array, "widths left right"]:
    products = [
        jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)
        for a, b in zip(left.blocks, right.blocks, strict=True)
    ]
    return _running(products) * left.scales[:, :, None] * right.scales[:, None, :]


def _mean_gap(
    kept: Float[Array, "widths rows others"],
    wanted: Float[Array, "1 rows others"],
    pairs: Bool[Array, "rows others"],
) -> Float[Array, "widths rows"]:
    """Mean distance of each row's cosines from the wanted ones, over its valid pairs."""
    gaps = kept - wanted
    # Where only rounding tells the two apart, or nothing, their slope would be noise of full size.
    rounding = _ROUNDING * float(jnp.finfo(gaps.dtype).eps)
    counted = pairs[None] & ~(jnp.abs(gaps) <= rounding)
    others = jnp.maximum(jnp.sum(pairs, axis=1, dtype=gaps.dtype), 1.0)
    return jnp.sum(jnp.where(counted, jnp.abs(gaps), 0.0), axis=2) / others[None]
