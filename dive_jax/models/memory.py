"""A store of the vectors of earlier batches: the first to go in is the first to go out."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Memory(NamedTuple):
    """A ring of fixed size.

    Attributes:
      frozen: Frozen vectors, unit; 0 where nothing was put yet.
      entered: What the block under training is given of them.
      row: Row of each document; -1 where nothing was put yet.
      following: Where the next vector goes.
    """

    frozen: Float[Array, "size full_dim"]
    entered: Float[Array, "size width"]
    row: Int[Array, " size"]
    following: Int[Array, ""]


def empty(size: int, full_dim: int, width: int) -> Memory:
    """Returns a memory that holds nothing."""
    return Memory(
        jnp.zeros((size, full_dim)),
        jnp.zeros((size, width)),
        jnp.full(size, -1, jnp.int32),
        jnp.int32(0),
    )


def pushed(
    memory: Memory,
    frozen: Float[Array, "rows full_dim"],
    entered: Float[Array, "rows width"],
    row: Int[Array, " rows"],
    mask: Bool[Array, " rows"],
) -> Memory:
    """Puts the marked rows in, in their order; each takes the place of the oldest.

    Args:
      memory: What is held.
      frozen: Frozen vectors.
      entered: What the block is given of them.
      row: Rows of the documents.
      mask: Which of them to put in. Of more than the memory holds the last ones stay.

    Returns:
      The memory afterwards.
    """
    size, count = memory.row.shape[0], jnp.sum(mask, dtype=jnp.int32)
    order = jnp.cumsum(mask, dtype=jnp.int32) - 1
    kept = mask & (order >= count - size)
    # A place outside is dropped.
    places = jnp.where(kept, (memory.following + order) % size, size)
    return Memory(
        memory.frozen.at[places].set(frozen, mode="drop"),
        memory.entered.at[places].set(entered, mode="drop"),
        memory.row.at[places].set(row, mode="drop"),
        (memory.following + count) % size,
    )
