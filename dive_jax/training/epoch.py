"""The compiled epoch: all seeds in one program, vectors on the device, indices in.

An epoch is one `lax.scan` over its steps. Seeds lie side by side: over several devices by
`shard_map`, on one accelerator by `vmap`, on a CPU by `lax.map` inside the same program (there
`vmap` gains nothing; BUILD_NOTES.md has the measurement).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, UInt

from dive_jax.training.batches import Batch, Data, gather
from dive_jax.types import Triplets

Params: TypeAlias = Any
Devices: TypeAlias = Sequence[Any]

_SEED = "seed"


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


def seed_mesh(seeds: int, devices: Devices | None = None) -> Mesh:
    """Returns a mesh whose axis is the largest divisor of `seeds` that the devices allow.

    Args:
      seeds: Number of seeds.
      devices: Devices to use; default all.

    Returns:
      A one-axis mesh named "seed".
    """
    devices = jax.devices() if devices is None else devices
    size = max(n for n in range(1, min(seeds, len(devices)) + 1) if seeds % n == 0)
    return jax.make_mesh((size,), (_SEED,), (AxisType.Auto,), devices=devices[:size])


def _total(
    task: Task, params: Params, carried: Any, batch: Batch
) -> tuple[Float[Array, ""], Losses]:
    losses = task.loss(params, carried, batch)
    return sum(losses.weighted.values(), start=jnp.float32(0)), losses


def _energies(
    task: Task, params: Params, carried: Any, batch: Batch
) -> dict[str, Float[Array, ""]]:
    """Returns the squared norm of each weighted term's gradient."""
    _, pull, names = jax.vjp(
        lambda params: (lambda losses: (losses.weighted, dict.fromkeys(losses.weighted, 0)))(
            task.loss(params, carried, batch)
        ),
        params,
        has_aux=True,
    )
    energies = {}
    for name in names:
        (gradient,) = pull({each: jnp.float32(each == name) for each in names})
        energies[f"{name}_energy"] = optax.tree.norm(gradient, squared=True)
    return energies


def _epoch(
    task: Task,
    optimiser: optax.GradientTransformation,
    data: Data,
    triplets: Triplets,
    state: State,
    rows: Int[Array, "steps batch"],
) -> tuple[State, Logs]:
    """One epoch of one seed."""

    def step(state: State, rows: Int[Array, " batch"]) -> tuple[State, Any]:
        batch = gather(data, triplets, rows)
        gradient_of = jax.value_and_grad(
            lambda params: _total(task, params, state.carried, batch), has_aux=True
        )
        (value, losses), gradient = gradient_of(state.params)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes its own scalar types
            updates, moments = optimiser.update(gradient, state.optimiser, state.params)
            params = optax.apply_updates(state.params, updates)
        logs = losses.mean | {"loss": value}, losses.least, losses.greatest
        return State(params, losses.carried, moments), logs

    energies = _energies(task, state.params, state.carried, gather(data, triplets, rows[0]))
    state, (mean, least, greatest) = jax.lax.scan(step, state, rows)
    logged = {name: jnp.mean(each) for name, each in mean.items()}
    logged |= {name: jnp.min(each) for name, each in least.items()}
    logged |= {name: jnp.max(each) for name, each in greatest.items()}
    return state, logged | energies


class Placed(NamedTuple):
    """A run's arrays on their devices, before anything is compiled."""

    mesh: Mesh
    optimiser: optax.GradientTransformation
    data: Data
    triplets: Triplets
    state: State

    @property
    def by_seed(self) -> NamedSharding:
        """The layout of arrays whose first axis counts the seeds."""
        return NamedSharding(self.mesh, PartitionSpec(_SEED))

    def abstract_leaf(self, leaf: Array) -> jax.ShapeDtypeStruct:
        """Returns the shape and layout of an array whose first axis counts the seeds."""
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=self.by_seed)


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
      devices: Devices to spread the seeds over; default all.
      start: Parameters that each seed starts from; default the task's own.
    """
    mesh = seed_mesh(len(schedule.seeds), devices)
    by_seed = NamedSharding(mesh, PartitionSpec(_SEED))
    optimiser = (task.optimiser or adamw)(schedule)

    def begin(seed: UInt[Array, ""], given: Params | None) -> State:
        params, carried = task.init(jax.random.key(seed))
        params = params if given is None else given
        return State(params, carried, optimiser.init(params))

    given = None if start is None else jax.tree.map(lambda *each: np.stack(each), *start)
    seeds, given = jax.device_put((np.asarray(schedule.seeds, np.uint32), given), by_seed)
    state = jax.jit(jax.vmap(begin), out_shardings=by_seed)(seeds, given)
    everywhere = NamedSharding(mesh, PartitionSpec())
    vectors, rows = jax.device_put((data, triplets), everywhere)
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

    shared, split = PartitionSpec(), PartitionSpec(_SEED)
    sharded = jax.shard_map(
        all_seeds,
        mesh=placed.mesh,
        in_specs=(shared, shared, split, split),
        out_specs=split,
        check_vma=False,
    )
    rows = jax.ShapeDtypeStruct(rows_shape, jnp.int32, sharding=placed.by_seed)
    state = jax.tree.map(placed.abstract_leaf, placed.state)
    jitted = jax.jit(sharded, donate_argnums=2)
    compiled = jitted.lower(placed.data, placed.triplets, state, rows).compile()
    return lambda state, rows: compiled(placed.data, placed.triplets, state, rows)
