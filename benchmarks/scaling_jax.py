"""What `scaling.py` times: search and compression of a file, and an epoch of training."""

import time
from typing import Any

import jax
import numpy as np
import steps
from worker import Ready

from dive_jax.artefact import Artefact
from dive_jax.methods import dive
from dive_jax.methods.protocol import Compressor
from dive_jax.options import AdapterOptions
from dive_jax.retrieval.exact import top_k
from dive_jax.training.batches import Data, epoch_rows
from dive_jax.training.epoch import Schedule, compile_epoch, place
from dive_jax.types import Triplets

DIM = 64


def search(documents: str, rows: int, queries: int, k: int, devices: int) -> Ready:
    """Searches the first rows of a file for some of them; each must find itself."""
    vectors = np.load(documents, mmap_mode="r")[:rows]
    wanted = np.arange(queries) * (min(rows, 8192) // queries or 1) % rows
    asked = np.asarray(vectors[wanted], np.float32)
    there = jax.devices()[:devices]

    def run() -> Any:
        return top_k(asked, vectors, k=k, devices=there)

    began = time.perf_counter()
    found = run()
    taken = time.perf_counter() - began
    if (found.rows[:, 0] != wanted).any():
        raise RuntimeError("a document does not find itself")
    return Ready(run, tuple(found), taken)


def compress(documents: str, rows: int, devices: int) -> Ready:
    """Streams the first rows of a file through a linear map, keeping nothing."""
    vectors = np.load(documents, mmap_mode="r")[:rows]
    width = vectors.shape[1]
    weight = steps.weight("kernel", (width, DIM)).T.copy()
    meta = {"format_version": 1, "method": "drawn", "sides": "both", "dim": DIM}
    meta |= {"normalized": True, "full_dim": width, "encoder": "drawn", "fingerprint": ""}
    compressor = Compressor(Artefact("linear", {"weight": weight}, meta))
    there = jax.devices()[:devices]

    def run() -> Any:
        last = None
        for piece in compressor.stream(vectors, devices=there):
            last = piece
        return last

    found = np.asarray(run())
    plain = np.asarray(vectors[rows - len(found) :], np.float32) @ weight.T
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    if np.abs(found - plain).max() > 1e-4:
        raise RuntimeError("compressed rows differ from plain products")
    return Ready(run, found)


def train(case: tuple[int, ...], seeds: int, devices: int) -> Ready:
    """Trains one epoch of DIVE from the same start."""
    shape = steps.Case(*case)
    made = steps.collection(shape)
    options = AdapterOptions(dim=shape.dim, heads=shape.heads, hidden_dim=shape.hidden)
    task = dive.task(shape.full_dim, options)
    schedule = Schedule(
        tuple(range(seeds)), 1, shape.batch, steps.LEARNING_RATE, steps.WEIGHT_DECAY
    )
    data, triplets = Data(made.query, made.document), Triplets(*made.triplets)
    placed = place(task, data, triplets, schedule, jax.devices()[:devices])
    rows = epoch_rows(schedule.seeds, 0, shape.steps * shape.batch, shape.batch)
    began = time.perf_counter()
    epoch = compile_epoch(task, placed, rows.shape)
    taken = time.perf_counter() - began
    there = placed.spread(rows)

    def run() -> Any:
        start = jax.tree.map(lambda leaf: leaf.copy(), placed.state)
        return jax.block_until_ready(epoch(start, there))

    found = jax.device_get(run()[0].params)
    return Ready(run, steps.flat(jax.tree.map(np.asarray, found)), taken)
