"""Early stopping and the dial: chosen on held-out queries, applied to what trains on everything."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from dive_jax.artefact import Artefact
from dive_jax.data.holdout import Held, NoUnseenError
from dive_jax.methods import tuning
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.methods.registry import COMPARED, METHODS, find
from dive_jax.methods.shared import Prepared, trained
from dive_jax.methods.tuning import FLAGS, SHARES, scorer, tuned
from dive_jax.options import AdapterOptions, TrainOptions
from dive_jax.studies.job import Job, prepare
from dive_jax.training.batches import Batch, Data
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.epoch import Losses, Start, Task
from dive_jax.types import InputError, Triplets, TwoSided
from tests import toy

SEEDS = (1, 2)


def options(**changes: Any) -> TrainOptions:
    settings: dict[str, Any] = {"dim": 8, "heads": 2, "batch_size": 32, "epochs": 12}
    settings |= {"learning_rate": 5e-3, "early_stopping": "unseen", "patience": 3}
    settings |= {"dataset": "toy", "encoder": toy.ENCODER, "split": "official", "seeds": SEEDS}
    return TrainOptions(**(settings | changes))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    return folder


@pytest.fixture(scope="module")
def job(root: Path) -> Job:
    return prepare(options(data_root=str(root)), "toy")


@pytest.fixture(scope="module")
def done(job: Job) -> Fitted:
    return find("dive").fit(job.material, options(dial="validation"), Fitting(SEEDS))


def about(compressor: Compressor) -> dict[str, Any]:
    return compressor.artefact.meta["about"]["tuning"]


def test_the_best_mean_epoch_is_trained_again_on_everything(job: Job, done: Fitted):
    assert done.first_history is not None
    means = done.first_history["validation"].mean(axis=1)
    epochs = int(np.argmax(means)) + 1
    assert len(means) == min(epochs + 3, 12)
    assert epochs < 12
    assert "validation" not in done.history
    assert done.history["loss"].shape == (epochs, 2)
    plain = options(early_stopping="off", epochs=epochs)
    again = find("dive").fit(job.material, plain, Fitting(SEEDS))
    for tried, other in zip(done.compressors, again.compressors, strict=True):
        share = about(tried)["share"]
        assert set(other.artefact.arrays) == set(tried.artefact.arrays)
        for name, array in other.artefact.arrays.items():
            wanted = array * np.float32(share) if name.startswith("out_") else array
            np.testing.assert_array_equal(tried.artefact.arrays[name], wanted)


def test_the_artefact_tells_what_was_chosen_and_on_what(job: Job, done: Fitted):
    assert job.material.hold_out is not None
    held = job.material.hold_out("unseen")
    for compressor in done.compressors:
        told = about(compressor)
        assert (told["held_out"], told["counts"]) == ("unseen", held.counts)
        assert told["epochs"] == len(done.history["loss"])
        assert max(told["by_epoch"]) == told["by_epoch"][told["epochs"] - 1]
        assert list(told["by_share"]) == [f"{share:.1f}" for share in SHARES]
        assert told["by_share"][f"{told['share']:.1f}"] == max(told["by_share"].values())
        assert compressor.artefact.meta["about"]["basis"] == "given"


def held_of(job: Job, kind: str = "unseen") -> Held:
    assert job.material.hold_out is not None
    return job.material.hold_out(kind)


def adapter(form: str, seed: int = 0) -> Compressor:
    """A residual or linear adapter that has learnt nonsense, on the first coordinates."""
    rng = np.random.default_rng(seed)

    def array(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    residual = {"hidden_weight": array(5, 32), "hidden_bias": array(5)}
    residual |= {"out_weight": array(8, 5), "out_bias": array(8)}
    arrays = residual if form == "residual" else {"weight": array(8, 32)}
    meta = {"format_version": 1, "method": "toy", "sides": "both", "dim": 8, "full_dim": 32}
    meta |= {"normalized": True, "encoder": "toy", "fingerprint": "", "about": {}}
    return Compressor(Artefact(form, arrays, meta))


def test_the_score_is_over_the_held_out_queries_alone(job: Job):
    """What numpy finds: each has one relevant document, of the same number."""
    held = held_of(job)
    frozen = find("frozen").fit(job.material, options(), Fitting()).compressors[0]
    documents, queries = toy.vectors(60, 48, 0)
    wanted = []
    for query in (int(each[1:]) for each in held.qrels):
        cosines = documents @ queries[query] / np.linalg.norm(documents, axis=1)
        rank = int((cosines > cosines[query]).sum())
        wanted.append(1 / np.log2(rank + 2) if rank < 10 else 0.0)
    for chunk_rows in (7, 1000):
        found = scorer(job.material, held, chunk_rows)(frozen)
        assert found == pytest.approx(np.mean(wanted), abs=1e-9)


class Fake:
    """A fit that trains nothing: it keeps what it was given and logs given scores."""

    def __init__(self, scores: list[float]):
        self.scores = scores
        self.given: list[tuple[Material, Fitting]] = []

    def __call__(self, material: Material, settings: AdapterOptions, fitting: Fitting) -> Fitted:
        self.given.append((material, fitting))
        stops = fitting.validate is not None
        epochs = len(self.scores) if stops else fitting.epochs or settings.epochs
        loss = np.zeros((epochs, 1), np.float32)
        scores = np.array(self.scores, np.float32)[:, None]
        for epoch in range(1, epochs + 1):
            if fitting.report is not None:
                fitting.report(epoch, {"loss": loss[0]})
        history = {"loss": loss} | ({"validation": scores} if stops else {})
        return Fitted([adapter("residual")], history, 1.0, 2.0)


def test_the_first_training_sees_nothing_of_what_is_held_out(job: Job):
    fake = Fake([0.1, 0.3, 0.2])
    told: list[int] = []
    fitting = Fitting((1,), report=lambda epoch, _: told.append(epoch))
    fitted = tuned(fake, "toy", FLAGS)(job.material, options(), fitting)
    (first, one), (second, two) = fake.given
    held = held_of(job)
    assert first.hold_out is None
    assert first.triplets is held.triplets
    assert first.judgments is held.judgments
    queries = {job.source.ids.query[row] for row in first.triplets.query}
    assert queries.isdisjoint(held.qrels)
    assert queries | set(held.qrels) == set(job.trained)
    assert not queries & set(job.scored)
    assert second.triplets is job.material.triplets
    assert (one.epochs, two.epochs, two.validate) == (None, 2, None)
    assert (fitted.compile_seconds, fitted.train_seconds) == (2.0, 4.0)
    assert told == sorted(told)
    assert told[-1] == 12


def test_the_dial_alone_trains_all_epochs_twice(job: Job):
    fake = Fake([])
    settings = options(early_stopping="off", dial="validation", epochs=5)
    fitted = tuned(fake, "toy", FLAGS)(job.material, settings, Fitting((1,)))
    (first, one), (_, two) = fake.given
    assert first.triplets is held_of(job, "validation").triplets
    assert (one.validate, two.epochs) == (None, 5)
    told = about(fitted.compressors[0])
    assert (told["held_out"], told["epochs"]) == ("validation", 5)
    assert "by_epoch" not in told
    assert 0 <= told["share"] <= 1


@pytest.mark.parametrize(
    ("tunes", "settings", "trainings", "note"),
    [
        (FLAGS, {"early_stopping": "off"}, 1, None),
        ((), {"dial": "validation"}, 1, "toy is fitted without --early_stopping and --dial"),
        (("early_stopping",), {"dial": "validation"}, 2, "toy is fitted without --dial"),
    ],
)
def test_what_a_method_does_not_heed_is_noted(
    job: Job, tunes: tuple[str, ...], settings: dict[str, str], trainings: int, note: str | None
):
    fake = Fake([0.1])
    notes: list[str] = []
    tuned(fake, "toy", tunes)(job.material, options(**settings), Fitting((1,), note=notes.append))
    assert len(fake.given) == trainings
    assert notes == ([] if note is None else [note])


def test_which_methods_are_tuned():
    heeded = {name: method.tunes for name, method in METHODS.items() if method.tunes}
    both = ("search_adaptor", "dive", "dive_principal", "dive_batch", "dive_batch_linear")
    assert heeded == dict.fromkeys(both, FLAGS) | dict.fromkeys(
        ("autoencoder", "dive_mlp"), ("early_stopping",)
    )
    assert set(COMPARED) == set(METHODS) - {
        "auto",
        *(f"linear_{each}" for each in ("shared", "dual", "auto")),
    }
    stopped = {name for name, method in METHODS.items() if method.stops != "off"}
    assert stopped == {"dive_batch", "dive_batch_linear"}


def test_a_default_gives_way_and_a_wish_does_not(job: Job):
    plain = options(early_stopping="default")
    assert tuning.possible(job.material, plain, "off").early_stopping == "off"
    assert tuning.possible(job.material, plain, "unseen").early_stopping == "unseen"
    held = job.material.hold_out
    assert held is not None

    def only_validation(kind: str) -> Held:
        if kind == "unseen":
            raise NoUnseenError("none")
        return held(kind)

    some = job.material._replace(hold_out=only_validation)
    assert tuning.possible(some, plain, "unseen").early_stopping == "validation"
    none = job.material._replace(hold_out=None)
    assert tuning.possible(none, plain, "unseen").early_stopping == "off"
    assert tuning.possible(none, options(), "unseen").early_stopping == "unseen"
    with pytest.raises(InputError, match="no judgments"):
        find("dive_batch_linear").fit(none, options(), Fitting(SEEDS))


def test_the_default_of_a_method_trains_twice(job: Job):
    fake = Fake([0.1, 0.2])
    plain = options(early_stopping="default")
    tuned(fake, "toy", FLAGS, "unseen")(job.material, plain, Fitting((1,)))
    assert len(fake.given) == 2
    tuned(fake, "toy", FLAGS)(job.material, plain, Fitting((1,)))
    assert len(fake.given) == 3


def places(folder: Path) -> Callable[..., Checkpoints]:
    return lambda stage="": Checkpoints(folder / stage)


class Killed(BaseException):
    pass


def test_a_kill_in_the_second_training_resumes_there(job: Job, done: Fitted, tmp_path: Path):
    def die(epoch: int, logged: Any) -> None:
        if epoch > 7:  # 12 in all, half of them for the first training
            raise Killed

    method, settings = find("dive"), options(dial="validation")
    fitting = Fitting(SEEDS, checkpoints=places(tmp_path), checkpoint_seconds=0.0, report=die)
    with pytest.raises(Killed):
        method.fit(job.material, settings, fitting)
    first = Checkpoints(tmp_path / "validation").epochs()
    assert first
    told: list[int] = []
    fitting = fitting._replace(report=lambda epoch, _: told.append(epoch))
    again = method.fit(job.material, settings, fitting)
    assert Checkpoints(tmp_path / "validation").epochs() == first
    assert len(told) < 1 + len(done.history["loss"])  # one line of the first, none of its epochs
    for one, other in zip(done.compressors, again.compressors, strict=True):
        assert one.artefact.meta == other.artefact.meta
        for name, array in one.artefact.arrays.items():
            np.testing.assert_array_equal(array, other.artefact.arrays[name])


def test_an_epoch_is_scored_with_what_it_carried():
    def loss(params: Array, carried: Array, batch: Batch) -> Losses:
        return Losses({"size": jnp.sum(params)}, {}, {}, {}, carried + 1)

    def artefact(params: np.ndarray, carried: np.ndarray, seed: int) -> Artefact:
        arrays = {"weight": np.full((8, 32), carried, np.float32)}
        return dataclasses.replace(adapter("linear").artefact, arrays=arrays)

    def steps(compressor: Compressor) -> float:
        return float(compressor.artefact.arrays["weight"][0, 0])

    rows = np.ones((1, 32), np.float32)
    one = Prepared(Data(rows, rows), Triplets(*(np.zeros(3, np.int32) for _ in range(3))), None)
    todo = Task(lambda key: Start(jnp.ones(2), jnp.float32(0)), loss)
    settings = AdapterOptions(epochs=9, batch_size=1, patience=2)
    fitting = Fitting(SEEDS, validate=lambda each: -abs(steps(each) - 9), epochs=7)
    fitted = trained(todo, one, settings, fitting, artefact)
    np.testing.assert_array_equal(fitted.history["validation"][:, 0], [-6, -3, 0, -3, -6])
    assert [steps(each) for each in fitted.compressors] == [9.0, 9.0]
    fitted = trained(todo, one, settings, Fitting(SEEDS, epochs=2), artefact)
    assert [steps(each) for each in fitted.compressors] == [6.0, 6.0]


@pytest.mark.slow
def test_a_network_with_running_statistics_stops_early(job: Job):
    fitted = find("dive_mlp").fit(job.material, options(patience=1), Fitting(SEEDS))
    told = about(fitted.compressors[0])
    assert told["epochs"] == len(fitted.history["loss"])
    assert "share" not in told
    assert fitted.compressors[0].artefact.form == "mlp"


def test_without_judgments_nothing_can_be_held_out():
    document, query = toy.vectors(20, 10, 0)
    none = Triplets(*(np.zeros(0, np.int32) for _ in range(3)))
    bare = Material(TwoSided(query=query, document=document), none, "toy", "", {})
    with pytest.raises(InputError, match="held-out queries were asked for"):
        find("dive").fit(bare, options(), Fitting())


def test_the_parts_of_a_whole_count_on():
    told: list[int] = []
    fitting = Fitting(report=lambda epoch, _: told.append(epoch))
    for stage, span, epochs in (("a", (0, 0.5), 4), ("b", (0.5, 1), 2)):
        part = tuning.part(fitting, stage, 8, span, epochs)
        assert part.report is not None
        for epoch in range(1, epochs + 1):
            part.report(epoch, {})
    assert told == [1, 2, 3, 4, 6, 8]
