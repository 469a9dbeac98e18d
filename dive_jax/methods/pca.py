"""Principal component analysis of the documents, uncentred: inner products are what search uses."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.numerics.moments import stream, uncentred
from dive_jax.numerics.spectra import principal_axes
from dive_jax.options import AdapterOptions
from dive_jax.types import InputError


def _chunks(vectors: Any, chunk_rows: int) -> Iterator[np.ndarray]:
    for first in range(0, len(vectors), chunk_rows):
        yield unit_rows(vectors[first : first + chunk_rows])


def rotation(material: Material, chunk_rows: int) -> Float[np.ndarray, "full_dim full_dim"]:
    """Returns the principal axes of the documents' uncentred second moment, strongest first.

    The moment is accumulated in float64 from a stream, so the documents need not fit in memory. All
    `full_dim` axes are returned, so that the rotation keeps every inner product.

    Args:
      material: Whose documents are streamed.
      chunk_rows: Documents held at once.

    Returns:
      Orthonormal rows, float32.
    """
    moment = stream(_chunks(material.vectors.document, chunk_rows))
    return principal_axes(uncentred(moment)).axes.astype(np.float32)


def fit(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Fits the `dim` strongest axes; see `rotation`."""
    if options.dim > material.full_dim:
        raise InputError(
            f"--dim: wanted at most the full width {material.full_dim}, got {options.dim}"
        )
    axes = rotation(material, fitting.chunk_rows)[: options.dim]
    artefact = Artefact("linear", {"weight": axes}, material.meta("pca", options.dim))
    return Fitted([Compressor(artefact)], {})
