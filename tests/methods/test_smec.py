"""SMEC: its terms against float64 formulas, its stages, its selection, and what is saved."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax import artefact
from dive_jax.methods import linear, smec
from dive_jax.methods.protocol import Compressor, Fitted, Fitting
from dive_jax.methods.smec import SmecSettings, smec_losses
from dive_jax.models.chain import parameters, passed, stage_widths
from dive_jax.models.memory import empty, pushed
from dive_jax.models.selection import gumbel
from dive_jax.options import AdapterOptions
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.types import InputError
from tests import reference, toy
from tests.methods.test_batch_ranking import material
from tests.methods.test_dive import material as without_judgments
from tests.methods.test_search_adaptor import WIDTH, judged_batch, network, unit

OPTIONS = AdapterOptions(dim=8, epochs=2, batch_size=16)
SMALL = SmecSettings(memory=20, neighbours=3, documents_a_step=24)


def pairs(full_dim: int, dim: int) -> list[tuple[int, int]]:
    return [(each.given, each.kept) for each in stage_widths(full_dim, dim, full_dim // 2)]


def test_widths_halve_and_the_last_stage_goes_straight():
    assert pairs(32, 8) == [(32, 16), (16, 8)]
    assert pairs(384, 64) == [(384, 192), (192, 96), (96, 64)]
    assert pairs(10, 9) == [(10, 9)]
    assert pairs(4, 4) == [(4, 4)]
    assert pairs(5, 1) == [(5, 2), (2, 1)]


def test_parameters_are_about_the_published_22_millions():
    assert parameters(stage_widths(4096, 128, 2048)) == pytest.approx(22e6, rel=0.03)


def noisy(stage: Any, rng: np.random.Generator) -> dict[str, Any]:
    def array(*shape: int) -> jax.Array:
        return jnp.asarray(0.3 * rng.normal(size=shape), jnp.float32)

    given, hidden = stage.given, stage.hidden
    block = {
        "hidden": {"kernel": array(given, hidden), "bias": array(hidden)},
        "out": {"kernel": array(hidden, given), "bias": array(given)},
    }
    return {"block": block, "scores": array(given)}


def test_terms_equal_the_float64_reference():
    """The second stage, with four documents in memory: one of them in the batch itself."""
    stages, some, rng = stage_widths(WIDTH, 2, 4), judged_batch(), np.random.default_rng(2)
    earlier, current = (noisy(each, rng) for each in stages)
    params = current | {"earlier": (earlier,)}
    recalled = unit(rng.normal(size=(4, WIDTH))).astype(np.float32)
    rows = jnp.array([5, 30, 31, 32], jnp.int32)
    entered = passed((earlier,), stages[:1], jnp.asarray(recalled))
    memory = pushed(empty(6, WIDTH, 4), jnp.asarray(recalled), entered, rows, rows >= 0)
    carried = smec.Carried(jax.random.key_data(jax.random.key(3)), memory)
    settings = SmecSettings(memory=6, neighbours=3, neighbours_a_step=3, unsupervised_weight=0.5)
    losses = jax.jit(lambda *each: smec_losses(*each, stages, settings))(params, carried, some)

    def through(x: np.ndarray) -> np.ndarray:
        first = np.sort(np.argsort(-np.asarray(earlier["scores"]))[:4])
        x = (x + network(earlier["block"], x))[:, first]
        return x + network(current["block"], x)

    places, asked = [0, 1, 3, 5, 6], [0, 1, 3]
    documents = np.float64(jnp.concatenate([some.positive, some.negative]))[places]
    queries = np.float64(some.query)[asked]
    gains = np.asarray(some.gains)[asked][:, places]
    noise = np.asarray(gumbel(carried.key, 4)[1])
    kept = np.argsort(-(np.asarray(current["scores"]) + noise))[:2]
    cosines = documents @ np.float64(recalled).T
    cosines[0, 0] = -np.inf  # document 5 does not meet itself
    near = np.argsort(-cosines, axis=1)[:, :3]
    frozen = np.take_along_axis(cosines, near, axis=1)
    rank, unsupervised = 0.0, 0.0
    for columns in (np.arange(4), kept):
        left, right, close = (
            through(np.float64(each))[:, columns] for each in (queries, documents, recalled)
        )
        similarity = reference.prefix_similarities(left, right, [len(columns)])[0]
        totals, counts, _ = reference.rank_terms(similarity, gains)
        rank += totals.sum() / counts.sum()
        unsupervised += reference.neighbour_distillation(
            right, close[near], frozen, [len(columns)]
        ).mean()
    assert float(losses.mean["rank"]) == pytest.approx(rank, rel=1e-5)
    assert float(losses.mean["unsupervised"]) == pytest.approx(unsupervised, rel=1e-5)
    total = sum(float(each) for each in losses.weighted.values())
    assert total == pytest.approx(rank + 0.5 * unsupervised, rel=1e-5)
    # The batch's five documents go in behind the four: the oldest three leave.
    after = losses.carried.memory
    order = [(int(after.following) + i) % 6 for i in range(6)]
    assert np.asarray(after.row)[order].tolist() == [32, 5, 6, 7, 8, 9]


def test_what_is_drawn_stands_for_all_neighbours_and_all_documents():
    """Over 500 keys; the scores lie so far apart that noise does not change the selection."""
    stages, some, rng = stage_widths(WIDTH, 4, 4), judged_batch(), np.random.default_rng(2)
    params = noisy(stages[0], rng) | {"earlier": ()}
    params["scores"] = jnp.asarray(1e4 * rng.permutation(WIDTH), jnp.float32)
    recalled = jnp.asarray(unit(rng.normal(size=(6, WIDTH))), jnp.float32)
    rows = jnp.array([5, 30, 31, 32, 33, 34], jnp.int32)
    memory = pushed(empty(6, WIDTH, WIDTH), recalled, recalled, rows, rows >= 0)
    keys = jax.random.key_data(jax.random.split(jax.random.key(3), 500))

    def held(settings: SmecSettings) -> np.ndarray:
        def one(key: jax.Array) -> jax.Array:
            losses = smec_losses(params, smec.Carried(key, memory), some, stages, settings)
            return losses.mean["unsupervised"]

        return np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)

    every = held(SmecSettings(memory=6, neighbours=4, neighbours_a_step=4))
    some_of = held(SmecSettings(memory=6, neighbours=4, neighbours_a_step=2, documents_a_step=3))
    assert np.ptp(every) < 1e-6
    spread = some_of.std() / np.sqrt(len(some_of))
    assert 0.001 < spread < 0.02 * every[0]
    assert abs(some_of.mean() - every[0]) < 5 * spread


def fitted(settings: SmecSettings = SMALL, seeds: Any = (1, 2), **changes: Any) -> Fitted:
    options = dataclasses.replace(OPTIONS, **changes)
    return smec.fit(material(), options, Fitting(seeds=seeds), settings=settings)


def test_at_rest_it_keeps_the_prefix():
    rest = dataclasses.replace(SMALL, learning_rate=1e-30, selection_rate=0.0)
    start = fitted(rest, seeds=(1,)).compressors[0]
    arrays = start.artefact.arrays
    assert [arrays[f"kept_{t}"].tolist() for t in (0, 1)] == [list(range(16)), list(range(8))]
    plain = linear.truncate(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    np.testing.assert_allclose(start.compress(vectors), plain.compress(vectors), atol=1e-6)


def test_it_learns_and_what_is_saved_is_what_was_trained(tmp_path: Path):
    quick = dataclasses.replace(SMALL, learning_rate=None, selection_rate=0.1)
    trees = []
    with pytest.MonkeyPatch.context() as patch:
        plain = smec.chain_arrays
        patch.setattr(smec, "chain_arrays", lambda *each: trees.append(each) or plain(*each))
        done = fitted(quick, epochs=20, learning_rate=3e-3)
    rank = done.history["rank"]
    assert rank.shape == (20, 2)
    assert (rank[9] < 0.95 * rank[0]).all()
    one, vectors = done.compressors[1], material().vectors.document
    out = one.compress(vectors)
    finished, stages = trees[1]
    wanted = passed(jax.device_put(finished), stages, jnp.asarray(unit(vectors)))
    np.testing.assert_allclose(out, unit(np.asarray(wanted)), atol=1e-5)
    np.testing.assert_allclose(artefact.apply(one.artefact, unit(vectors)), out, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one.compress(vectors[7:8]), out[7:8], atol=1e-6)
    one.save(tmp_path / "made")
    again = Compressor.load(tmp_path / "made")
    for t, stage in enumerate(stages):
        kept = again.artefact.arrays[f"kept_{t}"]
        scores = np.asarray(finished[t]["scores"])
        wanted_set = np.sort(np.argsort(-scores, kind="stable")[: stage.kept])
        np.testing.assert_array_equal(kept, wanted_set)
        assert len(set(kept.tolist())) == stage.kept == stage.given // 2
    assert any((one.artefact.arrays[f"kept_{t}"] >= 16 // (t + 1)).any() for t in (0, 1))
    np.testing.assert_array_equal(again.compress(vectors), out)
    about = one.artefact.meta["about"]
    assert about["parameters"] > about["published_parameters"] == 2 * 32 * 16 + 16 + 32


@pytest.mark.slow
def test_a_second_stage_resumes_with_the_same_bits(tmp_path: Path):
    def run(epochs: int, folder: Path | None) -> Fitted:
        checkpoints = None if folder is None else lambda stage: Checkpoints(folder / stage)
        fitting = Fitting(seeds=(1, 2), checkpoints=checkpoints)
        options = dataclasses.replace(OPTIONS, epochs=epochs)
        return smec.fit(material(), options, fitting, settings=SMALL)

    whole = run(4, None)
    with pytest.MonkeyPatch.context() as patch:  # stopped in the middle of the second stage
        patch.setattr(smec, "divided", lambda *_: [2, 1])
        run(4, tmp_path)
    resumed = run(4, tmp_path)
    for one, other in zip(whole.compressors, resumed.compressors, strict=True):
        for name, values in one.artefact.arrays.items():
            np.testing.assert_array_equal(values, other.artefact.arrays[name])
    np.testing.assert_array_equal(whole.history["loss"], resumed.history["loss"])


def test_impossible_widths_and_missing_judgments_are_told():
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        fitted(dim=toy.FULL_DIM + 1)
    with pytest.raises(InputError, match="needs judgments"):
        smec.fit(without_judgments(), OPTIONS, Fitting())
