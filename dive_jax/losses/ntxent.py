"""Head-wise NT-Xent: the heads of one sample attract each other and repel everybody else's.

The positives need no label mask, because the sum of z_g . z_h over the pairs of one sample's heads
is |sum of z|^2 - sum of |z|^2. Only the log-sum-exp needs the block of all rows against all rows,
and that block can be made a tile of rows at a time.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dive_jax.losses.checks import Scalar, check_array, check_range, row_mask
from dive_jax.numerics.vectors import widened


def headwise_ntxent(
    heads: Float[Array, "batch heads dim"],
    *,
    temperature: Scalar,
    mask: Bool[Array, " batch"] | None = None,
    tile: int | None = None,
    unit: bool = False,
) -> Float[Array, "batch heads"]:
    """Contrast of every head with all others, of its own sample and of the rest of the batch.

    For head h of sample i the positives are the sample's other heads, and the denominator runs over
    all batch * heads - 1 others. The loss is the mean over h' != h of
    -log(exp(z_ih . z_ih' / t) / sum over (j, g) != (i, h) of exp(z_ih . z_jg / t)).

    Args:
      heads: Unit vectors; the formula holds for others, but temperatures are meant for cosines.
      temperature: t, above 0, in cosine units.
      mask: False for samples that only pad the batch: whatever they hold, they are nobody's
        positive and in nobody's denominator.
      tile: Rows of the flattened batch against which all are held at once; None holds the whole
        block. A tile bounds memory to O(batch * heads * tile), forward and backward, and serves
        reverse mode only.
      unit: Promises that no head is longer than 1, so that every logit lies within 1 / t of 0. At
        temperatures of at least 0.025 that are Python numbers one exponential then serves the value
        and the gradient, where three do else. A longer head may overflow.

    Returns:
      The loss of each head, unreduced, float32 for float16 and bfloat16 input, else in the input's
      dtype. 0 for masked samples, and everywhere if there is but one head.

    Raises:
      ValueError: If temperature is not above 0 and finite, tile is below 1, or a shape does not
        fit.

    Source:
      DIVE, arXiv 2605.20689, the head-wise contrast; after Chen et al., SimCLR, 2020, equation 1.

    Example:
      >>> print(headwise_ntxent(jnp.ones((1, 3, 1)), temperature=1.0))
      [[0.6931472 0.6931472 0.6931472]]
    """
    check_array("heads", heads, "batch heads dim")
    check_range("temperature", temperature)
    if tile is not None and tile < 1:
        raise ValueError(f"tile: wanted at least 1 row, got {tile}")
    batch, count, dim = heads.shape
    valid = row_mask(mask, batch)
    if count < 2 or not batch:
        return jnp.zeros((batch, count), widened(heads).dtype)
    wide = jnp.where(valid[:, None, None], widened(heads), 0.0)
    # Divided by the root once, inner products are logits.
    scaled = wide / jnp.sqrt(jnp.asarray(temperature, wide.dtype))
    flat, rows = scaled.reshape(batch * count, dim), jnp.repeat(valid, count)
    bound = _bound(temperature) if unit else None
    others = _dense(bound, _rows(flat, rows)) if tile is None else _tiled(flat, rows, tile, bound)
    attracted = jnp.sum(scaled * (jnp.sum(scaled, axis=1, keepdims=True) - scaled), axis=-1)
    losses = others.reshape(batch, count) - attracted / (count - 1)
    return jnp.where(valid[:, None], losses, 0.0)


def pair_count(batch: int, heads: int) -> int:
    """Counts the ordered pairs that the contrast of one role compares.

    Args:
      batch: Samples.
      heads: Heads a sample.

    Returns:
      batch * heads * (heads - 1) positive pairs and batch * (batch - 1) * heads^2 negative ones.

    Raises:
      ValueError: If either is below 1.

    Example:
      >>> pair_count(128, 4)
      261632
    """
    if batch < 1 or heads < 1:
        raise ValueError(f"pairs: wanted batch and heads of at least 1, got {batch} and {heads}")
    return batch * heads * (heads - 1) + batch * (batch - 1) * heads**2


class _Rows(NamedTuple):
    """Rows of the flattened batch: their place in it, scaled vectors, and what bars them.

    The bar is added to the logits of a row, as of a column: 0 for rows that count, else `_far`. A
    sum costs a loop over the block far less than a choice by several masks.
    """

    place: Int[Array, " rows"]
    vectors: Float[Array, "rows dim"]
    bar: Float[Array, " rows"]


def _far(dtype: Any) -> float:
    """Returns a logit whose exponential is 0 beside any other; twice as much is finite."""
    return float(jnp.finfo(dtype).min) / 4


def _rows(vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"]) -> _Rows:
    bar = jnp.where(valid, 0.0, _far(vectors.dtype)).astype(vectors.dtype)
    return _Rows(jnp.arange(len(vectors)), vectors, bar)


def _cut(tree: Any, start: Int[Array, ""], tile: int) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, tile), tree)


def _product(left: Float[Array, "a b"], right: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _logits(rows: _Rows, columns: _Rows) -> Float[Array, "rows columns"]:
    """Inner products; far below all others where a row meets itself or a masked one."""
    product = _product(rows.vectors, columns.vectors.T)
    itself = rows.place[:, None] == columns.place[None, :]
    barred = product + (rows.bar[:, None] + columns.bar[None, :])
    return jnp.where(itself, jnp.asarray(_far(product.dtype), product.dtype), barred)


_WIDEST = 80.0
"""Distance of two logits at which float32 still holds both exponentials: exp(-80) is normal."""


def _bound(temperature: Scalar) -> float | None:
    """Returns what no logit of unit heads exceeds; None where its distance may be too great."""
    if not isinstance(temperature, int | float):
        return None
    bound = 1.0 / temperature
    return bound if 2.0 * bound <= _WIDEST else None


def _sums(rows: _Rows, columns: _Rows, bound: float | None) -> Float[Array, " rows"]:
    """Log-sum-exp of each row's logits, less their greatest, or less what none exceeds."""
    if bound is not None:
        return bound + jnp.log(_totals(_exponentials(rows, columns, bound), columns))
    logits = _logits(rows, columns)
    top = jax.lax.stop_gradient(jnp.max(logits, axis=1))
    return top + jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1))


def _exponentials(rows: _Rows, columns: _Rows, bound: float) -> Float[Array, "rows columns"]:
    """Exponentials of the logits less the bound; 0 where a row meets itself.

    Masked rows are not barred, which would cost another loop over the block: their vectors are 0,
    so they pull nobody, and `_totals` leaves them out.
    """
    product = _product(rows.vectors, columns.vectors.T)
    itself = rows.place[:, None] == columns.place[None, :]
    # Chosen before the exponential is taken, one loop makes the block that all readers share.
    return jnp.exp(jnp.where(itself, _far(product.dtype), product - bound))


def _totals(exponentials: Float[Array, "rows columns"], columns: _Rows) -> Float[Array, " rows"]:
    """Sums each row over the columns that count; 1 for a row that meets none."""
    counted = (columns.bar == 0).astype(exponentials.dtype)
    totals = _product(exponentials, counted[:, None])[:, 0]
    return jnp.where(totals == 0, jnp.ones_like(totals), totals)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _dense(bound: float | None, rows: _Rows) -> Float[Array, " rows"]:
    """Log-sum-exp of each row's logits with all others, differentiable in any mode."""
    return _sums(rows, rows, bound)


@_dense.defjvp
def _dense_jvp(
    bound: float | None, primals: tuple[_Rows], tangents: tuple[_Rows]
) -> tuple[Array, Array]:
    """Moves one side of the symmetric block only, and holds that against both sides' shares.

    Share (i, j) is exp(logit - sum of row i), and by symmetry exp(logit - sum of row j) is share
    (j, i): nothing is transposed, and the gradient takes one product where two sides take two.
    """
    (rows,), (moved,) = primals, tangents
    change = _product(moved.vectors, rows.vectors.T)
    if bound is not None:
        exponentials = _exponentials(rows, rows, bound)
        totals, pulls = _totals(exponentials, rows), exponentials * change
        moves = (jnp.sum(pulls, axis=1) + jnp.sum(pulls, axis=0)) / totals
        return bound + jnp.log(totals), moves
    sums, logits = _dense(bound, rows), _logits(rows, rows)
    by_rows, by_columns = jnp.exp(logits - sums[:, None]), jnp.exp(logits - sums[None, :])
    return sums, jnp.sum(by_rows * change, axis=1) + jnp.sum(by_columns * change, axis=0)


def _tiled(
    vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"], tile: int, bound: float | None
) -> Float[Array, " rows"]:
    """What `_dense` returns, a tile of rows at a time; the last one is padded with masked rows."""
    count = len(vectors)
    tile = min(tile, count)
    padding = (0, -count % tile)
    rows = _rows(jnp.pad(vectors, (padding, (0, 0))), jnp.pad(valid, padding))
    return _by_tiles(rows, tile, bound)[:count]


def _forward(
    rows: _Rows, tile: int, bound: float | None
) -> tuple[Float[Array, " rows"], tuple[_Rows, Array]]:
    def sums_of(start: Int[Array, ""]) -> Float[Array, " tile"]:
        return _sums(_cut(rows, start, tile), rows, bound)

    sums = jax.lax.map(sums_of, jnp.arange(0, len(rows.bar), tile)).reshape(-1)
    return sums, (rows, sums)


def _backward(
    tile: int,
    bound: float | None,
    saved: tuple[_Rows, Float[Array, " rows"]],
    weights: Float[Array, " rows"],
) -> tuple[_Rows]:
    """Makes each tile of logits again instead of having kept it.

    Row i pulls j with its weight times j's share of i's denominator, and j pulls i likewise. The
    logits are symmetric, so one tile of rows holds both pulls, and no share exceeds 1.
    """
    rows, sums = saved
    counted = jnp.where(rows.bar == 0, weights, 0.0)
    scaled = counted if bound is None else counted * jnp.exp(bound - sums)

    def pull(start: Int[Array, ""]) -> Float[Array, "tile dim"]:
        mine, weight, total = _cut((rows, scaled, sums), start, tile)
        if bound is not None:
            pulls = _exponentials(mine, rows, bound) * (weight[:, None] + scaled[None, :])
            return _product(pulls, rows.vectors)
        logits = _logits(mine, rows)
        by_rows = weight[:, None] * jnp.exp(logits - total[:, None])
        by_columns = counted[None, :] * jnp.exp(logits - sums[None, :])
        return _product(by_rows + by_columns, rows.vectors)

    tiles = jax.lax.map(pull, jnp.arange(0, len(counted), tile))
    still = np.zeros(rows.place.shape, jax.dtypes.float0)
    return (_Rows(still, tiles.reshape(rows.vectors.shape), jnp.zeros_like(rows.bar)),)  # pyright: ignore[reportArgumentType]


def _value(rows: _Rows, tile: int, bound: float | None) -> Float[Array, " rows"]:
    return _forward(rows, tile, bound)[0]


_by_tiles = jax.custom_vjp(_value, nondiff_argnums=(1, 2))
_by_tiles.defvjp(_forward, _backward)
