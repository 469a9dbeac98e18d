"""Documents on one device or several: each searches its share of a chunk, and the host merges."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from dive_jax.retrieval import blocks
from dive_jax.retrieval.blocks import Best
from dive_jax.types import InputError

_AXIS = "data"

Devices: TypeAlias = Sequence[Any]

Transform: TypeAlias = Callable[[np.ndarray], Any]
"""Maps float32 [rows, full_dim] to the vectors that are searched, [rows, dim], row by row."""


@runtime_checkable
class Rows(Protocol):
    """Vectors read by slices of rows: a numpy array, a memory-mapped file, or alike."""

    @property
    def shape(self) -> Any:
        """Rows and width."""
        ...

    @property
    def dtype(self) -> Any:
        """A numpy floating type."""
        ...

    def __getitem__(self, key: slice, /) -> Any:
        """Returns the rows of a slice."""
        ...


class Chunk(NamedTuple):
    """Documents on the devices, a share each.

    Attributes:
      vectors: float32 [devices, documents, dim].
      first: Row of each share's first document.
      seen: Rows of a share below this one are held by an earlier share or chunk.
    """

    vectors: Float[Array, "devices documents dim"]
    first: Int[np.ndarray, " devices"]
    seen: Int[np.ndarray, " devices"]


def count(documents: Rows) -> int:
    """Returns how many documents there are, or raises `InputError` if they are no vectors."""
    if len(documents.shape) != 2:
        raise InputError(f"documents: wanted [rows, width], got shape {tuple(documents.shape)}")
    if np.dtype(documents.dtype).kind != "f":
        raise InputError(f"documents: wanted floating-point vectors, got {documents.dtype}")
    return int(documents.shape[0])


def chunks(
    documents: Rows,
    chunk_rows: int,
    *,
    width: int | None,
    transform: Transform | None,
    devices: Devices | None,
) -> Iterator[Chunk]:
    """Reads documents once and puts them on the devices, chunk by chunk, all of one shape.

    The last chunk reaches back over rows already seen instead of being shorter, and so do the
    shares of a chunk that the number of devices does not divide.

    Args:
      documents: Vectors.
      chunk_rows: Documents of a chunk.
      width: Wanted width after the transform; None for any.
      transform: Applied to each chunk first.
      devices: Default all.

    Raises:
      InputError: If the vectors have another width.
    """
    total, sharding = count(documents), by_share(devices)
    size = max(1, min(chunk_rows, total))
    share = -(-size // sharding.mesh.size)
    starts = np.minimum(np.arange(sharding.mesh.size) * share, size - share).astype(np.int32)
    for seen in range(0, total, size):
        first = min(seen, total - size)
        vectors = _read(documents[first : first + size], transform, width)
        width = vectors.shape[1]
        shares = [vectors[start : start + share] for start in starts]
        stacked = vectors[None] if len(shares) == 1 else np.stack(shares)
        old = first + np.arange(len(shares), dtype=np.int32) * share
        yield Chunk(
            # Vectors that lie aligned in memory are not copied on a CPU.
            jax.device_put(stacked, sharding),
            first + starts,
            np.maximum(old, np.int32(seen)),
        )


def _read(
    documents: np.ndarray, transform: Transform | None, width: int | None
) -> Float[np.ndarray, "rows dim"]:
    vectors = np.asarray(documents, np.float32)
    rows = len(vectors)
    if transform is not None:
        vectors = np.asarray(transform(vectors), np.float32)
    wanted = (rows, vectors.shape[-1] if width is None else width)
    if vectors.shape != wanted:
        made = "documents" if transform is None else "transform(documents)"
        raise InputError(f"{made}: wanted shape {wanted} to match the queries, got {vectors.shape}")
    return vectors


def on_all(arrays: Any, devices: Devices | None) -> Any:
    """Returns a tree of arrays on every device."""
    return jax.device_put(arrays, NamedSharding(by_share(devices).mesh, PartitionSpec()))


def nothing_yet(rows: tuple[int, int], k: int, devices: Devices | None) -> Best:
    """Returns what `merged` starts from: no document on any device.

    Args:
      rows: Blocks of queries, and queries in a block.
      k: Documents wanted.
      devices: Default all.
    """
    sharding = by_share(devices)
    return jax.device_put(blocks.nothing_yet((sharding.mesh.size, *rows), k), sharding)


def merged(
    best: Best,
    queries: Float[Array, "blocks rows dim"],
    chunk: Chunk,
    devices: Devices | None,
) -> Best:
    """Takes a chunk into the best so far, each device its share."""
    return _merge(by_share(devices))(best, queries, *chunk)


def collected(best: Best) -> Best:
    """Returns the best over all devices, on the host."""
    scores, rows, finite = jax.device_get(best)
    if len(scores) > 1:
        k = scores.shape[-1]
        scores, rows = (np.concatenate(list(each), axis=-1) for each in (scores, rows))
        order = np.lexsort((rows, -scores))[..., :k]
        scores, rows = (np.take_along_axis(each, order, axis=-1) for each in (scores, rows))
        return Best(scores, rows, finite.all(axis=0))
    return Best(scores[0], rows[0], finite[0])


def by_share(devices: Devices | None) -> NamedSharding:
    """Returns how the first axis of an array is spread over devices; default all."""
    return _sharding_of(tuple(jax.devices() if devices is None else devices))


@functools.lru_cache(maxsize=8)
def _sharding_of(devices: tuple[Any, ...]) -> NamedSharding:
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec(_AXIS))


@functools.lru_cache(maxsize=8)
def _merge(sharding: NamedSharding) -> Callable[..., Best]:
    def share(best: Best, queries: Array, vectors: Array, first: Array, seen: Array) -> Best:
        mine = Best(*(leaf[0] for leaf in best))
        found = blocks.merge(mine, queries, vectors[0], first[0], seen[0])
        return Best(*(leaf[None] for leaf in found))

    own, all_ = sharding.spec, PartitionSpec()
    return jax.jit(
        jax.shard_map(
            share,
            mesh=sharding.mesh,
            in_specs=(own, all_, own, own, own),
            out_specs=own,
            check_vma=False,
        )
    )
