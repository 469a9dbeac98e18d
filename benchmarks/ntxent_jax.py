"""JAX sides of `loss_throughput.py`: our head-wise NT-Xent, and optax's."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from worker import Ready

from dive_jax.losses import headwise_ntxent


def _ready(loss: Callable[[Any], Any], heads: np.ndarray) -> Ready:
    there = jnp.asarray(heads)
    began = time.perf_counter()
    compiled = jax.jit(jax.value_and_grad(loss)).lower(there).compile()
    taken = time.perf_counter() - began

    def run() -> Any:
        return jax.block_until_ready(compiled(there))

    return Ready(run, jax.device_get(run()), taken)


def ours(heads: np.ndarray, temperature: float, tile: int | None) -> Ready:
    """Value and gradient of the mean over all heads, which are unit vectors."""
    settings = {"temperature": temperature, "tile": tile, "unit": True}
    return _ready(lambda z: jnp.mean(headwise_ntxent(z, **settings)), heads)


def theirs(heads: np.ndarray, temperature: float) -> Ready:
    """The same by optax; it leaves a head's other positives out of the denominator."""
    batch, count, dim = heads.shape
    labels = jnp.repeat(jnp.arange(batch), count)
    return _ready(
        lambda z: optax.losses.ntxent(z.reshape(-1, dim), labels, temperature=temperature), heads
    )
