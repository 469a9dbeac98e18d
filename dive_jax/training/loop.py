"""The loop over epochs: resumes, watches the loss, keeps checkpoints and tells how it goes."""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from dive_jax.training.batches import Data, epoch_rows
from dive_jax.training.checkpoints import Checkpoints, newest
from dive_jax.training.epoch import (
    Devices,
    Epoch,
    Params,
    Placed,
    Schedule,
    State,
    Task,
    compile_epoch,
    place,
)
from dive_jax.types import InputError, TrainingError, Triplets

Logged: TypeAlias = dict[str, Float[np.ndarray, " seeds"]]
History: TypeAlias = dict[str, Float[np.ndarray, "epochs seeds"]]
Report: TypeAlias = Callable[[int, Logged], None]


class Trained(NamedTuple):
    """What training leaves.

    Attributes:
      params: One tree of host arrays a seed.
      history: Logged values, float32 [epochs, seeds] each.
      compile_seconds: Time to compile the epoch; 0 if nothing was left to train.
      train_seconds: Time in epochs, of this process.
    """

    params: list[Params]
    history: History
    compile_seconds: float
    train_seconds: float


def _check_finite(logged: Logged, schedule: Schedule, epoch: int) -> None:
    bad = np.flatnonzero(~np.isfinite(logged["loss"]))
    if bad.size:
        raise TrainingError(
            f"the loss is not finite in epoch {epoch + 1}, seed {schedule.seeds[bad[0]]}; "
            "lower --learning_rate or the weights of the loss"
        )


def _check(triplets: Triplets, data: Data) -> None:
    if not len(triplets.query):
        raise InputError("no triplets: training needs at least one judged (query, document) pair")
    for name, column, vectors in zip(
        Triplets._fields, triplets, (data.query, data.document, data.document), strict=True
    ):
        if column.min() < 0 or column.max() >= len(vectors):
            raise InputError(f"triplets.{name}: wanted rows of 0 to {len(vectors) - 1}")


def train(
    task: Task,
    data: Data,
    triplets: Triplets,
    schedule: Schedule,
    *,
    checkpoints: Checkpoints | None = None,
    checkpoint_seconds: float = 5.0,
    devices: Devices | None = None,
    report: Report | None = None,
) -> Trained:
    """Trains every seed, from the newest checkpoint if there is one.

    Args:
      task: Initial parameters and loss of one seed.
      data: Frozen unit vectors, float32 [rows, full_dim] a side, and relations.
      triplets: Rows of `data`.
      schedule: Seeds, epochs, batch size and AdamW's settings.
      checkpoints: Where states are kept; None keeps none.
      checkpoint_seconds: Least time between two of them; the last epoch is always kept.
      devices: Devices to spread the seeds over; default all.
      report: Called after every epoch with the number of finished epochs and that epoch's logged
        values, float32 [seeds] each; called at once with a resumed run's newest epoch.

    Returns:
      Parameters of every seed, logged values and timings.

    Raises:
      InputError: If the triplets are empty or point outside the vectors, or no checkpoint reads.
      TrainingError: If a loss is not finite; names the epoch and the seed.
    """
    _check(triplets, data)
    placed = place(task, data, triplets, schedule, devices)
    state, history = _resume(placed, checkpoints)
    if history and report is not None:
        report(len(history), history[-1])
    began = time.perf_counter()
    compiled = began
    if len(history) < schedule.epochs:
        rows = epoch_rows(schedule.seeds, 0, len(triplets.query), schedule.batch_size)
        epoch = compile_epoch(task, placed, rows.shape)
        compiled = time.perf_counter()
        keeper = _Keeper(checkpoints, checkpoint_seconds)
        state = _epochs(epoch, placed, schedule, state, history, keeper, report)
    ended = time.perf_counter()
    params = jax.device_get(state.params)
    return Trained(
        [jax.tree.map(lambda leaf, i=i: leaf[i], params) for i in range(len(schedule.seeds))],
        {name: np.stack([each[name] for each in history]) for name in history[0]},
        compiled - began,
        ended - compiled,
    )


def _resume(placed: Placed, checkpoints: Checkpoints | None) -> tuple[State, list[Logged]]:
    found = None if checkpoints is None else newest(checkpoints, placed.abstract())
    if found is None:
        return placed.state, []
    return found.state, [
        {name: np.asarray(value, np.float32) for name, value in logged.items()}
        for logged in found.notes["history"]
    ]


class _Keeper:
    """Saves a state when enough time has passed since the last."""

    def __init__(self, checkpoints: Checkpoints | None, seconds: float):
        self._checkpoints = checkpoints
        self._seconds = seconds
        self._last = time.monotonic()

    def __call__(self, state: State, history: list[Logged], *, last: bool) -> None:
        if self._checkpoints is None:
            return
        if last or time.monotonic() - self._last >= self._seconds:
            notes = [{name: value.tolist() for name, value in each.items()} for each in history]
            self._checkpoints.save(len(history), state, {"history": notes})
            self._last = time.monotonic()


def _epochs(
    epoch: Epoch,
    placed: Placed,
    schedule: Schedule,
    state: State,
    history: list[Logged],
    keep: _Keeper,
    report: Report | None,
) -> State:
    """Runs the epochs that are left; `history` grows by one entry each."""
    triplets = placed.triplets.query.shape[0]
    for number in range(len(history), schedule.epochs):
        rows = epoch_rows(schedule.seeds, number, triplets, schedule.batch_size)
        with jax.transfer_guard("disallow"):
            state, logged = epoch(state, jax.device_put(rows, placed.by_seed))
            logged = jax.device_get(logged)
        _check_finite(logged, schedule, number)
        history.append(logged)
        keep(state, history, last=number + 1 == schedule.epochs)
        if report is not None:
            report(number + 1, logged)
    return state
