"""Both sides of `seeds.py`: one epoch of several seeds, under `lax.map` or under `vmap`."""

import time
from typing import Any

import jax
import numpy as np
import steps
from worker import Ready

from dive_jax.methods import dive
from dive_jax.options import AdapterOptions
from dive_jax.training.batches import Data, epoch_rows
from dive_jax.training.epoch import Schedule, compile_epoch, place
from dive_jax.types import Triplets


def build(case: tuple[int, ...], seeds: tuple[int, ...], side_by_side: bool) -> Ready:
    """Compiles one epoch from the same start; the result is the parameters after it."""
    shape = steps.Case(*case)
    made = steps.collection(shape)
    options = AdapterOptions(dim=shape.dim, heads=shape.heads, hidden_dim=shape.hidden)
    task = dive.task(shape.full_dim, options)
    count = shape.steps * shape.batch
    schedule = Schedule(seeds, 1, shape.batch, steps.LEARNING_RATE, steps.WEIGHT_DECAY)
    data, triplets = Data(made.query, made.document), Triplets(*made.triplets)
    placed = place(task, data, triplets, schedule, jax.devices()[:1])
    rows = epoch_rows(seeds, 0, count, shape.batch)
    began = time.perf_counter()
    epoch = compile_epoch(task, placed, rows.shape, side_by_side=side_by_side)
    taken = time.perf_counter() - began
    there = placed.spread(rows)

    def run() -> Any:
        start = jax.tree.map(lambda leaf: leaf.copy(), placed.state)
        return jax.block_until_ready(epoch(start, there))

    found = jax.device_get(run()[0].params)
    return Ready(run, steps.flat(jax.tree.map(np.asarray, found)), taken)
