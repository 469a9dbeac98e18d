"""What was logged while training, as CSV: epoch (from 1), seed, then one column a value."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dive_jax.files import write_text

_KEYS = ["epoch", "seed"]


def _lines(history: Mapping[str, np.ndarray], seeds: Sequence[int]) -> list[dict[str, str]]:
    epochs = len(next(iter(history.values())))
    return [
        {"epoch": str(epoch + 1), "seed": str(seed)}
        | {name: f"{column[epoch, index]:.9g}" for name, column in history.items()}
        for epoch in range(epochs)
        for index, seed in enumerate(seeds)
    ]


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def keep_history(path: Path, history: Mapping[str, np.ndarray], seeds: Sequence[int]) -> None:
    """Writes what was logged; values of other seeds that the file holds stay in it.

    Args:
      path: CSV file.
      history: Column -> values [epochs, seeds].
      seeds: Seeds of the columns' second axis.
    """
    new = {str(seed) for seed in seeds}
    lines = [each for each in _read(path) if each["seed"] not in new] + _lines(history, seeds)
    lines.sort(key=lambda line: int(line["epoch"]))  # stable: seeds stay in their order
    text = io.StringIO()
    writer = csv.DictWriter(text, [*_KEYS, *history], restval="nan", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: line.get(name, "nan") for name in writer.fieldnames} for line in lines)
    write_text(path, text.getvalue())


def read_history(path: Path) -> dict[str, Float[np.ndarray, "epochs seeds"]]:
    """Reads what `keep_history` wrote; NaN after the last epoch of a seed that ended earlier.

    Args:
      path: CSV file; nothing is returned where there is none.
    """
    if not (lines := _read(path)):
        return {}
    seeds = list(dict.fromkeys(line["seed"] for line in lines))
    epochs = max(int(line["epoch"]) for line in lines)
    found = {name: np.full((epochs, len(seeds)), np.nan) for name in lines[0] if name not in _KEYS}
    for line in lines:
        place = int(line["epoch"]) - 1, seeds.index(line["seed"])
        for name, values in found.items():
            values[place] = float(line[name])
    return found
