"""DIVE with the hinge over the batch, on a residual and on a linear adapter."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.data.judgments import make_judgments
from dive_jax.methods import dive, pca
from dive_jax.methods.protocol import Fitting, Material
from dive_jax.methods.registry import find
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.types import InputError
from tests.methods.test_dive import material as triplets_alone

OPTIONS = AdapterOptions(dim=4, heads=2, epochs=1, batch_size=16)
BATCH = dataclasses.replace(OPTIONS, ranking="batch")


def material() -> Material:
    queries = [f"q{i}" for i in range(48)]
    judgments = make_judgments(
        queries,
        {query: {f"d{i % 60}": 1} for i, query in enumerate(queries)},
        query_rows={query: i for i, query in enumerate(queries)},
        document_rows={f"d{i}": i for i in range(60)},
        documents=60,
        digests=None,
    )
    return triplets_alone()._replace(judgments=judgments)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_ranking_term_is_the_formula_over_the_batch():
    rng = np.random.default_rng(0)
    query, positive, negative = (unit(rng.normal(size=(3, 8))) for _ in range(3))
    rows = np.array([5, 6, 5, 7, 8, 5], np.int32)  # the first document stands there three times
    excluded = np.zeros((3, 6), bool)
    excluded[0, [0, 2, 5]] = excluded[1, 1] = excluded[2, [0, 2, 5]] = True
    excluded[1, 4] = True  # a twin of a relevant document
    some = Batch(
        *(jnp.asarray(each, jnp.float32) for each in (query, positive, negative)),
        jnp.ones(3, bool),
        document_row=jnp.asarray(rows),
        excluded=jnp.asarray(excluded),
    )
    outputs = rng.normal(size=(9, 8)).astype(np.float32)
    losses = dive.dive_losses(jnp.asarray(outputs), some, BATCH)
    first = unit(outputs.astype(np.float64)[:, :4])
    wanted = []
    for i in range(3):
        documents = {}
        for place in range(6):
            if not excluded[i, place]:
                documents.setdefault(rows[place], first[3 + place] @ first[i])
        soft = 0.05 * np.log(sum(np.exp(each / 0.05) for each in documents.values()))
        wanted.append(max(0.0, 0.2 + soft - first[i] @ first[3 + i]))
    assert float(losses.mean["triplet"]) == pytest.approx(np.mean(wanted), rel=1e-4)
    active = np.mean([each > 0 for each in wanted])
    assert float(losses.mean["active_ratio"]) == pytest.approx(active, rel=1e-6)


@pytest.mark.parametrize("name", ["dive_batch", "dive_batch_linear"])
def test_both_start_as_pca_and_learn(name: str):
    still = dataclasses.replace(OPTIONS, learning_rate=1e-30)
    start = find(name).fit(material(), still, Fitting()).compressors[0]
    axes = pca.fit(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    np.testing.assert_allclose(start.compress(vectors), axes.compress(vectors), atol=1e-5)
    longer = dataclasses.replace(OPTIONS, learning_rate=5e-3, epochs=30)
    done = find(name).fit(material(), longer, Fitting(seeds=(1, 2)))
    assert (done.history["triplet"][-1] < 0.7 * done.history["triplet"][0]).all()
    assert done.compressors[1].artefact.meta["method"] == name


def test_the_linear_adapter_is_saved_as_a_matrix():
    made = find("dive_batch_linear").fit(material(), OPTIONS, Fitting()).compressors[0]
    assert made.artefact.form == "linear"
    assert made.artefact.arrays["weight"].shape == (4, 32)


def test_the_margin_follows_the_ranking():
    assert OPTIONS.wanted_lead == 0.7
    assert BATCH.wanted_lead == 0.2
    assert dataclasses.replace(BATCH, margin=0.4).wanted_lead == 0.4


def test_without_judgments_it_says_what_is_missing():
    with pytest.raises(InputError, match="needs judgments"):
        dive.fit(triplets_alone(), BATCH, Fitting())


def test_random_projections_are_orthonormal_and_differ_by_seed():
    made = find("random_projection").fit(material(), OPTIONS, Fitting(seeds=(1, 2)))
    one, other = (each.artefact.arrays["weight"] for each in made.compressors)
    np.testing.assert_allclose(one @ one.T, np.eye(4), atol=1e-6)
    assert abs(one - other).max() > 0.1
