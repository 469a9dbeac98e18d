"""A .npy file that grows shard by shard: a process killed at any moment loses at most one.

Beside `x.npy` lies `x.shards.jsonl`, one line a finished shard with its SHA-256. What is written
after the last such line is cut off by the next process.
"""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.data.store_manifest import write_manifest
from dive_jax.files import write_text
from dive_jax.types import InputError, TwoSided

_BLOCK = 1 << 22


def _header(rows: int, dim: int, dtype: str) -> bytes:
    buffer = io.BytesIO()
    described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


class GrowingVectors:
    """One side's vectors, as far as they are written.

    Args:
      folder: Where `<name>.npy` and its ledger lie; made when missing.
      name: "documents" or "queries".
      rows: Rows in all, at least 1.
      dim: Width.
      dtype: float16 or float32.

    Attributes:
      path: The .npy file. Its header is that of the whole; read it when `done` equals `rows`.
      done: Rows written and recorded.
      facts: What was recorded with each shard, in order.

    Raises:
      OSError: If the folder cannot be written.

    Example:
      >>> import tempfile
      >>> folder = Path(tempfile.mkdtemp())
      >>> GrowingVectors(folder, "queries", 3, 2, "float32").append(np.ones((2, 2)), {"cut": 1})
      >>> again = GrowingVectors(folder, "queries", 3, 2, "float32")
      >>> again.done, again.facts
      (2, [{'cut': 1}])
    """

    def __init__(self, folder: Path, name: str, rows: int, dim: int, dtype: str) -> None:
        self.path, self._ledger = folder / f"{name}.npy", folder / f"{name}.shards.jsonl"
        self.rows, self.dim, self.dtype = rows, dim, np.dtype(dtype)
        self._head = _header(rows, dim, dtype)
        self.done, self.facts = 0, []
        folder.mkdir(parents=True, exist_ok=True)
        self._recover()

    def _at(self, row: int) -> int:
        return len(self._head) + row * self.dim * self.dtype.itemsize

    def _recover(self) -> None:
        """Finds the shards that are whole, and cuts off what follows them."""
        kept = []
        with open(self.path, "a+b") as stream:
            stream.seek(0)
            if stream.read(len(self._head)) == self._head and self._ledger.is_file():
                for line in self._ledger.read_bytes().splitlines(keepends=True):
                    if (entry := _entry(line)) is None or not self._holds(stream, entry):
                        break
                    kept.append(line.decode())
                    self.done += entry["rows"]
                    self.facts.append(entry["facts"])
            stream.truncate(self._at(self.done) if self.done else 0)
            if not self.done:
                stream.write(self._head)
        write_text(self._ledger, "".join(kept))

    def _holds(self, stream: Any, entry: dict[str, Any]) -> bool:
        """Says whether the file holds the bytes of a shard that the ledger records."""
        left, digest = self._at(entry["rows"]) - self._at(0), hashlib.sha256()
        if self.done + entry["rows"] > self.rows:
            return False
        stream.seek(self._at(self.done))
        while left and (block := stream.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
        return not left and digest.hexdigest() == entry["sha256"]

    def append(self, vectors: Float[np.ndarray, "shard dim"], facts: dict[str, Any]) -> None:
        """Writes the next shard, then records it; on the disk when this returns.

        Args:
          vectors: [rows, dim]; cast to the file's type.
          facts: What to record with it, as JSON; floats come back the same.

        Raises:
          ValueError: If the rows do not fit.
          OSError: If the disk is full or fails; earlier shards are intact.
        """
        if vectors.shape[1] != self.dim or self.done + len(vectors) > self.rows:
            raise ValueError(
                f"wanted at most {self.rows - self.done} rows of {self.dim}, got {vectors.shape}"
            )
        data = np.ascontiguousarray(vectors, self.dtype).tobytes()
        entry = {"rows": len(vectors), "sha256": hashlib.sha256(data).hexdigest(), "facts": facts}
        try:
            with open(self.path, "r+b") as stream:
                stream.seek(self._at(self.done))
                _through(stream, data)
            with open(self._ledger, "ab") as stream:
                _through(stream, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            raise OSError(
                f"{self.path}: {error.strerror or error}; {self.done:,} of {self.rows:,} rows are "
                "kept: make room, then give the same command again"
            ) from error
        self.done += len(vectors)
        self.facts.append(facts)


def _through(stream: Any, data: bytes) -> None:
    stream.write(data)
    stream.flush()
    os.fsync(stream.fileno())


def _entry(line: bytes) -> dict[str, Any] | None:
    """Returns what a line of the ledger says; None if it is torn."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(found, dict) or set(found) != {"rows", "sha256", "facts"}:
        return None
    return found if isinstance(found["rows"], int) and found["rows"] > 0 else None


def finish(
    folder: Path,
    final: Path,
    *,
    encoder: str,
    sides: TwoSided,
    ids: TwoSided,
    details: dict[str, Any],
) -> None:
    """Makes a store of a folder whose sides are whole, and gives it its name.

    Args:
      folder: Holds documents.npy and queries.npy.
      final: `<dataset>/embeddings/<encoder>`, on the same disk.
      encoder: The encoder's name.
      sides: `GrowingVectors` of each side.
      ids: Ids of the rows of each side.
      details: More for the manifest.

    Raises:
      InputError: If something else has that name.
      OSError: If the disk is full or fails; all vectors are kept.
    """
    for name, each in (("documents", ids.document), ("queries", ids.query)):
        write_text(folder / f"{name}.ids.txt", "".join(f"{id}\n" for id in each))
    shapes = {
        name: (side.rows, side.dim)
        for name, side in (("documents", sides.document), ("queries", sides.query))
    }
    write_manifest(folder, encoder, sides.document.dtype.name, shapes, details)
    try:
        os.rename(folder, final)
    except OSError as error:
        raise InputError(
            f"{final}: cannot be replaced ({error.strerror}); move it, or choose another --name"
        ) from None


def tidy(final: Path, *others: str) -> None:
    """Removes ledgers, and files named in `others`, from a store that is finished."""
    for path in [*final.glob("*.shards.jsonl"), *(final / name for name in others)]:
        path.unlink(missing_ok=True)
