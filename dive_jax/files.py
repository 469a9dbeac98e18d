"""Files that are either whole or absent, and fingerprints of them. Standard library only."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; renames it onto `path` if the body succeeds.

    Args:
      path: Final name. Its folder is created when missing.

    Yields:
      A sibling path, unique to this process, with the same suffix as `path`.

    Raises:
      OSError: If the folder or file cannot be written; nothing stays under the final name.

    Example:
      >>> import tempfile
      >>> folder = Path(tempfile.mkdtemp())
      >>> with replacing(folder / "note.txt") as aside:
      ...     _ = aside.write_text("whole")
      >>> (folder / "note.txt").read_text()
      'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text under `path`, whole or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def to_json(value: Any) -> str:
    """Returns JSON that is the same byte for byte for the same value, with a final newline.

    NaN and infinities are refused with `ValueError`: other readers do not take them.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as JSON under `path`, whole or not at all."""
    write_text(path, to_json(value))


def sha256_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes as hex, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def sha256_json(value: Any) -> str:
    """Returns the SHA-256 (hex) of a value's canonical JSON: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cache_folder() -> Path:
    """Returns the user's cache folder for this library, not created yet.

    `$DIVE_JAX_CACHE` if set, else `dive_jax` under `$XDG_CACHE_HOME` or `~/.cache`.
    """
    if chosen := os.environ.get("DIVE_JAX_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dive_jax"
