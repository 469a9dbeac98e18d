"""Trains on one device and on several of this process; tells what differs, as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from dive_jax import compare
from dive_jax.training.batches import epoch_rows
from dive_jax.training.epoch import compile_epoch, place
from dive_jax.training.loop import train
from dive_jax.training.mesh import training_mesh
from tests.training.test_loop import Counter, data, schedule, triplets


def apart(one: Any, other: Any) -> float:
    """Returns the largest difference between two trees of arrays, relative where above 1."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(a - b) / np.maximum(1, np.abs(a)))) for a, b in pairs)


def small(seeds: tuple[int, ...]) -> dict[str, Any]:
    """A linear task whose seeds and rows are divided over the devices."""
    ends = [
        train(Counter().task(), data(), triplets(), schedule(seeds), devices=devices)
        for devices in (jax.devices()[:1], jax.devices())
    ]
    mesh = training_mesh(len(seeds), schedule().batch_size, jax.devices())
    weights, history = (
        apart(*each) for each in zip(*((end.params, end.history) for end in ends), strict=True)
    )
    return {"mesh": mesh.devices.shape, "weights": weights, "history": history}


def donated(seeds: tuple[int, ...]) -> bool:
    """Says whether an epoch on all devices takes over its state and moves nothing unasked."""
    rows = epoch_rows(seeds, 0, len(triplets().query), 8)
    placed = place(Counter().task(), data(), triplets(), schedule(seeds), jax.devices())
    epoch = compile_epoch(Counter().task(), placed, rows.shape)
    with jax.transfer_guard("disallow"):
        state, _ = epoch(placed.state, placed.spread(rows))
        epoch(state, placed.spread(rows))
    return all(leaf.is_deleted() for leaf in jax.tree.leaves((placed.state, state)))


def whole(arguments: list[str]) -> dict[str, Any]:
    """The command itself, into one folder with one device and into another with all."""
    *flags, folder = arguments
    for count in (1, len(jax.devices())):
        status = compare.main([*flags, f"--devices={count}", f"--run_dir={folder}/{count}"])
        assert status == 0, status
    return {}


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        answer = whole(sys.argv[1:])
    else:
        chosen = tuple(map(int, sys.argv[1].split(",")))
        answer = small(chosen) | {"donated": donated(chosen)}
    print(json.dumps(answer | {"devices": len(jax.devices())}))
