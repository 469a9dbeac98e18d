"""What every method takes and gives: `fit` on material, a compressor that is saved and loaded."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float

from dive_jax import artefact as files
from dive_jax.artefact import Artefact
from dive_jax.data.holdout import Held
from dive_jax.data.judgments import Judgments
from dive_jax.methods.tiles import Tiles
from dive_jax.options import AdapterOptions
from dive_jax.retrieval.shards import Devices, on_all
from dive_jax.training.checkpoints import Checkpoints
from dive_jax.training.loop import History, Report
from dive_jax.types import InputError, Triplets, TwoSided

_ROWS = 16384


class Material(NamedTuple):
    """What methods are fitted on.

    Attributes:
      vectors: Frozen vectors a side, [rows, full_dim] of any float type, memory-mapped or not; rows
        need not be unit, they are normalised when read.
      triplets: Rows of `vectors`; may be empty for methods that need no judgments.
      encoder: Name of the encoder.
      fingerprint: Fingerprint of the encoder.
      judgments: Who is relevant for whom, for methods that rank the whole batch; None if unknown.
      about: What else an artefact tells of its origin, such as the dataset.
      hold_out: Holds queries out of those that train, to choose on, by kind (unseen, validation);
        raises `InputError` where that is impossible. None without judgments.
      axes: The documents' principal axes where they are known already; see `pca.rotation`.
    """

    vectors: TwoSided
    triplets: Triplets
    encoder: str
    fingerprint: str
    about: dict[str, Any]
    judgments: Judgments | None = None
    hold_out: Callable[[str], Held] | None = None
    axes: Float[np.ndarray, "full_dim full_dim"] | None = None

    @property
    def full_dim(self) -> int:
        """Width of the frozen vectors."""
        return self.vectors.document.shape[1]

    def meta(self, method: str, dim: int, **about: Any) -> dict[str, Any]:
        """Returns what an artefact of `method` says about itself."""
        return {
            "format_version": 1,
            "method": method,
            "sides": "both",
            "dim": dim,
            "full_dim": self.full_dim,
            "normalized": True,
            "encoder": self.encoder,
            "fingerprint": self.fingerprint,
            "about": self.about | about,
        }


class Fitting(NamedTuple):
    """How a method is fitted, beside its options.

    Attributes:
      seeds: Seeds to train side by side; methods without chance ignore them.
      chunk_rows: Vectors held at once while streaming over the documents.
      checkpoints: Makes the store of training states, of one stage where a method has several.
      checkpoint_seconds: Least time between two checkpoints.
      report: Called after every epoch.
      note: Takes one line on what was decided.
      validate: Compressor -> its score on held-out queries, higher is better; then training stops
        early and keeps the best epoch. None trains all epochs.
      epochs: Epochs to train at most; None as many as the options say.
      devices: Devices that train; None for all accelerators, or for one device of a CPU.
    """

    seeds: tuple[int, ...] = (2027,)
    chunk_rows: int = _ROWS
    checkpoints: Callable[..., Checkpoints] | None = None
    checkpoint_seconds: float = 5.0
    report: Report | None = None
    note: Callable[[str], None] | None = None
    validate: "Callable[[Compressor], float] | None" = None
    epochs: int | None = None
    devices: Devices | None = None


class Fitted(NamedTuple):
    """What a fit gives.

    Attributes:
      compressors: One a seed; a single one for a method without chance.
      history: Logged values by epoch and seed; empty without training. Where a first training has
        chosen something, these are of the second, on everything.
      compile_seconds: Time spent compiling.
      train_seconds: Time spent training, in this process.
      first_history: Logged values of the first training; None if there was but one.
    """

    compressors: list["Compressor"]
    history: History
    compile_seconds: float = 0.0
    train_seconds: float = 0.0
    first_history: History | None = None


Fit: TypeAlias = Callable[[Material, AdapterOptions, Fitting], Fitted]
"""Fits a method; raises `InputError` for an impossible width."""


class Method(NamedTuple):
    """A way to compress, found by name in the registry.

    Attributes:
      fit: Fits it.
      seeded: Whether it gives one compressor a seed; else it gives one.
      tunes: Which options of `TuningOptions` it heeds, early_stopping and dial; see
        `methods.tuning`.
      stops: What --early_stopping=default means for it: off, unseen or validation.
      check: Material and options -> nothing; cheap, and raises `InputError` for what `fit` would
        refuse: an impossible width, no query to hold out. None if nothing can be wrong.
    """

    fit: Fit
    seeded: bool
    tunes: tuple[str, ...] = ()
    stops: str = "off"
    check: Callable[[Material, AdapterOptions], object] | None = None


@dataclass(frozen=True)
class Compressor:
    """A fitted method: maps frozen vectors to `dim` coordinates.

    Attributes:
      artefact: The arrays and what they are for.

    Example:
      >>> rows = np.eye(4, dtype=np.float32)[:2]
      >>> meta = dict(format_version=1, method="truncate", sides="both", dim=2, full_dim=4,
      ...             normalized=True, encoder="toy", fingerprint="0")
      >>> Compressor(Artefact("prefix", {}, meta)).compress(rows).shape
      (2, 2)
    """

    artefact: Artefact

    @property
    def dim(self) -> int:
        """Coordinates kept."""
        return self.artefact.meta["dim"]

    @property
    def full_dim(self) -> int:
        """Width of the vectors taken."""
        return self.artefact.meta["full_dim"]

    def compress(
        self,
        vectors: Any,
        *,
        side: str = "document",
        chunk_rows: int = _ROWS,
        devices: Devices | None = None,
    ) -> Float[np.ndarray, "rows dim"]:
        """Compresses vectors, each row on its own.

        Args:
          vectors: [rows, full_dim] of any float type; normalised first, whatever their lengths.
          side: "query" or "document".
          chunk_rows: Rows held at once.
          devices: Devices to spread the rows over; default all.

        Returns:
          float32 rows of length 1 (or as the method gives them, where it does not normalise).

        Raises:
          InputError: For a wrong shape, width or side, a zero row, or a value that is not finite.
        """
        pieces = self.stream(vectors, side=side, chunk_rows=chunk_rows, devices=devices)
        return np.concatenate(list(pieces))

    def stream(
        self,
        vectors: Any,
        *,
        side: str = "document",
        chunk_rows: int = _ROWS,
        start: int = 0,
        devices: Devices | None = None,
    ) -> Iterator[Float[np.ndarray, "rows dim"]]:
        """Compresses chunk by chunk from row `start` on; see `compress`.

        A chunk's bits depend on its rows, on `chunk_rows` and on the devices alone, wherever the
        stream starts.
        """
        self._check(vectors, side)
        rows = len(vectors)
        size = min(chunk_rows, max(rows, 1))
        tiles = Tiles(self.artefact, self._arrays(devices), side, size, devices)
        for first in range(start, rows, size) or (0,):
            yield tiles.chunk(vectors[first : first + size], first)

    def sides(self, chunk_rows: int = _ROWS) -> TwoSided:
        """Returns `compress` of each side as a function of vectors alone."""
        return TwoSided(
            *(
                functools.partial(self.compress, side=side, chunk_rows=chunk_rows)
                for side in TwoSided._fields
            )
        )

    def _check(self, vectors: Any, side: str) -> None:
        sides = self.artefact.meta["sides"]
        if side not in TwoSided._fields:
            raise InputError(f"side: wanted query or document, got {side!r}")
        if sides not in ("both", side):
            raise InputError(f"this adapter maps the {sides} side only, not the {side} side")
        if getattr(vectors, "ndim", None) != 2 or vectors.shape[1] != self.full_dim:
            got = list(getattr(vectors, "shape", ())) or type(vectors).__name__
            raise InputError(f"vectors: wanted [rows, {self.full_dim}], got {got}")
        if not np.issubdtype(vectors.dtype, np.floating):
            raise InputError(f"vectors: wanted floating-point numbers, got {vectors.dtype}")

    @functools.cached_property
    def _placed(self) -> dict[tuple[Any, ...] | None, dict[str, Array]]:
        return {}

    def _arrays(self, devices: Devices | None) -> dict[str, Array]:
        """Returns the arrays on every device, put there once."""
        key = None if devices is None else tuple(devices)
        if key not in self._placed:
            arrays = {
                name: each.astype(np.float32) if each.dtype.kind == "f" else each
                for name, each in self.artefact.arrays.items()
            }
            self._placed[key] = on_all(arrays, devices)
        return self._placed[key]

    def save(self, path: str | Path) -> None:
        """Writes the artefact: a folder with adapter.safetensors and adapter.json."""
        files.save(self.artefact, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Compressor":
        """Reads a saved artefact; see `load`."""
        return load(path)


def load(path: str | Path) -> Compressor:
    """Reads a compressor that `Compressor.save` wrote.

    Args:
      path: The folder.

    Raises:
      InputError: If the folder is not a whole, sound artefact.
    """
    return Compressor(files.load(Path(path)))
