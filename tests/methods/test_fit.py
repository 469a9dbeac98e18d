from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dive_jax
from dive_jax.types import InputError
from tests import toy

DOCUMENTS, QUERIES = toy.vectors(60, 48, 0)
QRELS = {query: {query % 60: 1} for query in range(48)}
QUICK = {"dim": 4, "heads": 2, "epochs": 2, "batch_size": 32}


def fit(**changes: Any) -> Any:
    return dive_jax.fit(QUERIES, DOCUMENTS, QRELS, **(QUICK | changes))


def test_fits_compresses_saves_and_loads(tmp_path: Path):
    compressor = fit()
    compressed = compressor.compress(DOCUMENTS)
    assert compressed.shape == (60, 4)
    assert compressed.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(compressed, axis=1), 1, atol=1e-6)
    compressor.save(tmp_path / "adapter")
    loaded = dive_jax.load(tmp_path / "adapter")
    np.testing.assert_array_equal(loaded.compress(DOCUMENTS), compressed)
    assert type(compressor).load(tmp_path / "adapter").dim == 4


def test_ids_and_row_numbers_give_the_same_judgments():
    names = [f"name {row}" for row in range(48)]
    pages = [f"page {row}" for row in range(60)]
    qrels = {f"name {query}": {f"page {query % 60}": 1} for query in range(48)}
    compressor = dive_jax.fit(
        QUERIES, DOCUMENTS, qrels, query_ids=names, document_ids=pages, **QUICK
    )
    assert compressor.compress(QUERIES, side="query").shape == (48, 4)


@pytest.mark.parametrize("method", ["frozen", "truncate", "pca"])
def test_methods_without_judgments(method: str):
    compressor = dive_jax.fit(QUERIES, DOCUMENTS, {}, dim=4, method=method)
    assert compressor.dim == (toy.FULL_DIM if method == "frozen" else 4)


def test_pca_keeps_inner_products_at_full_width():
    compressor = dive_jax.fit(QUERIES, DOCUMENTS, {}, dim=toy.FULL_DIM, method="pca")
    unit = DOCUMENTS / np.linalg.norm(DOCUMENTS, axis=1, keepdims=True)
    out = compressor.compress(DOCUMENTS)
    np.testing.assert_allclose(out @ out.T, unit @ unit.T, atol=1e-5)


def test_pca_does_not_depend_on_the_chunk():
    one = dive_jax.fit(QUERIES, DOCUMENTS, {}, dim=6, method="pca").compress(DOCUMENTS)
    values, axes = np.linalg.eigh(
        (lambda u: u.T @ u)(
            DOCUMENTS.astype(np.float64) / np.linalg.norm(DOCUMENTS, axis=1, keepdims=True)
        )
    )
    unit = DOCUMENTS / np.linalg.norm(DOCUMENTS, axis=1, keepdims=True)
    other = unit @ axes[:, ::-1][:, :6]
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(one), np.abs(other), atol=1e-4)
    assert values[-1] > values[0]


def broken(row: int, value: float) -> np.ndarray:
    vectors = DOCUMENTS.copy()
    vectors[row] = value
    return vectors


BAD: dict[str, tuple[tuple, dict, str]] = {
    "another method": ((), {"method": "magic"}, "--method: wanted one of frozen"),
    "too wide": ((), {"dim": 20, "heads": 2}, r"dim \* heads <= the full width 32"),
    "an unknown query": ((QUERIES, DOCUMENTS, {99: {0: 1}}), {}, "1 query ids have no vector"),
    "an unknown document": ((QUERIES, DOCUMENTS, {0: {99: 1}}), {}, "1 document ids have no"),
    "no judgments": ((QUERIES, DOCUMENTS, {}), {}, "no training pair"),
    "no relevant document": ((QUERIES, DOCUMENTS, {0: {1: 0}}), {}, "no training pair"),
    "a zero row": ((QUERIES, broken(3, 0.0), QRELS), {}, "row 3"),
    "a row that is not finite": ((QUERIES, broken(5, np.nan), QRELS), {}, "row 5"),
    "two widths": ((QUERIES[:, :8], DOCUMENTS, QRELS), {}, "wanted one width, got 8 and 32"),
    "integers": ((QUERIES, DOCUMENTS.astype(int), QRELS), {}, "documents: wanted floats"),
    "one vector": ((QUERIES[0], DOCUMENTS, QRELS), {}, "queries: wanted floats"),
    "too few ids": ((), {"query_ids": ["a"]}, "query_ids: wanted one id a row, 48 in all, got 1"),
    "an id twice": ((), {"query_ids": ["a"] * 48}, "query_ids: wanted ids that differ"),
    "a margin out of range": ((), {"margin": 5.0}, "--margin"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_line(name: str):
    places, changes, wanted = BAD[name]
    with pytest.raises(InputError, match=wanted) as told:
        dive_jax.fit(*(places or (QUERIES, DOCUMENTS, QRELS)), **(QUICK | changes))
    assert "\n" not in str(told.value)
    assert str(told.value)


def test_an_unknown_setting_is_a_type_error():
    with pytest.raises(TypeError, match="marigin"):
        fit(marigin=0.5)
