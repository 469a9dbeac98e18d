"""The compiled epoch: all seeds in one program, vectors on the device, indices in.

An epoch is one `lax.scan` over its steps. Seeds lie side by side: over several devices by
`shard_map`, on one accelerator by `vmap`, on a CPU by `lax.map` inside the same program (there
`vmap` gains nothing; BUILD_NOTES.md has the measurement). Where more devices are left, the rows of
a batch are spread over them, and the compiler adds what they must tell each other.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, UInt

from dive_jax.training import mesh as meshes
from dive_jax.training.batches import Batch, Data, gather
from dive_jax.training.mesh import Devices
from dive_jax.types import Triplets

Params: TypeAlias = Any


class Losses(NamedTuple):
    """What a task's loss returns for one batch.

    Attributes:
      weighted: Terms whose sum is minimised, each a scalar with its weight applied.
      mean: Scalars to log as their mean over the epoch's steps.
      least: Scalars to log as their least value.
      greatest: Scalars to log as their greatest value.
      carried: What the next step is given: running statistics, a memory, a random state.
    """

    weighted: dict[str, Float[Array, ""]]
    mean: dict[str, Float[Array, ""]]
    least: dict[str, Float[Array, ""]]
    greatest: dict[str, Float[Array, ""]]
    carried: Any = ()


class Start(NamedTuple):
    """Where one seed begins: what is trained, and what is only carried from step to step."""

    params: Params
    carried: Any = ()


class Task(NamedTuple):
    """What is trained; its functions concern one seed, and are pure.

    Attributes:
      init: Key -> the start.
      loss: Parameters, what is carried, batch -> losses.
      optimiser: Schedule -> the optimiser; default AdamW.
    """

    init: Callable[[Array], Start]
    loss: Callable[[Params, Any, Batch], Losses]
    optimiser: "Callable[[Schedule], optax.GradientTransformation] | None" = None


class Schedule(NamedTuple):
    """How it is trained: AdamW at a constant rate."""

    seeds: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float


class State(NamedTuple):
    """Parameters, what is carried, and moments; the first axis of every leaf counts the seeds."""

    params: Params
    carried: Any
    optimiser: Any


Logs: TypeAlias = dict[str, Array]
Epoch: TypeAlias = Callable[[State, Array], tuple[State, Logs]]


def adamw(schedule: Schedule) -> optax.GradientTransformation:
    """Returns AdamW at the schedule's constant rate, optax's defaults for all else."""
    return optax.adamw(schedule.learning_rate, weight_decay=schedule.weight_decay)


class StepLogs(NamedTuple):
    """What one step logs; by name, a scalar each."""

    mean: Logs
    least: Logs
    greatest: Logs


Step: TypeAlias = Callable[[State, Array], tuple[State, StepLogs]]


def _moved(
    optimiser: optax.GradientTransformation, state: State, losses: Losses, gradient: Params
) -> tuple[State, StepLogs]:
    """Moves the parameters against a gradient."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes its own scalar types
        updates, moments = optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, updates)
    logs = StepLogs(losses.mean | {"loss": _total(losses)}, losses.least, losses.greatest)
    return State(params, losses.carried, moments), logs


def _total(losses: Losses) -> Float[Array, ""]:
    return sum(losses.weighted.values(), start=jnp.float32(0))


def step_of(
    task: Task, optimiser: optax.GradientTransformation, data: Data, triplets: Triplets
) -> Step:
    """Returns one step of one seed: gathers a batch, and moves the parameters along it.

    Args:
      task: Loss of one seed.
      optimiser: What turns a gradient into an update.
      data: Vectors and relations, on the device.
      triplets: Rows of `data`, on the device.

    Returns:
      A pure function of (state, rows of the batch's triplets) that gives the next state and what is
      logged.
    """

    def step(state: State, rows: Int[Array, " batch"]) -> tuple[State, StepLogs]:
        batch = gather(data, triplets, rows)

        def total(params: Params) -> tuple[Float[Array, ""], Losses]:
            losses = task.loss(params, state.carried, batch)
            return _total(losses), losses

        gradient, losses = jax.grad(total, has_aux=True)(state.params)
        return _moved(optimiser, state, losses, gradient)

    return step


def _first_step(
    task: Task, optimiser: optax.GradientTransformation, state: State, batch: Batch
) -> tuple[State, StepLogs, Logs]:
    """A step that also returns the squared norm of each weighted term's gradient.

    The terms are pulled back one by one, each through what it depends on alone, and their sum moves
    the parameters: the step itself costs next to nothing more.
    """

    def weighted(params: Params) -> tuple[dict[str, Float[Array, ""]], Losses]:
        losses = task.loss(params, state.carried, batch)
        return losses.weighted, losses

    terms, change_of, losses = jax.linearize(weighted, state.params, has_aux=True)
    gradients = {
        name: jax.linear_transpose(lambda params, name=name: change_of(params)[name], state.params)(
            jnp.ones_like(terms[name])
        )[0]
        for name in terms
    }
    energies = {
        f"{name}_energy": optax.tree.norm(each, squared=True) for name, each in gradients.items()
    }
    gradient = jax.tree.map(lambda *each: sum(each[1:], start=each[0]), *gradients.values())
    return *_moved(optimiser, state, losses, gradient), energies


def _epoch(
    task: Task,
    optimiser: optax.GradientTransformation,
    data: Data,
    triplets: Triplets,
    state: State,
    rows: Int[Array, "steps batch"],
) -> tuple[State, Logs]:
    """One epoch of one seed."""
    batch = gather(data, triplets, rows[0])
    state, first, energies = _first_step(task, optimiser, state, batch)
    step = step_of(task, optimiser, data, triplets)
    state, others = jax.lax.scan(step, state, rows[1:])
    logs = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first, others)
    logged = {name: jnp.mean(each) for name, each in logs.mean.items()}
    logged |= {name: jnp.min(each) for name, each in logs.least.items()}
    logged |= {name: jnp.max(each) for name, each in logs.greatest.items()}
    return state, logged | energies


class Placed(NamedTuple):
    """A run's arrays on their devices, before anything is compiled."""

    mesh: Mesh
    optimiser: optax.GradientTransformation
    data: Data
    triplets: Triplets
    state: State

    def abstract_leaf(self, leaf: Array) -> jax.ShapeDtypeStruct:
        """Returns the shape and layout of an array whose first axis counts the seeds."""
        sharding = meshes.by_seed(self.mesh)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def spread(self, rows: Int[np.ndarray, "seeds steps batch"]) -> Int[Array, "seeds steps batch"]:
        """Sends an epoch's rows to the devices that read them."""
        return jax.device_put(rows, meshes.by_row(self.mesh))


def place(
    task: Task,
    data: Data,
    triplets: Triplets,
    schedule: Schedule,
    devices: Devices | None,
    start: Sequence[Params] | None = None,
) -> Placed:
    """Makes every seed's start and sends the vectors across, once.

    Args:
      task: Initial parameters of one seed.
      data: Frozen unit vectors, float32 [rows, full_dim] a side, and relations.
      triplets: Rows of `data`.
      schedule: Seeds and AdamW's settings.
      devices: Devices to spread the seeds and the batches over; default those of `mesh.chosen`.
      start: Parameters that each seed starts from; default the task's own.
    """
    mesh = meshes.training_mesh(len(schedule.seeds), schedule.batch_size, devices)
    by_seed = meshes.by_seed(mesh)
    optimiser = (task.optimiser or adamw)(schedule)

    def begin(seed: UInt[Array, ""], given: Params | None) -> State:
        params, carried = task.init(jax.random.key(seed))
        params = params if given is None else given
        return State(params, carried, optimiser.init(params))

    given = None if start is None else jax.tree.map(lambda *each: np.stack(each), *start)
    seeds, given = jax.device_put((np.asarray(schedule.seeds, np.uint32), given), by_seed)
    state = jax.jit(jax.vmap(begin), out_shardings=by_seed)(seeds, given)
    vectors, rows = jax.device_put((data, triplets), meshes.everywhere(mesh))
    return Placed(mesh, optimiser, vectors, rows, state)


def compile_epoch(
    task: Task, placed: Placed, rows_shape: tuple[int, ...], *, side_by_side: bool | None = None
) -> Epoch:
    """Compiles one epoch of all seeds; traced once, the state's buffers are donated.

    Args:
      task: Loss of one seed.
      placed: The run's arrays.
      rows_shape: [seeds, steps, batch], the shape of `batches.epoch_rows`.
      side_by_side: Whether the seeds of one device run under `vmap` rather than one after another;
        default only on accelerators.

    Returns:
      A function of (state, rows) that gives the next state and the logged values, [seeds] each.
    """
    if side_by_side is None:
        side_by_side = placed.mesh.devices.flat[0].platform != "cpu"

    def all_seeds(data: Data, triplets: Triplets, state: State, rows: Array) -> tuple[State, Logs]:
        def one(pair: tuple[State, Array]) -> tuple[State, Logs]:
            return _epoch(task, placed.optimiser, data, triplets, *pair)

        return jax.vmap(one)((state, rows)) if side_by_side else jax.lax.map(one, (state, rows))

    by_seed = meshes.by_seed(placed.mesh)
    shared, split = meshes.everywhere(placed.mesh).spec, by_seed.spec
    sharded = jax.shard_map(
        all_seeds,
        mesh=placed.mesh,
        in_specs=(shared, shared, split, split),
        out_specs=split,
        axis_names=meshes.by_hand(placed.mesh),
        check_vma=False,
    )
    rows = jax.ShapeDtypeStruct(rows_shape, jnp.int32, sharding=meshes.by_row(placed.mesh))
    state = jax.tree.map(placed.abstract_leaf, placed.state)
    jitted = jax.jit(sharded, donate_argnums=2, out_shardings=by_seed)
    compiled = jitted.lower(placed.data, placed.triplets, state, rows).compile()
    return lambda state, rows: compiled(placed.data, placed.triplets, state, rows)
