import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dive_jax.artefact import Artefact, apply
from dive_jax.methods import dive_mlp
from dive_jax.methods.protocol import Fitting
from dive_jax.models.mlp import MLPAdapter, folded, parameters
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.types import InputError
from tests import reference, toy
from tests.methods.test_batch_ranking import material
from tests.methods.test_dive import batch

FULL = toy.FULL_DIM
OPTIONS = AdapterOptions(dim=4, heads=2, epochs=2, batch_size=16)


def start(options: AdapterOptions = OPTIONS) -> tuple[Any, Any]:
    return jax.jit(dive_mlp.task(FULL, options).init)(jax.random.key(0))


def double(tree: Any) -> Any:
    return jax.tree.map(lambda each: np.asarray(each, np.float64), tree)


def forward(params: Any, rows: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """The network in float64, under given statistics of its first layer."""
    p = double(params)
    x = rows @ p["first"] + p["first_bias"]
    x = (x - mean) / np.sqrt(var + 1e-5) * p["norm"]["scale"] + p["norm"]["bias"]
    x = np.maximum(x, 0) @ p["second"]["kernel"] + p["second"]["bias"]
    return np.maximum(x, 0) @ p["out"]["kernel"] + p["out"]["bias"]


def moved(tree: Any, seed: int = 1) -> Any:
    """Other values of a tree, none at its start; variances stay above 0."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda each: np.abs(each + 0.3 * rng.normal(size=each.shape)).astype(np.float32), tree
    )


def model_of(params: Any, statistics: Any) -> MLPAdapter:
    model = MLPAdapter(FULL, dive_mlp.widths(FULL), 8, rngs=nnx.Rngs(0))
    nnx.update(model, nnx.State(params), nnx.State(statistics))
    return model


def test_training_normalises_by_the_rows_that_count():
    params, statistics = start()
    params = moved(params)
    rows = np.random.default_rng(0).normal(size=(9, FULL)).astype(np.float32)
    mask = np.arange(9) % 3 != 1

    def run(params: Any, statistics: Any, rows: jax.Array, mask: jax.Array) -> tuple[Any, Any]:
        model = model_of(params, statistics)
        out = model(rows, mask=mask)
        return out, nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))

    out, after = jax.jit(run)(params, statistics, rows, mask)
    hidden = rows.astype(np.float64) @ double(params)["first"]
    hidden = hidden[mask] + double(params)["first_bias"]
    mean, var = hidden.mean(axis=0), hidden.var(axis=0)
    wanted = forward(params, rows[mask].astype(np.float64), mean, var)
    np.testing.assert_allclose(out[mask], wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after["norm"]["mean"], 0.1 * mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["norm"]["var"], 0.9 + 0.1 * var, rtol=1e-4)


def loss_of(options: AdapterOptions = OPTIONS) -> Any:
    task = dive_mlp.task(FULL, options)

    def total(params: Any, carried: Any, batch: Batch) -> Any:
        losses = task.loss(params, carried, batch)
        return sum(losses.weighted.values(), start=jnp.float32(0)), losses

    return jax.jit(jax.value_and_grad(total, has_aux=True))


def test_padding_changes_no_value_no_gradient_and_no_statistic():
    full, padded = batch(6), batch(6, pad=3)
    padded = Batch(
        *(jnp.concatenate([a, 5 * b[6:]]) for a, b in zip(full[:3], padded[:3], strict=True)),
        padded.mask,
    )
    (one, losses), gradient = loss_of()(*start(), full)
    (other, padded_losses), padded_gradient = loss_of()(*start(), padded)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    for a, b in ((gradient, padded_gradient), (losses.carried, padded_losses.carried)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), a, b)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(gradient))


def test_the_loss_is_hinge_and_contrast_without_geometry():
    params, statistics = start()
    some = batch(6)
    (value, losses), gradient = loss_of()(params, statistics, some)
    rows = np.concatenate(some[:3]).astype(np.float64)
    hidden = rows @ double(params)["first"]
    out = forward(params, rows, hidden.mean(axis=0), hidden.var(axis=0)).reshape(18, 2, 4)
    heads = out / np.linalg.norm(out, axis=2, keepdims=True)
    q, p, n = heads[:6, 0], heads[6:12, 0], heads[12:, 0]
    triplet = np.mean(reference.hinge((q * p).sum(axis=1), (q * n).sum(axis=1), 0.7))
    view = np.mean([reference.ntxent(heads[i : i + 6], 0.1).mean() for i in (0, 6, 12)])
    assert float(value) == pytest.approx(triplet + 0.01 * view, rel=1e-4)
    assert losses.weighted.keys() == {"triplet", "view"}
    assert "geometry" not in losses.mean
    np.testing.assert_array_equal(gradient["first_bias"], np.zeros(FULL // 2))


def test_rows_that_are_all_alike_leave_a_finite_gradient():
    """No variance at all: the normalisation divides by the square root of epsilon alone."""
    same = batch(1)
    same = Batch(same.query, same.query, same.query, same.mask)
    (value, _), gradient = loss_of()(*start(), same)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("dim", [4, 8])
def test_the_folded_artefact_equals_the_network_at_rest(dim: int):
    params, statistics = (moved(each) for each in start())
    rows = np.random.default_rng(2).normal(size=(7, FULL)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    run = jax.jit(lambda params, statistics: model_of(params, statistics)(jnp.asarray(rows)))
    wanted = np.asarray(run(params, statistics))[:, :dim]
    arrays = {
        name: each.astype(np.float32) for name, each in folded(params, statistics, dim).items()
    }
    meta = material().meta("dive_mlp", dim) | {"normalized": False}
    np.testing.assert_allclose(apply(Artefact("mlp", arrays, meta), rows), wanted, rtol=1e-4)
    at_rest = double(statistics)["norm"]
    exact = forward(params, rows.astype(np.float64), at_rest["mean"], at_rest["var"])[:, :dim]
    np.testing.assert_allclose(wanted, exact, rtol=1e-4)


def test_a_rotation_is_folded_into_the_first_layer():
    params, statistics = (moved(each) for each in start())
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(FULL, FULL)))[0]
    rows = np.random.default_rng(2).normal(size=(7, FULL))
    meta = material().meta("dive_mlp", 4)
    plain = Artefact("mlp", dive_mlp.arrays(params, statistics, None, 4), meta)
    turned = Artefact("mlp", dive_mlp.arrays(params, statistics, axes, 4), meta)
    np.testing.assert_allclose(apply(turned, rows), apply(plain, rows @ axes.T), atol=1e-5)


def test_the_published_count():
    options = AdapterOptions(dim=128, heads=4)
    params = jax.eval_shape(dive_mlp.task(4096, options).init, jax.random.key(0)).params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 11_017_728
    assert parameters(4096, dive_mlp.widths(4096), 512) == 11_017_728


def test_it_learns_and_what_is_deployed_is_at_rest(tmp_path: Path):
    longer = dataclasses.replace(OPTIONS, learning_rate=5e-3, epochs=15)
    fitting = Fitting(seeds=(1, 2), checkpoints=lambda: Checkpoints(tmp_path))
    whole = dive_mlp.fit(material(), longer, fitting._replace(checkpoints=None))
    assert (whole.history["triplet"][-1] < 0.5 * whole.history["triplet"][0]).all()
    assert "geometry" not in whole.history
    made, vectors = whole.compressors[0], material().vectors.document
    assert made.artefact.form == "mlp"
    assert made.artefact.meta["method"] == "dive_mlp"
    out = made.compress(vectors)
    assert out.shape == (60, 4)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    alone = np.concatenate([made.compress(vectors[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(alone, out[:9], atol=1e-5)
    assert np.abs(whole.compressors[1].compress(vectors) - out).max() > 0.1
    dive_mlp.fit(material(), dataclasses.replace(longer, epochs=6), fitting)
    resumed = dive_mlp.fit(material(), longer, fitting)
    for one, other in zip(whole.compressors, resumed.compressors, strict=True):
        for name, values in one.artefact.arrays.items():
            np.testing.assert_array_equal(values, other.artefact.arrays[name])


def test_heads_may_be_wider_together_than_the_vectors():
    wide = dataclasses.replace(OPTIONS, dim=24, heads=3, ranking="batch", basis="principal")
    fitted = dive_mlp.fit(material(), wide, Fitting())
    assert fitted.compressors[0].compress(material().vectors.query).shape == (48, 24)
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        dive_mlp.fit(material(), dataclasses.replace(OPTIONS, dim=33), Fitting())
