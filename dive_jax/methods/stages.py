"""Methods that train in stages, one after the other, on one number of epochs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dive_jax.artefact import Artefact
from dive_jax.methods.protocol import Compressor, Fitted, Fitting
from dive_jax.methods.shared import Prepared, schedule
from dive_jax.options import AdapterOptions
from dive_jax.training.epoch import Params, Task
from dive_jax.training.loop import Report, Trained, train


class Stage(NamedTuple):
    """One stage: what is trained, and from where.

    Attributes:
      name: Of the folder of its checkpoints.
      task: What is trained.
      start: What each seed starts from, given the ends of the stage before; default those ends.
        The first stage starts as its task says.
    """

    name: str
    task: Task
    start: Callable[[list[Params]], list[Params]] = list


def divided(epochs: int, stages: int) -> list[int]:
    """Divides epochs evenly, the earlier stages first where it does not come out even.

    Every stage gets one at least, so fewer epochs than stages are exceeded.

    Example:
      >>> divided(50, 3), divided(1, 2)
      ([17, 17, 16], [1, 1])
    """
    least, more = divmod(epochs, stages)
    return [max(1, least + (stage < more)) for stage in range(stages)]


def fit_stages(
    stages: Sequence[Stage],
    prepared: Prepared,
    options: AdapterOptions,
    fitting: Fitting,
    artefact: Callable[[Params, int], Artefact],
) -> Fitted:
    """Trains the stages one after the other and makes one compressor a seed.

    Args:
      stages: In their order; each has checkpoints of its own.
      prepared: What they are trained on.
      options: The schedule's settings; the epochs of all stages together.
      fitting: Seeds, checkpoints, report of the epochs as of the whole.
      artefact: Parameters of the last stage, seed -> artefact.

    Returns:
      The compressors, and the logged values of all stages, which log the same names.
    """
    epochs = divided(options.passes(len(prepared.triplets.query)), len(stages))
    done: list[Trained] = []
    for place, stage in enumerate(stages):
        start = stage.start(done[-1].params) if done else None
        before = sum(epochs[:place])
        done.append(_run(stage, start, epochs[place], before, prepared, options, fitting))
    pairs = zip(done[-1].params, fitting.seeds, strict=True)
    histories = [each.history for each in done]
    return Fitted(
        [Compressor(artefact(params, seed)) for params, seed in pairs],
        {name: np.concatenate([each[name] for each in histories]) for name in histories[0]},
        sum(each.compile_seconds for each in done),
        sum(each.train_seconds for each in done),
    )


def _run(
    stage: Stage,
    start: list[Params] | None,
    epochs: int,
    before: int,
    prepared: Prepared,
    options: AdapterOptions,
    fitting: Fitting,
) -> Trained:
    report: Report | None = None
    if (told := fitting.report) is not None:
        report = lambda epoch, logged: told(before + epoch, logged)  # noqa: E731
    return train(
        stage.task,
        prepared.data,
        prepared.triplets,
        schedule(options, fitting, epochs),
        checkpoints=None if fitting.checkpoints is None else fitting.checkpoints(stage.name),
        checkpoint_seconds=fitting.checkpoint_seconds,
        devices=fitting.devices,
        start=start,
        report=report,
    )
