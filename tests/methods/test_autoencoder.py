import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.methods import autoencoder
from dive_jax.methods.protocol import Fitting, Material
from dive_jax.models.autoencoder import Autoencoder
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.training.epoch import Schedule
from dive_jax.training.loop import Trained, train
from dive_jax.types import InputError, Triplets, TwoSided
from tests import reference, toy

OPTIONS = AdapterOptions(dim=4, heads=1, epochs=2, batch_size=16)
FULL, RANK, ROWS = 12, 3, 64


def of(document: np.ndarray) -> Material:
    none = np.zeros(0, np.int32)
    vectors = TwoSided(query=document[:1], document=document.astype(np.float32))
    return Material(vectors, Triplets(none, none, none), "toy", "0" * 64, {})


def toys() -> Material:
    return of(toy.vectors(60, 48, 0)[0])


def low_rank(noise: float) -> np.ndarray:
    """Unit rows about a mean: of exact rank without noise, so also after normalising."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, RANK)) @ rng.normal(size=(RANK, FULL))
    rows += noise * rng.normal(size=(ROWS, FULL))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def linear(document: np.ndarray, epochs: int) -> Trained:
    """Trains without activations, all rows at once."""
    ready = autoencoder.prepare(of(document), ROWS, 0)
    task = autoencoder.task(FULL, RANK, activation=lambda x: x)
    plan = Schedule((1, 2), epochs, batch_size=ROWS, learning_rate=0.01, weight_decay=0.0)
    return train(task, ready.data, ready.triplets, plan)


def test_linear_on_exact_rank_rebuilds_everything():
    left = linear(low_rank(0.0), 500).history["energy_left"]
    assert (left[0] > 0.3).all()
    assert (left[-1] < 1e-3).all()


def test_linear_on_rank_plus_noise_comes_as_close_as_centred_pca():
    rows = low_rank(0.5)
    values = np.linalg.eigvalsh(reference.covariance(rows))  # ascending
    best = values[:-RANK].sum()  # of rows of energy 1
    assert best > 0.02
    left = linear(rows, 1500).history["energy_left"][-1]
    assert (left < 1.02 * best).all()
    assert (left > 0.9999 * best).all(), "nothing affine does better"


def test_the_loss_is_the_squared_error_of_the_real_rows():
    task = autoencoder.task(toy.FULL_DIM, 4)
    params = jax.jit(lambda: task.init(jax.random.key(0)).params)()
    rows = np.random.default_rng(0).normal(size=(5, toy.FULL_DIM)).astype(np.float32)

    def value(params: Any, positive: jax.Array, mask: jax.Array) -> jax.Array:
        losses = task.loss(params, (), Batch(positive, positive, positive, mask))
        return losses.weighted["reconstruction"]

    both = jax.jit(jax.value_and_grad(value))
    plain = both(params, jnp.asarray(rows[:3]), jnp.ones(3, bool))
    padded = both(params, jnp.asarray(rows), jnp.arange(5) < 3)
    np.testing.assert_allclose(plain[0], padded[0], rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain[1], padded[1])
    p = jax.tree.map(lambda each: np.asarray(each, np.float64), params)
    out = rows[:3].astype(np.float64)
    for name, relu in (
        ("encoder_hidden", True),
        ("encoder_out", False),
        ("decoder_hidden", True),
        ("decoder_out", False),
    ):
        out = out @ p[name]["kernel"] + p[name]["bias"]
        out = np.maximum(out, 0) if relu else out
    wanted = reference.squared_error(out, rows[:3]).mean()
    assert float(plain[0]) == pytest.approx(wanted, rel=1e-5)
    nothing = both(params, jnp.asarray(rows), jnp.zeros(5, bool))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(nothing))


def test_widths_are_halves():
    params = jax.eval_shape(lambda: autoencoder.task(32, 4).init(jax.random.key(0)).params)
    shapes = [each["kernel"].shape for each in params.values()]
    assert sorted(shapes) == sorted([(32, 16), (16, 4), (4, 16), (16, 32)])


def test_the_compressor_is_the_trained_encoder(monkeypatch: pytest.MonkeyPatch):
    kept = {}

    def keep(params: Any) -> Any:
        kept["params"] = params
        return original(params)

    original = autoencoder.encoder_arrays
    monkeypatch.setattr(autoencoder, "encoder_arrays", keep)
    made = autoencoder.fit(toys(), OPTIONS, Fitting()).compressors[0]
    rows = toys().vectors.document
    code = np.stack([reference.unit(row) for row in rows])
    for layer, last in (("encoder_hidden", False), ("encoder_out", True)):
        weights = {name: np.asarray(each) for name, each in kept["params"][layer].items()}
        code = code @ weights["kernel"] + weights["bias"]
        code = code if last else np.maximum(code, 0)
    wanted = np.stack([reference.unit(row) for row in code])
    np.testing.assert_allclose(made.compress(rows), wanted, atol=1e-5)


def test_unit_rows_that_depend_on_themselves_alone():
    fitted = autoencoder.fit(toys(), OPTIONS, Fitting(seeds=(1, 2)))
    assert len(fitted.compressors) == 2
    made, vectors = fitted.compressors[0], toys().vectors.document
    assert made.artefact.form == "mlp"
    assert made.artefact.meta["about"] == {"seed": 1, "documents": 60}
    out = made.compress(vectors)
    assert out.shape == (60, 4)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    alone = np.concatenate([made.compress(vectors[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(alone, out[:9], atol=1e-6)
    assert np.abs(fitted.compressors[1].compress(vectors) - out).max() > 0.1


def test_it_learns():
    longer = dataclasses.replace(OPTIONS, learning_rate=5e-3, epochs=40)
    left = autoencoder.fit(toys(), longer, Fitting()).history["energy_left"]
    assert left[-1, 0] < 0.8 * left[0, 0]


def test_at_most_so_many_documents_train_each_once():
    ready = autoencoder.prepare(toys(), 7, 3)
    assert ready.data.document.shape == (7, toy.FULL_DIM)
    np.testing.assert_array_equal(ready.triplets.positive, np.arange(7))
    np.testing.assert_allclose(np.linalg.norm(ready.data.document, axis=1), 1, atol=1e-6)
    rows = autoencoder.sample(60, 7, 3)
    assert len(set(rows)) == 7
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, autoencoder.sample(60, 7, 3))
    assert (rows != autoencoder.sample(60, 7, 4)).any()
    np.testing.assert_array_equal(autoencoder.sample(7, 7, 3), np.arange(7))
    made = autoencoder.fit(toys(), OPTIONS, Fitting(), most_documents=7).compressors[0]
    assert made.artefact.meta["about"]["documents"] == 7


def test_a_zero_row_has_finite_values_and_gradients():
    def total(x: jax.Array) -> jax.Array:
        from flax import nnx

        return jnp.sum(Autoencoder(8, 4, 2, rngs=nnx.Rngs(0))(x) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(total))(jnp.zeros((2, 8)))
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, np.zeros((2, 8)))


def test_bad_input():
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        autoencoder.fit(toys(), dataclasses.replace(OPTIONS, dim=33), Fitting())
    with pytest.raises(InputError, match="autoencoder: wanted at least one document, got none"):
        autoencoder.fit(of(np.zeros((0, 8))), OPTIONS, Fitting())
