"""What one run works on: vectors, judgments, who trains and who is scored."""

from typing import NamedTuple

import numpy as np

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.judgments import make_judgments
from dive_jax.data.splits import (
    Overlap,
    Split,
    make_split,
    overlap,
    qrels_of,
    scored_ids,
    trained_ids,
    unseen_queries,
)
from dive_jax.data.triplets import make_triplets
from dive_jax.methods.protocol import Material
from dive_jax.options import TrainOptions
from dive_jax.retrieval.exact import top_k
from dive_jax.sources import Source, load
from dive_jax.types import InputError, Qrels, Triplets

_HARD_DEPTH = 10
_TWINS = 50  # ranks searched beyond the judged documents, for texts that repeat a positive


class Job(NamedTuple):
    """One dataset, one split, ready to fit and to score.

    Attributes:
      source: Vectors and judgments.
      split: Who trains, validates and tests.
      trained: Ids of the queries that train.
      scored: Judgments of the queries that are scored.
      unseen: Those of them whose relevant documents no training query has.
      overlap: How many of the scored queries' relevant documents training has seen.
      material: What methods are fitted on.
    """

    source: Source
    split: Split
    trained: tuple[str, ...]
    scored: Qrels
    unseen: tuple[str, ...]
    overlap: Overlap
    material: Material


def _frozen_ranking(
    source: Source, trained: tuple[str, ...], qrels: Qrels, chunk_rows: int
) -> dict[str, list[int]]:
    row_of = source.store.sides.query.row_of
    rows = np.array([row_of[query] for query in trained])
    judged = max(len(qrels[query]) for query in trained)
    ranking = top_k(
        unit_rows(source.vectors.query, rows),
        source.vectors.document,
        k=_HARD_DEPTH + judged + _TWINS,
        chunk_rows=chunk_rows,
        transform=unit_rows,
    )
    return dict(zip(trained, np.asarray(ranking.rows).tolist(), strict=True))


def _triplets(
    source: Source, trained: tuple[str, ...], qrels: Qrels, options: TrainOptions
) -> Triplets:
    hard = options.negatives == "hard"
    return make_triplets(
        trained,
        qrels,
        query_rows=source.store.sides.query.row_of,
        document_rows=source.store.sides.document.row_of,
        documents=len(source.ids.document),
        digests=source.collection.digests_of(source.ids.document),
        negatives=options.negatives,
        negatives_per_positive=options.negatives_per_positive,
        seed=options.triplet_seed,
        ranking=_frozen_ranking(source, trained, qrels, options.chunk_rows) if hard else None,
    )


def prepare(options: TrainOptions, dataset: str) -> Job:
    """Loads a dataset, splits its queries and draws the triplets.

    Args:
      options: Encoder, split, protocol, negatives.
      dataset: The dataset, or one community of it.

    Returns:
      The job.

    Raises:
      InputError: If the data are wrong or a part of the split is empty.
    """
    source = load(
        dataset,
        options.encoder,
        root=options.root,
        lsa_dim=options.lsa_dim,
        verify=options.verify,
    )
    options.check_width(source.store.dim)
    by_file = source.collection.qrels
    split = make_split(
        by_file, split=options.split, judgments=options.judgments, seed=options.split_seed
    )
    qrels = qrels_of(split, by_file)
    trained = trained_ids(split, options.protocol)
    scored = scored_ids(split, options.protocol)
    if not scored:
        raise InputError(f"{dataset}: no query to score under --protocol={options.protocol}")
    material = Material(
        source.vectors,
        _triplets(source, trained, qrels, options),
        source.store.encoder,
        source.store.encoder_fingerprint,
        {"dataset": dataset, "vectors": source.store.fingerprint},
        make_judgments(
            trained,
            qrels,
            query_rows=source.store.sides.query.row_of,
            document_rows=source.store.sides.document.row_of,
            documents=len(source.ids.document),
            digests=source.collection.digests_of(source.ids.document),
        ),
    )
    return Job(
        source,
        split,
        trained,
        {query: qrels[query] for query in scored},
        tuple(unseen_queries(scored, trained, qrels)),
        overlap(scored, trained, qrels),
        material,
    )
