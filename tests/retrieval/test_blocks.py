"""The quick way through a chunk against the full order: tiles, leftovers, ties and old rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.retrieval import blocks
from dive_jax.retrieval.exact import Held, top_k
from dive_jax.types import InputError

K = 3
DIM = 5


@pytest.fixture
def small(monkeypatch):
    """Lets chunks of some hundred documents go the quick way, in tiles of about a hundred."""
    for name, value in {"_LEAST": 4, "_WORTH": 4, "_TILE": 800}.items():
        monkeypatch.setattr(blocks, name, value)


def drawn(kind, seed, rows):
    rng = np.random.default_rng(seed)
    if kind == "alike":
        return np.ones((rows, DIM), np.float32)
    if kind == "integers":
        return rng.integers(-2, 3, (rows, DIM)).astype(np.float32)
    vectors = np.round(8 * rng.standard_normal((rows, DIM))).astype(np.float32)  # exact products
    if kind == "twins":  # every vector five times, side by side
        return np.repeat(vectors[: -(-rows // 5)], 5, axis=0)[:rows]
    return vectors


def ordered(queries, documents, k):
    scores = np.asarray(jnp.matmul(queries, documents.T, precision="highest")) + 0.0
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


def test_a_chunk_is_cut_in_tiles_of_one_size_that_cover_it(small):
    for documents in range(36, 400, 7):
        cut = blocks.plan(8, documents, K)
        assert cut is not None
        held = np.concatenate([np.arange(start, start + cut.tile) for start in cut.starts])
        assert set(held) == set(range(documents))
        assert len(held) - documents < 64 * len(cut.starts)
        assert len(set(cut.starts)) == len(cut.starts)
        assert cut.kept == K + 6
        assert cut.kept <= cut.tile // cut.width
    assert blocks.plan(8, 35, K) is None


def test_few_queries_are_scored_in_one_tile():
    one = blocks.plan(1, 65536, 10)
    many = blocks.plan(256, 65536, 10)
    assert one is not None
    assert many is not None
    assert one.starts == (0,)
    assert many.tile * 256 <= 1 << 20
    assert many.tile * len(many.starts) == 65536


def test_every_document_is_in_one_block(small):
    cut = blocks.plan(2, 203, K)
    assert cut is not None
    assert len(cut.starts) == 1
    assert cut.tile % cut.width  # something is left over
    every = jnp.arange(cut.tile // cut.width + 1, dtype=jnp.int32)[None]
    members = np.asarray(blocks._members(cut, every)).ravel()
    assert sorted(members[members < cut.tile]) == list(range(cut.tile))


@pytest.mark.parametrize("kind", ["floats", "integers", "twins", "alike"])
@pytest.mark.parametrize("rows", [3, 8])
def test_the_quick_way_finds_what_the_full_order_finds(small, kind, rows):
    documents, queries = drawn(kind, 1, 331), drawn("integers", 2, rows)
    cut = blocks.plan(rows, 331, K)
    assert cut is not None
    assert (len(cut.starts) > 1) == (rows == 8)
    start = blocks.Best(*(leaf[0] for leaf in blocks.nothing_yet((1, rows), K)))
    merge = jax.jit(functools.partial(blocks.merge_block))
    got = merge(start, queries, chunk=documents, first=np.int32(0), seen=np.int32(0))
    scores, found = ordered(queries, documents, K)
    np.testing.assert_array_equal(got.rows, found)
    np.testing.assert_array_equal(got.scores, scores)
    assert got.finite.all()


@pytest.mark.parametrize("kind", ["floats", "integers"])
def test_nothing_left_out_scores_above_the_cut(small, kind):
    documents, queries = drawn(kind, 3, 331), drawn("floats", 4, 8)
    cut = blocks.plan(8, 331, K)
    assert cut is not None
    found = jax.jit(blocks._by_blocks, static_argnums=2)(queries, documents, cut)
    scores = np.asarray(jnp.matmul(queries, documents.T, precision="highest"))
    for query, places in enumerate(np.asarray(found.places)):
        np.testing.assert_array_equal(found.scores[query], scores[query, places])
        assert len(set(places)) == len(places)
        assert np.delete(scores[query], places).max() <= found.cut[query]


def test_held_documents_are_found_as_read_ones():
    documents, queries = drawn("integers", 5, 60), drawn("integers", 6, 7)
    wanted = top_k(queries, documents, k=4, chunk_rows=25, query_rows=3)
    held = Held(documents, chunk_rows=25)
    got = held.top_k(queries, k=4, query_rows=3)
    np.testing.assert_array_equal(got.rows, wanted.rows)
    np.testing.assert_array_equal(got.scores, wanted.scores)
    assert held.documents == 60
    assert held.top_k(queries, k=100).rows.shape == (7, 60)


def test_held_documents_of_another_width_are_told():
    held = Held(drawn("floats", 7, 9))
    with pytest.raises(InputError, match="queries: wanted width 5 to match the documents, got 2"):
        held.top_k(np.ones((1, 2), np.float32), k=1)
    with pytest.raises(InputError, match="k: wanted at least 1, got 0"):
        held.top_k(np.ones((1, 5), np.float32), k=0)
    with pytest.raises(InputError, match="chunk_rows: wanted at least 1"):
        Held(drawn("floats", 7, 9), chunk_rows=0)
    assert Held(np.ones((0, 5), np.float32)).top_k(drawn("floats", 8, 2), k=3).rows.shape == (2, 0)
