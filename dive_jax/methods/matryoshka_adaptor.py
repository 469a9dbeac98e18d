"""Matryoshka-Adaptor: nested prefixes of one residual adapter, first without judgments, then with.

The first stage holds the cosines of documents, on every prefix, to the frozen ones; the second adds
Search-Adaptor's rank loss on every prefix, and starts from the first.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from dive_jax.artefact import Artefact
from dive_jax.losses import absolute_error, neighbour_distillation, pair_distillation
from dive_jax.losses.ranking import Reduction
from dive_jax.methods.neighbours import with_neighbours
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.search_adaptor import (
    distinct,
    most_relevant,
    rank_term,
    stacked_documents,
)
from dive_jax.methods.shared import (
    made,
    masked_mean,
    module_task,
    prepare,
    residual_arrays,
)
from dive_jax.methods.stages import Stage, fit_stages
from dive_jax.models.residual import ResidualAdapter
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, drawn
from dive_jax.training.epoch import Losses, Params, Start, Task

_NARROWEST = 32
_DRAWS = 2**31  # Apart from what the weights are drawn from.


@dataclass(frozen=True)
class MatryoshkaSettings:
    """Stages, prefixes and weights.

    Attributes:
      stages: Both stages, half of the epochs each, or one alone.
      nested_up_to: Prefixes reach up to the full width (published), or up to the width kept.
      neighbours: K, nearest documents of each document; at least 1.
      neighbours_a_step: How many of the K each step draws for each document, anew at each step; at
        least 1, and K or more take all. The mean over them stands for the mean over all K (ours:
        the published term adapts K further rows for each document at each step).
      topk_weight: Weight of the neighbours' similarities; a weight of 0 drops its term.
      pair_weight: alpha, weight of the batch's similarities.
      recovery_weight: beta, weight of what the adapter adds.
      rank_weight: gamma, weight of the rank loss.
      rank_reduction: "mean" over the triples of query, higher and lower document, or "sum".
    """

    stages: Literal["both", "unsupervised", "supervised"] = "both"
    nested_up_to: Literal["full", "dim"] = "full"
    neighbours: int = 10
    neighbours_a_step: int = 2
    topk_weight: float = 1.0
    pair_weight: float = 1.0
    recovery_weight: float = 1.0
    rank_weight: float = 1.0
    rank_reduction: Reduction = "mean"


def settings_of(options: AdapterOptions) -> MatryoshkaSettings:
    """Returns what the options say of this method."""
    return MatryoshkaSettings(
        stages=options.matryoshka_stages,
        nested_up_to=options.nested_up_to,
        recovery_weight=options.matryoshka_recovery_weight,
        rank_reduction=options.rank_reduction,
    )


def prefix_widths(dim: int, full_dim: int, nested_up_to: str = "full") -> tuple[int, ...]:
    """Returns the nested widths: `dim`, and the powers of two from 32 on.

    Args:
      dim: Coordinates kept.
      full_dim: Width of the frozen vectors.
      nested_up_to: "full": up to full_dim, or "dim".

    Example:
      >>> prefix_widths(100, 768), prefix_widths(100, 768, "dim")
      ((32, 64, 100, 128, 256, 512), (32, 64, 100))
    """
    last = full_dim if nested_up_to == "full" else dim
    powers = {2**n for n in range(last.bit_length()) if _NARROWEST <= 2**n <= last}
    return tuple(sorted(powers | {dim}))


def leading(
    adapter: ResidualAdapter, vectors: Float[Array, "*rows full_dim"], width: int
) -> Float[Array, "*rows width"]:
    """Returns the first `width` adapted columns, at the cost of those alone."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    out = flat[:, :width] + jax.nn.relu(adapter.hidden(flat)) @ adapter.out.kernel[...][:, :width]
    if adapter.out.bias is not None:
        out = out + adapter.out.bias[...][None, :width]
    return out.reshape(*vectors.shape[:-1], width)


def matryoshka_losses(
    adapter: ResidualAdapter,
    batch: Batch,
    widths: tuple[int, ...],
    settings: MatryoshkaSettings,
    *,
    supervised: bool,
    most_relevant: int | None = None,
    places: Int[Array, "documents drawn"] | None = None,
) -> Losses:
    """Returns the terms of one batch; each document and query of it counts once.

    Args:
      adapter: Holds all full_dim output columns.
      batch: Frozen vectors, rows, neighbours, and judgments for the rank loss.
      widths: Nested widths, ascending.
      settings: Weights.
      supervised: Whether the rank loss is trained on; else it is only logged, where there are
        judgments.
      most_relevant: Documents of gain above 0 that a query has at most; None if unknown.
      places: Which of each document's neighbours are read; None for all.

    Returns:
      Weighted terms and what is logged; terms of weight 0 are left out.

    Source:
      Yoon et al., Matryoshka-Adaptor, 2024, section 3.
    """
    once, frozen = distinct(batch).document, stacked_documents(batch)
    adapted = adapter(jnp.concatenate([frozen, batch.query]))
    documents, queries = jnp.split(adapted, [len(frozen)])
    terms: dict[str, Float[Array, ""]] = {}
    if settings.topk_weight:
        terms["topk"] = _topk(adapter, documents, frozen, batch, widths, places)
    if settings.pair_weight:
        gaps = pair_distillation(documents, frozen, widths=widths, mask=once)
        terms["pair"] = masked_mean(jnp.sum(gaps, axis=0), once)
    if settings.recovery_weight:
        terms["recovery"] = masked_mean(absolute_error(documents, frozen), once)
    weighted = {name: getattr(settings, f"{name}_weight") * each for name, each in terms.items()}
    if batch.gains is not None and settings.rank_weight:
        terms["rank"] = rank_term(
            queries,
            documents,
            batch,
            widths=widths,
            reduction=settings.rank_reduction,
            most_relevant=most_relevant,
        )
        weighted["rank"] = settings.rank_weight * terms["rank"] if supervised else jnp.float32(0)
    return Losses(weighted, terms, {}, {})


def _topk(
    adapter: ResidualAdapter,
    documents: Float[Array, "documents full_dim"],
    frozen: Float[Array, "documents full_dim"],
    batch: Batch,
    widths: tuple[int, ...],
    places: Int[Array, "documents drawn"] | None,
) -> Float[Array, ""]:
    if batch.neighbours is None:
        raise ValueError("batch: wanted the neighbours of its documents, got none")
    vectors, last = batch.neighbours.vectors(places), widths[-1]
    cosines = jnp.einsum("nd,nkd->nk", frozen, vectors, precision=jax.lax.Precision.HIGHEST)
    near = leading(adapter, vectors, last)
    gaps = neighbour_distillation(documents[:, :last], near, cosines, widths=widths)
    return masked_mean(jnp.sum(gaps, axis=0), distinct(batch).document)


def task(
    full_dim: int,
    options: AdapterOptions,
    settings: MatryoshkaSettings,
    relevant: int | None,
    *,
    supervised: bool,
) -> Task:
    """Returns the start and loss of one seed in one stage."""
    count, hidden = settings.neighbours_a_step, options.hidden(full_dim)
    widths = prefix_widths(options.dim, full_dim, settings.nested_up_to)
    known = {"supervised": supervised, "most_relevant": relevant}

    def reading(places: Int[Array, "documents drawn"] | None) -> Task:
        return module_task(
            lambda rngs: ResidualAdapter(full_dim, hidden, full_dim, rngs=rngs),
            lambda adapter, batch: matryoshka_losses(
                adapter, batch, widths, settings, places=places, **known
            ),
        )

    def init(key: Array) -> Start:
        draws = jax.random.fold_in(key, _DRAWS + supervised)
        return reading(None).init(key)._replace(carried=jax.random.key_data(draws))

    def loss(params: Params, carried: UInt[Array, " words"], batch: Batch) -> Losses:
        near, places = batch.neighbours, None
        if near is not None and near.row.shape[1] > count:
            carried, places = drawn(carried, jnp.ones(near.row.shape, bool), count)
        return reading(places).loss(params, (), batch)._replace(carried=carried)

    return Task(init, loss)


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    settings: MatryoshkaSettings | None = None,
    name: str = "matryoshka_adaptor",
) -> Fitted:
    """Trains one adapter a seed in one stage or two, all seeds in one compiled program a stage.

    Args:
      material: Frozen vectors, triplets, and judgments unless the stage is unsupervised alone.
      options: Width, basis, optimiser; the epochs of all stages together.
      fitting: Seeds, checkpoints, report.
      settings: Stages, prefixes and weights; default those of the options.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed, and the logged values of both stages, one after the other.

    Raises:
      InputError: If `dim` exceeds the full width, or there are no triplets or judgments.
      TrainingError: If a loss is not finite.
    """
    options.check_dim(material.full_dim)
    settings = settings or settings_of(options)
    both = ("unsupervised", "supervised")
    names = both if settings.stages == "both" else (settings.stages,)
    ready = prepare(material, options, fitting, relations="supervised" in names)
    if settings.topk_weight:
        ready = with_neighbours(ready, material, fitting, settings.neighbours)
    full_dim, relevant = material.full_dim, most_relevant(ready.data)

    def stage(kind: str) -> Stage:
        supervised = kind == "supervised"
        return Stage(kind, task(full_dim, options, settings, relevant, supervised=supervised))

    def artefact(params: Params, seed: int) -> Artefact:
        arrays = residual_arrays(params, ready.axes, options.dim)
        about = {"seed": seed, "basis": options.basis, "stages": list(names)}
        return made(name, "residual", arrays, material, options.dim, **about)

    return fit_stages([stage(each) for each in names], ready, options, fitting, artefact)
