"""Millions of ids: read from a file, and checked, some thousand at a time."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dive_jax.data.lines import check_id, numbered_lines
from dive_jax.types import InputError

_CONTROL = re.compile("[\x00-\x1f\ud800-\udfff]")
_BYTES, _AT_ONCE = 1 << 17, 8192


def checked(values: Sequence[Any], name: str, where: Callable[[int], str]) -> list[str]:
    """Returns values if all of them can serve as ids.

    Args:
      values: Strings or whole numbers.
      name: What the file calls the id.
      where: Place of one of them -> file and row, for the error.

    Raises:
      InputError: If one cannot; see `check_id`.

    Example:
      >>> checked(["a", 7], "id", "x: {}".format)
      ['a', '7']
    """
    texts = [str(each) if isinstance(each, int) else each for each in values]
    if not _harmless(texts):
        for index, text in enumerate(texts):
            check_id(text, where(index), name)
    return texts


def read_ids(path: Path, rows: int) -> Iterator[list[str]]:
    """Yields the ids of a text file, one a line.

    Args:
      path: The file.
      rows: How many there must be.

    Raises:
      InputError: If there are others than so many, or one cannot serve as an id; names the line.
    """
    count = 0
    with open(path, "rb") as stream:
        while lines := stream.readlines(_BYTES):
            if (part := _quickly(lines)) is None:
                break
            count += len(part)
            yield part
    if lines:  # something odd, a byte order mark perhaps: line by line from here
        rest = itertools.islice(numbered_lines(path), count, None)
        while part := [
            check_id(line, f"{path}:{number}", "id")
            for number, line in itertools.islice(rest, _AT_ONCE)
        ]:
            count += len(part)
            yield part
    if count != rows:
        raise InputError(f"{path}: wanted one id a row, got {count:,} ids and {rows:,} rows")


def _quickly(lines: list[bytes]) -> list[str] | None:
    try:
        ids = b"".join(lines).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return None
    return ids if _harmless(ids) and not ids[0].startswith("\ufeff") else None


def _harmless(ids: list[Any]) -> bool:
    """Says whether `check_id` would pass all of them, much sooner than it does."""
    try:
        return all(ids) and not _CONTROL.search(" ".join(ids))
    except TypeError:
        return False
