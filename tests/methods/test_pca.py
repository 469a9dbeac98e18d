from pathlib import Path

import numpy as np
import pytest

from dive_jax.artefact import apply
from dive_jax.methods import pca
from dive_jax.methods.protocol import Compressor, Fitting, Material
from dive_jax.options import AdapterOptions, TrainOptions
from dive_jax.scoring import mean, score
from dive_jax.studies.job import prepare
from dive_jax.types import InputError, TwoSided
from tests import reference, toy
from tests.methods.test_dive import material


def shifted() -> Material:
    """Documents whose mean is far from 0."""
    some = material()
    document = some.vectors.document + 2 * np.eye(toy.FULL_DIM, dtype=np.float32)[5]
    return some._replace(vectors=TwoSided(some.vectors.query, document))


def units() -> np.ndarray:
    rows = shifted().vectors.document.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fitted(dim: int = 4, chunk_rows: int = 16384, *, center: bool) -> Compressor:
    options = AdapterOptions(dim=dim, heads=1)
    return pca.fit(shifted(), options, Fitting(chunk_rows=chunk_rows), center=center).compressors[0]


def test_uncentred_at_full_width_changes_no_inner_product():
    out = fitted(toy.FULL_DIM, center=False).compress(shifted().vectors.document)
    np.testing.assert_allclose(out @ out.T, units() @ units().T, atol=1e-5)


def test_centred_at_full_width_changes_them():
    out = fitted(toy.FULL_DIM, center=True).compress(shifted().vectors.document)
    assert np.abs(out @ out.T - units() @ units().T).max() > 0.1


def test_centred_keeps_most_of_the_spread_about_the_mean():
    """The sum of the strongest variances, and coordinates whose mean is 0."""
    made = fitted(center=True)
    assert made.artefact.meta["about"]["center"] is True
    made.artefact.meta["normalized"] = False
    out = apply(made.artefact, units())
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-6)
    values = np.linalg.eigvalsh(reference.covariance(units()))[::-1]
    np.testing.assert_allclose((out.astype(np.float64) ** 2).mean(axis=0), values[:4], rtol=1e-4)


@pytest.mark.parametrize("center", [True, False])
def test_unit_rows_that_depend_on_themselves_alone_however_streamed(center: bool):
    made, vectors = fitted(center=center), shifted().vectors.document
    out = made.compress(vectors)
    assert out.shape == (60, 4)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    alone = np.concatenate([made.compress(vectors[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(alone, out[:9], atol=1e-6)
    in_parts = fitted(chunk_rows=7, center=center).compress(vectors)
    np.testing.assert_allclose(in_parts, out, atol=1e-5)


def test_documents_that_are_all_the_same_have_no_centred_axes():
    same = shifted()
    document = np.repeat(same.vectors.document[:1], 5, axis=0)
    same = same._replace(vectors=TwoSided(same.vectors.query, document))
    options = AdapterOptions(dim=4, heads=1)
    with pytest.raises(InputError, match="centred pca: wanted documents that differ, got 5"):
        pca.fit(same, options, Fitting(), center=True)
    assert len(pca.fit(same, options, Fitting()).compressors) == 1


@pytest.mark.parametrize("center", [True, False])
def test_impossible_width(center: bool):
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        fitted(33, center=center)


@pytest.mark.parametrize(("center", "wanted"), [(False, 0.612), (True, 0.614)])
def test_scifact_official(data_root: Path, center: bool, wanted: float):
    options = TrainOptions(
        dataset="scifact",
        encoder="all-mpnet-base-v2",
        data_root=str(data_root),
        dim=128,
        split="official",
    )
    if not (data_root / options.dataset / "embeddings" / options.encoder).is_dir():
        pytest.skip("these embeddings are not at hand")
    job = prepare(options, options.dataset)
    made = pca.fit(job.material, options, Fitting(), center=center).compressors[0]
    scores = score(
        job.material.vectors,
        job.source.ids,
        job.scored,
        compress=TwoSided(query=made.compress, document=made.compress),
        chunk_rows=options.chunk_rows,
    )
    assert mean(scores, "ndcg@10") == pytest.approx(wanted, abs=0.002)
