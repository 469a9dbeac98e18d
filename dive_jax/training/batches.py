"""Which triplets make which batch: a function of (seed, epoch) and nothing else."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array as JaxArray
from jaxtyping import Bool, Float, Int


class Batch(NamedTuple):
    """The vectors of one step; rows where `mask` is false only fill the shape.

    Attributes:
      query: Frozen unit vectors of the queries.
      positive: Those of a relevant document each.
      negative: Those of a document each that the positive must outrank.
      mask: True where the row is real.
    """

    query: Float[JaxArray, "batch full_dim"]
    positive: Float[JaxArray, "batch full_dim"]
    negative: Float[JaxArray, "batch full_dim"]
    mask: Bool[JaxArray, " batch"]


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """Returns how many batches hold `rows` triplets, the last one padded."""
    return -(-rows // batch_size)


def epoch_rows(
    seeds: Sequence[int], epoch: int, rows: int, batch_size: int
) -> Int[np.ndarray, "seeds steps batch"]:
    """Returns the triplets of every batch of an epoch, shuffled for each seed.

    The permutation of epoch e depends on (seed, e) only, so a resumed run sees the batches an
    undisturbed one sees. Padding is marked by -1 and stands at the end of the last batch.

    Args:
      seeds: One permutation each.
      epoch: Counted from 0.
      rows: Number of triplets.
      batch_size: Triplets a batch.

    Returns:
      Rows of the triplets, -1 where there is none.

    Example:
      >>> epoch_rows([7], 0, 3, 2).shape
      (1, 2, 2)
    """
    steps = steps_per_epoch(rows, batch_size)
    table = np.full((len(seeds), steps * batch_size), -1, np.int32)
    for index, seed in enumerate(seeds):
        table[index, :rows] = np.random.default_rng([seed, epoch]).permutation(rows)
    return table.reshape(len(seeds), steps, batch_size)
