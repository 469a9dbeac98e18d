"""Matryoshka-Adaptor: its terms against float64 formulas, its stages, its neighbours."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dive_jax.methods import linear, matryoshka_adaptor
from dive_jax.methods.matryoshka_adaptor import (
    MatryoshkaSettings,
    matryoshka_losses,
    prefix_widths,
)
from dive_jax.methods.neighbours import nearest, with_neighbours
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.search_adaptor import SearchSettings, search_losses
from dive_jax.methods.shared import prepare
from dive_jax.models.residual import ResidualAdapter
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Neighbours, gather
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.types import InputError, Triplets
from tests import reference, toy
from tests.methods.test_batch_ranking import material
from tests.methods.test_dive import material as without_judgments
from tests.methods.test_search_adaptor import DIM, WIDTH, judged_batch, moved, network, unit

OPTIONS = AdapterOptions(dim=4, epochs=2, batch_size=16)


def losses_of(tree: Any, batch: Any, widths: Any, settings: Any, *, supervised: bool) -> Any:
    graph, _ = nnx.split(ResidualAdapter(WIDTH, 5, WIDTH, rngs=nnx.Rngs(0)))
    return matryoshka_losses(
        nnx.merge(graph, nnx.State(tree)), batch, widths, settings, supervised=supervised
    )


def held(near: np.ndarray) -> Neighbours:
    rows = jnp.arange(near.shape[0] * near.shape[1], dtype=jnp.int32).reshape(near.shape[:2])
    return Neighbours(rows, jnp.asarray(near.reshape(-1, near.shape[2]), jnp.float32))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_one_width_and_the_rank_term_alone_are_search_adaptor(reduction: Any):
    graph, tree = moved()
    some = judged_batch()
    search = SearchSettings(recovery_weight=0, prediction_weight=0, rank_reduction=reduction)
    alone = MatryoshkaSettings(
        nested_up_to="dim",
        topk_weight=0,
        pair_weight=0,
        recovery_weight=0,
        rank_reduction=reduction,
    )
    widths = prefix_widths(DIM, WIDTH, alone.nested_up_to)
    assert widths == (DIM,)

    @jax.jit
    @jax.value_and_grad
    def one(tree: Any) -> jax.Array:
        model = nnx.merge(graph, nnx.State(tree))
        return sum(search_losses(model, some, DIM, search).weighted.values(), jnp.float32(0))

    @jax.jit
    @jax.value_and_grad
    def other(tree: Any) -> jax.Array:
        losses = losses_of(tree, some, widths, alone, supervised=True)
        return sum(losses.weighted.values(), jnp.float32(0))

    first, second = one(tree), other(tree["adapter"])
    assert float(first[0]) == pytest.approx(float(second[0]), rel=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        first[1]["adapter"],
        second[1],
    )


def test_terms_equal_the_float64_reference():
    tree, some, widths = moved()[1]["adapter"], judged_batch(), (2, DIM, WIDTH)
    near = unit(np.random.default_rng(5).normal(size=(8, 2, WIDTH)))
    some = some._replace(neighbours=held(near))
    losses = {
        supervised: jax.jit(
            lambda tree, s=supervised: losses_of(
                tree, some, widths, MatryoshkaSettings(), supervised=s
            )
        )(tree)
        for supervised in (False, True)
    }
    places, query_places = [0, 1, 3, 5, 6], [0, 1, 3]
    documents = np.float64(jnp.concatenate([some.positive, some.negative]))[places]
    queries, near = np.float64(some.query)[query_places], near[places]
    adapted, asked, close = (x + network(tree, x) for x in (documents, queries, near))
    frozen = np.einsum("nd,nkd->nk", documents, near)
    gains = np.asarray(some.gains)[query_places][:, places]
    rank = 0.0
    for cosines in reference.prefix_similarities(asked, adapted, widths):
        totals, counts, _ = reference.rank_terms(cosines, gains)
        rank += totals.sum() / counts.sum()
    wanted = {
        "topk": reference.neighbour_distillation(adapted, close, frozen, widths).sum() / 5,
        "pair": reference.pair_distillation(adapted, documents, widths).sum() / 5,
        "recovery": reference.absolute_error(adapted, documents).mean(),
        "rank": rank,
    }
    for supervised, each in losses.items():
        assert {name: float(value) for name, value in each.mean.items()} == pytest.approx(
            wanted, rel=1e-5
        )
        total = sum(float(value) for value in each.weighted.values())
        trained_on = sum(wanted.values()) - (0 if supervised else rank)
        assert total == pytest.approx(trained_on, rel=1e-5)


def drawing() -> tuple[Any, Any]:
    """A batch of eight documents with three neighbours each, and a loss that draws of them."""
    near = unit(np.random.default_rng(5).normal(size=(8, 3, WIDTH)))
    some = judged_batch()._replace(neighbours=held(near))
    alone = MatryoshkaSettings(pair_weight=0, recovery_weight=0, rank_weight=0)
    options = AdapterOptions(dim=DIM, hidden_dim=5)

    def task(neighbours_a_step: int) -> Any:
        settings = dataclasses.replace(alone, neighbours_a_step=neighbours_a_step)
        return matryoshka_adaptor.task(WIDTH, options, settings, None, supervised=False)

    return some, task


def test_the_mean_over_what_is_drawn_is_the_mean_over_all():
    """Every document's neighbour stands once in each of K draws: their mean is the full term."""
    some, _ = drawing()
    tree, settings = moved()[1]["adapter"], MatryoshkaSettings(pair_weight=0, recovery_weight=0)
    graph, _ = nnx.split(ResidualAdapter(WIDTH, 5, WIDTH, rngs=nnx.Rngs(0)))

    @jax.jit
    @jax.value_and_grad
    def topk(tree: Any, places: Any) -> jax.Array:
        adapter = nnx.merge(graph, nnx.State(tree))
        losses = matryoshka_losses(
            adapter, some, (2, DIM), settings, supervised=False, places=places
        )
        return losses.weighted["topk"]

    turn = jnp.arange(8, dtype=jnp.int32)[:, None]
    parts = [topk(tree, (turn + each) % 3) for each in range(3)]
    assert len({float(value) for value, _ in parts}) == 3
    mean = jax.tree.map(lambda *each: sum(each) / 3, *parts)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), mean, topk(tree, None)
    )


def test_each_step_and_each_seed_draws_anew():
    some, task = drawing()
    one = task(1)
    tree = moved()[1]["adapter"]
    loss = jax.jit(lambda carried: one.loss(tree, carried, some))
    first = one.init(jax.random.key(1)).carried
    values, carried = [], first
    for _ in range(3):
        losses = loss(carried)
        values.append(float(losses.mean["topk"]))
        carried = losses.carried
    assert len(set(values)) == 3
    assert float(loss(first).mean["topk"]) == values[0]
    assert float(loss(one.init(jax.random.key(2)).carried).mean["topk"]) != values[0]
    every = task(3).loss  # takes all three, so there is nothing to draw
    np.testing.assert_array_equal(jax.jit(lambda c: every(tree, c, some))(first).carried, first)


def test_nested_widths():
    assert prefix_widths(128, 768) == (32, 64, 128, 256, 512)
    assert prefix_widths(48, 64) == (32, 48, 64)
    assert prefix_widths(48, 64, "dim") == (32, 48)
    assert prefix_widths(4, 16) == (4,)


def test_neighbours_are_the_nearest_others():
    some = material()
    units = unit(some.vectors.document.astype(np.float64))
    cosines = units @ units.T - 9 * np.eye(60)
    rows = np.array([3, 17, 40])
    found = nearest(some, rows, 10, chunk_rows=16)
    np.testing.assert_array_equal(found, np.argsort(-cosines[rows], axis=1)[:, :10])


def test_copies_of_a_document_do_not_make_it_its_own_neighbour():
    some = material()
    some.vectors.document[:30] = some.vectors.document[0]
    found = nearest(some, np.array([29]), 5, chunk_rows=16)
    np.testing.assert_array_equal(found, [[0, 1, 2, 3, 4]])


def test_neighbours_reach_the_batch_though_they_do_not_train():
    every = material()
    some = every._replace(triplets=Triplets(*(each[:6] for each in every.triplets)))
    options = dataclasses.replace(OPTIONS, basis="principal")
    bare = prepare(some, options, Fitting(), relations=True)
    ready = with_neighbours(bare, some, Fitting(), 3)
    assert len(ready.data.document) > len(bare.data.document)
    batch = gather(ready.data, ready.triplets, jnp.arange(6))
    assert batch.neighbours is not None
    units = unit(some.vectors.document)
    documents = np.concatenate([some.triplets.positive, some.triplets.negative])
    wanted = np.sort(units @ units.T - 9 * np.eye(60, dtype=np.float32), axis=1)[documents]
    own = jnp.concatenate([batch.positive, batch.negative])
    got = np.einsum("nd,nkd->nk", own, batch.neighbours.vectors())
    np.testing.assert_allclose(got, wanted[:, :-4:-1], atol=1e-5)


def fitted(
    some: Material | None = None, settings: MatryoshkaSettings | None = None, **changes: Any
) -> Fitted:
    options = dataclasses.replace(OPTIONS, **changes)
    return matryoshka_adaptor.fit(
        some or material(),
        options,
        Fitting(seeds=(1, 2)),
        settings=settings or MatryoshkaSettings(),
    )


def test_it_starts_as_truncation():
    plain = linear.truncate(material(), OPTIONS, Fitting()).compressors[0]
    vectors = material().vectors.document
    alone = MatryoshkaSettings(stages="supervised")
    start = fitted(settings=alone, epochs=1, learning_rate=1e-30).compressors[1]
    np.testing.assert_allclose(start.compress(vectors), plain.compress(vectors), atol=1e-6)


def test_the_second_stage_starts_from_the_first():
    """Both stages log all terms, so the second's first step shows where it begins."""
    quick = {"learning_rate": 3e-3, "batch_size": 64}
    light = MatryoshkaSettings(topk_weight=0, recovery_weight=0.01)
    reported = []
    both = matryoshka_adaptor.fit(
        material(),
        dataclasses.replace(OPTIONS, epochs=6, **quick),
        Fitting(seeds=(1, 2), report=lambda epoch, _: reported.append(epoch)),
        settings=light,
    )
    assert reported == [1, 2, 3, 4, 5, 6]
    unsupervised = dataclasses.replace(light, stages="unsupervised")
    first = fitted(settings=unsupervised, epochs=4, **quick)
    np.testing.assert_array_equal(both.history["pair"][:3], first.history["pair"][:3])
    # One batch an epoch: the fourth epoch begins where three of the first stage lead.
    np.testing.assert_allclose(both.history["pair"][3], first.history["pair"][3], rtol=1e-4)
    assert (abs(both.history["pair"][3] / both.history["pair"][0] - 1) > 1e-3).all()
    assert (both.history["rank_energy"][:3] == 0).all()
    assert (both.history["rank_energy"][3:] > 0).all()
    wanted = ["unsupervised", "supervised"]
    assert both.compressors[0].artefact.meta["about"]["stages"] == wanted


def test_it_learns_and_gives_unit_rows_that_depend_on_themselves_alone():
    # All neighbours at each step: at this rate and batch size the noise of a draw slows it down.
    light = MatryoshkaSettings(recovery_weight=0.01, neighbours_a_step=10)
    done = fitted(settings=light, epochs=20, learning_rate=3e-3)
    assert (done.history["rank"][-1] < 0.97 * done.history["rank"][10]).all()
    assert (done.history["pair"][9] < 0.95 * done.history["pair"][0]).all()
    one, vectors = done.compressors[0], material().vectors.document
    out = one.compress(vectors)
    assert out.shape == (60, 4)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one.compress(vectors[7:8]), out[7:8], atol=1e-6)


def test_it_learns_with_the_neighbours_that_each_step_draws():
    light = MatryoshkaSettings(stages="unsupervised", recovery_weight=0.01)
    done = fitted(settings=light, epochs=20, learning_rate=3e-3)
    assert (done.history["pair"][19] < done.history["pair"][0]).all()
    assert (done.history["loss"][19] < done.history["loss"][0]).all()


@pytest.mark.slow
def test_it_resumes_with_the_same_bits(tmp_path: Path):
    def run(folder: Path | None) -> Fitted:
        checkpoints = None if folder is None else lambda stage: Checkpoints(folder / stage)
        fitting = Fitting(seeds=(1, 2), checkpoints=checkpoints)
        settings = MatryoshkaSettings(stages="unsupervised")
        options = dataclasses.replace(OPTIONS, epochs=4)
        return matryoshka_adaptor.fit(material(), options, fitting, settings=settings)

    whole = run(None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matryoshka_adaptor, "divided", lambda *_: [2])
        run(tmp_path)
    resumed = run(tmp_path)
    np.testing.assert_array_equal(whole.history["topk"], resumed.history["topk"])
    for one, other in zip(whole.compressors, resumed.compressors, strict=True):
        for name, values in one.artefact.arrays.items():
            np.testing.assert_array_equal(values, other.artefact.arrays[name])


def test_the_unsupervised_stage_needs_no_judgments():
    alone = MatryoshkaSettings(stages="unsupervised")
    light = dataclasses.replace(alone, topk_weight=0)
    assert "rank" not in fitted(without_judgments(), light, epochs=1).history
    with pytest.raises(InputError, match="needs judgments"):
        fitted(without_judgments())


def test_impossible_widths_are_told():
    with pytest.raises(InputError, match="--dim: wanted at most the full width 32, got 33"):
        fitted(dim=toy.FULL_DIM + 1)
