"""Indexes by faiss: what they find, that their bytes repeat, and what is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest

from dive_jax.retrieval import indexes
from dive_jax.retrieval.indexes import KINDS, Settings, parameters
from dive_jax.types import InputError

faiss = pytest.importorskip("faiss")

ROWS, DIM, CHUNK = 600, 16, 200


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    """Clusters, so that lists and codes have something to learn."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(30, DIM))
    return unit(middles[rng.integers(0, 30, ROWS)] + 0.5 * rng.normal(size=(ROWS, DIM)))


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    return unit(documents[::40] + 0.3 * rng.normal(size=(15, DIM)))


def build(kind: str, documents: np.ndarray, *, through_bytes: bool = False, **settings: int):
    chosen = parameters(Settings(kind, **settings), *documents.shape)
    index = indexes.empty(kind, documents.shape[1], chosen)
    indexes.train(index, documents[indexes.sample_rows(len(documents))])
    for start in range(0, len(documents), CHUNK):
        indexes.add(index, documents[start : start + CHUNK], chosen)
        if through_bytes:
            index = faiss.deserialize_index(faiss.serialize_index(index))
    return index


def best(documents: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :k]


LEAST = {"flat": 1.0, "hnsw": 0.99, "ivfpq": 0.6, "int8": 0.95, "binary": 0.5}
"""Shares of the exact ten that each kind must find here; chance finds 0.02."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_most_of_what_exact_search_finds(
    kind: str, documents: np.ndarray, queries: np.ndarray
):
    found = indexes.search(build(kind, documents), queries, 10)
    wanted = best(documents, queries, 10)
    shares = [np.isin(one, other).mean() for one, other in zip(wanted, found.rows, strict=True)]
    assert np.mean(shares) >= LEAST[kind]
    assert (np.diff(found.scores, axis=1) <= 0).all()
    exact = np.take_along_axis(queries @ documents.T, found.rows, axis=1)
    np.testing.assert_allclose(found.scores, exact, atol=0.15 if kind == "ivfpq" else 0.02)


def test_flat_orders_equal_scores_by_row():
    documents = np.tile(np.eye(2, dtype=np.float32), (3, 1))
    found = indexes.search(build("flat", documents), np.eye(2, dtype=np.float32)[:1], 6)
    assert found.rows.tolist() == [[0, 2, 4, 1, 3, 5]]


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_repeat_and_survive_a_file_between_chunks(kind: str, documents: np.ndarray):
    first = faiss.serialize_index(build(kind, documents)).tobytes()
    assert faiss.serialize_index(build(kind, documents)).tobytes() == first
    assert faiss.serialize_index(build(kind, documents, through_bytes=True)).tobytes() == first


def test_bits_are_those_of_the_signs(documents: np.ndarray):
    index = build("binary", documents)
    bits = faiss.downcast_index(index.base_index)
    codes = faiss.vector_to_array(bits.codes).reshape(ROWS, DIM // 8)
    np.testing.assert_array_equal(codes, np.packbits(documents > 0, axis=1, bitorder="little"))


def test_more_bits_candidates_than_documents_is_exact_to_a_byte(documents: np.ndarray):
    few = documents[:20]
    found = indexes.search(build("binary", few), few, 20)
    assert (np.sort(found.rows, axis=1) == np.arange(20)).all()
    np.testing.assert_array_equal(found.rows[:, 0], np.arange(20))


def test_no_more_documents_than_there_are(documents: np.ndarray):
    assert indexes.search(build("flat", documents[:4]), documents[:2], 9).rows.shape == (2, 4)


def test_an_approximate_index_may_find_fewer(documents: np.ndarray):
    index = build("ivfpq", documents, lists=15, probes=1)
    found = indexes.search(index, documents[:5], 200)
    missing = found.rows < 0
    assert missing.any()
    assert np.isneginf(found.scores[missing]).all()
    assert (np.diff(missing.astype(int), axis=1) >= 0).all(), "missing ones come last"


def test_an_index_in_a_file_is_the_same(documents: np.ndarray, queries: np.ndarray, tmp_path: Path):
    index = build("ivfpq", documents, probes=2)
    indexes.write(index, tmp_path / "x.faiss")
    again = indexes.read(tmp_path / "x.faiss")
    assert (tmp_path / "x.faiss").stat().st_size == indexes.size(index)
    assert again.nprobe == 2
    for one, other in zip(
        indexes.search(index, queries, 5), indexes.search(again, queries, 5), strict=True
    ):
        np.testing.assert_array_equal(one, other)


WRONG = {
    "unknown kind": (Settings("tree"), 600, "--kind: wanted one of flat, hnsw"),
    "few rows": (Settings("ivfpq"), 255, "needs as many vectors, got 255"),
    "no divisor": (Settings("ivfpq", code_bytes=5), 600, "--code_bytes: wanted a divisor of the"),
    "many lists": (Settings("ivfpq", lists=601), 600, "--lists: wanted at most 600 here, got 601"),
    "many probes": (Settings("ivfpq", lists=4, probes=5), 600, "--probes: wanted at most the 4"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings(name: str):
    settings, rows, told = WRONG[name]
    with pytest.raises(InputError, match=told):
        parameters(settings, rows, DIM)


def test_wrong_searches(documents: np.ndarray):
    index = build("flat", documents[:4])
    with pytest.raises(InputError, match="wanted the index's width 16, got 15"):
        indexes.search(index, documents[:2, :15], 1)
    with pytest.raises(InputError, match="k: wanted at least 1"):
        indexes.search(index, documents[:2], 0)


def test_faiss_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'dive_jax\[faiss\]'"):
        indexes.library()


def test_a_full_disk_is_an_error_of_the_system(documents: np.ndarray):
    with pytest.raises(OSError, match="cannot be written"):
        indexes.write(build("flat", documents), Path("/dev/full"))


@pytest.mark.parametrize("content", [b"", b"IxFI", b"IxFI" + b"\xff" * 200, b"not an index" * 9])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "x.faiss").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.faiss: not a whole index"):
        indexes.read(tmp_path / "x.faiss")
