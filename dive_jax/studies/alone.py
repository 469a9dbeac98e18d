"""Work on a place that one process at a time may do."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dive_jax.types import InputError


@contextlib.contextmanager
def alone(lock: Path, what: str) -> Iterator[None]:
    """Holds a lock file for this process while the body runs; a kill lets go of it.

    Args:
      lock: The file, made when missing and removed at the end.
      what: What is being worked on, for the error.

    Raises:
      InputError: If another process holds it.
    """
    with open(lock, "w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(held.fileno()).st_ino != lock.stat().st_ino:
                raise BlockingIOError  # its holder has just finished, and another begun
        except (BlockingIOError, FileNotFoundError):
            raise InputError(f"{what}: another process is working on it; wait for its end") from (
                None
            )
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
