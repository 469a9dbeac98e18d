"""Adapters of every form on the width of a real encoder, real vectors, and runtimes apart."""

import functools
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from dive_jax.artefact import Artefact, load, save
from dive_jax.interop.targets import contents, write

FULL, DIM, ENCODER = 384, 48, "all-MiniLM-L6-v2"
ROWS, ZERO = 1000, 7  # as many vectors, one of them zero
RUNTIME = Path(__file__).with_name("runtime.py")


def normal(seed: int, *shape: int, scale: float = 0.05) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def meta(**changes) -> dict:
    known = {
        "format_version": 1,
        "method": "dive",
        "sides": "both",
        "dim": DIM,
        "full_dim": FULL,
        "normalized": True,
        "encoder": ENCODER,
        "fingerprint": "f" * 64,
        "about": {"dataset": "scifact"},
    }
    return known | changes


def block(width: int, hidden: int, out: int, end: str = "") -> dict[str, np.ndarray]:
    return {
        f"hidden_weight{end}": normal(1, hidden, width),
        f"hidden_bias{end}": normal(2, hidden),
        f"out_weight{end}": normal(3, out, hidden),
        f"out_bias{end}": normal(4, out),
    }


def mlp(*widths: int) -> dict[str, np.ndarray]:
    arrays = {}
    for t, (before, after) in enumerate(itertools.pairwise(widths)):
        arrays[f"weight_{t}"] = normal(10 + t, after, before, scale=before**-0.5)
        arrays[f"bias_{t}"] = normal(20 + t, after)
    return arrays


def chain() -> dict[str, np.ndarray]:
    rng, arrays = np.random.default_rng(5), {}
    for t, (width, kept) in enumerate([(FULL, 100), (100, DIM)]):
        arrays |= block(width, 60, width, f"_{t}")
        arrays[f"kept_{t}"] = np.sort(rng.permutation(width)[:kept]).astype(np.int32)
    return arrays


@functools.cache
def artefacts() -> dict[str, Artefact]:
    """Returns adapters of every form, and of every variant that a form has."""
    weight = np.linalg.qr(normal(6, FULL, DIM))[0].T.copy()
    pair = {"query_weight": normal(8, DIM, FULL), "document_weight": normal(9, DIM, FULL)}
    base = {"base": weight}
    made = {
        "prefix": ("prefix", {}, meta(method="truncate")),
        "linear": ("linear", {"weight": weight}, meta(method="pca")),
        "offset": ("linear", {"weight": weight, "offset": normal(7, DIM)}, meta()),
        "raw": ("linear", {"weight": weight}, meta(normalized=False)),
        "half": ("linear", {"weight": weight.astype(np.float16)}, meta()),
        "queries": ("linear", {"weight": weight}, meta(sides="query")),
        "sided": ("sided", pair, meta(method="dual")),
        "residual": ("residual", block(FULL, 192, DIM), meta()),
        "base": ("residual", block(FULL, 192, DIM) | base, meta()),
        "mlp": ("mlp", mlp(FULL, 192, 96, DIM), meta(method="dive_mlp")),
        "one layer": ("mlp", mlp(FULL, DIM), meta(method="autoencoder")),
        "chain": ("chain", chain(), meta(method="smec")),
    }
    return {name: Artefact(*each) for name, each in made.items()}


LINEAR = ("prefix", "linear", "offset", "raw", "half", "queries", "sided", "one layer")
"""Those that are one matrix a side."""


def real_vectors(data_root: Path) -> np.ndarray:
    """Returns [1000, 384] vectors of SciFact's documents, of length 1, one of them all zeros."""
    path = data_root / "scifact" / "embeddings" / ENCODER / "documents.npy"
    rows = np.load(path, mmap_mode="r")[:ROWS].astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[ZERO] = 0
    return rows


def exported(artefact: Artefact, target: str, folder: Path) -> Artefact:
    """Writes one export, from a saved adapter; returns that adapter."""
    save(artefact, folder.with_name(f"{folder.name} saved"))
    found = load(folder.with_name(f"{folder.name} saved"))
    write(contents(found, target), folder)
    return found


def sides_of(artefact: Artefact) -> list[str]:
    """Returns the sides to try: both where they differ, and one else."""
    if artefact.form == "sided":
        return ["query", "document"]
    return ["query" if artefact.meta["sides"] == "query" else "document"]


def computed(target: str, folders: dict[str, Path], jobs: list[dict], out: Path) -> dict:
    """Runs the code of READMEs in a process of its own, which has none of our modules.

    Args:
      target: The runtime.
      folders: Exports by name.
      jobs: {"name", "side", "vectors": file, "key"}, the last being where the result goes.
      out: Folder for what passes between the processes.

    Returns:
      Results by key; what the runtime's process had loaded, under "modules".
    """
    out.mkdir(exist_ok=True)
    places = {name: str(folder) for name, folder in folders.items()}
    (out / "jobs.json").write_text(json.dumps({"folders": places, "jobs": jobs}))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(RUNTIME), target, str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with np.load(out / "results.npz") as found:
        return dict(found)
