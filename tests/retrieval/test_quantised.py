"""Quantised search against brute force, its ties and bounds, and what it costs on real vectors."""

import tracemalloc

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.data.embeddings import load_store, unit_rows
from dive_jax.data.qrels import read_qrels
from dive_jax.metrics import trec
from dive_jax.retrieval.codes import calibrate, from_int8, to_binary, to_int8
from dive_jax.retrieval.exact import to_run, top_k
from dive_jax.retrieval.quantised import KINDS, hamming, search
from dive_jax.types import InputError


def unit(seed, rows, dim):
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(queries, documents, k):
    """Scores in float64, rounded to float32 as the search keeps them; equal ones by row."""
    scores = (queries.astype(np.float64) @ documents.astype(np.float64).T).astype(np.float32)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


def by_bits(queries, documents, k, oversampling, stored):
    """Binary search, a pair at a time."""
    rows = []
    for query in queries:
        signs = [int(((query > 0) != (each > 0)).sum()) for each in documents]
        near = sorted(range(len(documents)), key=lambda row: (signs[row], row))
        near = near[: k * oversampling]
        scores = {row: np.float32(query.astype(np.float64) @ stored[row]) for row in near}
        rows.append(sorted(near, key=lambda row: (-scores[row], row))[:k])
    return np.array(rows)


def test_float32_is_the_exact_search():
    queries, documents = unit(1, 9, 12), unit(2, 200, 12)
    found, exact = search(queries, documents, kind="float32", k=7), top_k(queries, documents, k=7)
    np.testing.assert_array_equal(found.rows, exact.rows)
    np.testing.assert_array_equal(found.scores, exact.scores)


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_a_float_query_meets_the_rounded_document(kind):
    queries, documents = unit(3, 9, 12), unit(4, 200, 12)
    ranges = calibrate(documents[:50], coverage=0.98)
    if kind == "int8":
        stored = from_int8(to_int8(documents, ranges), ranges)
    else:
        stored = documents.astype(np.float16)
    scores, rows = brute_force(queries, stored, 11)
    found = search(queries, documents, kind=kind, k=11, calibration=ranges, chunk_rows=64)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_allclose(found.scores, scores, atol=3e-7, rtol=0)
    assert np.abs(found.scores - top_k(queries, documents, k=11).scores).max() > 1e-5


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000))
@pytest.mark.parametrize("rescore", ["float32", "int8"])
def test_binary_equals_brute_force_ties_included(rescore, seed):
    # Few values: many equal distances, also at the cut, and many equal scores.
    rng = np.random.default_rng(seed)
    queries = rng.integers(-1, 2, (6, 11)).astype(np.float32)
    documents = rng.integers(-1, 2, (70, 11)).astype(np.float32)
    ranges = calibrate(documents)
    stored = documents if rescore == "float32" else from_int8(to_int8(documents, ranges), ranges)
    expected = by_bits(queries, documents, 5, 3, stored)
    for chunk_rows in (70, 16, 1000):
        found = search(
            queries,
            documents,
            kind="binary",
            k=5,
            calibration=ranges,
            oversampling=3,
            rescore=rescore,
            chunk_rows=chunk_rows,
        )
        np.testing.assert_array_equal(found.rows, expected)
        products = np.einsum("qd,qkd->qk", queries.astype(np.float64), stored[found.rows])
        np.testing.assert_array_equal(found.scores, products.astype(np.float32))


def test_many_queries_and_candidates_are_taken_in_blocks():
    queries, documents = unit(5, 300, 9), unit(6, 90, 9)
    found = search(queries, documents, kind="binary", k=4, oversampling=5, chunk_rows=31)
    np.testing.assert_array_equal(found.rows, by_bits(queries, documents, 4, 5, documents))
    assert found.rows.dtype == np.int32
    assert found.scores.dtype == np.float32


@pytest.mark.parametrize("rescore", ["float32", "int8"])
def test_with_every_document_a_candidate_binary_is_exact(rescore):
    queries, documents = unit(7, 20, 16), unit(8, 120, 16)
    ranges = calibrate(documents)
    settings = {"k": 10, "calibration": ranges}
    found = search(queries, documents, kind="binary", oversampling=12, rescore=rescore, **settings)
    exact = search(queries, documents, kind=rescore, **settings)
    np.testing.assert_array_equal(found.rows, exact.rows)
    np.testing.assert_allclose(found.scores, exact.scores, atol=3e-7, rtol=0)
    few = search(queries, documents, kind="binary", oversampling=1, rescore=rescore, **settings)
    assert (few.rows != exact.rows).any()


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 24])
def test_distances_are_those_of_pythons_integers(width):
    rng = np.random.default_rng(width)
    a, b = (rng.integers(0, 256, (rows, width), dtype=np.uint8) for rows in (5, 13))
    numbers = [[int.from_bytes(row.tobytes()) for row in side] for side in (a, b)]
    expected = [[(one ^ other).bit_count() for other in numbers[1]] for one in numbers[0]]
    np.testing.assert_array_equal(hamming(a, b), expected)


def test_distances_agree_with_faiss_and_with_products_of_signs():
    queries, documents = unit(9, 6, 72), unit(10, 50, 72)
    distances = hamming(to_binary(queries), to_binary(documents))
    index = faiss.IndexBinaryFlat(72)
    index.add(to_binary(documents))
    theirs, rows = index.search(to_binary(queries), 50)
    np.testing.assert_array_equal(np.take_along_axis(distances, rows, axis=1), theirs)
    np.testing.assert_array_equal(72 - 2 * distances, np.sign(queries) @ np.sign(documents).T)


class Counting:
    """Documents that note how many rows are read at once."""

    def __init__(self, values):
        self.values, self.read = values, []
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key):
        self.read.append(key)
        return self.values[key]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_binary_reads_a_mapped_file_twice_in_chunks(tmp_path, dtype):
    np.save(tmp_path / "documents.npy", unit(11, 50, 8).astype(dtype))
    documents = Counting(np.load(tmp_path / "documents.npy", mmap_mode="r"))
    queries = unit(12, 3, 8)
    found = search(queries, documents, kind="binary", k=5, chunk_rows=20)
    assert documents.read == [slice(0, 20), slice(20, 40), slice(40, 60)] * 2
    wide = np.asarray(documents.values, np.float32)
    np.testing.assert_array_equal(found.rows, by_bits(queries, wide, 5, 4, wide))


def test_memory_does_not_grow_with_the_number_of_documents():
    peaks = []
    for rows in (2_000, 40_000):
        documents, queries = unit(13, rows, 32), unit(14, 40, 32)
        tracemalloc.start()
        search(queries, documents, kind="binary", k=5, chunk_rows=1000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 5_000_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("queries", "documents"), [(0, 4), (3, 0), (3, 2)])
def test_fewer_than_wanted(kind, queries, documents):
    ranges = calibrate(np.float32([[-1, -1], [1, 1]]))
    found = search(
        np.ones((queries, 2), np.float32),
        np.ones((documents, 2), np.float32),
        kind=kind,
        k=3,
        calibration=ranges,
    )
    assert found.scores.shape == found.rows.shape == (queries, min(3, documents))
    assert (found.rows == np.arange(min(3, documents))).all()


def poisoned(row, value):
    documents = np.ones((10, 2), np.float32)
    documents[row, 1] = value
    return documents


FOUR = np.ones((4, 2), np.float32)


@pytest.mark.parametrize(
    ("documents", "rest", "message"),
    [
        (FOUR, {"k": 0}, "k: wanted at least 1, got 0"),
        (FOUR, {"chunk_rows": 0}, "chunk_rows: wanted at least 1, got 0"),
        (FOUR, {"oversampling": 0}, "oversampling: wanted at least 1, got 0"),
        (FOUR, {"rescore": "int8"}, "calibration: int8 needs the ranges"),
        (FOUR, {"kind": "int8"}, "calibration: int8 needs the ranges"),
        (FOUR, {"kind": "int8", "calibration": calibrate(FOUR[:, :1])}, "calibration: wanted one"),
        (np.ones((4, 3), np.float32), {}, "documents: wanted width 2 to match the queries, got 3"),
        (np.ones((4, 3), np.float32), {"kind": "float16"}, r"transform\(documents\): wanted shape"),
        (np.ones((4, 2), np.int32), {}, "documents: wanted floating-point vectors, got int32"),
        (poisoned(7, np.nan), {}, "documents from row 6: .* in row 1 of these 3"),
        (poisoned(7, -np.inf), {"kind": "float16"}, "vectors as float16: wanted finite"),
        (poisoned(7, np.nan), {"kind": "float32"}, "query row 0: wanted finite scores"),
    ],
)
def test_mistakes_are_told_in_one_line(documents, rest, message):
    asked = {"kind": "binary", "k": 1, "chunk_rows": 3} | rest
    with pytest.raises(InputError, match=f"^{message}") as caught:
        search(np.ones((2, 2), np.float32), documents, **asked)
    assert "\n" not in str(caught.value)


def test_a_bad_query_is_named():
    with pytest.raises(InputError, match=r"^queries: .* in row 7 of these 10"):
        search(poisoned(7, np.nan), FOUR, kind="binary", k=1)


@pytest.mark.errors
@pytest.mark.parametrize("wrong", [{"kind": "int4"}, {"kind": "binary", "rescore": "none"}])
def test_an_unknown_kind_is_refused(wrong):
    with pytest.raises(InputError, match=r": wanted one of float32, .*int8.*, got '"):
        search(FOUR, FOUR, k=1, **wrong)


def test_what_quantising_costs_on_scifact(data_root):
    folder = data_root / "scifact"
    store = load_store(folder / "embeddings" / "all-MiniLM-L6-v2")
    qrels, _ = read_qrels(folder / "qrels" / "test.tsv")
    rows = np.array([row for row, id in enumerate(store.sides.query.ids) if id in qrels])
    queries, documents = unit_rows(store.sides.query.vectors, rows), store.sides.document.vectors
    documents, ids = unit_rows(documents), [store.sides.query.ids[row] for row in rows]
    ranges, scores = calibrate(documents[:1000]), {}
    for kind in KINDS:
        found = search(queries, documents, kind=kind, k=10, calibration=ranges)
        run = to_run(found, ids, store.sides.document.ids)
        scores[kind] = trec.mean(trec.per_query(qrels, run))["ndcg@10"]
    assert scores["float32"] == pytest.approx(0.6451, abs=2e-4)
    assert scores["float16"] == pytest.approx(scores["float32"], abs=5e-4)
    assert scores["int8"] == pytest.approx(scores["float32"], abs=5e-3)
    assert scores["binary"] >= 0.95 * scores["float32"]
