"""Exact search against numpy and FAISS, its tie rule and bounds, and its run for trec_eval."""

import itertools

import faiss
import jax
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.retrieval import blocks
from dive_jax.retrieval.exact import Ranking, to_run, top_k
from dive_jax.types import InputError


def reference(queries, documents, k):
    """All scores in float64, ordered by a stable sort: equal scores keep the order of rows."""
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


def unit(rng, rows, dim):
    vectors = rng.standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def small_integers(seed, rows, dim):
    return np.random.default_rng(seed).integers(-2, 3, (rows, dim)).astype(np.float32)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_ties_by_row_equal_a_stable_sort(seed):
    queries, documents = small_integers(seed, 7, 3), small_integers(seed + 1, 60, 3)
    scores, rows = reference(queries, documents, 20)
    assert all(len(np.unique(each)) < 20 for each in scores)  # Ties there are, in every query.
    for chunk_rows, query_rows in ((60, 7), (16, 4), (7, 3)):
        found = top_k(queries, documents, k=20, chunk_rows=chunk_rows, query_rows=query_rows)
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_array_equal(found.scores, scores)
        assert found.rows.dtype == np.int32
        assert found.scores.dtype == np.float32


@pytest.mark.parametrize("chunk_rows", [1, 2, 13, 59, 60, 61, 1000])
@pytest.mark.parametrize("query_rows", [1, 5, 6, 100])
def test_neither_chunks_nor_blocks_change_the_result(chunk_rows, query_rows):
    queries, documents = small_integers(3, 6, 3), small_integers(4, 60, 3)
    found = top_k(queries, documents, k=9, chunk_rows=chunk_rows, query_rows=query_rows)
    scores, rows = reference(queries, documents, 9)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores)


def test_all_documents_alike_come_in_the_order_of_rows():
    found = top_k(np.ones((2, 4), np.float32), np.ones((50, 4), np.float32), k=30, chunk_rows=8)
    np.testing.assert_array_equal(found.rows, np.tile(np.arange(30), (2, 1)))


@pytest.mark.parametrize("chunk_rows", [2, 3, 8])
def test_negative_zero_is_the_same_score_as_zero(chunk_rows):
    tiny = 1e-30  # tiny * -tiny underflows to -0.0 in float32.
    documents = np.array([[-tiny], [0], [-tiny], [tiny], [-1], [0], [-tiny], [0]], np.float32)
    found = top_k(np.array([[tiny]], np.float32), documents, k=8, chunk_rows=chunk_rows)
    assert found.rows[0].tolist() == [0, 1, 2, 3, 5, 6, 7, 4]


@pytest.mark.parametrize("chunk_rows", [500, 700, 3000])
def test_agrees_with_faiss_flat(chunk_rows):
    rng = np.random.default_rng(5)
    queries, documents = unit(rng, 40, 48), unit(rng, 3000, 48)
    index = faiss.IndexFlatIP(48)
    index.add(documents)
    scores, rows = index.search(queries, 12)
    found = top_k(queries, documents, k=11, chunk_rows=chunk_rows, query_rows=16)
    np.testing.assert_allclose(found.scores, scores[:, :11], atol=1e-6, rtol=0)
    gaps = -np.diff(scores, axis=1)
    clear = gaps > 1e-6
    clear[:, 1:] &= gaps[:, :-1] > 1e-6
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found.rows[clear], rows[:, :11][clear])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_reads_a_memory_mapped_file_of_any_float_type(tmp_path, dtype):
    queries, documents = small_integers(6, 5, 4), small_integers(7, 90, 4)
    np.save(tmp_path / "documents.npy", documents.astype(dtype))
    mapped = np.load(tmp_path / "documents.npy", mmap_mode="r")
    found = top_k(queries.astype(dtype), mapped, k=7, chunk_rows=32)
    np.testing.assert_array_equal(found.rows, reference(queries, documents, 7)[1])


class Counting:
    """Documents that note which slices are read."""

    def __init__(self, values):
        self.values, self.read = values, []
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key):
        self.read.append(key)
        return self.values[key]


def test_documents_are_read_once_and_chunk_by_chunk():
    documents = Counting(small_integers(8, 50, 3))
    top_k(small_integers(9, 30, 3), documents, k=4, chunk_rows=20, query_rows=7)
    assert documents.read == [slice(0, 20), slice(20, 40), slice(30, 50)]


def test_one_trace_a_run_whatever_the_last_chunk_and_block(monkeypatch):
    traces = []
    inner = blocks.merge_block

    def counting(best, queries, **rest):
        traces.append((queries.shape, rest["chunk"].shape))
        return inner(best, queries, **rest)

    monkeypatch.setattr(blocks, "merge_block", counting)
    # Shapes that no other test uses, so that nothing is traced already.
    queries, documents = small_integers(1, 23, 17), small_integers(2, 101, 17)
    for _ in range(2):
        top_k(queries, documents, k=3, chunk_rows=29, query_rows=10)
    assert traces == [((10, 17), (29, 17))]


def test_the_transform_sees_float32_chunks_of_one_shape_and_makes_what_is_searched():
    documents = small_integers(10, 50, 6).astype(np.float16)
    queries = small_integers(11, 4, 2)
    seen = []

    def keep_two(chunk):
        seen.append((chunk.shape, chunk.dtype))
        return chunk[:, 3:5]

    found = top_k(queries, documents, k=9, chunk_rows=16, transform=keep_two)
    np.testing.assert_array_equal(found.rows, reference(queries, documents[:, 3:5], 9)[1])
    assert seen == [((16, 6), np.float32)] * 4


def test_more_documents_wanted_than_there_are():
    queries, documents = small_integers(12, 3, 2), small_integers(13, 5, 2)
    for chunk_rows in (2, 9):
        found = top_k(queries, documents, k=8, chunk_rows=chunk_rows)
        np.testing.assert_array_equal(found.rows, reference(queries, documents, 5)[1])


@pytest.mark.parametrize(("queries", "documents"), [(0, 4), (3, 0), (0, 0)])
def test_nothing_to_search(queries, documents):
    found = top_k(np.ones((queries, 2), np.float32), np.ones((documents, 2), np.float32), k=3)
    assert found.scores.shape == found.rows.shape == (queries, min(3, documents))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_query_that_is_not_finite_is_named(value):
    queries = np.ones((5, 2), np.float32)
    queries[3, 1] = queries[4, 0] = value
    with pytest.raises(InputError, match=r"^query row 3: wanted finite"):
        top_k(queries, np.ones((4, 2), np.float32), k=1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
@pytest.mark.parametrize("row", [0, 5, 9])
def test_a_score_that_is_not_finite_names_the_first_query(value, row):
    queries = np.zeros((7, 2), np.float32)
    queries[:, 0] = [0, 0, 4, 1, 4, 0, 0]
    documents = np.ones((10, 2), np.float32)
    documents[row, 0] = value
    first = 2 if np.isfinite(value) else 0  # 0 * infinity is NaN: every query meets it.
    with pytest.raises(InputError, match=f"^query row {first}: wanted finite scores"):
        top_k(queries, documents, k=1, chunk_rows=4, query_rows=2)


@pytest.mark.parametrize(
    ("documents", "rest", "message"),
    [
        (np.ones((4, 3), np.float32), {}, r"documents: wanted shape \(4, 2\)"),
        (np.ones(4, np.float32), {}, r"documents: wanted \[rows, width\], got shape \(4,\)"),
        (np.ones((4, 2), np.int32), {}, "documents: wanted floating-point vectors, got int32"),
        (np.ones((4, 2), np.float32), {"k": 0}, "k: wanted at least 1, got 0"),
        (np.ones((4, 2), np.float32), {"chunk_rows": 0}, "chunk_rows: wanted at least 1"),
        (np.ones((4, 2), np.float32), {"query_rows": -1}, "query_rows: wanted at least 1"),
        (
            np.ones((4, 2), np.float32),
            {"transform": lambda chunk: chunk[:2]},
            r"transform\(documents\): wanted shape \(4, 2\)",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(documents, rest, message):
    with pytest.raises(InputError, match=f"^{message}") as caught:
        top_k(np.ones((2, 2), np.float32), documents, **({"k": 1} | rest))
    assert "\n" not in str(caught.value)


def test_scores_are_full_float32_products():
    rng = np.random.default_rng(14)
    queries, documents = unit(rng, 8, 256), unit(rng, 64, 256)
    expected = reference(queries, documents, 64)[0]
    found = top_k(queries, documents, k=64).scores
    np.testing.assert_allclose(found, expected, atol=3e-7, rtol=0)


def test_other_devices_are_asked_for_full_float32_products():
    shapes = (
        blocks.nothing_yet((1, 2), 1),
        np.ones((1, 2, 3), np.float32),
        np.ones((4, 3), np.float32),
    )
    traced = str(jax.make_jaxpr(blocks.merge)(*shapes, np.int32(0), np.int32(0)))
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in traced


def trec_order(run, depth):
    """Returns what trec_eval puts at each place, asked with one relevant document at a time."""
    order = {}
    for query, found in run.items():
        places = {}
        for document in found:
            evaluator = pytrec_eval.RelevanceEvaluator({query: {document: 1}}, {"recip_rank"})
            places[document] = 1 / evaluator.evaluate({query: found})[query]["recip_rank"]
        order[query] = sorted(places, key=places.__getitem__)[:depth]
    return order


@pytest.mark.parametrize(
    "scores",
    [
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, -1e-45, -1e-45, -1e-38],
        [1e-40, 1e-40, 0, 0, -1e-40, -1e-40],
        [-0.5, -0.5, -0.5, -0.5, -0.50000006, -0.50000006],
        [1, np.nextafter(np.float32(1), np.float32(0)), 0.99999994, 0.5, 0.5, 0.5],
        [3e38, 3e38, 1, 1, -3e38, -3e38],
    ],
)
def test_trec_eval_ranks_what_the_search_ranked(scores):
    names = ["a", "z", "é", "B", "10", "9"]
    scores = np.array([scores], np.float32)
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 97):
        ranking = Ranking(scores, np.array([order], np.int32))
        run = to_run(ranking, ["query"], names)
        wanted = [names[row] for row in order]
        assert list(run["query"]) == wanted
        assert trec_order(run, 6) == {"query": wanted}


def test_untied_scores_stay_as_they_are():
    scores = np.array([[0.9, 0.8, -0.1]], np.float32)
    run = to_run(Ranking(scores, np.array([[2, 0, 1]], np.int32)), ["q"], ["a", "b", "c"])
    assert run == {"q": dict(zip("cab", scores[0].tolist(), strict=True))}


def test_a_document_of_the_querys_own_id_is_dropped_before_the_cut():
    ids = ["a", "b", "c", "d"]
    rows = np.array([[1, 0, 2, 3], [2, 1, 0, 3], [3, 2, 1, 0]], np.int32)
    scores = np.tile(np.array([4, 3, 2, 1], np.float32), (3, 1))
    run = to_run(Ranking(scores, rows), ["b", "d", "other"], ids, depth=3)
    assert {query: list(found) for query, found in run.items()} == {
        "b": ["a", "c", "d"],
        "d": ["c", "b", "a"],
        "other": ["d", "c", "b"],
    }


def test_the_ranking_is_left_alone():
    scores = np.ones((1, 3), np.float32)
    to_run(Ranking(scores, np.array([[0, 1, 2]], np.int32)), ["q"], ["a", "b", "c"])
    assert (scores == 1).all()


@pytest.mark.parametrize(
    ("query_ids", "document_ids", "depth", "message"),
    [
        (["q"], ["a", "b"], 0, "depth: wanted at least 1"),
        (["q", "r"], ["a", "b"], 1, "query_ids: wanted 1 distinct ids, got 2"),
        (["q"], ["a"], 1, "document_ids: wanted more than 1, got 1"),
    ],
)
def test_ids_that_do_not_fit_are_refused(query_ids, document_ids, depth, message):
    ranking = Ranking(np.ones((1, 2), np.float32), np.array([[0, 1]], np.int32))
    with pytest.raises(InputError, match=f"^{message}"):
        to_run(ranking, query_ids, document_ids, depth=depth)


def test_repeated_query_ids_are_refused():
    ranking = Ranking(np.ones((2, 1), np.float32), np.zeros((2, 1), np.int32))
    with pytest.raises(InputError, match="got 2 of which 1 are distinct"):
        to_run(ranking, ["q", "q"], ["a"])
