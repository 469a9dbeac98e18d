"""Which devices train: seeds are spread over one axis of a mesh, a batch's rows over the other."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from dive_jax.types import InputError

Devices: TypeAlias = Sequence[Any]

SEED, DATA = "seed", "data"


def chosen(count: int | None = None) -> tuple[Any, ...]:
    """Returns the devices that train.

    Args:
      count: How many; None for all accelerators, or for one device of a CPU.

    Raises:
      InputError: If there are fewer.
    """
    devices = jax.devices()
    if count is None:
        count = 1 if devices[0].platform == "cpu" else len(devices)
    if count > len(devices):
        kind, there = devices[0].platform, len(devices)
        more = f"; XLA_FLAGS=--xla_force_host_platform_device_count={count} divides a CPU"
        raise InputError(
            f"--devices: wanted at most {there}, the number of {kind} devices, got {count}"
            + (more if kind == "cpu" else "")
        )
    return tuple(devices[:count])


def divided(seeds: int, batch_size: int, devices: int) -> tuple[int, int]:
    """Returns how many devices the seeds, and the rows of a batch, are divided over.

    Seeds go first, for they have nothing to tell each other; what is left divides the rows. Each
    number divides what it divides evenly, so some devices may have nothing to do.

    Args:
      seeds: Number of seeds.
      batch_size: Rows of a batch.
      devices: Devices at hand.

    Example:
      >>> divided(3, 128, 4), divided(3, 128, 8), divided(1, 128, 4), divided(2, 6, 8)
      ((3, 1), (3, 2), (1, 4), (2, 3))
    """
    by_seed = _greatest(seeds, devices)
    return by_seed, _greatest(batch_size, devices // by_seed)


def _greatest(count: int, devices: int) -> int:
    """Returns the greatest divisor of a count that the devices allow."""
    return next(n for n in range(min(count, devices), 0, -1) if count % n == 0)


def training_mesh(seeds: int, batch_size: int, devices: Devices | None = None) -> Mesh:
    """Returns the mesh of a training, of axes "seed" and "data"; see `divided`.

    Args:
      seeds: Number of seeds.
      batch_size: Rows of a batch.
      devices: Devices to use; default those of `chosen`.
    """
    devices = chosen() if devices is None else devices
    shape = divided(seeds, batch_size, len(devices))
    used = devices[: shape[0] * shape[1]]
    return jax.make_mesh(shape, (SEED, DATA), (AxisType.Auto,) * 2, devices=used)


def by_seed(mesh: Mesh) -> NamedSharding:
    """Returns the layout of arrays whose first axis counts the seeds."""
    return NamedSharding(mesh, PartitionSpec(SEED))


def by_row(mesh: Mesh) -> NamedSharding:
    """Returns the layout of an epoch's rows, [seeds, steps, batch]."""
    return NamedSharding(mesh, PartitionSpec(SEED, None, DATA))


def by_hand(mesh: Mesh) -> set[str]:
    """Returns the axes that the program itself divides: the compiler sees to rows that are spread.

    An axis of one device is named as well, so that nothing is left to the compiler.
    """
    return {SEED} | {name for name, size in mesh.shape.items() if size == 1}


def everywhere(mesh: Mesh) -> NamedSharding:
    """Returns the layout of arrays that every device holds."""
    return NamedSharding(mesh, PartitionSpec())
