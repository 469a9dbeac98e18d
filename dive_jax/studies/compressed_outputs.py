"""What compressed vectors are written as: their numbers, and the file that holds them with ids."""

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from dive_jax.data.column_files import library
from dive_jax.files import replacing, to_json
from dive_jax.methods.protocol import Compressor
from dive_jax.retrieval.codes import Ranges, calibrate, to_binary, to_float16, to_int8
from dive_jax.studies.compressed_sources import Rows
from dive_jax.types import InputError

SUFFIXES = (".npy", ".parquet")
IDS, VECTORS = "id", "vector"
"""Columns of a Parquet file that is written."""

_STORED = {"float32": "float32", "float16": "float16", "int8": "int8", "binary": "uint8"}
_BLOCKS = 64

Ids = Callable[[], Iterator[list[str]]]


def stored_shape(dtype: str, rows: int, dim: int) -> tuple[int, int]:
    """Returns rows and columns of what is written.

    Example:
      >>> stored_shape("binary", 10, 100), stored_shape("int8", 10, 100)
      ((10, 13), (10, 100))
    """
    return rows, -(-dim // 8) if dtype == "binary" else dim


def stored_type(dtype: str) -> np.dtype:
    """Returns the type of the numbers written."""
    return np.dtype(_STORED[dtype])


def encoded(
    piece: Float[np.ndarray, "rows dim"], dtype: str, ranges: Ranges | None
) -> Num[np.ndarray, "rows columns"]:
    """Returns vectors as they are stored.

    Args:
      piece: float32 vectors.
      dtype: float32, float16, int8 or binary.
      ranges: What `sampled_ranges` found, for int8.

    Raises:
      InputError: If a value does not fit.
    """
    if dtype == "float16":
        return to_float16(piece)
    if dtype == "binary":
        return to_binary(piece)
    if ranges is None:
        return piece
    return to_int8(piece, ranges)


def ranges_of(manifest: Mapping[str, Any]) -> Ranges:
    """Returns the ranges that int8 codes were made with, for `retrieval.codes.from_int8`.

    Args:
      manifest: What lies beside the codes, x.manifest.json.

    Raises:
      InputError: If it tells none.
    """
    try:
        told = manifest["calibration"]
        low, high = (np.asarray(told[name], np.float32) for name in ("low", "high"))
    except (TypeError, KeyError, ValueError):
        raise InputError(
            "manifest: calibration: wanted lists low and high; are these vectors int8?"
        ) from None
    return Ranges(low, high)


def sampled_ranges(
    compressor: Compressor, rows: Rows, *, side: str, chunk_rows: int, count: int
) -> dict[str, Any]:
    """Fits the ranges of int8 to compressed rows from all over the file.

    Args:
      compressor: What compresses.
      rows: The vectors; blocks of neighbours are read, evenly spaced.
      side: Whose vectors they are.
      chunk_rows: Rows held at once.
      count: Rows to take; about so many.

    Returns:
      What the manifest tells: rows, and low and high of every coordinate.
    """
    blocks = min(_BLOCKS, count, len(rows))
    size = -(-min(count, len(rows)) // blocks)
    firsts = np.linspace(0, len(rows) - size, blocks).astype(int)
    pieces = []
    for first in firsts.tolist():
        for at in range(first, first + size, chunk_rows):
            with rows.naming(at):
                block = rows[at : min(at + chunk_rows, first + size)]
                pieces.append(compressor.compress(block, side=side))
    sample = np.concatenate(pieces)
    low, high = calibrate(sample)
    return {"rows": len(sample), "low": low.tolist(), "high": high.tolist()}


def npy_header(shape: tuple[int, int], dtype: np.dtype) -> bytes:
    """Returns the first bytes of a .npy file in C order."""
    buffer = io.BytesIO()
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


def write_ids(path: Path, ids: Ids) -> None:
    """Writes ids, one a line, whole or not at all."""
    with replacing(path) as aside, open(aside, "w", encoding="utf-8") as out:
        for part in ids():
            out.write("".join(f"{id}\n" for id in part))


def write_parquet(path: Path, vectors: Path, ids: Ids | None, about: Mapping[str, Any]) -> None:
    """Writes a .npy file of finished vectors as Parquet, whole or not at all.

    Args:
      path: The file to write: a column `vector` of lists of fixed size, and `id` if there are any.
      vectors: The vectors, as `about` says.
      ids: Begins to yield their ids.
      about: The manifest: dtype, rows, dim and chunk_rows, the rows of a row group and held at
        once. The file tells it too, under the key `dive_jax`.
    """
    arrow, parquet = library(), library("pyarrow.parquet")
    shape = stored_shape(about["dtype"], about["rows"], about["dim"])
    dtype, chunk = stored_type(about["dtype"]), about["chunk_rows"]
    place = len(npy_header(shape, dtype))
    kind = arrow.list_(arrow.from_numpy_dtype(dtype), shape[1])
    fields = [arrow.field(VECTORS, kind, nullable=False)]
    if ids is not None:
        fields.insert(0, arrow.field(IDS, arrow.string(), nullable=False))
    schema = arrow.schema(fields, metadata={"dive_jax": to_json(dict(about))})
    waiting = ids() if ids is not None else iter(())
    named: list[str] = []
    with (
        replacing(path) as aside,
        parquet.ParquetWriter(aside, schema, **_packing(dtype)) as out,
    ):
        for start in range(0, shape[0], chunk):
            count = min(chunk, shape[0] - start) * shape[1]
            values = np.fromfile(vectors, dtype, count, offset=place)
            place += values.nbytes
            flat, values = arrow.array(values), values.reshape(-1, shape[1])
            columns = [arrow.FixedSizeListArray.from_arrays(flat, type=kind)]
            while ids is not None and len(named) < len(values):
                named += next(waiting)
            if ids is not None:
                columns.insert(0, arrow.array(named[: len(values)], arrow.string()))
                named = named[len(values) :]
            out.write_table(arrow.Table.from_arrays(columns, schema=schema), len(values))


def _packing(dtype: np.dtype) -> dict[str, Any]:
    """Returns how Parquet packs: floats as they are, for nothing saves there.

    Its narrowest number has four bytes, so a dictionary of the 256 values makes one of four.
    """
    values = f"{VECTORS}.list.element"
    return {
        "compression": {IDS: "zstd", values: "none"},
        "use_dictionary": [values] if dtype.itemsize == 1 else False,
        "write_statistics": [IDS],
    }
