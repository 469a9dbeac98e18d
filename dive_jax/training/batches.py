"""Which triplets make which batch: a function of (seed, epoch) and nothing else."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array as JaxArray
from jaxtyping import Bool, Float, Int, UInt

from dive_jax.types import Triplets


class Neighbours(NamedTuple):
    """The nearest documents of each document of a batch, looked up once a loss asks for them.

    Attributes:
      row: Their rows among all documents on the device.
      every: Frozen unit vectors of all these documents.
    """

    row: Int[JaxArray, "documents neighbours"]
    every: Float[JaxArray, "all full_dim"]

    def vectors(
        self, places: Int[JaxArray, "documents drawn"] | None = None
    ) -> Float[JaxArray, "documents drawn full_dim"]:
        """Returns the frozen vectors of each document's neighbours.

        Args:
          places: Which of a document's neighbours, counted from 0; None for all.
        """
        rows = self.row if places is None else jnp.take_along_axis(self.row, places, axis=1)
        return self.every[rows]


class Batch(NamedTuple):
    """The vectors of one step; rows where `mask` is false only fill the shape.

    Where a loss sets every query against every document of the batch, the documents are the
    positives, then the negatives, in that order, repetitions included.

    Attributes:
      query: Frozen unit vectors of the queries.
      positive: Those of a relevant document each.
      negative: Those of a document each that the positive must outrank.
      mask: True where the row is real.
      query_row: Row of each query among all that train.
      document_row: Row of each positive, then of each negative.
      gains: Judged gain of each document for each query, 0 where not judged or not relevant.
      excluded: True where a document is relevant for a query, or identical in text to one that is.
      neighbours: The nearest documents of each document; None if not asked for.
      hard: Documents that each query must keep below its positive; None if not asked for.
    """

    query: Float[JaxArray, "batch full_dim"]
    positive: Float[JaxArray, "batch full_dim"]
    negative: Float[JaxArray, "batch full_dim"]
    mask: Bool[JaxArray, " batch"]
    query_row: Int[JaxArray, " batch"] | None = None
    document_row: Int[JaxArray, " documents"] | None = None
    gains: Float[JaxArray, "batch documents"] | None = None
    excluded: Bool[JaxArray, "batch documents"] | None = None
    neighbours: Neighbours | None = None
    hard: "Neighbours | None" = None


class Data(NamedTuple):
    """What lies on the device while training.

    Attributes:
      query: Frozen unit vectors of the queries, [queries, full_dim].
      document: Those of the documents, [documents, full_dim].
      relations: Who is relevant for whom; None where no loss asks.
      neighbours: Rows of the nearest documents of each document, [documents, neighbours]; None
        where no loss asks.
      hard: Rows of documents that each query must keep low, [queries, hard], -1 where there is
        none; None where no loss asks.
    """

    query: Any
    document: Any
    relations: "Relations | None" = None
    neighbours: Any = None
    hard: Any = None


class Relations(NamedTuple):
    """Judgments by row, padded: documents of gain above 0 of each query.

    Attributes:
      judged: int32 [queries, judged], rows of the relevant documents, -1 where there is none or it
        does not train.
      gains: float32 [queries, judged], their gains, 0 where there is none.
      judged_text: int32 [queries, judged], number of their text, -1 where there is none.
      text: int32 [documents], number of each document's text; identical texts share one.
    """

    judged: Any
    gains: Any
    judged_text: Any
    text: Any


def gather(data: Data, triplets: Triplets, rows: Int[JaxArray, " batch"]) -> Batch:
    """Returns the batch of some triplets; on the device, within the compiled epoch.

    What a loss does not use of it is never computed: the compiler drops it.

    Args:
      data: Vectors and relations.
      triplets: All rows that train.
      rows: Which of them, -1 for padding.
    """
    real = rows >= 0
    rows = jnp.maximum(rows, 0)
    query, positive, negative = (jnp.asarray(column)[rows] for column in triplets)
    documents = jnp.concatenate([positive, negative])
    gains, excluded = None, None
    if (known := data.relations) is not None:
        same = documents[None, :, None] == known.judged[query][:, None, :]
        gains = jnp.max(jnp.where(same, known.gains[query][:, None, :], 0.0), axis=2)
        twins = known.text[documents][None, :, None] == known.judged_text[query][:, None, :]
        excluded = jnp.any(twins, axis=2)
    near = None
    if data.neighbours is not None:
        near = Neighbours(jnp.asarray(data.neighbours)[documents], jnp.asarray(data.document))
    hard = None
    if data.hard is not None:
        hard = Neighbours(jnp.asarray(data.hard)[query], jnp.asarray(data.document))
    return Batch(
        data.query[query],
        data.document[positive],
        data.document[negative],
        real,
        query,
        documents,
        gains,
        excluded,
        near,
        hard,
    )


def drawn(
    key: UInt[JaxArray, " words"], valid: Bool[JaxArray, "rows neighbours"], count: int
) -> tuple[UInt[JaxArray, " words"], Int[JaxArray, "rows drawn"]]:
    """Draws some of each row's neighbours, all equally likely, none twice.

    A mean over those drawn has the mean over all as its expectation, at a fraction of the work.

    Args:
      key: A random key's data, as `jax.random.key_data` gives it; plain integers can be kept in a
        checkpoint.
      valid: False for neighbours that only pad. They are drawn only where there are too few.
      count: How many to draw for each row, within 1 to neighbours.

    Returns:
      The next key's data, and the places drawn, each within its row.
    """
    following, here = jax.random.split(jax.random.wrap_key_data(key))
    chances = jnp.where(valid, jax.random.uniform(here, valid.shape), -1.0)
    return jax.random.key_data(following), jax.lax.top_k(chances, count)[1]


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
