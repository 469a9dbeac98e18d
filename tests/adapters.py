"""A run's folder with adapters that nobody had to train."""

from pathlib import Path

import numpy as np

from dive_jax.artefact import Artefact, save
from dive_jax.options import TrainOptions
from dive_jax.settings import render
from dive_jax.sources import load


def write_run(folder: Path, root: Path, *, dataset: str, encoder: str, dim: int = 4) -> Path:
    """Writes options.flags and two linear adapters for a dataset's vectors: dive-1 and dive-2."""
    options = TrainOptions(
        dataset=dataset, encoder=encoder, data_root=str(root), lsa_dim=8, dim=dim, seeds=(1, 2)
    )
    folder.mkdir(parents=True)
    (folder / "options.flags").write_text(render(options), encoding="utf-8")
    store = load(dataset, encoder, root=str(root), lsa_dim=8).store
    for seed in options.seeds:
        weight = np.random.default_rng(seed).normal(size=(dim, store.dim)).astype(np.float32)
        meta = {
            "format_version": 1,
            "method": "dive",
            "sides": "both",
            "dim": dim,
            "full_dim": store.dim,
            "normalized": True,
            "encoder": store.encoder,
            "fingerprint": store.encoder_fingerprint,
        }
        save(Artefact("linear", {"weight": weight}, meta), folder / "adapters" / f"dive-{seed}")
    return folder
