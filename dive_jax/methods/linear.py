"""The references: all coordinates, the first ones, and a random subspace."""

import numpy as np

from dive_jax.artefact import Artefact
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.options import AdapterOptions


def frozen(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Keeps the full vectors, normalised."""
    artefact = Artefact("prefix", {}, material.meta("frozen", material.full_dim))
    return Fitted([Compressor(artefact)], {})


def truncate(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Keeps the first `dim` coordinates, normalised again."""
    options.check_dim(material.full_dim)
    return Fitted([Compressor(Artefact("prefix", {}, material.meta("truncate", options.dim)))], {})


def random_projection(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Projects onto a random subspace, orthonormal, one a seed: the floor any method must beat."""
    options.check_dim(material.full_dim)
    compressors = []
    for seed in fitting.seeds:
        noise = np.random.default_rng(seed).normal(size=(material.full_dim, options.dim))
        axes, triangle = np.linalg.qr(noise)
        axes = axes * np.sign(np.diag(triangle))  # uniform over subspaces, whatever LAPACK's signs
        meta = material.meta("random_projection", options.dim, seed=seed)
        weight = np.ascontiguousarray(axes.T, dtype=np.float32)
        compressors.append(Compressor(Artefact("linear", {"weight": weight}, meta)))
    return Fitted(compressors, {})
