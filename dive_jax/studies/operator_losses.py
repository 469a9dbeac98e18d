"""Both families fitted to the moment of triples, and how far each is from a held-out moment."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dive_jax.operators import Operator, dual, relevance_moment, shared
from dive_jax.options import StudyOptions, TrainOptions
from dive_jax.sources import parts
from dive_jax.studies.job import prepare
from dive_jax.studies.triples import Triples, triples_of

RANKS = (4, 8, 16, 32)


class Losses(NamedTuple):
    """Relative squared distances to a target moment, a value a rank.

    Attributes:
      shared: |M_s - target|^2 / |target|^2 of the shared fit.
      dual: The same of the dual fit.
    """

    shared: list[float]
    dual: list[float]


class Collected(NamedTuple):
    """The triples of one dataset under one encoder.

    Attributes:
      dataset: Its name.
      encoder: Name of the encoder.
      train: Of the judged queries of its train file.
      test: Of the queries that are scored.
    """

    dataset: str
    encoder: str
    train: Triples
    test: Triples


def moment_of(triples: Triples) -> Float[Array, "dim dim"]:
    """Returns the relevance moment of triples."""
    return relevance_moment(*(jnp.asarray(each) for each in triples[1:])).matrix


def losses(
    moment: Float[Array, "dim dim"], target: Float[Array, "dim dim"], ranks: Sequence[int]
) -> Losses:
    """Fits both families to a moment, at every rank from one decomposition each.

    Args:
      moment: What is fitted.
      target: What the fits are held against.
      ranks: Ranks, each at most the width.

    Source:
      arXiv 2609.32488, operator risk.
    """
    one, other = _losses(moment, target, tuple(ranks))
    return Losses(np.asarray(one).tolist(), np.asarray(other).tolist())


@partial(jax.jit, static_argnames="ranks")
def _losses(
    moment: Float[Array, "dim dim"], target: Float[Array, "dim dim"], ranks: tuple[int, ...]
) -> tuple[Float[Array, " ranks"], Float[Array, " ranks"]]:
    size = jnp.sum(target**2)
    columns = np.array(ranks) - 1

    def distances(fit: Operator) -> Float[Array, " ranks"]:
        # |M - T|^2 = |T|^2 + sum over the axes of value^2 - 2 value q' T d.
        reached = jnp.matmul(fit.query, target, precision=jax.lax.Precision.HIGHEST)
        along = jnp.sum(reached * fit.document, axis=1)
        terms = jnp.cumsum(fit.values**2 - 2 * fit.values * along)
        return (size + terms[columns]) / size

    fits = (fit(moment, max(ranks)) for fit in (shared, dual))
    one, other = (distances(each) for each in fits)
    return one, other


def collected(options: StudyOptions) -> Iterator[Collected]:
    """Yields the triples of every dataset and encoder of the options, where both exist.

    Args:
      options: datasets, encoders and split; dataset and encoder alone where they are not given. An
        encoder that only some of the datasets have is left out for the others.
    """
    encoders = options.encoders or (options.encoder,)
    datasets = [part for name in options.datasets or (options.dataset,) for part in parts(name)]
    for dataset in datasets:
        for encoder in encoders:
            if len(encoders) > 1 and not _has(options, dataset, encoder):
                continue
            yield _collect(options, dataset, encoder)


def _has(options: TrainOptions, dataset: str, encoder: str) -> bool:
    return (Path(options.root) / dataset / "embeddings" / encoder).is_dir()


def _collect(options: StudyOptions, dataset: str, encoder: str) -> Collected:
    final = dataclasses.replace(options, encoder=encoder, protocol="final")
    job = prepare(final, dataset, ())
    listed = job.source.collection.qrels.get("train", job.train_qrels)
    train = {query: gains for query, gains in job.train_qrels.items() if query in listed}
    sides = (
        triples_of(job.source, job.material, qrels, options.chunk_rows)
        for qrels in (train or job.train_qrels, job.scored)
    )
    return Collected(dataset, encoder, *sides)
