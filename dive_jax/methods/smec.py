"""SMEC: one residual block a stage, each of which learns which half of its coordinates to keep.

Stages train one after the other; what an earlier one has learnt is fixed. Losses read the frozen
vectors at full width, and what the block under training makes of its own input.
"""

import dataclasses
import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, UInt

from dive_jax.artefact import Artefact
from dive_jax.losses import neighbour_distillation
from dive_jax.losses.ranking import Reduction
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.search_adaptor import distinct, most_relevant, rank_term
from dive_jax.methods.shared import masked_mean, prepare
from dive_jax.methods.stages import Stage, fit_stages
from dive_jax.models.chain import (
    Width,
    block_of,
    chain_arrays,
    parameters,
    passed,
    stage_widths,
)
from dive_jax.models.memory import Memory, empty, pushed
from dive_jax.models.residual import published_parameters
from dive_jax.models.selection import gumbel, selected, straight_through
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, drawn
from dive_jax.training.epoch import Losses, Params, Schedule, Start, Task


@dataclass(frozen=True)
class SmecSettings:
    """What SMEC adds to the common protocol.

    Attributes:
      learning_rate: Of the blocks; None takes the common one.
      selection_rate: Learning rate of the scores that select, above 0.
      selection_temperature: Of their soft-max, above 0.
      memory: Vectors that the cross-batch memory holds, at least 1.
      neighbours: K, nearest of them that each document is held to, at least 1.
      neighbours_a_step: How many of the K each step draws for each document; at least 1, and K or
        more take all. The mean over them stands for the mean over all K (ours).
      documents_a_step: How many documents of the batch each step draws to meet the memory, where
        there are more; at least 1. The mean over them stands for the mean over all (ours: the
        search in the memory is the greatest single cost of a step).
      unsupervised_weight: alpha, at least 0.
      rank_reduction: "mean" over the triples of query, higher and lower document, or "sum".
    """

    learning_rate: float | None = 5e-6
    selection_rate: float = 1e-2
    selection_temperature: float = 1.0
    memory: int = 5000
    neighbours: int = 10
    neighbours_a_step: int = 2
    documents_a_step: int = 128
    unsupervised_weight: float = 1.0
    rank_reduction: Reduction = "mean"


class Carried(NamedTuple):
    """What passes from step to step: the random state, and the memory of earlier batches."""

    key: UInt[Array, " words"]
    memory: Memory


class _Near(NamedTuple):
    """Some of the memory's items nearest to some of the batch's documents.

    Which documents these are, their frozen cosines to the items, the block's inputs, and which
    items count; none does for a document that pads or repeats.
    """

    document: Int[Array, " met"]
    cosine: Float[Array, "met neighbours"]
    entered: Float[Array, "met neighbours width"]
    valid: Bool[Array, "met neighbours"]


def _recalled(
    key: UInt[Array, " words"],
    memory: Memory,
    frozen: Float[Array, "documents full_dim"],
    row: Int[Array, " documents"],
    once: Bool[Array, " documents"],
    settings: SmecSettings,
) -> tuple[UInt[Array, " words"], _Near]:
    """Draws documents, and some of each one's nearest in the memory, never itself."""
    met = jnp.arange(len(row), dtype=jnp.int32)
    if settings.documents_a_step < len(row):
        key, chosen = drawn(key, once[None, :], settings.documents_a_step)
        met = chosen[0]
    cosine = jnp.matmul(frozen[met], memory.frozen.T, precision=jax.lax.Precision.HIGHEST)
    usable = (memory.row >= 0)[None, :] & (memory.row[None, :] != row[met][:, None])
    count = min(settings.neighbours, memory.row.shape[0])
    best, places = jax.lax.top_k(jnp.where(usable, cosine, -jnp.inf), count)
    if settings.neighbours_a_step < count:
        key, which = drawn(key, best > -jnp.inf, settings.neighbours_a_step)
        best, places = (jnp.take_along_axis(each, which, axis=1) for each in (best, places))
    valid = (best > -jnp.inf) & once[met][:, None]
    return key, _Near(met, jnp.where(valid, best, 0.0), memory.entered[places], valid)


def smec_losses(
    params: Params,
    carried: Carried,
    batch: Batch,
    stages: list[Width],
    settings: SmecSettings,
    *,
    most_relevant: int | None = None,
) -> Losses:
    """Returns the terms of the last of `stages`, at its width and at the width that it keeps.

    Args:
      params: "block" and "scores" of the stage, and the same of the "earlier" ones.
      carried: Random state and memory.
      batch: Frozen vectors, rows and judgments.
      stages: Widths of the stages so far.
      settings: Weights, temperature, neighbours.
      most_relevant: Documents of gain above 0 that a query has at most; None if unknown.

    Returns:
      Weighted terms, what is logged, and what the next step carries: the memory with this batch's
      documents. The batch is compared with what the memory held before.

    Source:
      Zhang et al., SMEC, 2025.
    """
    stage, once = stages[-1], distinct(batch)
    frozen = jnp.concatenate([batch.positive, batch.negative])
    earlier = jax.lax.stop_gradient(params["earlier"])
    entered = passed(earlier, stages[:-1], jnp.concatenate([batch.query, frozen]))
    apply = block_of(stage).apply
    query, document = jnp.split(apply(params["block"], entered), [len(batch.query)])
    entered = entered[len(batch.query) :]
    key, noise = gumbel(carried.key, stage.given)
    kept = straight_through(
        params["scores"], noise, stage.kept, temperature=settings.selection_temperature
    )
    memory, rows = carried.memory, batch.document_row
    if rows is None:
        raise ValueError("batch: wanted the rows of its documents, got none")
    key, near = _recalled(key, memory, frozen, rows, once.document, settings)
    recalled = apply(params["block"], near.entered)
    rank, unsupervised = jnp.float32(0), jnp.float32(0)
    for mask in (jnp.ones_like(kept), kept):
        rank += rank_term(
            query * mask[None, :],
            document * mask[None, :],
            batch,
            widths=(stage.given,),
            reduction=settings.rank_reduction,
            most_relevant=most_relevant,
        )
        met = document[near.document] * mask[None, :]
        unsupervised += _held(met, recalled * mask[None, None, :], near)
    weighted = {"rank": rank, "unsupervised": settings.unsupervised_weight * unsupervised}
    moved = jnp.mean((selected(params["scores"], stage.kept) >= stage.kept).astype(jnp.float32))
    logged = {"rank": rank, "unsupervised": unsupervised, "selected_beyond": moved}
    following = pushed(memory, frozen, jax.lax.stop_gradient(entered), rows, once.document)
    return Losses(weighted, logged, {}, {}, Carried(key, following))


def _held(document: Array, recalled: Array, near: _Near) -> Float[Array, ""]:
    """Returns the mean distance of similarities to the memory from the frozen ones."""
    gaps = neighbour_distillation(
        document, recalled, near.cosine, widths=(document.shape[1],), mask=near.valid
    )
    return masked_mean(gaps[0], jnp.any(near.valid, axis=1))


def task(full_dim: int, stages: list[Width], settings: SmecSettings, relevant: int | None) -> Task:
    """Returns the start, loss and optimiser of one seed in the last of `stages`."""
    stage = stages[-1]
    block = block_of(stage)

    def init(key: Array) -> Start:
        weights, noise = jax.random.split(jax.random.fold_in(key, len(stages)))
        params = {"block": block.init(weights), "scores": jnp.zeros(stage.given), "earlier": ()}
        memory = empty(settings.memory, full_dim, stage.given)
        return Start(params, Carried(jax.random.key_data(noise), memory))

    def loss(params: Params, carried: Carried, batch: Batch) -> Losses:
        return smec_losses(params, carried, batch, stages, settings, most_relevant=relevant)

    def optimiser(schedule: Schedule) -> optax.GradientTransformation:
        rate = settings.learning_rate or schedule.learning_rate
        return optax.multi_transform(
            {
                "block": optax.adamw(rate, weight_decay=schedule.weight_decay),
                "scores": optax.adam(settings.selection_rate),
                "earlier": optax.set_to_zero(),
            },
            {"block": "block", "scores": "scores", "earlier": "earlier"},
        )

    return Task(init, loss, optimiser)


def _finished(params: Params) -> tuple[Params, ...]:
    """Returns the stages behind a stage's parameters, itself included."""
    return (*params["earlier"], {"block": params["block"], "scores": params["scores"]})


def _starts(todo: Task, seeds: tuple[int, ...], before: list[Params]) -> list[Params]:
    """Returns a new block for each seed, on the stages that it has behind it."""
    init = jax.jit(lambda key: todo.init(key).params)
    fresh = (jax.device_get(init(jax.random.key(np.uint32(seed)))) for seed in seeds)
    return [each | {"earlier": _finished(last)} for each, last in zip(fresh, before, strict=True)]


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    settings: SmecSettings | None = None,
    name: str = "smec",
) -> Fitted:
    """Trains the stages one after the other, all seeds in one compiled program a stage.

    Args:
      material: Frozen vectors, triplets and judgments.
      options: Width, optimiser; the epochs of all stages together. The basis is the given one.
      fitting: Seeds, checkpoints, report.
      settings: Rates, selection, memory; default those of the options.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed, and the logged values of all stages, one after the other.

    Raises:
      InputError: If `dim` exceeds the full width, or there are no triplets or judgments.
      TrainingError: If a loss is not finite.
    """
    full_dim = material.full_dim
    options.check_dim(full_dim)
    settings = settings or SmecSettings(
        learning_rate=options.smec_learning_rate, rank_reduction=options.rank_reduction
    )
    ready = prepare(material, dataclasses.replace(options, basis="given"), fitting, relations=True)
    hidden = options.hidden(full_dim)
    widths, relevant = stage_widths(full_dim, options.dim, hidden), most_relevant(ready.data)
    stages = []
    for t, width in enumerate(widths):
        todo = task(full_dim, widths[: t + 1], settings, relevant)
        start = functools.partial(_starts, todo, fitting.seeds)
        stages.append(Stage(f"{width.given}-{width.kept}", todo, start))

    def artefact(params: Params, seed: int) -> Artefact:
        about = {
            "seed": seed,
            "stages": [[each.given, each.kept] for each in widths],
            "parameters": parameters(widths),
            "published_parameters": published_parameters(full_dim, hidden),
        }
        arrays = chain_arrays(_finished(params), widths)
        return Artefact("chain", arrays, material.meta(name, options.dim, **about))

    return fit_stages(stages, ready, options, fitting, artefact)
