"""Parquet and Arrow files of strangers: opened with care, one column read batch by batch.

The library pyarrow (extra `arrow`) is imported when it is first needed. Nothing in a file is
executed; types that a file only names are read as what they are stored as.
"""

import contextlib
import itertools
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dive_jax.types import InputError

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
SUFFIXES = (".parquet", *ARROW_SUFFIXES)

_MOST_VALUE_BYTES = 1 << 16
_BUFFER = 1 << 20


def library(name: str = "pyarrow") -> Any:
    """Imports pyarrow, or a module of it.

    Raises:
      InputError: If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            "Parquet and Arrow files want the package pyarrow; install dive_jax[arrow], or use .npy"
        ) from None


class ParquetFile:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        with sound(path):
            self._file = library("pyarrow.parquet").ParquetFile(
                path, memory_map=False, pre_buffer=False, buffer_size=_BUFFER
            )
            self.schema, meta = self._file.schema_arrow, self._file.metadata
            self._counts = [meta.row_group(each).num_rows for each in range(meta.num_row_groups)]
            self._check_sizes(meta, path)
        self.path, self.rows = path, sum(self._counts)

    def begins(self, row: int) -> int:
        """Returns the first row of the part that holds `row`: where reading can begin at once."""
        return row - _find(self._counts, row)[1]

    def batches(self, column: str, start: int, size: int) -> Iterator[Any]:
        """Yields a column's values from row `start` on, `size` at a time at most."""
        first, skipped = _find(self._counts, start)
        groups = list(range(first, len(self._counts)))
        with sound(self.path):
            found = self._file.iter_batches(
                size, row_groups=groups, columns=[column], use_threads=False
            )
            yield from _from(skipped, (batch.column(0) for batch in found))

    def _check_sizes(self, meta: Any, path: Path) -> None:
        """Refuses footers that promise values far longer than any id or vector."""
        for group, rows in enumerate(self._counts):
            for place in range(meta.num_columns):
                chunk = meta.row_group(group).column(place)
                if rows < 0 or chunk.total_uncompressed_size > _MOST_VALUE_BYTES * (rows + 16):
                    raise InputError(
                        f"{path}: damaged (row group {group} claims {rows:,} rows and "
                        f"{chunk.total_uncompressed_size:,} bytes of {chunk.path_in_schema})"
                    )


class ArrowFile:
    """An Arrow file, of batches that can be found, or a stream of batches one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with sound(path), self._opened(mapped=True) as reader:  # counting touches no values
            self.schema = reader.schema
            self._counts = [len(batch) for batch in _each(reader)]
        self.rows = sum(self._counts)

    @contextlib.contextmanager
    def _opened(self, *, mapped: bool = False) -> Iterator[Any]:
        arrow, ipc = library(), library("pyarrow.ipc")
        with open(self.path, "rb") as file:
            whole = file.read(6) == b"ARROW1"
        with (
            (arrow.memory_map if mapped else arrow.OSFile)(str(self.path)) as file,
            (ipc.open_file if whole else ipc.open_stream)(file) as reader,
        ):
            yield reader

    def begins(self, row: int) -> int:
        """Returns the first row of the part that holds `row`: where reading can begin at once."""
        return row - _find(self._counts, row)[1]

    def batches(self, column: str, start: int, size: int) -> Iterator[Any]:
        """Yields a column's values from row `start` on, `size` at a time at most."""
        first, skipped = _find(self._counts, start)
        with sound(self.path), self._opened() as reader:
            whole = (batch.column(column) for batch in _each(reader, first))
            for part in _from(skipped, whole):
                for at in range(0, len(part), size):
                    yield part.slice(at, size)


def _find(counts: list[int], start: int) -> tuple[int, int]:
    """Returns the part that holds row `start`, and how many of its rows lie before."""
    for index, count in enumerate(counts):
        if start < count:
            return index, start
        start -= count
    return len(counts), 0


def _each(reader: Any, first: int = 0) -> Iterator[Any]:
    if hasattr(reader, "get_batch"):
        for index in range(first, reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from itertools.islice(reader, first, None)


def _from(skipped: int, parts: Iterator[Any]) -> Iterator[Any]:
    """Leaves out so many rows at the beginning."""
    for part in parts:
        if skipped < len(part):
            yield part.slice(skipped) if skipped else part
        skipped = max(0, skipped - len(part))


@contextlib.contextmanager
def sound(path: Path) -> Iterator[None]:
    """Puts the name of a file before what pyarrow finds wrong with it."""
    try:
        yield
    except (InputError, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # pyarrow has a dozen kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path}: damaged or not of its kind ({reason}); write it again"
        ) from error
