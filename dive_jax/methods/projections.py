"""Shared and dual linear projections, compared by inner product: one matrix, or one a side.

Both families start from the strongest principal axes, so they begin as the same scores, and see the
same batches: what differs is what the second matrix is worth.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.data.judgments import place
from dive_jax.data.triplets import compact
from dive_jax.losses import allowed_negatives, infonce
from dive_jax.methods.neighbours import hard_negatives, judgments
from dive_jax.methods.pca import rotation
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.shared import Prepared, masked_mean, trained
from dive_jax.methods.sides import Choice, chosen
from dive_jax.methods.tuning import held_out, scorer, with_about, without
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, Data, Relations
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.epoch import Losses, Params, Schedule, Start, Task
from dive_jax.types import InputError, Triplets, TwoSided

Family = Literal["shared", "dual"]
Geometry = Literal["shared", "dual", "auto"]
"""A family, or whichever of the two CARS chooses."""


@dataclass(frozen=True)
class ProjectionSettings:
    """How projections are trained; the paper's, whatever the common protocol says.

    Attributes:
      learning_rates: Rates tried; the best on validation queries stays.
      epochs: Passes over the pairs, at most; the best one on validation queries stays.
      batch_size: Pairs a step.
      weight_decay: AdamW's.
      clip: Greatest norm of the gradient over all parameters.
      temperature: Of InfoNCE.
      hard: Hard negatives of each query, its best unjudged documents before training.
    """

    learning_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    epochs: int = 30
    batch_size: int = 256
    weight_decay: float = 1e-5
    clip: float = 5.0
    temperature: float = 0.05
    hard: int = 8


def prepare(
    material: Material, fitting: Fitting, hard: int, mined_on: Material | None = None
) -> Prepared:
    """Gathers the pairs that train, with hard negatives; every pair is a row once.

    Args:
      material: Vectors, triplets and judgments; the triplets' own negatives are not read.
      fitting: Documents held at once.
      hard: Hard negatives a query.
      mined_on: Whose vectors the hard negatives are found with; default those that train.

    Raises:
      InputError: If there are no judgments, or no document is left as a negative.
    """
    known = judgments(material)
    pairs = np.unique(np.stack([material.triplets.query, material.triplets.positive], 1), axis=0)
    if not len(pairs):
        raise InputError("no triplets: training needs at least one judged (query, document) pair")
    every = hard_negatives(mined_on or material, hard, fitting.chunk_rows)
    if (every < 0).all():
        raise InputError("no hard negatives: every document is relevant; take more documents")
    query, positive = pairs.T.astype(np.int32)
    best = dict(zip(known.query.tolist(), every, strict=True))
    ours = np.stack([best[row] for row in query.tolist()])
    # Each hard negative once beside some pair, so that `compact` keeps it.
    below = np.where(ours < 0, positive[:, None], ours).ravel()
    wide = Triplets(np.repeat(query, hard), np.repeat(positive, hard), below)
    small, rows = compact(wide)
    first = np.arange(len(query)) * hard
    triplets = Triplets(*(column[first] for column in small))
    new = np.full(len(material.vectors.document) + 1, -1, np.int32)
    new[rows.document] = np.arange(len(rows.document), dtype=np.int32)
    listed = np.stack([best[row] for row in rows.query.tolist()])
    data = Data(
        unit_rows(material.vectors.query, rows.query),
        unit_rows(material.vectors.document, rows.document),
        Relations(*place(known, rows)),
        hard=new[listed],
    )
    return Prepared(data, triplets, None)


def projection_losses(params: Params, batch: Batch, settings: ProjectionSettings) -> Losses:
    """Returns InfoNCE of each pair over the batch's other positives and its own hard negatives.

    Args:
      params: "query" and "document", or "both": kernels [full_dim, dim].
      batch: Frozen vectors, rows, relations and hard negatives.
      settings: The temperature.

    Source:
      arXiv 2609.32488, trained projections; the loss itself is this library's choice.
    """
    if batch.hard is None or batch.excluded is None or batch.document_row is None:
        raise ValueError("batch: wanted relations and hard negatives, got none")
    ours, theirs = (params.get(name, params.get("both")) for name in TwoSided._fields)
    dot = jax.lax.Precision.HIGHEST
    query = jnp.matmul(batch.query, ours, precision=dot)
    document = jnp.matmul(batch.positive, theirs, precision=dot)
    near = jnp.matmul(batch.hard.vectors(), theirs, precision=dot)
    rows = len(batch.query)
    allowed = allowed_negatives(
        batch.excluded[:, :rows],
        batch.document_row[:rows],
        query_mask=batch.mask,
        document_mask=batch.mask,
    )
    within = jnp.matmul(query, document.T, precision=dot)
    similarity = jnp.concatenate([within, jnp.einsum("bd,bhd->bh", query, near)], axis=1)
    negatives = jnp.concatenate([allowed, (batch.hard.row >= 0) & batch.mask[:, None]], axis=1)
    losses = infonce(
        similarity,
        jnp.sum(query * document, axis=1),
        negatives,
        temperature=settings.temperature,
    )
    loss = masked_mean(losses, batch.mask)
    return Losses({"infonce": loss}, {"infonce": loss}, {}, {})


def task(
    axes: Float[np.ndarray, "dim full_dim"], family: Family, settings: ProjectionSettings
) -> Task:
    """Returns the start, loss and optimiser of one seed; every seed starts from the axes."""
    names = ("both",) if family == "shared" else TwoSided._fields

    def init(key: Array) -> Start:
        del key
        return Start({name: jnp.asarray(axes.T) for name in names})

    def optimiser(schedule: Schedule) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(settings.clip),
            optax.adamw(schedule.learning_rate, weight_decay=schedule.weight_decay),
        )

    def loss(params: Params, carried: Any, batch: Batch) -> Losses:
        del carried
        return projection_losses(params, batch, settings)

    return Task(init, loss, optimiser)


def arrays_of(params: Params) -> tuple[str, dict[str, np.ndarray]]:
    """Returns form and arrays of trained projections."""
    if "both" in params:
        return "linear", {"weight": np.ascontiguousarray(params["both"].T)}
    sides = TwoSided._fields
    return "sided", {f"{side}_weight": np.ascontiguousarray(params[side].T) for side in sides}


class Projecting(NamedTuple):
    """What a family is trained on.

    Attributes:
      material: What artefacts tell of their origin.
      ready: What `prepare` gathered.
      axes: Where both families start.
      family: shared or dual.
      name: Name of the method, kept in the artefact.
    """

    material: Material
    ready: Prepared
    axes: Float[np.ndarray, "dim full_dim"]
    family: Family
    name: str


def train_projection(
    todo: Projecting, options: AdapterOptions, fitting: Fitting, settings: ProjectionSettings
) -> Fitted:
    """Trains projections at the first of the settings' rates, one or two matrices a seed.

    Args:
      todo: What is trained, on what.
      options: --max_steps, --epochs and --batch_size bound the paper's.
      fitting: Seeds, checkpoints, report; `validate` keeps the best epoch.
      settings: The paper's.
    """
    rate = settings.learning_rates[0]
    own = dataclasses.replace(
        options,
        learning_rate=rate,
        weight_decay=settings.weight_decay,
        batch_size=min(settings.batch_size, max(1, len(todo.ready.triplets.query))),
        epochs=min(settings.epochs, options.epochs),
        patience=settings.epochs,
    )

    def artefact(params: Params, carried: Any, seed: int) -> Artefact:
        form, arrays = arrays_of(params)
        about = {"seed": seed, "family": todo.family, "learning_rate": rate}
        meta = todo.material.meta(todo.name, len(todo.axes), **about) | {"normalized": False}
        return Artefact(form, {key: np.asarray(each) for key, each in arrays.items()}, meta)

    return trained(task(todo.axes, todo.family, settings), todo.ready, own, fitting, artefact)


def best_rate(
    todo: Projecting, options: AdapterOptions, fitting: Fitting, settings: ProjectionSettings
) -> Fitted:
    """Trains at each rate, and keeps the one whose best epoch validates best, mean over the seeds.

    Args:
      todo: What is trained, on what.
      options: As for `train_projection`.
      fitting: With `validate`; checkpoints of each rate lie in a folder of its own.
      settings: The rates, and the rest of the paper's.
    """
    tried = []
    for rate in settings.learning_rates:
        one = dataclasses.replace(settings, learning_rates=(rate,))
        at = fitting._replace(checkpoints=_stage(fitting, f"{rate:g}"))
        tried.append(train_projection(todo, options, at, one))
    scores = [float(np.mean(np.max(each.history["validation"], axis=0))) for each in tried]
    best = tried[int(np.argmax(scores))]
    about = {"rates": dict(zip(map(str, settings.learning_rates), scores, strict=True))}
    return Fitted(
        [with_about(each, **about) for each in best.compressors],
        best.history,
        sum(each.compile_seconds for each in tried),
        sum(each.train_seconds for each in tried),
    )


def _stage(fitting: Fitting, stage: str) -> Callable[..., Checkpoints] | None:
    if (checkpoints := fitting.checkpoints) is None:
        return None
    return lambda: checkpoints(stage)


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    geometry: Geometry,
    settings: ProjectionSettings = ProjectionSettings(),
    name: str,
) -> Fitted:
    """Trains one family at each rate, and keeps rate and epoch that are best on validation queries.

    Args:
      material: Frozen vectors, triplets and judgments; the validation part does not train.
      options: The width; epochs, batch size and steps bound the paper's.
      fitting: Seeds, checkpoints, report.
      geometry: shared, dual, or auto: the family that CARS chooses at this width from one triple
        of each query that trains, kept with the scores under about.
      settings: The paper's.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed; its vectors are not normalised. The history is that of the best rate.

    Raises:
      InputError: If `dim` exceeds the full width, no query validates, none trains, or CARS has too
        few to choose by.
      TrainingError: If a loss is not finite.

    Source:
      arXiv 2609.32488, trained projections.
    """
    options.check_dim(material.full_dim)
    held = held_out(material, "validation")
    seen = without(material, held)
    ready = prepare(seen, fitting, settings.hard)
    axes = rotation(material, fitting.chunk_rows)[: options.dim]
    choice = chosen(ready, options.dim) if geometry == "auto" else Choice(geometry, {})
    if choice.told and fitting.note:
        fitting.note(f"{name}: CARS chooses {choice.family} at {options.dim} coordinates")
    todo = Projecting(seen, ready, axes, choice.family, name)
    validated = fitting._replace(validate=scorer(material, held, fitting.chunk_rows))
    fitted = best_rate(todo, options, validated, settings)
    told = [with_about(each, **choice.told) for each in fitted.compressors]
    return fitted._replace(compressors=told)
