"""Exports for runtimes that the core environment has: NumPy alone, and faiss."""

from pathlib import Path

import numpy as np
import pytest

from dive_jax.artefact import apply
from tests.interop import runtime
from tests.interop.agreement import check
from tests.interop.cases import LINEAR, ZERO, artefacts, exported, real_vectors


@pytest.fixture(scope="module")
def vectors(data_root: Path) -> np.ndarray:
    return real_vectors(data_root)


def test_numpy_alone_computes_every_form_as_jax_does(vectors: np.ndarray, tmp_path: Path):
    modules = check("numpy", tuple(artefacts()), vectors, tmp_path)
    assert not {"scipy", "torch", "safetensors", "flax", "absl"} & modules


def test_faiss_computes_linear_adapters_as_jax_does(vectors: np.ndarray, tmp_path: Path):
    assert "faiss" in check("faiss", LINEAR, vectors, tmp_path)


def test_faiss_searches_with_the_transform_before_an_index(
    vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    saved = exported(artefacts()["linear"], "faiss", tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    space: dict = {}
    exec(runtime.code(Path(), 1), space)
    rows = np.delete(vectors, ZERO, axis=0)
    index = space["index"]
    index.add(7 * rows)
    scores, found = index.search(rows[:20], 5)
    compressed = apply(saved, rows)
    cosines = compressed[:20] @ compressed.T
    np.testing.assert_allclose(scores, -np.sort(-cosines, axis=1)[:, :5], atol=1e-5)
    np.testing.assert_array_equal(found[:, 0], np.arange(20))
