"""Vectors and ids in columns of Parquet and Arrow files, read batch by batch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.data.column_files import ArrowFile, ParquetFile, library
from dive_jax.data.many_ids import checked
from dive_jax.types import InputError

_ID_COLUMNS = ("id", "_id")
_ROWS_AT_ONCE = 8192


class ColumnRows:
    """A column of vectors: lists or lists of fixed size, of float16, float32 or float64.

    Reading goes forward: a slice that begins before the last one's end is looked for anew.

    Attributes:
      path: The file.
      shape: Rows and width; a width of 0 where there is no row to tell it.
      dtype: Type of the values.
      column: Name of the column of vectors.
      id_column: Name of the column of ids; None where there is none.
    """

    def __init__(
        self,
        path: Path,
        *,
        column: str | None = None,
        id_column: str | None = None,
        batch_rows: int = _ROWS_AT_ONCE,
    ) -> None:
        """Opens a file of a stranger's.

        Args:
          path: The file, Parquet or Arrow (a file or a stream of batches).
          column: The column of vectors; None for the only one there is.
          id_column: The column of ids, strings or whole numbers; None for id or _id.
          batch_rows: Rows decoded at once.

        Raises:
          InputError: If the file is damaged, or has no such column.
        """
        self.path, self._batch_rows = path, batch_rows
        if not path.is_file():
            raise InputError(f"{path}: no such file; wanted Parquet or Arrow")
        self._file: ParquetFile | ArrowFile = (
            ParquetFile(path) if path.suffix == ".parquet" else ArrowFile(path)
        )
        schema = self._file.schema
        self.column = _vector_column(schema, column, path)
        self.id_column = _id_column(schema, id_column, path)
        kind = schema.field(self.column).type
        self.dtype = np.dtype(kind.value_type.to_pandas_dtype())
        self._at, self._rest = 0, np.empty((0, 0), self.dtype)
        self._batches: Iterator[np.ndarray] | None = None
        rows = self._file.rows
        self.shape = (rows, getattr(kind, "list_size", 0))
        if rows and not self.shape[1]:
            self.shape = (rows, self._first_width())
        if rows and not self.shape[1]:
            raise InputError(f"{path}: column {self.column}: row 0 has no values; wanted vectors")

    def read(self, start: int, stop: int) -> Float[np.ndarray, "rows dim"]:
        """Returns rows from `start` to `stop`; rows past the end are not there."""
        stop = min(stop, self.shape[0])
        if self._batches is None or start < self._at or self._file.begins(start) > self._at:
            self._batches = self._vectors(start)
            self._at, self._rest = start, np.empty((0, self.shape[1]), self.dtype)
        for _ in self._taken(start):
            pass
        parts = list(self._taken(stop))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), self.dtype)

    def ids(self) -> Iterator[list[str]] | None:
        """Yields the rows' ids, some thousand at a time; None where there are none."""
        return None if self.id_column is None else self._ids(self.id_column)

    def _first_width(self) -> int:
        first = next(self._file.batches(self.column, 0, 1), None)
        if first is None or not len(first) or first.null_count:
            raise InputError(f"{self.path}: column {self.column}: row 0 is null; wanted a vector")
        return len(first[0])

    def _taken(self, stop: int) -> Iterator[np.ndarray]:
        """Yields what comes next, up to row `stop`."""
        while self._at < stop:
            if not len(self._rest):
                self._rest = self._next(stop)
            taken = self._rest[: stop - self._at]
            self._rest = self._rest[len(taken) :]
            self._at += len(taken)
            yield taken

    def _next(self, stop: int) -> np.ndarray:
        for batch in self._batches or ():
            if len(batch):
                return batch
        raise InputError(
            f"{self.path}: damaged (ends after {self._at:,} rows, wanted {stop:,} of them)"
        )

    def _vectors(self, start: int) -> Iterator[np.ndarray]:
        row = start
        for part in self._file.batches(self.column, start, self._batch_rows):
            yield self._values(part, row)
            row += len(part)

    def _values(self, part: Any, row: int) -> np.ndarray:
        """Returns the vectors of one batch, whose first row is `row` of the file."""
        where, dim = f"{self.path}: column {self.column}: row", self.shape[1]
        if part.null_count:
            null = row + int(np.argmax(part.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(f"{where} {null} is null; embed it again, or leave it out")
        if not hasattr(part.type, "list_size"):
            widths = part.value_lengths().to_numpy(zero_copy_only=False)
            if (odd := np.flatnonzero(widths != dim)).size:
                got = widths[odd[0]]
                raise InputError(f"{where} {row + odd[0]}: wanted {dim} values, got {got}")
        flat = part.flatten()
        if flat.null_count:
            null = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))) // dim
            raise InputError(f"{where} {row + null} holds a null; embed it again, or leave it out")
        return flat.to_numpy(zero_copy_only=False).reshape(len(part), dim)

    def _ids(self, column: str) -> Iterator[list[str]]:
        row = 0
        for part in self._file.batches(column, 0, _ROWS_AT_ONCE):
            if hasattr(part, "dictionary"):
                part = part.dictionary_decode()
            values = part.to_pylist()
            yield checked(
                values, column, lambda index, first=row: f"{self.path}: row {first + index}"
            )
            row += len(values)
        if row != self.shape[0]:
            raise InputError(f"{self.path}: damaged ({row:,} ids for {self.shape[0]:,} rows)")


def _is_vectors(kind: Any) -> bool:
    types = library().types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(each(kind) for each in lists) and types.is_floating(kind.value_type)


def _vector_column(schema: Any, asked: str | None, path: Path) -> str:
    fitting = [field.name for field in schema if _is_vectors(field.type)]
    if asked is None and len(fitting) == 1:
        asked = fitting[0]
    if asked is None:
        told = ", ".join(f"{field.name} ({field.type})" for field in schema)[:300]
        raise InputError(
            f"{path}: wanted one column of lists of floats, got {len(fitting)}: {told or 'none'}; "
            "name it with --column"
        )
    if schema.get_all_field_indices(asked) == [] or asked not in fitting:
        got = f"{schema.field(asked).type}" if asked in schema.names else "no such column"
        raise InputError(f"{path}: --column={asked}: wanted lists of floats, got {got}")
    return _once(schema, asked, path)


def _id_column(schema: Any, asked: str | None, path: Path) -> str | None:
    types = library().types
    tests: list[Callable[[Any], bool]] = [types.is_string, types.is_large_string, types.is_integer]
    if asked is None:
        asked = next((name for name in _ID_COLUMNS if name in schema.names), None)
        if asked is None:
            return None
    if asked not in schema.names:
        raise InputError(f"{path}: --id_column={asked}: there are {', '.join(schema.names)[:300]}")
    kind = schema.field(asked).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not any(each(kind) for each in tests):
        raise InputError(
            f"{path}: --id_column={asked}: wanted strings or whole numbers, got {kind}"
        )
    return _once(schema, asked, path)


def _once(schema: Any, name: str, path: Path) -> str:
    if len(schema.get_all_field_indices(name)) > 1:
        raise InputError(f"{path}: column {name} is there twice; rename one of them")
    return name
