"""DIVE, first version: a plain network with batch normalisation; hinge and contrast only."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array

from dive_jax.artefact import Artefact
from dive_jax.methods.dive import dive_losses, stacked
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.shared import made, prepare, trained
from dive_jax.models.mlp import MLPAdapter, folded
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch
from dive_jax.training.epoch import Losses, Params, Start, Task

_ROLES = 3


def widths(full_dim: int) -> tuple[int, int]:
    """Returns the widths of the hidden layers: a half and a quarter of the full width.

    Example:
      >>> widths(4096)
      (2048, 1024)
    """
    return max(1, full_dim // 2), max(1, full_dim // 4)


def _without_geometry(terms: dict[str, Array]) -> dict[str, Array]:
    return {name: each for name, each in terms.items() if name != "geometry"}


def task(full_dim: int, options: AdapterOptions) -> Task:
    """Returns the network's start and loss for one seed; running statistics are carried."""
    make = functools.partial(MLPAdapter, full_dim, widths(full_dim), options.dim * options.heads)
    graph, *_ = nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))), nnx.Param, nnx.BatchStat)

    def init(key: Array) -> Start:
        _, params, statistics = nnx.split(make(rngs=nnx.Rngs(key)), nnx.Param, nnx.BatchStat)
        return Start(nnx.to_pure_dict(params), nnx.to_pure_dict(statistics))

    def loss(params: Params, carried: Any, batch: Batch) -> Losses:
        model = nnx.merge(graph, nnx.State(params), nnx.State(carried))
        outputs = model(stacked(batch), mask=jnp.tile(batch.mask, _ROLES))
        losses = dive_losses(outputs, batch, options)
        statistics = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
        return losses._replace(
            weighted=_without_geometry(losses.weighted),  # never computed: the compiler drops it
            mean=_without_geometry(losses.mean),
            carried=jax.lax.stop_gradient(statistics),
        )

    return Task(init, loss)


def arrays(
    params: Params, statistics: Params, axes: np.ndarray | None, dim: int
) -> dict[str, np.ndarray]:
    """Returns head 1 of a trained network, normalisation and rotation folded in."""
    layers = folded(params, statistics, dim)
    if axes is not None:
        layers["weight_0"] = layers["weight_0"] @ axes
    return layers


def fit(
    material: Material, options: AdapterOptions, fitting: Fitting, *, name: str = "dive_mlp"
) -> Fitted:
    """Trains one network a seed, all seeds in one compiled program.

    Its outputs have a width of their own, so dim * heads may exceed the full width.

    Args:
      material: Frozen vectors and triplets.
      options: Width, heads, basis, hinge and contrast, optimiser; no geometry term.
      fitting: Seeds, checkpoints, report.
      name: Name of the method, kept in the artefact.

    Returns:
      One compressor a seed, and the logged values.

    Raises:
      InputError: If the width exceeds the full one, or there are no triplets.
      TrainingError: If a loss is not finite.

    Source:
      Zhao, DIVE, first version.
    """
    options.check_dim(material.full_dim)
    ready = prepare(material, options, fitting, relations=options.ranking == "batch")

    def artefact(params: Params, statistics: Params, seed: int) -> Artefact:
        layers = arrays(params, statistics, ready.axes, options.dim)
        about = {"seed": seed, "basis": options.basis}
        return made(name, "mlp", layers, material, options.dim, **about)

    return trained(task(material.full_dim, options), ready, options, fitting, artefact)
