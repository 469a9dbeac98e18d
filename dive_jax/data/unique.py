"""Whether millions of ids are all different, in bounded memory."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dive_jax.types import InputError

_BUCKETS, _DIGEST, _SPOOL, _TOLD = 64, 16, 1 << 16, 100
_WORDS = np.dtype([("high", "<u8"), ("low", "<u8")])


def check_unique(ids: Callable[[], Iterator[list[str]]], folder: Path, where: str) -> str:
    """Reads all ids once, and again if one repeats, to name it.

    Digests of 128 bits go to 64 temporary files by their first bits, so that memory holds one
    file's: about a quarter of a byte an id.

    Args:
      ids: Begins to yield the ids, some thousand at a time.
      folder: Where the temporary files may lie.
      where: What the ids belong to, for the error.

    Returns:
      SHA-256 (hex) of the ids, a line each.

    Raises:
      InputError: If an id is there twice.

    Example:
      >>> check_unique(lambda: iter([["a", "b"], ["c"]]), Path("."), "x.parquet")[:8]
      '880553fc'
    """
    whole = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        buckets = [
            stack.enter_context(tempfile.SpooledTemporaryFile(_SPOOL, dir=str(folder)))
            for _ in range(_BUCKETS)
        ]
        for part in ids():
            whole.update("".join(f"{id}\n" for id in part).encode())
            for id in part:
                digest = _digest(id)
                buckets[digest[0] % _BUCKETS].write(digest)
        repeated: set[bytes] = set()
        for bucket in buckets:
            bucket.seek(0)
            digests = np.sort(np.frombuffer(bucket.read(), _WORDS))
            again = digests[1:][digests[1:] == digests[:-1]]
            repeated.update(each.tobytes() for each in again[:_TOLD])
    if repeated:
        _name(ids(), repeated, where)
    return whole.hexdigest()


def _digest(id: str) -> bytes:
    return hashlib.blake2b(id.encode(), digest_size=_DIGEST).digest()


def _name(ids: Iterator[list[str]], repeated: set[bytes], where: str) -> None:
    """Raises `InputError` for the first id that is one of the repeated ones a second time."""
    rows: dict[str, int] = {}
    row = 0
    for part in ids:
        for id in part:
            if _digest(id) in repeated and rows.setdefault(id, row) != row:
                raise InputError(
                    f"{where}: id {id!a} of row {rows[id]} is there again in row {row}; "
                    "ids must be unique"
                )
            row += 1
