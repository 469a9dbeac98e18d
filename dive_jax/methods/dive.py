"""DIVE, second version: a residual adapter, self-limiting hinge, head-wise contrast, geometry."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.data.triplets import compact
from dive_jax.losses import active, gram_distillation, headwise_ntxent, hinge
from dive_jax.methods.pca import rotation
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.models.residual import ResidualAdapter, split_heads
from dive_jax.numerics.vectors import unit
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, Data
from dive_jax.training.epoch import Losses, Schedule, Start, Task
from dive_jax.training.loop import train

_ROLES = 3


def _mean(values: Float[Array, " rows"], mask: Bool[Array, " rows"]) -> Float[Array, ""]:
    """Returns the mean over the rows whose mask is true, 0 if there is none."""
    count = jnp.maximum(jnp.sum(mask), 1).astype(values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0)) / count


def dive_losses(
    outputs: Float[Array, "rows width"], batch: Batch, options: AdapterOptions
) -> Losses:
    """Returns DIVE's three terms for one batch.

    Args:
      outputs: The adapter's leading dim * heads columns for queries, positives and negatives
        stacked, not normalised: rows = 3 * batch.
      batch: The frozen vectors and the mask of real rows.
      options: Margin, temperature, weights, heads.

    Returns:
      Weighted terms, and what is logged of each epoch.

    Source:
      Zhao, DIVE, sections 3.2 to 3.4, appendix A.4 and A.5.
    """
    heads = unit(split_heads(outputs, options.heads))
    query, positive, negative = jnp.split(heads[:, 0], _ROLES)
    to_positive = jnp.sum(query * positive, axis=1)
    to_negative = jnp.sum(query * negative, axis=1)
    lead = to_positive - to_negative
    triplet = _mean(hinge(to_positive, to_negative, margin=options.margin), batch.mask)
    by_role = jnp.reshape(heads, (_ROLES, -1, *heads.shape[1:]))
    contrast = jax.vmap(
        lambda each: headwise_ntxent(each, temperature=options.temperature, mask=batch.mask)
    )(by_role)
    view = jnp.mean(jax.vmap(_mean, (0, None))(jnp.mean(contrast, axis=2), batch.mask))
    frozen = jnp.concatenate([batch.query, batch.positive, batch.negative])
    real = jnp.tile(batch.mask, _ROLES)
    geometry = _mean(gram_distillation(heads[:, 0], frozen, mask=real), real)
    is_active = active(to_positive, to_negative, margin=options.margin)
    return Losses(
        weighted={
            "triplet": triplet,
            "view": options.view_weight * view,
            "geometry": options.geometry_weight * geometry,
        },
        mean={
            "triplet": triplet,
            "view": view,
            "geometry": geometry,
            "active_ratio": _mean(is_active.astype(jnp.float32), batch.mask),
            "positive_similarity": _mean(to_positive, batch.mask),
            "negative_similarity": _mean(to_negative, batch.mask),
        },
        least={"least_lead": jnp.min(jnp.where(batch.mask, lead, jnp.inf))},
        greatest={"greatest_lead": jnp.max(jnp.where(batch.mask, lead, -jnp.inf))},
    )


def task(full_dim: int, options: AdapterOptions) -> Task:
    """Returns the adapter's start and loss for one seed, over plain trees of arrays."""

    def make(rngs: nnx.Rngs) -> ResidualAdapter:
        width = options.dim * options.heads
        return ResidualAdapter(full_dim, options.hidden(full_dim), width, rngs=rngs)

    graph, _ = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))

    def init(key: Array) -> Start:
        return Start(nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1]))

    def loss(params: Any, carried: Any, batch: Batch) -> Losses:
        adapter = nnx.merge(graph, nnx.State(params))
        stacked = jnp.concatenate([batch.query, batch.positive, batch.negative])
        return dive_losses(adapter(stacked), batch, options)

    return Task(init, loss)


def _artefact(
    params: Any,
    axes: np.ndarray | None,
    material: Material,
    options: AdapterOptions,
    seed: int,
) -> Artefact:
    """Keeps head 1 of a trained adapter, the rotation folded in."""
    hidden = np.ascontiguousarray(params["hidden"]["kernel"].T)
    arrays = {
        "hidden_weight": hidden if axes is None else hidden @ axes,
        "hidden_bias": params["hidden"]["bias"],
        "out_weight": np.ascontiguousarray(params["out"]["kernel"][:, : options.dim].T),
        "out_bias": params["out"]["bias"][: options.dim],
    }
    if axes is not None:
        arrays["base"] = axes[: options.dim]
    meta = material.meta("dive", options.dim, seed=seed, basis=options.basis)
    return Artefact("residual", arrays, meta)


def fit(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Trains one adapter a seed, all seeds in one compiled program.

    Args:
      material: Frozen vectors and triplets.
      options: Width, heads, basis, losses, optimiser.
      fitting: Seeds, checkpoints, report.

    Returns:
      One compressor a seed, and the logged values.

    Raises:
      InputError: If dim * heads exceeds the full width, or there are no triplets.
      TrainingError: If a loss is not finite.
    """
    options.check_width(material.full_dim)
    axes = rotation(material, fitting.chunk_rows) if options.basis == "principal" else None
    triplets, rows = compact(material.triplets)
    query = unit_rows(material.vectors.query[rows.query])
    document = unit_rows(material.vectors.document[rows.document])
    if axes is not None:
        query, document = query @ axes.T, document @ axes.T
    trained = train(
        task(material.full_dim, options),
        Data(query, document),
        triplets,
        Schedule(
            fitting.seeds,
            options.epochs,
            options.batch_size,
            options.learning_rate,
            options.weight_decay,
        ),
        checkpoints=None if fitting.checkpoints is None else fitting.checkpoints(),
        checkpoint_seconds=fitting.checkpoint_seconds,
        report=fitting.report,
    )
    compressors = [
        Compressor(_artefact(params, axes, material, options, seed))
        for seed, params in zip(fitting.seeds, trained.params, strict=True)
    ]
    return Fitted(compressors, trained.history, trained.compile_seconds, trained.train_seconds)
