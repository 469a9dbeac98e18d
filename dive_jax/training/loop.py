"""The loop over epochs: resumes, watches the loss, keeps checkpoints and tells how it goes."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
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
    Start,
    State,
    Task,
    compile_epoch,
    place,
)
from dive_jax.types import InputError, TrainingError, Triplets

Logged: TypeAlias = dict[str, Float[np.ndarray, " seeds"]]
History: TypeAlias = dict[str, Float[np.ndarray, "epochs seeds"]]
Report: TypeAlias = Callable[[int, Logged], None]


class Stopping(NamedTuple):
    """Early stopping: all seeds keep the epoch whose mean score over them is best.

    Attributes:
      validate: What is trained and what is carried, host arrays, a tree of each a seed -> a score a
        seed, higher is better.
      patience: Epochs without a better mean score after which training ends.
    """

    validate: Callable[[list[Start]], Float[np.ndarray, " seeds"]]
    patience: int


def best_epoch(scores: Float[np.ndarray, "epochs seeds"]) -> int:
    """Returns the epoch, counted from 0, of the best mean over the seeds; the first of equals.

    Example:
      >>> best_epoch(np.array([[0.1, 0.2], [0.6, 0.0], [0.1, 0.5]]))
      1
    """
    return int(np.argmax(np.mean(scores, axis=1, dtype=np.float64)))


class Trained(NamedTuple):
    """What training leaves.

    Attributes:
      params: One tree of host arrays a seed: of the last epoch, or of the best under `Stopping`.
      carried: What was carried, one tree of host arrays a seed: as the same epoch left it.
      history: Logged values, float32 [epochs, seeds] each.
      compile_seconds: Time to compile the epoch; 0 if nothing was left to train.
      train_seconds: Time in epochs, of this process.
    """

    params: list[Params]
    carried: list[Any]
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
    start: Sequence[Params] | None = None,
    stopping: Stopping | None = None,
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
      devices: Devices to spread the seeds and the batches over; default those of `mesh.chosen`.
      start: Parameters that each seed starts from, one tree a seed; default the task's own. A
        resumed run goes on from its checkpoint.
      stopping: When to stop early; its scores are logged as "validation".
      report: Called after every epoch with the number of finished epochs and that epoch's logged
        values, float32 [seeds] each; called at once with a resumed run's newest epoch.

    Returns:
      Parameters of every seed, logged values and timings.

    Raises:
      InputError: If the triplets are empty or point outside the vectors, or no checkpoint reads.
      TrainingError: If a loss is not finite; names the epoch and the seed.
    """
    _check(triplets, data)
    placed = place(task, data, triplets, schedule, devices, start)
    best = None if stopping is None else _copied(placed.state)
    run = _Run(_Kept(placed.state, best), [], checkpoints, checkpoint_seconds, stopping)
    run.resume(placed)
    if run.history and report is not None:
        report(len(run.history), run.history[-1])
    began = time.perf_counter()
    compiled = began
    if not run.ended(schedule.epochs):
        rows = epoch_rows(schedule.seeds, 0, len(triplets.query), schedule.batch_size)
        epoch = compile_epoch(task, placed, rows.shape)
        compiled = time.perf_counter()
        _epochs(epoch, placed, schedule, run, report)
    ended = time.perf_counter()
    end = run.kept.state if run.kept.best is None else run.kept.best
    return Trained(
        _by_seed(end.params, len(schedule.seeds)),
        _by_seed(end.carried, len(schedule.seeds)),
        {name: np.stack([each[name] for each in run.history]) for name in run.history[0]},
        compiled - began,
        ended - compiled,
    )


def _by_seed(tree: Any, seeds: int) -> list[Any]:
    host = jax.device_get(tree)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(seeds)]


def _copied(state: State) -> Start:
    """Returns what is kept of a state; a copy, since the epoch takes its buffers over."""
    return jax.tree.map(jnp.copy, Start(state.params, state.carried))


class _Kept(NamedTuple):
    """What a checkpoint holds: the state, and where the seeds were best under `Stopping`."""

    state: State
    best: Start | None


@dataclasses.dataclass
class _Run:
    """A training run under way; whether it has ended follows from its history alone."""

    kept: _Kept
    history: list[Logged]
    checkpoints: Checkpoints | None
    checkpoint_seconds: float
    stopping: Stopping | None
    saved_at: float = dataclasses.field(default_factory=time.monotonic)

    def resume(self, placed: Placed) -> None:
        """Goes on from the newest checkpoint, if there is one."""
        like = jax.tree.map(placed.abstract_leaf, self.kept)
        found = None if self.checkpoints is None else newest(self.checkpoints, like)
        if found is not None:
            self.kept = found.state
            self.history = [
                {name: np.asarray(value, np.float32) for name, value in logged.items()}
                for logged in found.notes["history"]
            ]

    def ended(self, epochs: int) -> bool:
        """Says whether all epochs are done, or none has been better for long enough."""
        if len(self.history) >= epochs:
            return True
        if self.stopping is None or not self.history:
            return False
        return len(self.history) - 1 - self._best_epoch() >= self.stopping.patience

    def _best_epoch(self) -> int:
        return best_epoch(np.stack([each["validation"] for each in self.history]))

    def advance(self, state: State, logged: Logged) -> None:
        """Takes in an epoch, and validates it."""
        best = self.kept.best
        if self.stopping is not None:
            now = _by_seed(Start(state.params, state.carried), len(logged["loss"]))
            scores = np.asarray(self.stopping.validate(now), np.float32)
            logged = logged | {"validation": scores}
        self.history.append(logged)
        if self.stopping is not None and self._best_epoch() == len(self.history) - 1:
            best = _copied(state)
        self.kept = _Kept(state, best)

    def save(self, *, last: bool) -> None:
        """Writes a checkpoint if enough time has passed since the last one, or at the end."""
        if self.checkpoints is None:
            return
        if last or time.monotonic() - self.saved_at >= self.checkpoint_seconds:
            notes = [
                {name: value.tolist() for name, value in each.items()} for each in self.history
            ]
            self.checkpoints.save(len(notes), self.kept, {"history": notes})
            self.saved_at = time.monotonic()


def _epochs(
    epoch: Epoch, placed: Placed, schedule: Schedule, run: _Run, report: Report | None
) -> None:
    """Runs the epochs that are left."""
    triplets = placed.triplets.query.shape[0]
    while not run.ended(schedule.epochs):
        number = len(run.history)
        rows = epoch_rows(schedule.seeds, number, triplets, schedule.batch_size)
        with jax.transfer_guard("disallow"):
            state, logged = epoch(run.kept.state, placed.spread(rows))
            logged = jax.device_get(logged)
        _check_finite(logged, schedule, number)
        run.advance(state, logged)
        run.save(last=run.ended(schedule.epochs))
        if report is not None:
            report(number + 1, run.history[-1])
