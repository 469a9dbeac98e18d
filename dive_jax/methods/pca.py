"""Principal component analysis of the documents, uncentred by default: search uses dot products."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import unit_rows
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.numerics.moments import Moment, centred, mean, stream, uncentred
from dive_jax.numerics.spectra import principal_axes
from dive_jax.options import AdapterOptions
from dive_jax.types import InputError

_SPREAD = 1e-10  # of the rows' mean square; below it a covariance is rounding and nothing else


def _chunks(vectors: Any, chunk_rows: int) -> Iterator[np.ndarray]:
    for first in range(0, len(vectors), chunk_rows):
        yield unit_rows(vectors[first : first + chunk_rows])


def _moment(material: Material, chunk_rows: int) -> Moment:
    """Returns the documents' sums, accumulated in float64 from a stream."""
    return stream(_chunks(material.vectors.document, chunk_rows))


def rotation(material: Material, chunk_rows: int) -> Float[np.ndarray, "full_dim full_dim"]:
    """Returns the principal axes of the documents' uncentred second moment, strongest first.

    The moment is accumulated in float64 from a stream, so the documents need not fit in memory. All
    `full_dim` axes are returned, so that the rotation keeps every inner product.

    Args:
      material: Whose documents are streamed.
      chunk_rows: Documents held at once.

    Returns:
      Orthonormal rows, float32; those that the material knows already, if it does.
    """
    if material.axes is not None:
        return material.axes
    moment = _moment(material, chunk_rows)
    return principal_axes(uncentred(moment)).axes.astype(np.float32)


def _about_the_mean(moment: Moment, dim: int) -> dict[str, np.ndarray]:
    """Returns the strongest axes of the covariance, and the offset that subtracts the mean."""
    spread = centred(moment)
    if np.trace(spread) <= _SPREAD * np.trace(uncentred(moment)):
        raise InputError(
            f"centred pca: wanted documents that differ, got {moment.count} that all equal their "
            "mean; fit it uncentred, or on more documents"
        )
    axes = principal_axes(spread).axes[:dim]
    offset = -(axes @ mean(moment))
    return {"weight": axes.astype(np.float32), "offset": offset.astype(np.float32)}


def fit(
    material: Material, options: AdapterOptions, fitting: Fitting, *, center: bool | None = None
) -> Fitted:
    """Fits the `dim` strongest axes; see `rotation`.

    Args:
      material: Whose documents are streamed.
      options: The width.
      fitting: Documents held at once.
      center: Subtract the documents' mean from every vector first. That changes inner products,
        which search ranks by, so it is no safe default. None: as the options say.

    Raises:
      InputError: If the width exceeds the full one, or centring leaves nothing.
    """
    options.check_dim(material.full_dim)
    center = options.pca_center if center is None else center
    if center:
        arrays = _about_the_mean(_moment(material, fitting.chunk_rows), options.dim)
    else:
        arrays = {"weight": rotation(material, fitting.chunk_rows)[: options.dim]}
    meta = material.meta("pca", options.dim, center=center)
    return Fitted([Compressor(Artefact("linear", arrays, meta))], {})
