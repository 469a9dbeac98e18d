"""Our side of `cars_throughput.py`: all splits and ranks in one call."""

import time
from typing import Any

import cars_numpy
import jax
import jax.numpy as jnp
import numpy as np
from worker import Ready

from dive_jax.operators import half_splits
from dive_jax.operators.cars import score_halves


def build(
    count: int, dim: int, ranks: tuple[int, ...], dtype: str, splits: int, batch: int
) -> Ready:
    """Compiles the call; the result holds the halves that the other side is to score."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    halves = half_splits(count, splits, 0)
    query, apart = (each.astype(dtype) for each in cars_numpy.triples(count, dim))
    there = [jnp.asarray(array) for array in (query, apart, halves)]
    began = time.perf_counter()
    compiled = score_halves.lower(*there, ranks=ranks, batch=batch).compile()
    taken = time.perf_counter() - began

    def run() -> Any:
        return jax.block_until_ready(compiled(*there))

    found = run()
    result = {
        "halves": np.asarray(halves),
        "scores": np.asarray(found.by_split, np.float64),
        "score": np.asarray(found.score, np.float64),
    }
    return Ready(run, result, taken)
