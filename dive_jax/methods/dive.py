"""DIVE, second version: a residual adapter, self-limiting hinge, head-wise contrast, geometry."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.artefact import Artefact
from dive_jax.losses import (
    active,
    allowed_negatives,
    batch_active,
    batch_hinge,
    gram_distillation,
    headwise_ntxent,
    hinge,
    softplus_hinge,
)
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.shared import (
    linear_arrays,
    made,
    module_task,
    prepare,
    residual_arrays,
    trained,
)
from dive_jax.models.projections import LinearAdapter
from dive_jax.models.residual import ResidualAdapter, split_heads
from dive_jax.numerics.vectors import unit
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.training.epoch import Losses, Task

_ROLES = 3


def _mean(values: Float[Array, " rows"], mask: Bool[Array, " rows"]) -> Float[Array, ""]:
    """Returns the mean over the rows whose mask is true, 0 if there is none."""
    count = jnp.maximum(jnp.sum(mask), 1).astype(values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0)) / count


def stacked(batch: Batch) -> Float[Array, "rows full_dim"]:
    """Returns queries, positives and negatives below each other."""
    return jnp.concatenate([batch.query, batch.positive, batch.negative])


class _Ranking(NamedTuple):
    """The ranking term of one batch, unreduced, and what is logged of it."""

    loss: Float[Array, " batch"]
    is_active: Bool[Array, " batch"]
    to_positive: Float[Array, " batch"]
    to_negative: Float[Array, " batch"]


def _ranking(first: Float[Array, "rows dim"], batch: Batch, options: AdapterOptions) -> _Ranking:
    """Returns the hinge of each triplet, or of each query over the batch's documents."""
    query, positive, negative = jnp.split(first, _ROLES)
    to_positive = jnp.sum(query * positive, axis=1)
    to_negative = jnp.sum(query * negative, axis=1)
    if options.ranking == "triplet":
        margin = options.wanted_lead
        pull = hinge if options.self_limiting else softplus_hinge
        loss = pull(to_positive, to_negative, margin=margin)
        return _Ranking(
            loss, active(to_positive, to_negative, margin=margin), to_positive, to_negative
        )
    if batch.excluded is None or batch.document_row is None:
        raise ValueError("ranking=batch: wanted a batch with relations, got none")
    similarity = jnp.matmul(query, first[len(query) :].T, precision=jax.lax.Precision.HIGHEST)
    allowed = allowed_negatives(
        batch.excluded,
        batch.document_row,
        query_mask=batch.mask,
        document_mask=jnp.tile(batch.mask, _ROLES - 1),
    )
    settings: dict[str, Any] = {
        "margin": options.wanted_lead,
        "temperature": options.ranking_temperature,
        "mode": options.ranking_mode,
    }
    return _Ranking(
        batch_hinge(similarity, to_positive, allowed, **settings),
        batch_active(similarity, to_positive, allowed, **settings),
        to_positive,
        to_negative,
    )


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
    ranked = _ranking(heads[:, 0], batch, options)
    lead = ranked.to_positive - ranked.to_negative
    triplet = _mean(ranked.loss, batch.mask)
    by_role = jnp.reshape(heads, (_ROLES, -1, *heads.shape[1:]))
    contrast = jax.vmap(
        lambda each: headwise_ntxent(
            each, temperature=options.temperature, mask=batch.mask, unit=True
        )
    )(by_role)
    view = jnp.mean(jax.vmap(_mean, (0, None))(jnp.mean(contrast, axis=2), batch.mask))
    real = jnp.tile(batch.mask, _ROLES)
    geometry = _mean(gram_distillation(heads[:, 0], stacked(batch), mask=real), real)
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
            "active_ratio": _mean(ranked.is_active.astype(jnp.float32), batch.mask),
            "positive_similarity": _mean(ranked.to_positive, batch.mask),
            "negative_similarity": _mean(ranked.to_negative, batch.mask),
        },
        least={"least_lead": jnp.min(jnp.where(batch.mask, lead, jnp.inf))},
        greatest={"greatest_lead": jnp.max(jnp.where(batch.mask, lead, -jnp.inf))},
    )


def task(full_dim: int, options: AdapterOptions) -> Task:
    """Returns the residual adapter's start and loss for one seed."""
    width, hidden = options.dim * options.heads, options.hidden(full_dim)
    narrow = options.products == "bfloat16"
    return module_task(
        lambda rngs: ResidualAdapter(full_dim, hidden, width, rngs=rngs, narrow=narrow),
        lambda adapter, batch: dive_losses(adapter(stacked(batch)), batch, options),
    )


def linear_task(full_dim: int, options: AdapterOptions) -> Task:
    """Returns the start and loss of a linear map in the residual adapter's place."""
    width = options.dim * options.heads
    return module_task(
        lambda rngs: LinearAdapter(full_dim, width, rngs=rngs),
        lambda adapter, batch: dive_losses(adapter(stacked(batch)), batch, options),
    )


def fit(
    material: Material, options: AdapterOptions, fitting: Fitting, *, name: str = "dive"
) -> Fitted:
    """Trains one residual adapter a seed, all seeds in one compiled program.

    Args:
      material: Frozen vectors and triplets.
      options: Width, heads, basis, losses, optimiser.
      fitting: Seeds, checkpoints, report.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed, and the logged values.

    Raises:
      InputError: If dim * heads exceeds the full width, or there are no triplets.
      TrainingError: If a loss is not finite.
    """
    options.check_width(material.full_dim)
    ready = prepare(material, options, fitting, relations=options.ranking == "batch")

    def artefact(params: Any, carried: Any, seed: int) -> Artefact:
        arrays = residual_arrays(params, ready.axes, options.dim)
        about = {"seed": seed, "basis": options.basis}
        return made(name, "residual", arrays, material, options.dim, **about)

    return trained(task(material.full_dim, options), ready, options, fitting, artefact)


def fit_linear(
    material: Material, options: AdapterOptions, fitting: Fitting, *, name: str
) -> Fitted:
    """Trains one linear map a seed under the same losses; see `fit`."""
    options.check_width(material.full_dim)
    ready = prepare(material, options, fitting, relations=options.ranking == "batch")

    def artefact(params: Any, carried: Any, seed: int) -> Artefact:
        arrays = linear_arrays(params["kernel"], ready.axes, options.dim)
        about = {"seed": seed, "basis": options.basis}
        return made(name, "linear", arrays, material, options.dim, **about)

    return trained(linear_task(material.full_dim, options), ready, options, fitting, artefact)
