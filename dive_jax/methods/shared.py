"""What the trained methods share: the rows that train, the schedule, and folding a rotation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.data.judgments import place
from dive_jax.data.triplets import compact
from dive_jax.losses import weighted_mean
from dive_jax.methods.pca import rotation
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Data, Relations
from dive_jax.training.epoch import Params, Schedule, Start, Task
from dive_jax.training.loop import Stopping, train
from dive_jax.types import InputError, Triplets


class Prepared(NamedTuple):
    """What the loop is given, and the rotation that the vectors have gone through.

    Attributes:
      data: Unit vectors of the rows that train, and their relations if asked for.
      triplets: Rows of `data`.
      axes: Orthonormal rows [full_dim, full_dim], None for `--basis=given`.
    """

    data: Data
    triplets: Triplets
    axes: Float[np.ndarray, "full_dim full_dim"] | None


def prepare(
    material: Material, options: AdapterOptions, fitting: Fitting, *, relations: bool = False
) -> Prepared:
    """Gathers the rows that train, rotated onto the principal axes if asked for.

    Args:
      material: Vectors, triplets and judgments.
      options: The basis.
      fitting: How many documents may be held at once.
      relations: Whether a loss asks who is relevant for whom.

    Raises:
      InputError: If relations are asked for and the material has no judgments.
    """
    axes = rotation(material, fitting.chunk_rows) if options.basis == "principal" else None
    triplets, rows = compact(material.triplets)
    query = unit_rows(material.vectors.query, rows.query)
    document = unit_rows(material.vectors.document, rows.document)
    if axes is not None:
        query, document = query @ axes.T, document @ axes.T
    if not relations:
        return Prepared(Data(query, document), triplets, axes)
    if material.judgments is None:
        raise InputError("this method needs judgments, and there are none")
    known = Relations(*place(material.judgments, rows))
    return Prepared(Data(query, document, known), triplets, axes)


def schedule(options: AdapterOptions, fitting: Fitting, epochs: int) -> Schedule:
    """Returns seeds, epochs, batch size and AdamW's settings."""
    return Schedule(
        fitting.seeds,
        epochs,
        options.batch_size,
        options.learning_rate,
        options.weight_decay,
    )


def trained(
    task: Task,
    prepared: Prepared,
    options: AdapterOptions,
    fitting: Fitting,
    artefact: Any,
) -> Fitted:
    """Runs the loop and makes one compressor a seed.

    Args:
      task: What is trained.
      prepared: What it is trained on.
      options: The schedule's settings, and the patience of early stopping.
      fitting: Seeds, checkpoints, report; epochs at most, and the score that stops early.
      artefact: Parameters, what was carried, seed -> artefact.
    """

    def compressors(ends: Sequence[Start]) -> list[Compressor]:
        return [
            Compressor(artefact(end.params, end.carried, seed))
            for end, seed in zip(ends, fitting.seeds, strict=True)
        ]

    stopping = None
    if (validate := fitting.validate) is not None:
        stopping = Stopping(
            lambda ends: np.array([validate(each) for each in compressors(ends)]), options.patience
        )
    epochs = options.passes(len(prepared.triplets.query))
    done = train(
        task,
        prepared.data,
        prepared.triplets,
        schedule(options, fitting, min(epochs, fitting.epochs or epochs)),
        checkpoints=None if fitting.checkpoints is None else fitting.checkpoints(),
        checkpoint_seconds=fitting.checkpoint_seconds,
        devices=fitting.devices,
        stopping=stopping,
        report=fitting.report,
    )
    ends = [Start(*each) for each in zip(done.params, done.carried, strict=True)]
    return Fitted(compressors(ends), done.history, done.compile_seconds, done.train_seconds)


def module_task(make: Any, loss: Any) -> Task:
    """Returns the task of one Flax module over plain trees of arrays.

    Args:
      make: Random source -> module.
      loss: Module and batch -> losses.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))

    def init(key: Array) -> Start:
        return Start(nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1]))

    return Task(init, lambda params, _, batch: loss(nnx.merge(graph, nnx.State(params)), batch))


def masked_mean(values: Float[Array, " rows"], mask: Bool[Array, " rows"]) -> Float[Array, ""]:
    """Returns the mean over the rows whose mask is true, 0 if there is none."""
    return weighted_mean(jnp.where(mask, values, 0.0), mask.astype(values.dtype))


def residual_arrays(params: Params, axes: np.ndarray | None, dim: int) -> dict[str, np.ndarray]:
    """Returns the first `dim` outputs of a trained residual adapter, the rotation folded in."""
    hidden = np.ascontiguousarray(params["hidden"]["kernel"].T)
    arrays = {
        "hidden_weight": hidden if axes is None else hidden @ axes,
        "hidden_bias": params["hidden"]["bias"],
        "out_weight": np.ascontiguousarray(params["out"]["kernel"][:, :dim].T),
        "out_bias": params["out"]["bias"][:dim],
    }
    return arrays if axes is None else arrays | {"base": axes[:dim]}


def linear_arrays(kernel: np.ndarray, axes: np.ndarray | None, dim: int) -> dict[str, np.ndarray]:
    """Returns the first `dim` outputs of a linear map, the rotation folded in."""
    weight = np.ascontiguousarray(kernel[:, :dim].T)
    return {"weight": weight if axes is None else weight @ axes}


def made(
    name: str, form: str, arrays: dict[str, Any], material: Material, dim: int, **about: Any
) -> Artefact:
    """Returns an artefact of float32 host arrays."""
    held = {key: np.asarray(value, np.float32) for key, value in jax.device_get(arrays).items()}
    return Artefact(form, held, material.meta(name, dim, **about))
