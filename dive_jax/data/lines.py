"""Reading text files line by line, with errors that name file and line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dive_jax.types import InputError


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yields every line of a UTF-8 file with its number, counted from 1.

    Lines end at "\n" or "\r\n" only. A byte order mark at the start is dropped.

    Args:
      path: A text file; one whose name ends in .gz is unpacked on the fly.

    Yields:
      Line number and line, without its end.

    Raises:
      InputError: If the file cannot be read or unpacked, or a line is not UTF-8.
    """
    number = 0
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            for raw in stream:
                number += 1
                yield number, _decoded(raw, f"{path}:{number}", first=number == 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(
            f"{path}:{number + 1}: cannot be read ({reason}); check or fetch the file again"
        ) from error


def _decoded(raw: bytes, where: str, *, first: bool) -> str:
    try:
        text = raw.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: not UTF-8 (byte {error.start + 1} of the line); convert the file to UTF-8"
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Returns the JSON object that `text` holds.

    Args:
      text: JSON.
      where: File, or file:line, for the error.

    Returns:
      The object as a dict.

    Raises:
      InputError: If the text is not JSON, or JSON of another kind.

    Example:
      >>> parse_object('{"a": 1}', "x.jsonl:1")
      {'a': 1}
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); wanted one JSON object") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: wanted a JSON object, got {type(value).__name__}")
    return value


def check_id(value: Any, where: str, name: str = "_id") -> str:
    """Returns `value` if it can serve as an id.

    Args:
      value: Candidate: a non-empty string without control characters (tab and newline among them).
      where: File:line, for the error.
      name: What the file calls the id.

    Returns:
      The id.

    Raises:
      InputError: If it cannot.

    Example:
      >>> check_id("d-7", "x.jsonl:1")
      'd-7'
    """
    if not isinstance(value, str):
        raise InputError(
            f"{where}: {name}: wanted a string, got {type(value).__name__}; write it in quotes"
        )
    if not value:
        raise InputError(f"{where}: {name}: empty; every id needs at least one character")
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in value):
        raise InputError(
            f"{where}: {name}: {value!a} holds a tab, newline or other control character; rename it"
        )
    return value
