"""Vector files and their rows: opened without trust, checked and normalised in bounded memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from dive_jax.types import InputError

TINY = 1e-12
"""Rows whose norm is below this have no direction."""

_CHUNK_BYTES = 16 << 20


def open_vectors(
    path: Path, types: Sequence[str] = ("float16", "float32")
) -> Float[np.ndarray, "rows dim"]:
    """Maps a .npy file of vectors into memory, read-only; nothing in it is executed.

    Args:
      path: The file, in C or Fortran order.
      types: Names of the types allowed.

    Returns:
      A memory map [rows, dim], with at least one row and one column.

    Raises:
      InputError: If the file is absent, not .npy, shorter than its header says, of another type
        or shape.
    """
    wanted = f"wanted rows of {' or '.join(types)}, written with numpy.save"
    if not path.is_file():
        raise InputError(f"{path}: no such file; {wanted}")
    with open(path, "rb") as stream:
        if stream.read(6) != b"\x93NUMPY":
            raise InputError(f"{path}: not a .npy file; {wanted}")
    try:
        with np.errstate(all="ignore"):  # absurd shapes overflow before numpy refuses them
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy has another type for every kind of damage
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: damaged or not an array of numbers ({reason}); {wanted}") from (
            error
        )
    if vectors.dtype not in [np.dtype(name) for name in types]:
        raise InputError(f"{path}: {wanted}, got {vectors.dtype.str}")
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise InputError(f"{path}: wanted shape [rows, dim], each at least 1, got {vectors.shape}")
    return vectors


def row_chunks(count: int, dim: int) -> Iterator[slice]:
    """Yields slices over `count` rows that hold about 16 MiB each as float32."""
    step = max(1, _CHUNK_BYTES // (4 * dim))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _widened(chunk: np.ndarray) -> np.ndarray:
    # In C order, so that a row's sum has the same bits whatever the order of the file.
    return np.ascontiguousarray(chunk, np.float64 if chunk.dtype.itemsize > 4 else np.float32)


def _scaled(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns rows divided by their largest absolute value, their norms after and before that.

    So neither squares nor sums overflow or underflow. A row that is not finite has a first norm
    that is not finite; one of zeros is left as it is.
    """
    largest = np.maximum(chunk.max(axis=1), -chunk.min(axis=1))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = chunk / np.where(largest == 0, 1, largest)[:, None]
        rest = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        return scaled, rest, largest * rest


def check_rows(vectors: Float[np.ndarray, "rows dim"], ids: Sequence[str], where: Path) -> None:
    """Raises `InputError` unless every row is finite and has a direction.

    Args:
      vectors: Any floating type; read in chunks of about 16 MiB.
      ids: Id of each row, for the error.
      where: The vectors' file, for the error.
    """
    for part in row_chunks(*vectors.shape):
        _, rest, norms = _scaled(_widened(vectors[part]))
        finite = np.isfinite(rest)
        bad = np.flatnonzero(~finite | (norms < TINY))
        if bad.size:
            row = part.start + int(bad[0])
            what = "a row of zeros" if finite[bad[0]] else "not finite (NaN or infinite)"
            raise InputError(
                f"{where}: row {row} (id {ids[row]}): {what}; embed this text again, or drop it"
            )


def unit_rows(
    vectors: Float[np.ndarray, "all dim"], rows: Int[np.ndarray, " rows"] | None = None
) -> Float[np.ndarray, "rows dim"]:
    """Returns rows of `vectors` as float32, each divided by its Euclidean norm.

    Args:
      vectors: Finite values of any floating type, often a memory map; read in chunks.
      rows: Which rows, in which order; None means all.

    Returns:
      float32 unit rows; zeros where the norm is below 1e-12.

    Example:
      >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
      array([[0.6, 0.8],
             [0. , 0. ]], dtype=float32)
    """
    count = len(vectors) if rows is None else len(rows)
    units = np.empty((count, vectors.shape[1]), np.float32)
    for part in row_chunks(*units.shape):
        scaled, rest, norms = _scaled(_widened(vectors[part if rows is None else rows[part]]))
        none = norms < TINY
        units[part] = scaled / np.where(none, 1, rest)[:, None]
        units[part][none] = 0
    return units
