"""One check for every runtime: what it computes equals JAX and the NumPy reference."""

from pathlib import Path

import numpy as np

from dive_jax.artefact import Artefact, apply
from dive_jax.methods.protocol import Compressor
from tests.interop.cases import ROWS, ZERO, artefacts, computed, exported, sides_of

BATCHES = {"1000": slice(0, ROWS), "zero": slice(ZERO, ZERO + 1), "one": slice(ZERO + 1, ZERO + 2)}


def compressed_by_jax(artefact: Artefact, vectors: np.ndarray, side: str) -> np.ndarray:
    """Returns JAX's result; what it refuses, the zero row, is the reference's."""
    rest = np.delete(vectors, ZERO, axis=0)
    out = Compressor(artefact).compress(rest, side=side)
    return np.insert(out, ZERO, apply(artefact, vectors[ZERO : ZERO + 1], side)[0], axis=0)


def check(target: str, names: tuple[str, ...], vectors: np.ndarray, tmp: Path) -> set[str]:
    """Exports adapters, runs them in their runtime, and compares; returns the modules loaded."""
    made = {name: each for name, each in artefacts().items() if name in names}
    folders = {name: tmp / name for name in made}
    saved = {name: exported(each, target, folders[name]) for name, each in made.items()}
    jobs = []
    for batch, rows in BATCHES.items():
        np.save(tmp / f"{batch}.npy", vectors[rows])
        jobs += [
            {"name": name, "side": side, "vectors": str(tmp / f"{batch}.npy")}
            | {"key": f"{name} {side} {batch}"}
            for name in made
            for side in sides_of(made[name])
        ]
    results = computed(target, folders, jobs, tmp / "results")
    modules = set(results.pop("modules"))
    assert not {"jax", "dive_jax"} & modules
    assert len(results) == len(jobs)
    for name in made:
        for side in sides_of(made[name]):
            wanted = {
                "NumPy": apply(saved[name], vectors, side),
                "JAX": compressed_by_jax(saved[name], vectors, side),
            }
            for batch, rows in BATCHES.items():
                got = results[f"{name} {side} {batch}"]
                assert got.dtype == np.float32
                for by, values in wanted.items():
                    told = f"{name}, {side}, {batch}, against {by}"
                    np.testing.assert_allclose(got, values[rows], rtol=0, atol=1e-5, err_msg=told)
    return modules
