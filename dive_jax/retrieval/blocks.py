"""The best documents of a chunk, by the maxima of small blocks of scores, and no worse for it.

Ordering all scores costs several times what the product costs that forms them. Here a tile of
scores, small enough to stay near the core that formed it, is reduced to the maxima of its blocks;
only the blocks with the greatest maxima are looked into. Whatever is left out scores at most the
least of those maxima: where that is not below the worst document kept, which takes many equal
scores, the chunk is ordered in full instead.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_TILE = 1 << 20  # scores of a tile on a CPU: about two cores' own caches
_WORTH = 64  # queries from which on copying a tile of documents costs little beside the product
_EVEN = 64  # what a tile is a multiple of: products form the last few columns in another order
_SPARE = 6  # blocks looked into beyond k, for ties
_LEAST = 64  # documents a tile has for each block looked into


class Best(NamedTuple):
    """The best so far of every block of queries, and whether all its scores were finite."""

    scores: Float[Array | np.ndarray, "*blocks rows k"]
    rows: Int[Array | np.ndarray, "*blocks rows k"]
    finite: Bool[Array | np.ndarray, "*blocks rows"]


class Plan(NamedTuple):
    """How a chunk is cut.

    Attributes:
      starts: First document of each tile; the last tile may reach back over the one before.
      tile: Documents in a tile.
      width: Documents in a block: those tile / width apart, so that maxima go along vectors.
      kept: Blocks looked into.
    """

    starts: tuple[int, ...]
    tile: int
    width: int
    kept: int


class _Found(NamedTuple):
    """Candidates of a chunk, best first; no other document scores more than `cut`."""

    scores: Float[Array, "rows count"]
    places: Int[Array, "rows count"]
    cut: Float[Array, " rows"]
    finite: Bool[Array, " rows"]


def nothing_yet(blocks: tuple[int, ...], k: int) -> Best:
    """Returns what `merge` starts from, on the host."""
    return Best(
        np.full((*blocks, k), -np.inf, np.float32),
        np.zeros((*blocks, k), np.int32),
        np.ones(blocks, np.bool_),
    )


def merge(
    best: Best,
    blocks: Float[Array, "blocks rows dim"],
    chunk: Float[Array, "documents dim"],
    first: Int[Any, ""],
    seen: Int[Any, ""],
) -> Best:
    """Takes a chunk into the best so far: its rows begin at `first`, those below `seen` are old.

    Args:
      best: The best so far, descending, equal scores by row.
      blocks: Queries, block by block: the scores of one block alone are in memory.
      chunk: Documents.
      first: Row of the chunk's first document.
      seen: Rows below it are dropped: an old row can only repeat what `best` already holds.

    Returns:
      The best of both, in the same order.
    """
    step = functools.partial(merge_block, chunk=chunk, first=first, seen=seen)
    if blocks.shape[0] == 1:
        return jax.tree.map(
            lambda leaf: leaf[None], step(Best(*(leaf[0] for leaf in best)), blocks[0])
        )
    return lax.map(lambda both: step(*both), (best, blocks))


def merge_block(
    best: Best,
    queries: Float[Array, "rows dim"],
    *,
    chunk: Float[Array, "documents dim"],
    first: Int[Any, ""],
    seen: Int[Any, ""],
) -> Best:
    """Does what `merge` does for one block of queries."""
    k = best.scores.shape[1]
    cut = plan(len(queries), len(chunk), k)
    if cut is None:
        return _joined(best, _ordered(queries, chunk, k), first, seen)
    found = _by_blocks(queries, chunk, cut)
    joined = _joined(best, found, first, seen)
    # What k documents of the chunk beat is out, be they old ones.
    worst = jnp.maximum(found.scores[:, k - 1], joined.scores[:, -1])
    return lax.cond(
        jnp.all(found.cut < worst),
        lambda: joined,
        lambda: _in_full(best, queries, chunk, cut, first, seen),
    )


def plan(rows: int, documents: int, k: int) -> Plan | None:
    """Returns how to cut the scores of `rows` queries; None where ordering all is as quick.

    Example:
      >>> plan(1, 100, 10) is None
      True
    """
    kept = k + _SPARE
    if documents < _LEAST * kept:
        return None
    tile = documents
    if rows >= _WORTH and jax.default_backend() == "cpu":
        tile = min(documents, max(_TILE // rows, _LEAST * kept))
    tile = -(-documents // -(-documents // tile))  # as many tiles, alike
    if tile < documents:
        tile = min(documents, -(-tile // _EVEN) * _EVEN)
    # Of a tile, tile / width maxima are ordered and kept * width scores are looked into.
    width = 1 << int(np.log2(4 * tile / kept) / 2)
    starts = tuple(min(each, documents - tile) for each in range(0, documents, tile))
    return Plan(starts, tile, width, kept)


def _product(
    queries: Float[Array, "rows dim"], documents: Float[Array, "documents dim"]
) -> Float[Array, "rows documents"]:
    return jnp.matmul(
        queries, documents.T, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )


def _in_full(
    best: Best,
    queries: Float[Array, "rows dim"],
    chunk: Float[Array, "documents dim"],
    cut: Plan,
    first: Int[Any, ""],
    seen: Int[Any, ""],
) -> Best:
    """Orders all scores of a chunk, tile by tile."""

    def step(best: Best, place: Int[Array, " two"]) -> tuple[Best, None]:
        start, old = place
        documents = lax.dynamic_slice_in_dim(chunk, start, cut.tile)
        found = _ordered(queries, documents, best.scores.shape[1])
        return _joined(best, found, first + start, jnp.maximum(seen, first + old)), None

    return lax.scan(step, best, jnp.array(_places(cut), jnp.int32))[0]


def _places(cut: Plan) -> list[tuple[int, int]]:
    """Returns for each tile its first document, and the first that no tile before it holds."""
    return [(start, number * cut.tile) for number, start in enumerate(cut.starts)]


def _top(
    scores: Float[Array, "rows documents"], count: int
) -> tuple[Float[Array, "rows count"], Int[Array, "rows count"]]:
    """Returns the greatest scores, descending, and their places, the lower first if equal."""
    values, places = lax.top_k(scores, count)
    # Without the barrier a slice of the values would make XLA order all scores.
    return lax.optimization_barrier(values), places


def _ordered(
    queries: Float[Array, "rows dim"], chunk: Float[Array, "documents dim"], k: int
) -> _Found:
    """Orders all scores."""
    scores = _product(queries, chunk)
    finite = jnp.isfinite(scores.max(axis=1)) & jnp.isfinite(scores.min(axis=1))
    # top_k puts -0.0 below 0.0, and the lower place first where scores are equal.
    scores = jnp.where(scores == 0, jnp.zeros_like(scores), scores)
    values, places = _top(scores, min(k, len(chunk)))
    return _Found(values, places, jnp.full(len(queries), -jnp.inf), finite)


def _by_blocks(
    queries: Float[Array, "rows dim"], chunk: Float[Array, "documents dim"], cut: Plan
) -> _Found:
    """Looks into the best blocks of every tile, then into the best of those."""
    rows, tiles = len(queries), len(cut.starts)
    each = jnp.arange(rows)[:, None]
    if tiles > 1:
        starts = jnp.array(cut.starts, jnp.int32)
        parts = lax.map(functools.partial(_tile, queries, chunk, cut), starts)
    else:  # a loop would copy the chunk
        parts = jax.tree.map(lambda leaf: leaf[None], _tile(queries, chunk, cut, jnp.int32(0)))
    least = parts.maxima[:, :, -1].max(axis=0)
    maxima, chosen = _top(jnp.swapaxes(parts.maxima, 0, 1).reshape(rows, -1), cut.kept)
    if tiles > 1:  # else all of them were chosen
        least = jnp.maximum(least, maxima[:, -1])
    tile, place = chosen // cut.kept, chosen % cut.kept
    inside = parts.inside[tile, each, place].reshape(rows, -1)
    start, old = jnp.array(_places(cut), jnp.int32).T
    places = start[tile][:, :, None] + _members(cut, parts.blocks[tile, each, place])
    inside = jnp.where((places < old[tile][:, :, None]).reshape(rows, -1), -jnp.inf, inside)
    values, chosen = _top(inside, cut.kept)
    return _Found(
        values,
        jnp.take_along_axis(places.reshape(rows, -1), chosen, axis=1),
        jnp.maximum(least, values[:, -1]),
        parts.finite.all(axis=0),
    )


class _Tile(NamedTuple):
    """A tile's best blocks: their maxima, numbers and scores; whether all scores are finite."""

    maxima: Float[Array, "*tiles rows kept"]
    blocks: Int[Array, "*tiles rows kept"]
    inside: Float[Array, "*tiles rows kept width"]
    finite: Bool[Array, "*tiles rows"]


def _tile(
    queries: Float[Array, "rows dim"],
    chunk: Float[Array, "documents dim"],
    cut: Plan,
    start: Int[Array, ""],
) -> _Tile:
    documents = chunk
    if len(cut.starts) > 1:
        documents = lax.dynamic_slice_in_dim(chunk, start, cut.tile)
    scores = _product(queries, documents)
    whole = cut.tile - cut.tile % cut.width
    blocks = scores[:, :whole].reshape(len(queries), cut.width, -1)
    maxima, minima = blocks.max(axis=1), blocks.min(axis=1)
    if whole < cut.tile:
        left = scores[:, whole:]
        maxima = jnp.concatenate([maxima, left.max(axis=1, keepdims=True)], axis=1)
        minima = jnp.concatenate([minima, left.min(axis=1, keepdims=True)], axis=1)
    finite = jnp.isfinite(maxima).all(axis=1) & jnp.isfinite(minima).all(axis=1)
    maxima, chosen = _top(maxima, cut.kept)
    members = _members(cut, chosen)
    flat = jnp.minimum(members, cut.tile - 1).reshape(len(queries), -1)
    inside = jnp.take_along_axis(scores, flat, axis=1).reshape(members.shape)
    if whole < cut.tile:
        inside = jnp.where(members < cut.tile, inside, -jnp.inf)
    return _Tile(maxima, chosen, inside, finite)


def _members(cut: Plan, blocks: Int[Array, "rows kept"]) -> Int[Array, "rows kept width"]:
    """Returns which documents of a tile are in a block; past its end for what is not there.

    Block b holds b, b + count, b + 2 count, ... of the `count` whole blocks; the last one, if the
    tile is no multiple of the width, what is left.
    """
    count = cut.tile // cut.width
    left = blocks == count
    first, step = jnp.where(left, count * cut.width, blocks), jnp.where(left, 1, count)
    steps = jnp.arange(cut.width, dtype=jnp.int32)[None, None, :]
    return first[:, :, None] + step[:, :, None] * steps


def _joined(best: Best, found: _Found, first: Int[Any, ""], seen: Int[Any, ""]) -> Best:
    """Returns the best of both by score, equal ones by row."""
    rows = first + found.places
    scores = jnp.where(found.scores == 0, jnp.zeros_like(found.scores), found.scores)
    scores = jnp.where(rows < seen, -jnp.inf, scores)
    scores = jnp.concatenate([best.scores, scores], axis=1)
    rows = jnp.concatenate([best.rows, rows], axis=1)
    falling, rows = lax.sort((-scores, rows), dimension=1, num_keys=2)
    k = best.scores.shape[1]
    return Best(-falling[:, :k], rows[:, :k], best.finite & found.finite)
