from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from dive_jax.training.batches import Batch, Data
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.epoch import Losses, Schedule, Start, Task
from dive_jax.training.loop import Stopping, Trained, best_epoch, train
from dive_jax.types import InputError, TrainingError, Triplets

DIM, ROWS = 6, 23


class Counter:
    """A linear task that counts how often its loss is traced."""

    def __init__(self, scale: float = 1.0):
        self.traces = 0
        self.scale = scale

    def task(self) -> Task:
        return Task(lambda key: Start({"weight": jax.random.normal(key, (DIM, 3))}), self._loss)

    def _loss(self, params: dict[str, Array], carried: Any, batch: Batch) -> Losses:
        self.traces += 1
        lead = (batch.query - batch.positive + batch.negative) @ params["weight"]
        each = jnp.sum(lead * lead, axis=1) * jnp.float32(self.scale)
        count = jnp.sum(batch.mask).astype(jnp.float32)
        value = jnp.sum(jnp.where(batch.mask, each, 0.0)) / count
        bias = 0.1 * jnp.sum(jnp.abs(params["weight"]))
        least = {"least": jnp.min(jnp.where(batch.mask, each, jnp.inf))}
        return Losses({"fit": value, "size": bias}, {"fit": value, "count": count}, least, {})


def data() -> Data:
    rng = np.random.default_rng(0)
    return Data(
        query=rng.normal(size=(9, DIM)).astype(np.float32),
        document=rng.normal(size=(7, DIM)).astype(np.float32),
    )


def triplets() -> Triplets:
    rng = np.random.default_rng(1)
    return Triplets(*(rng.integers(0, most, ROWS).astype(np.int32) for most in (9, 7, 7)))


def schedule(seeds: tuple[int, ...] = (1, 2, 3), epochs: int = 4) -> Schedule:
    return Schedule(seeds, epochs, batch_size=8, learning_rate=0.05, weight_decay=1e-4)


def assert_same(first: Trained, second: Trained) -> None:
    for one, other in zip(first.params, second.params, strict=True):
        np.testing.assert_array_equal(one["weight"], other["weight"])
    assert first.history.keys() == second.history.keys()
    for name, values in first.history.items():
        np.testing.assert_array_equal(values, second.history[name])


def test_learns_and_logs_every_epoch():
    trained = train(Counter().task(), data(), triplets(), schedule())
    assert trained.history["loss"].shape == (4, 3)
    assert (trained.history["loss"][-1] < trained.history["loss"][0]).all()
    # 23 rows in batches of 8: steps of 8, 8 and 7 real rows.
    np.testing.assert_allclose(trained.history["count"], 23 / 3, rtol=1e-6)


def test_padded_rows_change_nothing():
    """A batch size that leaves padding equals, step for step, one written out by hand."""
    one = schedule(seeds=(5,), epochs=1)._replace(batch_size=32)
    trained = train(Counter().task(), data(), triplets(), one)
    params = Counter().task().init(jax.random.key(jnp.uint32(5))).params
    rows = triplets()
    batch = Batch(
        jnp.asarray(data().query[rows.query]),
        jnp.asarray(data().document[rows.positive]),
        jnp.asarray(data().document[rows.negative]),
        jnp.ones(ROWS, bool),
    )
    losses = Counter()._loss(params, (), batch)
    np.testing.assert_allclose(trained.history["fit"][0, 0], losses.weighted["fit"], rtol=1e-5)
    np.testing.assert_allclose(trained.history["least"][0, 0], losses.least["least"], rtol=1e-5)


def test_energies_are_squared_gradient_norms_of_the_first_batch():
    one = schedule(seeds=(5,), epochs=1)._replace(batch_size=32)
    trained = train(Counter().task(), data(), triplets(), one)
    # |d 0.1 sum |w||^2 = 0.01 * number of weights.
    np.testing.assert_allclose(trained.history["size_energy"], 0.01 * DIM * 3, rtol=1e-5)


def test_one_trace_whatever_the_number_of_epochs():
    counts = []
    for epochs in (1, 5):
        counter = Counter()
        train(counter.task(), data(), triplets(), schedule(epochs=epochs))
        counts.append(counter.traces)
    assert counts[0] == counts[1]


def test_a_seed_alone_equals_that_seed_beside_others():
    together = train(Counter().task(), data(), triplets(), schedule())
    alone = train(Counter().task(), data(), triplets(), schedule(seeds=(2,)))
    np.testing.assert_allclose(
        alone.params[0]["weight"], together.params[1]["weight"], rtol=1e-6, atol=1e-7
    )


def test_resumes_with_the_same_bits(tmp_path: Path):
    whole = train(Counter().task(), data(), triplets(), schedule())
    store = Checkpoints(tmp_path)
    train(Counter().task(), data(), triplets(), schedule(epochs=2), checkpoints=store)
    reported = []
    resumed = train(
        Counter().task(),
        data(),
        triplets(),
        schedule(),
        checkpoints=Checkpoints(tmp_path),
        checkpoint_seconds=0.0,
        report=lambda epoch, _: reported.append(epoch),
    )
    assert reported == [2, 3, 4]
    assert_same(whole, resumed)


def test_a_finished_training_is_read_not_run(tmp_path: Path):
    first = train(
        Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path)
    )
    counter = Counter()
    again = train(counter.task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path))
    assert counter.traces == 0
    assert_same(first, again)


def test_two_checkpoints_are_kept(tmp_path: Path):
    store = Checkpoints(tmp_path)
    train(
        Counter().task(), data(), triplets(), schedule(), checkpoints=store, checkpoint_seconds=0.0
    )
    assert store.epochs() == (4, 3)


def damage(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path):
    whole = train(
        Counter().task(),
        data(),
        triplets(),
        schedule(),
        checkpoints=Checkpoints(tmp_path),
        checkpoint_seconds=0.0,
    )
    damage(tmp_path / "4")
    with pytest.warns(UserWarning, match="cannot be read"):
        again = train(
            Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path)
        )
    assert_same(whole, again)
    assert Checkpoints(tmp_path).epochs() == (4, 3)


def test_no_readable_checkpoint_is_an_error_that_names_it(tmp_path: Path):
    train(Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path))
    damage(tmp_path / "4")
    with pytest.raises(InputError, match=r"4: this checkpoint cannot be read"):
        train(Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path):
    train(Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path))
    fewer = schedule(seeds=(1, 2))
    with pytest.raises(InputError, match="cannot be read"):
        train(Counter().task(), data(), triplets(), fewer, checkpoints=Checkpoints(tmp_path))


def test_a_loss_that_is_not_finite_names_epoch_and_seed():
    vectors = data()
    vectors.query[:] = 1e25
    with pytest.raises(TrainingError, match=r"epoch 1, seed 1"):
        train(Counter(scale=1e30).task(), vectors, triplets(), schedule())


@pytest.mark.parametrize("bad", [-1, 9])
def test_rows_outside_the_vectors_are_refused(bad: int):
    rows = triplets()
    rows.query[3] = bad
    with pytest.raises(InputError, match=r"triplets.query: wanted rows of 0 to 8"):
        train(Counter().task(), data(), rows, schedule())


def test_no_triplets_are_refused():
    none = Triplets(*(np.zeros(0, np.int32) for _ in range(3)))
    with pytest.raises(InputError, match="no triplets"):
        train(Counter().task(), data(), none, schedule())


def test_an_unwritable_folder_is_an_os_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "below")


def falling(turn: int) -> Any:
    """A validation that gets better for `turn` epochs and then worse, and counts its calls."""
    calls = []

    def validate(ends: list[Start]) -> np.ndarray:
        calls.append([each.params["weight"].copy() for each in ends])
        return np.full(len(ends), -abs(len(calls) - turn), np.float32)

    return validate, calls


def test_early_stopping_keeps_the_best_epoch_and_ends():
    validate, calls = falling(3)
    trained = train(
        Counter().task(),
        data(),
        triplets(),
        schedule(epochs=50),
        stopping=Stopping(validate, patience=2),
    )
    assert len(calls) == 5
    assert trained.history["validation"].shape == (5, 3)
    for seed in range(3):
        np.testing.assert_array_equal(trained.params[seed]["weight"], calls[2][seed])


SCORES = [[3, 1], [2, 5], [9, -3], [2, 5]]
"""By epoch and seed: the second epoch has the best mean, and the fourth one equals it."""


def test_all_seeds_keep_the_epoch_of_the_best_mean():
    seen = []

    def validate(ends: list[Start]) -> np.ndarray:
        seen.append([each.params["weight"].copy() for each in ends])
        return np.array(SCORES[len(seen) - 1], np.float32)

    two = schedule(seeds=(1, 2), epochs=4)
    trained = train(
        Counter().task(), data(), triplets(), two, stopping=Stopping(validate, patience=9)
    )
    np.testing.assert_array_equal(trained.history["validation"], SCORES)
    assert best_epoch(trained.history["validation"]) == 1
    for seed in range(2):
        np.testing.assert_array_equal(trained.params[seed]["weight"], seen[1][seed])


def test_early_stopping_resumes_with_the_same_bits(tmp_path: Path):
    def stopping() -> Stopping:
        return Stopping(lambda ends: np.array([-abs(e.params["weight"]).sum() for e in ends]), 2)

    whole = train(Counter().task(), data(), triplets(), schedule(), stopping=stopping())
    store = Checkpoints(tmp_path)
    two = schedule(epochs=2)
    train(Counter().task(), data(), triplets(), two, checkpoints=store, stopping=stopping())
    resumed = train(
        Counter().task(),
        data(),
        triplets(),
        schedule(),
        checkpoints=Checkpoints(tmp_path),
        stopping=stopping(),
    )
    assert_same(whole, resumed)


def test_what_is_carried_passes_from_step_to_step():
    def loss(params: dict[str, Array], carried: Array, batch: Batch) -> Losses:
        value = jnp.sum(params["weight"] ** 2)
        return Losses({"size": value}, {"steps": carried}, {}, {}, carried + 1.0)

    counting = Task(lambda key: Start({"weight": jnp.ones(2)}, jnp.float32(0)), loss)
    trained = train(counting, data(), triplets(), schedule(epochs=2))
    # 3 steps an epoch: 0, 1, 2, then 3, 4, 5.
    np.testing.assert_allclose(trained.history["steps"], [[1.0] * 3, [4.0] * 3])


def stepping() -> Task:
    """A task whose carried value counts the steps, beside a weight that moves with them."""

    def loss(params: dict[str, Array], carried: dict[str, Array], batch: Batch) -> Losses:
        value = jnp.sum(params["weight"])
        return Losses({"size": value}, {}, {}, {}, {"steps": carried["steps"] + 1.0})

    def start(key: Array) -> Start:
        return Start({"weight": jnp.ones(2)}, {"steps": jnp.float32(0)})

    return Task(start, loss)


def test_what_is_carried_is_left_at_the_end_and_after_a_resume(tmp_path: Path):
    trained = train(
        stepping(), data(), triplets(), schedule(epochs=2), checkpoints=Checkpoints(tmp_path)
    )
    assert [each["steps"] for each in trained.carried] == [6.0] * 3
    resumed = train(stepping(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path))
    assert [each["steps"] for each in resumed.carried] == [12.0] * 3
    assert train(Counter().task(), data(), triplets(), schedule(epochs=1)).carried == [()] * 3


def test_what_is_carried_is_that_of_the_best_epoch():
    given = []

    def validate(ends: list[Start]) -> np.ndarray:
        given.append([float(each.carried["steps"]) for each in ends])
        return np.array(SCORES[len(given) - 1], np.float32)

    two = schedule(seeds=(1, 2), epochs=3)
    trained = train(stepping(), data(), triplets(), two, stopping=Stopping(validate, patience=9))
    assert given == [[3.0] * 2, [6.0] * 2, [9.0] * 2]
    assert [each["steps"] for each in trained.carried] == [6.0] * 2


def test_each_seed_starts_where_it_is_told():
    first = train(Counter().task(), data(), triplets(), schedule(epochs=1))
    still = schedule(epochs=1)._replace(learning_rate=1e-30)
    after = train(Counter().task(), data(), triplets(), still, start=first.params)
    for one, other in zip(first.params, after.params, strict=True):
        np.testing.assert_array_equal(one["weight"], other["weight"])
    assert abs(first.params[0]["weight"] - first.params[1]["weight"]).max() > 0.1


def test_a_checkpoint_of_other_vectors_is_refused(tmp_path: Path):
    mine, other = {"vectors": "a" * 64}, {"vectors": "b" * 64}
    store = Checkpoints(tmp_path, mine)
    train(Counter().task(), data(), triplets(), schedule(epochs=2), checkpoints=store)
    with pytest.raises(InputError, match=r"belongs to vectors a+, not to b+; name another"):
        train(
            Counter().task(),
            data(),
            triplets(),
            schedule(),
            checkpoints=Checkpoints(tmp_path, other),
        )
    train(Counter().task(), data(), triplets(), schedule(), checkpoints=Checkpoints(tmp_path, mine))
