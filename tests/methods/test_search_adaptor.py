"""Search-Adaptor: its terms against float64 formulas, and what is deployed of it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dive_jax.methods import linear, search_adaptor
from dive_jax.methods.protocol import Fitted, Fitting
from dive_jax.methods.search_adaptor import SearchAdaptor, SearchSettings, search_losses
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.types import InputError
from tests import reference, toy
from tests.methods.test_batch_ranking import material
from tests.methods.test_dive import material as without_judgments

OPTIONS = AdapterOptions(dim=4, epochs=1, batch_size=16)
WIDTH, HIDDEN, DIM = 8, 5, 3


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def judged_batch(pad: int = 0) -> Batch:
    """Four triplets of three queries; documents 5 and 6 stand there several times."""
    rng = np.random.default_rng(0)
    of_query, of_document = unit(rng.normal(size=(3, WIDTH))), unit(rng.normal(size=(12, WIDTH)))
    query, document = np.array([0, 1, 1, 2]), np.array([5, 6, 5, 7, 6, 8, 9, 5])
    gains = np.zeros((3, 12), np.float32)
    gains[0, 5], gains[1, 6], gains[1, 5], gains[2, 7], gains[2, 9] = 2, 1, 3, 1, 1

    def padded(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, rows[:pad]])

    query, documents = padded(query), np.concatenate([padded(document[:4]), padded(document[4:])])
    vectors = of_document[documents].astype(np.float32)
    return Batch(
        jnp.asarray(of_query[query], jnp.float32),
        *jnp.split(jnp.asarray(vectors), 2),
        jnp.arange(4 + pad) < 4,
        jnp.asarray(query, jnp.int32),
        jnp.asarray(documents, jnp.int32),
        jnp.asarray(gains[query][:, documents]),
    )


def moved(seed: int = 1) -> tuple[Any, Any]:
    """A model that is not at its start, as graph and plain arrays."""
    graph, state = nnx.split(SearchAdaptor(WIDTH, HIDDEN, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)
    tree = jax.tree.map(
        lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape), jnp.float32),
        nnx.to_pure_dict(state),
    )
    return graph, tree


def network(tree: Any, rows: np.ndarray) -> np.ndarray:
    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return x @ np.float64(tree[name]["kernel"]) + np.float64(tree[name]["bias"])

    return layer("out", np.maximum(layer("hidden", rows), 0))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_terms_equal_the_float64_reference(reduction: Any):
    graph, tree = moved()
    settings = SearchSettings(recovery_weight=0.5, prediction_weight=0.25, rank_reduction=reduction)
    some = judged_batch()
    losses = jax.jit(
        lambda tree: search_losses(nnx.merge(graph, nnx.State(tree)), some, DIM, settings)
    )(tree)
    places, query_places = [0, 1, 3, 5, 6], [0, 1, 3]  # the first of each document and query
    documents = np.float64(jnp.concatenate([some.positive, some.negative]))[places]
    queries = np.float64(some.query)[query_places]
    gains = np.asarray(some.gains)[query_places][:, places]
    adapted, asked = (x + network(tree["adapter"], x) for x in (documents, queries))
    cosines = reference.prefix_similarities(asked, adapted, [DIM])[0]
    totals, counts, _ = reference.rank_terms(cosines, gains)
    rank = totals.sum() / (counts.sum() if reduction == "mean" else 1)
    assert float(losses.mean["rank"]) == pytest.approx(rank, rel=1e-5)
    recovery = sum(
        reference.absolute_error(*each).mean() for each in ((asked, queries), (adapted, documents))
    )
    assert float(losses.mean["recovery"]) == pytest.approx(recovery, rel=1e-5)
    totals, weights = reference.prediction_error(asked, network(tree["predictor"], adapted), gains)
    prediction = totals.sum() / weights.sum()
    assert float(losses.mean["prediction"]) == pytest.approx(prediction, rel=1e-5)
    total = sum(float(each) for each in losses.weighted.values())
    assert total == pytest.approx(rank + 0.5 * recovery + 0.25 * prediction, rel=1e-5)


def test_padding_changes_neither_value_nor_gradient():
    graph, tree = moved()

    def total(tree: Any, some: Batch) -> jax.Array:
        model = nnx.merge(graph, nnx.State(tree))
        losses = search_losses(model, some, DIM, SearchSettings(), most_relevant=2)
        return sum(losses.weighted.values(), start=jnp.float32(0))

    step = jax.jit(jax.value_and_grad(total))
    plain, padded = step(tree, judged_batch()), step(tree, judged_batch(pad=3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), plain, padded)


def fitted(**changes: Any) -> Fitted:
    return search_adaptor.fit(
        material(), dataclasses.replace(OPTIONS, **changes), Fitting(seeds=(1, 2))
    )


def test_it_starts_as_truncation():
    start = fitted(learning_rate=1e-30).compressors[0]
    plain = linear.truncate(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    np.testing.assert_allclose(start.compress(vectors), plain.compress(vectors), atol=1e-6)


def test_it_learns_and_gives_unit_rows_that_depend_on_themselves_alone():
    done = fitted(epochs=15, learning_rate=5e-3)
    assert (done.history["rank"][-1] < 0.95 * done.history["rank"][0]).all()
    one = done.compressors[1]
    vectors = material().vectors.document
    out = one.compress(vectors)
    assert out.shape == (60, 4)
    assert set(one.artefact.arrays) == {"hidden_weight", "hidden_bias", "out_weight", "out_bias"}
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one.compress(vectors[7:8]), out[7:8], atol=1e-6)


def test_gains_are_graded():
    first = fitted(learning_rate=1e-30).history["rank"][0]
    graded = material()
    assert graded.judgments is not None
    more = graded._replace(judgments=graded.judgments._replace(gain=3 * graded.judgments.gain))
    still = dataclasses.replace(OPTIONS, learning_rate=1e-30)
    high = search_adaptor.fit(more, still, Fitting(seeds=(1, 2))).history["rank"][0]
    np.testing.assert_allclose(high, 3 * first, rtol=1e-5)


def test_impossible_widths_and_missing_judgments_are_told():
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        fitted(dim=toy.FULL_DIM + 1)
    with pytest.raises(InputError, match="needs judgments"):
        search_adaptor.fit(without_judgments(), OPTIONS, Fitting())
