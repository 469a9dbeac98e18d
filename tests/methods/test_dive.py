from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.methods import dive, linear, pca, shared
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.types import InputError, Triplets, TwoSided
from tests import reference, toy

OPTIONS = AdapterOptions(dim=4, heads=2, epochs=1, batch_size=16)


def material(rows: int = 40, seed: int = 0) -> Material:
    document, query = toy.vectors(60, 48, seed)
    rng = np.random.default_rng(seed)
    queries = rng.integers(0, 48, rows).astype(np.int32)
    positive = (queries % 60).astype(np.int32)
    negative = ((positive + rng.integers(1, 60, rows)) % 60).astype(np.int32)
    vectors = TwoSided(query=query, document=document)
    return Material(vectors, Triplets(queries, positive, negative), "toy", "0" * 64, {})


def fitted(**changes: Any) -> Fitted:
    settings = {"dim": 4, "heads": 2, "epochs": 1, "batch_size": 16} | changes
    return dive.fit(material(), AdapterOptions(**settings), Fitting(seeds=(1, 2)))


def batch(rows: int, pad: int = 0) -> Batch:
    rng = np.random.default_rng(3)
    sides = rng.normal(size=(3, rows + pad, toy.FULL_DIM))
    units = sides / np.linalg.norm(sides, axis=-1, keepdims=True)
    query, positive, negative = jnp.asarray(units, jnp.float32)
    return Batch(query, positive, negative, jnp.arange(rows + pad) < rows)


def test_before_training_it_is_truncation():
    """A learning rate too small to move anything leaves the start: the first coordinates."""
    start = fitted(learning_rate=1e-30)
    plain = linear.truncate(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    for compressor in start.compressors:
        np.testing.assert_allclose(compressor.compress(vectors), plain.compress(vectors), atol=1e-6)


def test_before_training_on_principal_axes_it_is_pca():
    start = fitted(learning_rate=1e-30, basis="principal")
    axes = pca.fit(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    np.testing.assert_allclose(
        start.compressors[0].compress(vectors), axes.compress(vectors), atol=1e-5
    )


def test_the_deployed_adapter_is_head_one_of_the_trained_one():
    """The folded artefact on raw vectors equals the trained tree on rotated ones."""
    trained = {}

    def keep(task: Any, data: Any, *rest: Any, **more: Any) -> Any:
        trained["data"] = data
        trained["out"] = original(task, data, *rest, **more)
        return trained["out"]

    original = shared.train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "train", keep)
        result = fitted(basis="principal", epochs=3, learning_rate=0.01)
    rotated = trained["data"].query
    params = trained["out"].params[1]
    hidden = np.maximum(rotated @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0)
    out = (rotated[:, :8] + hidden @ params["out"]["kernel"] + params["out"]["bias"])[:, :4]
    used = np.unique(material().triplets.query)
    got = result.compressors[1].compress(material().vectors.query[used], side="query")
    wanted = out / np.linalg.norm(out, axis=1, keepdims=True)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_training_raises_the_lead_of_positives():
    history = fitted(epochs=40, learning_rate=2e-3).history
    assert (history["triplet"][-1] < 0.6 * history["triplet"][0]).all()
    assert (history["active_ratio"][-1] < history["active_ratio"][0]).all()


def test_seeds_differ_and_repeat():
    first, again = fitted(epochs=2), fitted(epochs=2)
    one, other = (each.artefact.arrays["out_weight"] for each in first.compressors)
    assert (one != other).any()
    np.testing.assert_array_equal(one, again.compressors[0].artefact.arrays["out_weight"])


def losses_of(outputs: jax.Array, some: Batch, options: AdapterOptions = OPTIONS) -> Any:
    return dive.dive_losses(outputs, some, options)


def test_terms_equal_the_float64_reference():
    some = batch(6)
    rng = np.random.default_rng(4)
    outputs = rng.normal(size=(18, 8)).astype(np.float32)
    losses = losses_of(jnp.asarray(outputs), some)
    heads = outputs.astype(np.float64).reshape(18, 2, 4)
    heads /= np.linalg.norm(heads, axis=2, keepdims=True)
    q, p, n = heads[:6, 0], heads[6:12, 0], heads[12:, 0]
    leads = [float(q[i] @ p[i] - q[i] @ n[i]) for i in range(6)]
    assert float(losses.mean["triplet"]) == pytest.approx(
        np.mean([max(0.0, 0.7 - lead) for lead in leads]), rel=1e-5
    )
    contrast = [reference.ntxent(heads[start : start + 6], 0.1).mean() for start in (0, 6, 12)]
    assert float(losses.mean["view"]) == pytest.approx(np.mean(contrast), rel=1e-5)
    frozen = np.concatenate([some.query, some.positive, some.negative]).astype(np.float64)
    geometry = reference.gram_distillation(heads[:, 0], frozen).mean()
    assert float(losses.mean["geometry"]) == pytest.approx(geometry, rel=1e-5)
    total = sum(float(each) for each in losses.weighted.values())
    wanted = losses.mean["triplet"] + 0.01 * losses.mean["view"] + 10.0 * losses.mean["geometry"]
    assert total == pytest.approx(float(wanted), rel=1e-6)
    active = np.mean([lead < 0.7 for lead in leads])
    assert float(losses.mean["active_ratio"]) == pytest.approx(active, rel=1e-6)
    assert float(losses.least["least_lead"]) == pytest.approx(min(leads), abs=1e-6)
    assert float(losses.greatest["greatest_lead"]) == pytest.approx(max(leads), abs=1e-6)


def stacked(outputs: jax.Array, rows: int, pad: int) -> jax.Array:
    """Pads queries, positives and negatives each."""
    noise = 7.0 * jnp.ones((pad, outputs.shape[1]))
    parts = [outputs[i * rows : (i + 1) * rows] for i in range(3)]
    return jnp.concatenate([each for part in parts for each in (part, noise)])


def test_padding_changes_neither_value_nor_gradient():
    full, padded = batch(6), batch(6, pad=3)
    padded = Batch(
        *(jnp.concatenate([a, b[6:]]) for a, b in zip(full[:3], padded[:3], strict=True)),
        padded.mask,
    )
    outputs = jnp.asarray(np.random.default_rng(5).normal(size=(18, 8)), jnp.float32)

    def plain(x: jax.Array) -> jax.Array:
        return sum(losses_of(x, full).weighted.values(), start=jnp.float32(0))

    def masked(x: jax.Array) -> jax.Array:
        return sum(losses_of(stacked(x, 6, 3), padded).weighted.values(), start=jnp.float32(0))

    one, other = (jax.jit(jax.value_and_grad(each))(outputs) for each in (plain, masked))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
    np.testing.assert_allclose(one[1], other[1], atol=1e-6)


def test_satisfied_triplets_move_nothing():
    """With the other terms off, a batch whose leads all exceed the margin has no gradient."""
    some = batch(4)
    silent = AdapterOptions(dim=4, heads=2, margin=0.1, view_weight=0.0, geometry_weight=0.0)
    outputs = jnp.asarray(np.random.default_rng(6).normal(size=(12, 8)), jnp.float32)
    outputs = outputs.at[4:8].set(outputs[:4]).at[8:].set(-outputs[:4])

    def total(x: jax.Array) -> jax.Array:
        return sum(losses_of(x, some, silent).weighted.values(), start=jnp.float32(0))

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(outputs), np.zeros((12, 8)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 16, "heads": 4}, r"wanted dim \* heads <= the full width 32, got 16 \* 4 = 64"),
        ({"dim": 33, "heads": 1}, r"--dim: wanted at most the full width 32, got 33"),
    ],
)
def test_impossible_widths(changes: dict[str, int], message: str):
    with pytest.raises(InputError, match=message):
        fitted(**changes)
