"""SciFact as both sides of `training_run.py` see it; NumPy only, whatever the interpreter has."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.splits import make_split, qrels_of, scored_ids, trained_ids
from dive_jax.data.triplets import make_triplets
from dive_jax.metrics.trec import per_query
from dive_jax.options import TrainOptions
from dive_jax.sources import load
from dive_jax.types import Qrels, Triplets, TwoSided


class Run(NamedTuple):
    """What a training run is given, and what it is scored on.

    Attributes:
      vectors: Frozen vectors of queries and documents, as stored.
      ids: Their ids.
      triplets: Rows of `vectors` that train.
      scored: Judgments of the queries that are scored.
      options: All settings.
    """

    vectors: TwoSided
    ids: TwoSided
    triplets: Triplets
    scored: Qrels
    options: TrainOptions


def prepare(dataset: str, encoder: str, dim: int, epochs: int, seeds: tuple[int, ...]) -> Run:
    """Loads a dataset under $DIVE_JAX_DATA, splits its queries and draws the triplets.

    "drawn" needs no file: queries that lie near a document each, of 64 coordinates.
    """
    options = TrainOptions(dataset=dataset, encoder=encoder, dim=dim, epochs=epochs, seeds=seeds)
    if dataset == "drawn":
        return _drawn(options)
    source = load(dataset, encoder, root=options.root, lsa_dim=options.lsa_dim)
    by_file = source.collection.qrels
    split = make_split(
        by_file, split=options.split, judgments=options.judgments, seed=options.split_seed
    )
    qrels = qrels_of(split, by_file)
    digests = source.collection.digests_of(source.ids.document)
    trained = trained_ids(split, options.protocol)
    scored = {query: qrels[query] for query in scored_ids(split, options.protocol)}
    triplets = _triplets(source.ids, trained, qrels, options, digests)
    return Run(source.vectors, source.ids, triplets, scored, options)


def _triplets(
    ids: TwoSided, trained: Sequence[str], qrels: Qrels, options: TrainOptions, digests: Any
) -> Triplets:
    return make_triplets(
        trained,
        qrels,
        query_rows={each: row for row, each in enumerate(ids.query)},
        document_rows={each: row for row, each in enumerate(ids.document)},
        documents=len(ids.document),
        digests=digests,
        negatives=options.negatives,
        negatives_per_positive=options.negatives_per_positive,
        seed=options.triplet_seed,
    )


def _drawn(options: TrainOptions, queries: int = 120, documents: int = 300) -> Run:
    rng = np.random.default_rng(0)
    document = rng.normal(size=(documents, 64)).astype(np.float32)
    query = document[:queries] + rng.normal(size=(queries, 64)).astype(np.float32)
    ids = TwoSided(
        query=tuple(f"q{row}" for row in range(queries)),
        document=tuple(f"d{row}" for row in range(documents)),
    )
    qrels = {f"q{row}": {f"d{row}": 1} for row in range(queries)}
    triplets = _triplets(ids, ids.query[: queries // 2], qrels, options, None)
    scored = {each: qrels[each] for each in ids.query[queries // 2 :]}
    return Run(TwoSided(query=query, document=document), ids, triplets, scored, options)


def units(run: Run) -> TwoSided:
    """Returns all vectors as float32 rows of length 1."""
    return TwoSided(*(unit_rows(side, np.arange(len(side))) for side in run.vectors))


def shuffled(seed: int, epoch: int, rows: int) -> np.ndarray:
    """Returns the order of the triplets in one epoch, as the library draws it."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def ndcg(run: Run, rows: np.ndarray, found: np.ndarray) -> float:
    """Returns the mean nDCG@10 of documents found for query rows, best first."""
    results = {
        run.ids.query[row]: {
            run.ids.document[document]: float(-place) for place, document in enumerate(best)
        }
        for row, best in zip(rows, found, strict=True)
    }
    return float(np.mean([each["ndcg@10"] for each in per_query(run.scored, results).values()]))
