"""What is finished stays finished: results of parts of a study, one JSON file each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dive_jax.files import write_json


def kept(path: Path, compute: Callable[[], Any]) -> Any:
    """Reads a part's result, or computes it and writes it, whole or not at all.

    Args:
      path: JSON file.
      compute: Gives the result, of what JSON holds.
    """
    if not path.is_file():
        write_json(path, compute())
    return json.loads(path.read_text(encoding="utf-8"))
