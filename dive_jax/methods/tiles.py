"""Rows through a compressor's map, a tile at a time: what `Compressor.stream` does with a chunk."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from dive_jax import forms
from dive_jax.artefact import Artefact
from dive_jax.numerics.vectors import squared_norms, unit
from dive_jax.retrieval.shards import Devices, by_share
from dive_jax.types import InputError

_ENTRIES = 1 << 22  # of a tile on a CPU: its memory is used again, not asked for anew
_MOST_ROWS = 1024
_ALIGNED = 64  # bytes; memory that lies so is read where it is
_TAME = 1e18  # squared lengths between its reciprocal and itself neither overflow nor vanish


class Tiles:
    """Maps chunks of rows, in tiles of one shape.

    Args:
      artefact: What maps.
      arrays: Its arrays on the devices.
      side: Whose rows these are.
      rows: Rows of a chunk; the last one may have fewer.
      devices: Devices to spread a tile over; default all.
    """

    def __init__(
        self,
        artefact: Artefact,
        arrays: dict[str, Array],
        side: str,
        rows: int,
        devices: Devices | None,
    ) -> None:
        meta = artefact.meta
        self._sharding, self._dim = by_share(devices), meta["dim"]
        self._rows = _tile_rows(rows, meta["full_dim"], self._sharding.mesh.size)
        self._arrays = arrays
        self._map = functools.partial(
            _map,
            form=artefact.form,
            dim=self._dim,
            normalized=meta["normalized"],
            side=side if artefact.form == "sided" else "document",
        )
        self._scratch = _aligned(self._rows, meta["full_dim"])

    def chunk(self, vectors: np.ndarray, first: int) -> Float[np.ndarray, "rows dim"]:
        """Maps a chunk's rows, the first of which is row `first` of all.

        Raises:
          InputError: For a row that is zero or not finite, by its number.
        """
        mapped = np.empty((len(vectors), self._dim), np.float32)
        for start in range(0, len(vectors), self._rows):
            tile = vectors[start : start + self._rows]
            out, sizes = self._map(self._arrays, self._placed(tile))
            mapped[start : start + self._rows] = np.asarray(out)[: len(tile)]
            _check(np.asarray(sizes)[: len(tile)], first + start)
        return mapped

    def _placed(self, tile: np.ndarray) -> Array:
        """Puts rows on the devices, where they lie if that is possible."""
        whole = len(tile) == self._rows and tile.flags.c_contiguous
        if not (whole and tile.dtype in (np.float16, np.float32)):
            with np.errstate(over="ignore"):  # too large for float32 is not finite, and said so
                self._scratch[: len(tile)] = tile
            self._scratch[len(tile) :] = 1  # as rows should be: neither zero nor large
            tile = self._scratch  # read to the end before it is written again: `chunk` waits
        return jax.device_put(tile, self._sharding)


def _tile_rows(rows: int, full_dim: int, devices: int) -> int:
    """Returns how many rows are mapped at once, a multiple of the number of devices."""
    if jax.default_backend() == "cpu":
        rows = min(rows, devices * max(1, min(_MOST_ROWS, _ENTRIES // full_dim)))
    return -(-rows // devices) * devices


def _aligned(rows: int, width: int) -> Float[np.ndarray, "rows width"]:
    spare = _ALIGNED // 4
    memory = np.zeros(rows * width + spare, np.float32)
    start = -memory.ctypes.data % _ALIGNED // 4
    return memory[start : start + rows * width].reshape(rows, width)


def _check(sizes: np.ndarray, first: int) -> None:
    bad = np.flatnonzero(~(np.isfinite(sizes) & (sizes > 0)))
    if bad.size:
        kind = "is all zeros" if sizes[bad[0]] == 0 else "has a value that is not finite"
        raise InputError(f"vectors: row {first + bad[0]} {kind}; remove it or encode it again")


@functools.partial(jax.jit, static_argnames=("form", "dim", "normalized", "side"))
def _map(
    arrays: dict[str, Array],
    vectors: Float[Array, "rows full_dim"],
    *,
    form: str,
    dim: int,
    normalized: bool,
    side: str,
) -> tuple[Float[Array, "rows dim"], Float[Array, " rows"]]:
    """Returns the mapped rows, and of each row given its size in some norm."""
    vectors = vectors.astype(jnp.float32)
    squares = squared_norms(vectors)[:, None]
    mapped = functools.partial(forms.mapped, form, arrays, dim=dim, dot=_dot, side=side)

    def as_they_are() -> tuple[Float[Array, "rows dim"], Float[Array, " rows"]]:
        out = mapped(_Scaled(vectors, lax.rsqrt(squares)))
        return unit(out) if normalized else out, squares[:, 0]

    def with_care() -> tuple[Float[Array, "rows dim"], Float[Array, " rows"]]:
        # Divided by the peak first, so that no square overflows or vanishes.
        peaks = jnp.max(jnp.abs(vectors), axis=1)
        out = mapped(unit(vectors / jnp.where(peaks > 0, peaks, 1)[:, None]))
        return unit(out) if normalized else out, peaks

    tame = jnp.all((squares < _TAME) & (squares > 1 / _TAME))
    return lax.cond(tame, as_they_are, with_care)


@dataclass(frozen=True)
class _Scaled:
    """Rows and a factor each, which is applied to what is made of them: they are read, not copied.

    Has what `forms.mapped` asks of rows.
    """

    rows: Float[Array, "rows full_dim"]
    factors: Float[Array, "rows one"]

    def __getitem__(self, key: tuple[slice, slice]) -> Float[Array, "rows some"]:
        return self.rows[key] * self.factors

    def __add__(self, other: Array) -> Float[Array, "rows full_dim"]:
        return self.rows * self.factors + other


def _dot(rows: Array | _Scaled, weight: Array) -> Array:
    if isinstance(rows, _Scaled):
        return _dot(rows.rows, weight) * rows.factors
    return jnp.matmul(rows, weight, precision=lax.Precision.HIGHEST)
