"""What is to be compressed: one file or a folder of shards, read as one table of vectors."""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.data import column_files
from dive_jax.data.columns import ColumnRows
from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.data.npy_rows import NpyRows
from dive_jax.data.store_manifest import fingerprints, read_manifest
from dive_jax.types import InputError

_SUFFIXES = (".npy", *column_files.SUFFIXES)
_MANIFEST = "manifest.json"
_SIDES = {"query": "queries", "document": "documents"}


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of all shards, one after the other, as a compressor reads them.

    Attributes:
      where: The file or folder.
      parts: Shards with at least one row, in order.
      starts: First row of each part.
      shape: Rows of all, and their width.
      dtype: Type of the values; the wider one where shards differ.
    """

    where: Path
    parts: tuple[NpyRows | ColumnRows, ...]
    starts: tuple[int, ...]
    shape: tuple[int, int]
    dtype: np.dtype
    ndim: int = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Float[np.ndarray, "rows dim"]:
        """Reads a slice of rows; forward is fast, backward begins a tabular file anew."""
        start, stop, _ = rows.indices(self.shape[0])
        found = []
        for part, first in zip(self.parts, self.starts, strict=True):
            begin, end = max(start - first, 0), min(stop - first, part.shape[0])
            if begin < end:
                found.append(part.read(begin, end))
        return found[0] if len(found) == 1 else np.concatenate(found)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(part.path.stat().st_size for part in self.parts)

    @property
    def ids(self) -> Callable[[], Iterator[list[str]]] | None:
        """Begins to yield the ids of all rows; None where there are none."""
        if self.parts[0].ids() is None:
            return None

        def every() -> Iterator[list[str]]:
            for part in self.parts:
                yield from part.ids() or ()

        return every

    @contextlib.contextmanager
    def naming(self, first: int = 0) -> Iterator[None]:
        """Names the file and the row in it where a compressor tells a row, counted from `first`."""
        try:
            yield
        except InputError as error:
            told = re.fullmatch(r"vectors: row (\d+) (.*)", str(error))
            if told is None:
                raise
            row = first + int(told[1])
            index = bisect_right(self.starts, row) - 1
            place = f"{self.parts[index].path}: row {row - self.starts[index]}"
            raise InputError(f"{place} {told[2]}") from error

    def identity(self) -> dict[str, Any]:
        """Returns what tells these files from others, or from themselves once changed."""
        files = [_stamp(part.path) for part in self.parts]
        alone = len(self.parts) == 1 and self.parts[0].path == self.where
        told = files[0] if alone else {"name": self.where.name, "files": files}
        if isinstance(first := self.parts[0], ColumnRows):
            told |= {"column": first.column, "id_column": first.id_column}
        return told


def open_rows(path: Path, *, side: str, column: str | None, id_column: str | None) -> Rows:
    """Opens a file of vectors or a folder of shards.

    Args:
      path: A .npy, Parquet or Arrow file, or a folder with files of one of these kinds. They are
        taken in the order of their names, numbers by value. Of a folder with `documents` and
        `queries` the side's are taken: `documents.npy`, else `documents-*.npy`. A list `shards`
        in its manifest.json tells the files and their order.
      side: "query" or "document".
      column: Column of vectors in tables; None for the only one.
      id_column: Column of ids in tables; None for id or _id.

    Returns:
      The rows.

    Raises:
      InputError: If there is nothing of the kind, a file is damaged or not to be trusted, or the
        files do not go together.
    """
    if path.is_dir():
        files = _shards(path, side)
    elif path.suffix in _SUFFIXES:
        files = [path]
    else:
        raise InputError(
            f"--vectors: wanted a name ending in {', '.join(_SUFFIXES)}, or a folder, got {path}"
        )
    if path.suffix == ".npy" and (column or id_column):
        raise InputError("--column, --id_column: a .npy file has no columns; leave them out")
    parts = [_opened(each, column, id_column) for each in files]
    parts = [each for each in parts if each.shape[0]]
    if not parts:
        raise InputError(f"{path}: holds no rows")
    _check_alike(parts)
    ends = tuple(accumulate(part.shape[0] for part in parts))
    types = [part.dtype for part in parts]
    shape = (ends[-1], parts[0].shape[1])
    return Rows(path, tuple(parts), (0, *ends[:-1]), shape, np.result_type(*types))


def declared(path: Path, own: Path) -> dict[str, Any]:
    """Returns encoder and fingerprint of vectors, where a manifest with them tells.

    Args:
      path: The file or folder of vectors.
      own: Where the manifest of this file would lie.
    """
    if path.is_file() and own.is_file():
        found = _read(own)
        return {name: found.get(name) for name in ("encoder", "fingerprint")}
    folder = path if path.is_dir() else path.parent
    in_store = path.is_dir() or path.name in ("documents.npy", "queries.npy")
    if not in_store or not (folder / _MANIFEST).is_file():
        return {}
    found = _read(folder / _MANIFEST)
    if "sides" not in found:
        return {name: found.get(name) for name in ("encoder", "fingerprint")}
    manifest = read_manifest(folder / _MANIFEST)
    return {"encoder": manifest["encoder"], "fingerprint": fingerprints(manifest)[0]}


def _read(path: Path) -> dict[str, Any]:
    return parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))


def _opened(path: Path, column: str | None, id_column: str | None) -> NpyRows | ColumnRows:
    if path.suffix == ".npy":
        return NpyRows(path)
    return ColumnRows(path, column=column, id_column=id_column)


def _shards(folder: Path, side: str) -> list[Path]:
    """Returns the files of a folder that are to be read, in order."""
    if (folder / _MANIFEST).is_file():
        manifest = _read(folder / _MANIFEST)
        if "shards" in manifest:
            return _listed(folder, manifest)
    files = [
        each for each in folder.iterdir() if each.suffix in _SUFFIXES and each.name[0] not in "._"
    ]
    ours, theirs = (
        [each for each in files if re.match(rf"{_SIDES[name]}\b", each.name)]
        for name in (side, next(each for each in _SIDES if each != side))
    )
    if theirs:
        files = ours
    whole = [each for each in ours if each.stem == _SIDES[side]]
    files = whole or files
    kinds = sorted({each.suffix for each in files})
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none"
        raise InputError(f"{folder}: wanted {side} vectors in files of one kind, got {got}")
    return sorted(files, key=lambda each: (_by_number(each.name), each.name))


def _listed(folder: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Returns the shards that a manifest names; each must be a plain name in its folder."""
    where, names = folder / _MANIFEST, manifest["shards"]
    if not isinstance(names, list) or not names:
        raise InputError(f"{where}: shards: wanted a list of file names, got {str(names)[:80]!a}")
    for name in names:
        plain = isinstance(name, str) and Path(name).name == name and "\\" not in name
        if not plain or "\0" in name or Path(name).suffix not in _SUFFIXES:
            raise InputError(
                f"{where}: shards: wanted names of files in this folder, got {str(name)[:80]!a}; "
                "this manifest is not to be trusted"
            )
    if len(set(names)) != len(names):
        raise InputError(f"{where}: shards: a file is named twice")
    return [folder / name for name in names]


def _by_number(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts part-2 before part-10.

    Example:
      >>> sorted(["p-10.npy", "p-2.npy"], key=_by_number)
      ['p-2.npy', 'p-10.npy']
    """
    words = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]


def _check_alike(parts: list[NpyRows | ColumnRows]) -> None:
    first = parts[0]
    for part in parts[1:]:
        if part.shape[1] != first.shape[1]:
            raise InputError(
                f"{part.path}: wanted width {first.shape[1]} as in {first.path.name}, got "
                f"{part.shape[1]}"
            )
        if (part.ids() is None) != (first.ids() is None):
            less = part if part.ids() is None else first
            raise InputError(f"{less.path}: has no ids, and other shards have; wanted all or none")
        for name in ("column", "id_column"):
            if getattr(part, name, None) != getattr(first, name, None):
                raise InputError(
                    f"{part.path}: --{name}: wanted {getattr(first, name)} as in "
                    f"{first.path.name}, got {getattr(part, name)}"
                )


def _stamp(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"name": path.name, "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}
