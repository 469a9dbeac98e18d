"""An autoencoder of the documents: no judgments, no ranking, only what rebuilds a vector."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.losses import squared_error
from dive_jax.methods.protocol import Fitted, Fitting, Material
from dive_jax.methods.shared import Prepared, made, module_task, trained
from dive_jax.models.autoencoder import Autoencoder
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Batch, Data
from dive_jax.training.epoch import Losses, Params, Task
from dive_jax.types import InputError, Triplets


def sample(documents: int, most: int, seed: int) -> np.ndarray:
    """Returns the rows that train, ascending: all of them, or `most` drawn by a seed.

    Example:
      >>> sample(3, 5, 0)
      array([0, 1, 2])
    """
    if documents <= most:
        return np.arange(documents)
    return np.sort(np.random.default_rng(seed).choice(documents, most, replace=False))


def _losses(model: Autoencoder, batch: Batch) -> Losses:
    """Returns the mean squared reconstruction of the batch's documents, its positives."""
    errors = squared_error(model(batch.positive), batch.positive)
    count = jnp.maximum(jnp.sum(batch.mask), 1).astype(errors.dtype)
    error = jnp.sum(jnp.where(batch.mask, errors, 0.0)) / count
    energy = error * batch.positive.shape[1]  # of unit rows: the share that is not rebuilt
    return Losses({"reconstruction": error}, {"energy_left": energy}, {}, {})


def task(full_dim: int, dim: int, activation: Callable = jax.nn.relu) -> Task:
    """Returns the autoencoder's start and loss for one seed.

    Args:
      full_dim: Width of the frozen vectors.
      dim: Width of the code.
      activation: Follows both hidden layers; `fit` knows the default only.
    """
    hidden = max(1, full_dim // 2)
    return module_task(
        lambda rngs: Autoencoder(full_dim, hidden, dim, rngs=rngs, activation=activation), _losses
    )


def prepare(material: Material, most: int, seed: int) -> Prepared:
    """Gathers the documents that train; a "triplet" is one document, as its own positive.

    Args:
      material: Frozen document vectors.
      most: Documents at most.
      seed: Draws them where there are more.

    Raises:
      InputError: If there are none.
    """
    rows = sample(len(material.vectors.document), most, seed)
    if not rows.size:
        raise InputError("autoencoder: wanted at least one document, got none")
    document = unit_rows(material.vectors.document, rows)
    none = np.zeros(len(rows), np.int32)
    triplets = Triplets(query=none, positive=np.arange(len(rows), dtype=np.int32), negative=none)
    return Prepared(Data(query=document[:1], document=document), triplets, None)


def encoder_arrays(params: Params) -> dict[str, np.ndarray]:
    """Returns the encoder of a trained autoencoder as the layers of an `mlp`."""
    arrays = {}
    for number, layer in enumerate(("encoder_hidden", "encoder_out")):
        arrays[f"weight_{number}"] = np.ascontiguousarray(params[layer]["kernel"].T)
        arrays[f"bias_{number}"] = params[layer]["bias"]
    return arrays


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    most_documents: int = 100_000,
    sample_seed: int = 2027,
) -> Fitted:
    """Trains one autoencoder a seed on the frozen document vectors; its code is what is kept.

    Args:
      material: Frozen document vectors; no triplets or judgments are read.
      options: Width of the code, epochs, batch size, optimiser.
      fitting: Seeds, checkpoints, report.
      most_documents: Documents that train, at most; they are held on the device.
      sample_seed: Draws them where there are more; all seeds share them.

    Returns:
      One compressor a seed, and the logged values.

    Raises:
      InputError: If the width exceeds the full one, or there are no documents.
      TrainingError: If a loss is not finite.
    """
    options.check_dim(material.full_dim)
    ready = prepare(material, most_documents, sample_seed)

    def artefact(params: Params, carried: Any, seed: int) -> Artefact:
        about: dict[str, Any] = {"seed": seed, "documents": len(ready.triplets.positive)}
        return made("autoencoder", "mlp", encoder_arrays(params), material, options.dim, **about)

    return trained(task(material.full_dim, options.dim), ready, options, fitting, artefact)
