"""Methods that train in stages, one after the other, on one number of epochs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dive_jax.methods.protocol import Fitting
from dive_jax.methods.shared import schedule
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Data
from dive_jax.training.epoch import Params, Task
from dive_jax.training.loop import History, Report, Trained, train
from dive_jax.types import Triplets


class Stage(NamedTuple):
    """One stage: what is trained, for how long, and from where.

    Attributes:
      name: Of the folder of its checkpoints.
      task: What is trained.
      epochs: Passes over the triplets.
      before: Epochs of all stages before it.
      start: Parameters that each seed starts from; None for the task's own.
    """

    name: str
    task: Task
    epochs: int
    before: int
    start: list[Params] | None = None


def divided(epochs: int, stages: int) -> list[int]:
    """Divides epochs evenly, the earlier stages first where it does not come out even.

    Every stage gets one at least, so fewer epochs than stages are exceeded.

    Example:
      >>> divided(50, 3), divided(1, 2)
      ([17, 17, 16], [1, 1])
    """
    least, more = divmod(epochs, stages)
    return [max(1, least + (stage < more)) for stage in range(stages)]


def run_stage(
    stage: Stage, data: Data, triplets: Triplets, options: AdapterOptions, fitting: Fitting
) -> Trained:
    """Trains one stage, with checkpoints of its own; epochs are reported as of the whole.

    Args:
      stage: What is trained.
      data: Vectors and relations.
      triplets: Rows of `data`.
      options: The schedule's settings.
      fitting: Seeds, checkpoints, report.
    """
    report: Report | None = None
    if (told := fitting.report) is not None:
        report = lambda epoch, logged: told(stage.before + epoch, logged)  # noqa: E731
    return train(
        stage.task,
        data,
        triplets,
        schedule(options, fitting, stage.epochs),
        checkpoints=None if fitting.checkpoints is None else fitting.checkpoints(stage.name),
        checkpoint_seconds=fitting.checkpoint_seconds,
        devices=fitting.devices,
        start=stage.start,
        report=report,
    )


def joined(stages: Sequence[Trained]) -> History:
    """Joins the logged values of stages that log the same names."""
    histories = [each.history for each in stages]
    return {name: np.concatenate([each[name] for each in histories]) for name in histories[0]}
