"""Search-Adaptor: a residual adapter under a pairwise rank loss over graded judgments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from dive_jax.artefact import Artefact
from dive_jax.losses import (
    absolute_error,
    first_occurrence,
    prediction_error,
    prefix_similarities,
    rank_loss,
    weighted_mean,
)
from dive_jax.losses.ranking import Reduction
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.shared import (
    made,
    masked_mean,
    module_task,
    prepare,
    residual_arrays,
    trained,
)
from dive_jax.models.predictor import Predictor
from dive_jax.models.residual import ResidualAdapter
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, Data
from dive_jax.training.epoch import Losses, Task


@dataclass(frozen=True)
class SearchSettings:
    """Weights of Search-Adaptor's terms.

    Attributes:
      recovery_weight: alpha, at least 0.
      prediction_weight: beta, at least 0.
      rank_reduction: "mean" over the triples of query, higher and lower document, or "sum".
    """

    recovery_weight: float = 0.1
    prediction_weight: float = 0.01
    rank_reduction: Reduction = "mean"


class Distinct(NamedTuple):
    """Marks each query and each document of a batch once; padding is never marked."""

    query: Bool[Array, " batch"]
    document: Bool[Array, " documents"]


def distinct(batch: Batch) -> Distinct:
    """Finds the first place of every query, and of every positive or negative.

    Raises:
      ValueError: If the batch does not tell its rows.
    """
    if batch.query_row is None or batch.document_row is None:
        raise ValueError("batch: wanted the rows of its queries and documents, got none")
    return Distinct(
        first_occurrence(batch.query_row, mask=batch.mask),
        first_occurrence(batch.document_row, mask=jnp.tile(batch.mask, 2)),
    )


def stacked_documents(batch: Batch) -> Float[Array, "documents full_dim"]:
    """Returns positives, then negatives, in the order of the batch's judgments."""
    return jnp.concatenate([batch.positive, batch.negative])


def judged(batch: Batch) -> Float[Array, "batch documents"]:
    """Returns the judged gains of the batch.

    Raises:
      ValueError: If there are none.
    """
    if batch.gains is None:
        raise ValueError("batch: wanted judgments, got none")
    return batch.gains


def most_relevant(data: Data) -> int | None:
    """Returns the most documents that are relevant for one query among those that train."""
    if data.relations is None:
        return None
    return max(1, int(np.sum(data.relations.judged >= 0, axis=1).max(initial=1)))


def rank_term(
    queries: Float[Array, "batch dim"],
    documents: Float[Array, "documents dim"],
    batch: Batch,
    *,
    widths: Sequence[int],
    reduction: Reduction,
    most_relevant: int | None = None,
) -> Float[Array, ""]:
    """Returns Search-Adaptor's rank loss on each prefix, summed over the prefixes.

    Args:
      queries: Adapted queries of the batch.
      documents: Its adapted positives, then negatives.
      batch: Judgments and masks.
      widths: Numbers of leading coordinates, ascending.
      reduction: "mean" over the triples of query, higher and lower document, or "sum".
      most_relevant: Documents of gain above 0 that a query has at most.

    Raises:
      ValueError: If the batch has no judgments.

    Source:
      Yoon et al., Search-Adaptor and Matryoshka-Adaptor, 2024.
    """
    gains, once = judged(batch), distinct(batch)
    terms = [
        rank_loss(
            similarity,
            gains,
            reduction=reduction,
            most_relevant=most_relevant,
            query_mask=once.query,
            document_mask=once.document,
        )
        for similarity in prefix_similarities(queries, documents, widths=widths)
    ]
    return sum(terms, start=jnp.float32(0))


class SearchAdaptor(nnx.Module):
    """The residual adapter, and the predictor that serves training only.

    Args:
      full_dim: Width of the frozen vectors.
      hidden_dim: Hidden width of both.
      rngs: Source of the weights.
    """

    def __init__(self, full_dim: int, hidden_dim: int, *, rngs: nnx.Rngs):
        self.adapter = ResidualAdapter(full_dim, hidden_dim, full_dim, rngs=rngs)
        self.predictor = Predictor(full_dim, hidden_dim, rngs=rngs)


def search_losses(
    model: SearchAdaptor,
    batch: Batch,
    dim: int,
    settings: SearchSettings,
    *,
    most_relevant: int | None = None,
) -> Losses:
    """Returns Search-Adaptor's three terms for one batch.

    Args:
      model: Adapter and predictor.
      batch: Frozen vectors, rows and judgments.
      dim: Coordinates kept.
      settings: Weights and reduction.
      most_relevant: Documents of gain above 0 that a query has at most; None if unknown.

    Returns:
      Weighted terms and what is logged. Every query and document of the batch counts once.

    Source:
      Yoon et al., Search-Adaptor, 2024, section 4.
    """
    once = distinct(batch)
    documents = stacked_documents(batch)
    both = model.adapter(jnp.concatenate([batch.query, documents]))
    query, document = jnp.split(both, [len(batch.query)])
    options: dict[str, Any] = {"most_relevant": most_relevant}
    rank = rank_term(
        query, document, batch, widths=(dim,), reduction=settings.rank_reduction, **options
    )
    recovery = masked_mean(absolute_error(query, batch.query), once.query) + masked_mean(
        absolute_error(document, documents), once.document
    )
    errors = prediction_error(
        query,
        model.predictor(document),
        judged(batch),
        query_mask=once.query,
        document_mask=once.document,
        **options,
    )
    prediction = weighted_mean(*errors)
    weighted = {
        "rank": rank,
        "recovery": settings.recovery_weight * recovery,
        "prediction": settings.prediction_weight * prediction,
    }
    logged = {"rank": rank, "recovery": recovery, "prediction": prediction}
    return Losses(weighted, logged, {}, {})


def task(
    full_dim: int, options: AdapterOptions, settings: SearchSettings, relevant: int | None
) -> Task:
    """Returns the start and loss of one seed."""
    hidden = options.hidden(full_dim)
    return module_task(
        lambda rngs: SearchAdaptor(full_dim, hidden, rngs=rngs),
        lambda model, batch: search_losses(
            model, batch, options.dim, settings, most_relevant=relevant
        ),
    )


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    settings: SearchSettings | None = None,
    name: str = "search_adaptor",
) -> Fitted:
    """Trains one adapter a seed, all seeds in one compiled program.

    Args:
      material: Frozen vectors, triplets and judgments.
      options: Width, basis, optimiser.
      fitting: Seeds, checkpoints, report.
      settings: Weights of the terms; default those of the options.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed, and the logged values.

    Raises:
      InputError: If `dim` exceeds the full width, or there are no triplets or judgments.
      TrainingError: If a loss is not finite.
    """
    options.check_dim(material.full_dim)
    settings = settings or SearchSettings(
        options.search_recovery_weight, options.search_prediction_weight, options.rank_reduction
    )
    ready = prepare(material, options, fitting, relations=True)

    def artefact(params: Any, carried: Any, seed: int) -> Artefact:
        arrays = residual_arrays(params["adapter"], ready.axes, options.dim)
        about = {"seed": seed, "basis": options.basis}
        return made(name, "residual", arrays, material, options.dim, **about)

    todo = task(material.full_dim, options, settings, most_relevant(ready.data))
    return trained(todo, ready, options, fitting, artefact)
