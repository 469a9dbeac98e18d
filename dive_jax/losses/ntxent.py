"""Head-wise NT-Xent: the heads of one sample attract each other and repel everybody else's.

The positives need no label mask, because the sum of z_g . z_h over the pairs of one sample's heads
is |sum of z|^2 - sum of |z|^2. Only the log-sum-exp needs the block of all rows against all rows,
and that block can be made a tile of columns at a time.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dive_jax.losses.checks import Scalar, check_array, check_range, row_mask
from dive_jax.numerics.vectors import widened


def headwise_ntxent(
    heads: Float[Array, "batch heads dim"],
    *,
    temperature: Scalar,
    mask: Bool[Array, " batch"] | None = None,
    tile: int | None = None,
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
    others = _dense(flat, rows) if tile is None else _tiled(flat, rows, tile)
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
    """Rows of the flattened batch: their place in it, scaled vectors, and whether they count."""

    place: Int[Array, " rows"]
    vectors: Float[Array, "rows dim"]
    valid: Bool[Array, " rows"]


def _rows(vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"]) -> _Rows:
    return _Rows(jnp.arange(len(vectors)), vectors, valid)


def _cut(tree: Any, start: Int[Array, ""], tile: int) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, tile), tree)


def _product(left: Float[Array, "a b"], right: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _logits(rows: _Rows, columns: _Rows) -> Float[Array, "rows columns"]:
    """Inner products; the least finite number where a row meets itself or a masked one."""
    product = _product(rows.vectors, columns.vectors.T)
    apart = rows.place[:, None] != columns.place[None, :]
    allowed = apart & rows.valid[:, None] & columns.valid[None, :]
    return jnp.where(allowed, product, jnp.finfo(product.dtype).min)


def _dense(vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"]) -> Float[Array, " rows"]:
    """Log-sum-exp of each row's logits with all others, differentiable in any mode."""
    rows = _rows(vectors, valid)
    logits = _logits(rows, rows)
    top = jax.lax.stop_gradient(jnp.max(logits, axis=1))
    return top + jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1))


def _tiled(
    vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"], tile: int
) -> Float[Array, " rows"]:
    """What `_dense` returns, from tiles of columns; the last tile is padded with masked rows."""
    count = len(vectors)
    tile = min(tile, count)
    padding = (0, -count % tile)
    return _online(jnp.pad(vectors, (padding, (0, 0))), jnp.pad(valid, padding), tile)[:count]


class _Sums(NamedTuple):
    """A log-sum-exp under way: the greatest logit of each row, and the sum relative to it."""

    top: Float[Array, " rows"]
    total: Float[Array, " rows"]


def _scan(rows: _Rows, tile: int) -> _Sums:
    """Online soft-max sums over tiles of columns; of no meaning for masked rows."""

    def absorb(sums: _Sums, start: Int[Array, ""]) -> tuple[_Sums, None]:
        logits = _logits(rows, _cut(rows, start, tile))
        top = jax.lax.stop_gradient(jnp.maximum(sums.top, jnp.max(logits, axis=1)))
        fresh = jnp.sum(jnp.exp(logits - top[:, None]), axis=1)
        return _Sums(top, sums.total * jnp.exp(sums.top - top) + fresh), None

    count, dtype = len(rows.valid), rows.vectors.dtype
    nothing = _Sums(jnp.full(count, jnp.finfo(dtype).min, dtype), jnp.zeros(count, dtype))
    return jax.lax.scan(absorb, nothing, jnp.arange(0, count, tile))[0]


def _forward(
    vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"], tile: int
) -> tuple[Float[Array, " rows"], tuple[_Rows, _Sums]]:
    rows = _rows(vectors, valid)
    sums = _scan(rows, tile)
    return sums.top + jnp.log(sums.total), (rows, sums)


def _backward(
    tile: int, saved: tuple[_Rows, _Sums], weights: Float[Array, " rows"]
) -> tuple[Float[Array, "rows dim"], None]:
    """Makes each tile of logits again instead of having kept it.

    Row i pulls j with its weight times j's share of i's denominator, and j pulls i likewise. The
    logits are symmetric, so one tile of columns holds both pulls on its rows, and no exponential
    exceeds 1.
    """
    rows, sums = saved
    scales = jnp.where(rows.valid, weights / sums.total, 0.0)

    def pull(start: Int[Array, ""]) -> Float[Array, "tile dim"]:
        logits = _logits(rows, _cut(rows, start, tile))
        some_scales, some_tops = _cut((scales, sums.top), start, tile)
        by_rows = scales[:, None] * jnp.exp(logits - sums.top[:, None])
        by_columns = some_scales[None, :] * jnp.exp(logits - some_tops[None, :])
        return _product((by_rows + by_columns).T, rows.vectors)

    tiles = jax.lax.map(pull, jnp.arange(0, len(scales), tile))
    return tiles.reshape(rows.vectors.shape), None


def _value(
    vectors: Float[Array, "rows dim"], valid: Bool[Array, " rows"], tile: int
) -> Float[Array, " rows"]:
    return _forward(vectors, valid, tile)[0]


_online = jax.custom_vjp(_value, nondiff_argnums=(2,))
_online.defvjp(_forward, _backward)
