"""A linear adapter as a transform of faiss's, to be put before an index."""

from typing import Any

import numpy as np

from dive_jax.artefact import Artefact
from dive_jax.interop.layers import Layer, layers, sides
from dive_jax.types import InputError


def _transform(faiss: Any, layer: Layer) -> bytes:
    out, into = layer.weight.shape
    made = faiss.LinearTransform(into, out, layer.bias is not None)
    faiss.copy_array_to_vector(np.ravel(layer.weight), made.A)
    if layer.bias is not None:
        faiss.copy_array_to_vector(layer.bias, made.b)
    made.is_trained = True
    made.set_is_orthonormal()  # then faiss can also go back, as from a PCA
    writer = faiss.VectorIOWriter()
    faiss.write_VectorTransform(made, writer)
    return faiss.vector_to_array(writer.data).tobytes()


def files(artefact: Artefact) -> dict[str, bytes]:
    """Returns the files of a linear adapter for faiss: one, or one a side.

    It is a `LinearTransform` for PCA too: a `PCAMatrix` would add a mean and eigenvalues, which an
    adapter does not have, and compute the same.

    Args:
      artefact: A sound artefact.

    Raises:
      InputError: If it is not linear: faiss keeps a matrix and an offset, nothing else.
    """
    if len(layers(artefact)) > 1:
        raise InputError(
            f"--to=faiss: the adapter {artefact.meta['method']!r} is of form {artefact.form!r}, "
            "and faiss keeps linear maps only; use --to=onnx, or compress before indexing"
        )
    import faiss

    return {
        f"{name}.faiss": _transform(faiss, layers(artefact, side)[0])
        for name, side in sides(artefact).items()
    }
