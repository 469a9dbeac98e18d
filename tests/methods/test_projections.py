"""Trained projections: both families begin as the same scores, and see the same batches."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.data.holdout import Pool, hold_out
from dive_jax.methods import neighbours, pca, projections, sides
from dive_jax.methods.projections import ProjectionSettings
from dive_jax.methods.protocol import Fitting, Material, load
from dive_jax.methods.shared import Prepared
from dive_jax.operators import cars
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, Data, Neighbours, gather
from dive_jax.types import InputError, Triplets, TwoSided
from tests.methods.test_batch_ranking import material as judged

OPTIONS = AdapterOptions(dim=4, epochs=4)
SETTINGS = ProjectionSettings(learning_rates=(3e-3,), batch_size=16)
FITTING = Fitting(seeds=(1, 2))


def material() -> Material:
    made = judged()
    queries = tuple(f"q{i}" for i in range(48))
    ids = TwoSided(queries, tuple(f"d{i}" for i in range(60)))
    rows = TwoSided(*({each: row for row, each in enumerate(side)} for side in ids))
    qrels = {query: {f"d{i % 60}": 1} for i, query in enumerate(queries)}
    pool = Pool("toy", queries, qrels, ids, rows, made.triplets, made.judgments, 1)
    return made._replace(hold_out=functools.partial(hold_out, pool))


@pytest.fixture(scope="module")
def fits() -> dict:
    return {
        family: projections.fit(
            material(),
            OPTIONS,
            FITTING,
            geometry=family,
            settings=SETTINGS,
            name=f"linear_{family}",
        )
        for family in ("shared", "dual")
    }


def test_hard_negatives_are_the_best_that_are_not_relevant():
    made = material()
    found = neighbours.hard_negatives(made, 3, 16)
    query, document = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in made.vectors)
    scores = query @ document.T
    for row in range(48):
        scores[row, row % 60] = -np.inf
        np.testing.assert_array_equal(found[row], np.argsort(-scores[row])[:3])


def test_twins_of_relevant_documents_are_no_hard_negatives():
    made = material()
    assert made.judgments is not None
    text = made.judgments.text.copy()
    before = neighbours.hard_negatives(made, 2, 16)
    text[before[0, 0]] = text[0]  # the best negative of query 0 now repeats its relevant document
    twin = made._replace(judgments=made.judgments._replace(text=text))
    assert neighbours.hard_negatives(twin, 2, 16)[0, 0] == before[0, 1]
    everything = made.judgments._replace(text=np.zeros(60, np.int32))
    assert (neighbours.hard_negatives(made._replace(judgments=everything), 2, 16) == -1).all()


def test_the_loss_is_the_formula_and_both_families_agree_at_the_start():
    rng = np.random.default_rng(0)
    query, positive = rng.normal(size=(2, 3, 8)).astype(np.float32)
    every = rng.normal(size=(6, 8)).astype(np.float32)
    hard = np.array([[0, 1], [2, -1], [3, 4]], np.int32)
    excluded = np.zeros((3, 6), bool)
    excluded[[0, 1, 2], [0, 1, 2]] = True
    excluded[0, 2] = True  # the third positive is relevant for the first query too
    batch = Batch(
        jnp.asarray(query),
        jnp.asarray(positive),
        jnp.asarray(positive),
        jnp.array([True, True, False]),
        jnp.arange(3),
        jnp.array([7, 8, 9, 7, 8, 9]),
        excluded=jnp.asarray(excluded),
        hard=Neighbours(jnp.asarray(hard), jnp.asarray(every)),
    )
    weight = rng.normal(size=(8, 2)).astype(np.float32)
    settings = ProjectionSettings(temperature=1.0)
    own = projections.projection_losses({"both": weight}, batch, settings).weighted["infonce"]
    two = {"query": weight, "document": weight}
    assert own == projections.projection_losses(two, batch, settings).weighted["infonce"]
    wanted = []
    for i, others in enumerate(([1], [0])):  # the third row only pads
        score = lambda d, i=i: (query[i] @ weight) @ (d @ weight)  # noqa: E731
        below = [score(positive[j]) for j in others] + [score(every[j]) for j in hard[i] if j >= 0]
        own_score = np.exp(score(positive[i]))
        wanted.append(-np.log(own_score / (own_score + np.exp(below).sum())))
    assert own == pytest.approx(np.mean(wanted), rel=1e-4)


def test_gather_finds_each_querys_hard_negatives():
    vectors = np.eye(5, dtype=np.float32)
    data = Data(vectors, vectors, hard=np.array([[3], [4], [-1], [0], [1]], np.int32))
    rows = Triplets(*(np.array(each, np.int32) for each in ([1, 2], [1, 2], [0, 0])))
    batch = jax.jit(gather)(data, rows, jnp.array([1, 0]))
    assert batch.hard is not None
    np.testing.assert_array_equal(batch.hard.row, [[-1], [4]])
    np.testing.assert_array_equal(batch.hard.vectors()[1, 0], vectors[4])


def test_both_families_start_from_the_principal_axes_and_train(fits: dict):
    axes = pca.rotation(material(), 16)[:4]
    for family, form in (("shared", "linear"), ("dual", "sided")):
        fitted = fits[family]
        assert [each.artefact.form for each in fitted.compressors] == [form, form]
        for weight in fitted.compressors[0].artefact.arrays.values():
            assert weight.shape == axes.shape
            assert 0 < np.abs(weight - axes).max() < 0.5
        assert (fitted.history["infonce"][-1] < fitted.history["infonce"][0]).all()
        assert fitted.history["validation"].shape == (4, 2)
    first = [fits[family].history["infonce"][0] for family in fits]
    np.testing.assert_allclose(*first, rtol=0.05)


def test_a_dual_file_maps_each_side_its_own_way(fits: dict, tmp_path: Path):
    dual = fits["dual"].compressors[0]
    dual.save(tmp_path / "dual")
    again = load(tmp_path / "dual")
    rows = material().vectors.document
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for side in TwoSided._fields:
        got = again.compress(rows, side=side)
        weight = dual.artefact.arrays[f"{side}_weight"]
        np.testing.assert_allclose(got, unit @ weight.T, atol=1e-5)
    assert not again.artefact.meta["normalized"]
    one = again.compress(rows, side="query")
    assert np.abs(one - again.compress(rows, side="document")).max() > 1e-4


def test_the_rate_is_the_best_on_validation_queries():
    two = dataclasses.replace(SETTINGS, learning_rates=(1e-9, 3e-2))
    fitted = projections.fit(
        material(), OPTIONS, FITTING, geometry="shared", settings=two, name="linear_shared"
    )
    about = fitted.compressors[0].artefact.meta["about"]
    best = max(about["rates"], key=lambda rate: about["rates"][rate])
    assert about["learning_rate"] == float(best)


def test_cars_chooses_the_family(fits: dict):
    ready = projections.prepare(material(), FITTING, 2)
    query, first = np.unique(ready.triplets.query, return_index=True)
    hard = ready.data.hard
    assert hard is not None
    rows = ready.triplets.positive[first], hard[query, 0]
    documents = [jnp.asarray(ready.data.document[each]) for each in rows]
    found = cars(jnp.asarray(ready.data.query[query]), *documents, ranks=(4,), seed=2027)
    choice = sides.chosen(ready, 4)
    assert choice.family == ("dual" if found.dual[0] else "shared")
    assert choice.told["cars"]["score"] == pytest.approx(float(found.score[0]))
    notes: list[str] = []
    fitting = FITTING._replace(note=notes.append)
    fitted = projections.fit(
        material(), OPTIONS, fitting, geometry="auto", settings=SETTINGS, name="linear_auto"
    )
    about = fitted.compressors[0].artefact.meta["about"]
    assert about["cars"]["queries"] < 48  # validation queries do not choose
    assert about["family"] in notes[0]
    for name, weight in fits[about["family"]].compressors[0].artefact.arrays.items():
        np.testing.assert_array_equal(fitted.compressors[0].artefact.arrays[name], weight)


def test_cars_finds_a_turn_between_the_sides_and_none_in_symmetric_data():
    rng = np.random.default_rng(1)
    document = rng.normal(size=(64, 8)).astype(np.float32)
    triplets = Triplets(*(np.arange(64, dtype=np.int32),) * 3)
    turn = np.roll(np.eye(8, dtype=np.float32), 1, axis=0)
    for query, family in ((document, "shared"), (document @ turn, "dual")):
        # The negative, the next document, is noise to both.
        hard = np.roll(np.arange(64, dtype=np.int32), 1)[:, None]
        ready = Prepared(Data(query, document, hard=hard), triplets, None)
        assert sides.chosen(ready, 4).family == family
    few = Prepared(Data(document, document, hard=np.full((64, 1), -1, np.int32)), triplets, None)
    with pytest.raises(InputError, match="at least 4 queries"):
        sides.chosen(few, 4)


def test_without_judgments_or_negatives_it_is_refused():
    bare = material()._replace(judgments=None)
    with pytest.raises(InputError, match="needs judgments"):
        neighbours.hard_negatives(bare, 2, 16)
    made = material()
    assert made.judgments is not None
    alike = made._replace(judgments=made.judgments._replace(text=np.zeros(60, np.int32)))
    with pytest.raises(InputError, match="every document is relevant"):
        projections.prepare(alike, FITTING, 2)
