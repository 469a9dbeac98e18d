"""Rows of a .npy file by slices, read and not mapped: memory holds the slice, never the file."""

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dive_jax.data.arrays import open_vectors
from dive_jax.data.many_ids import read_ids
from dive_jax.types import InputError

TYPES = ("float16", "float32", "float64")

_MOST_HEADER = 1 << 16


class NpyRows:
    """A .npy file of vectors, and the ids beside it: x.npy has x.ids.txt, one id a line.

    Attributes:
      path: The file.
      shape: Rows and width.
      dtype: float16, float32 or float64.
    """

    def __init__(self, path: Path, types: Sequence[str] = TYPES) -> None:
        """Opens a file of a stranger's: nothing in it is executed.

        Args:
          path: The file, in C or Fortran order.
          types: Names of the types allowed.

        Raises:
          InputError: If it is no sound .npy file of vectors.
        """
        check_header(path)
        mapped = open_vectors(path, types)
        self.path, self.shape, self.dtype = path, mapped.shape, mapped.dtype
        self._offset = mapped.offset  # pyright: ignore[reportAttributeAccessIssue]
        self._by_columns = not mapped.flags.c_contiguous
        beside = path.with_name(f"{path.stem}.ids.txt")
        self._ids = beside if beside.is_file() else None

    def read(self, start: int, stop: int) -> Float[np.ndarray, "rows dim"]:
        """Returns rows from `start` to `stop`; rows past the end are not there."""
        rows, dim = self.shape
        count = max(0, min(stop, rows) - start)
        size = self.dtype.itemsize
        with open(self.path, "rb", buffering=0) as file:
            if not self._by_columns:
                place = self._offset + start * dim * size
                return _exactly(file.fileno(), place, count * dim, self).reshape(count, dim)
            out = np.empty((count, dim), self.dtype)
            for column in range(dim):
                place = self._offset + (column * rows + start) * size
                out[:, column] = _exactly(file.fileno(), place, count, self)
        return out

    def ids(self) -> Iterator[list[str]] | None:
        """Yields the rows' ids, some thousand at a time; None where there are none."""
        return None if self._ids is None else read_ids(self._ids, self.shape[0])


def check_header(path: Path) -> None:
    """Raises `InputError` for a .npy file whose header is too long to be read with care."""
    if not path.is_file():
        return
    with open(path, "rb") as stream:
        start = stream.read(12)
    if start[:6] != b"\x93NUMPY" or len(start) < 12:
        return
    (length,) = struct.unpack("<H", start[8:10]) if start[6] < 2 else struct.unpack("<I", start[8:])
    if length > _MOST_HEADER:
        raise InputError(
            f"{path}: damaged (a header of {length:,} bytes; a hundred are enough); write it again "
            "with numpy.save"
        )


def _exactly(file: int, place: int, count: int, rows: NpyRows) -> np.ndarray:
    out = np.empty(count, rows.dtype)
    view = out.view(np.uint8).data
    done = 0
    while done < len(view):
        got = os.preadv(file, [view[done:]], place + done)
        if not got:
            raise InputError(f"{rows.path}: became shorter while it was read; write it again")
        done += got
    return out
