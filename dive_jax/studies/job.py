"""What one run works on: vectors, judgments, who trains and who is scored."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.holdout import Pool, hold_out
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
from dive_jax.methods.registry import find
from dive_jax.options import TrainOptions
from dive_jax.retrieval.exact import top_k
from dive_jax.sources import Source, load
from dive_jax.types import InputError, Qrels, Triplets, TwoSided

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
      train_qrels: Judgments of the queries that train, in the order of their files.
    """

    source: Source
    split: Split
    trained: tuple[str, ...]
    scored: Qrels
    unseen: tuple[str, ...]
    overlap: Overlap
    material: Material
    train_qrels: Qrels


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


def _material(source: Source, split: Split, qrels: Qrels, options: TrainOptions) -> Material:
    """Draws the triplets; what is held out of them is made when a method asks."""
    trained = trained_ids(split, options.protocol)
    rows = TwoSided(*(side.row_of for side in source.store.sides))
    triplets = _triplets(source, trained, qrels, options)
    judgments = make_judgments(
        trained,
        qrels,
        query_rows=rows.query,
        document_rows=rows.document,
        documents=len(source.ids.document),
        digests=source.collection.digests_of(source.ids.document),
    )
    pool = Pool(
        source.dataset,
        trained,
        qrels,
        source.ids,
        rows,
        triplets,
        judgments,
        options.split_seed,
        split.validation if options.protocol == "final" else None,
    )
    return Material(
        source.vectors,
        triplets,
        source.store.encoder,
        source.store.encoder_fingerprint,
        {"dataset": source.dataset, "vectors": source.store.fingerprint},
        judgments,
        functools.cache(functools.partial(hold_out, pool)),
    )


def divided(dataset: str, options: TrainOptions) -> tuple[Source, Split]:
    """Loads a dataset and splits its queries.

    Args:
      dataset: The dataset, or one community of it.
      options: Encoder and split.

    Raises:
      InputError: If the data are wrong, or a part of the split is empty.
    """
    source = load(
        dataset,
        options.encoder,
        root=options.root,
        lsa_dim=options.lsa_dim,
        verify=options.verify,
    )
    split = make_split(
        source.collection.qrels,
        split=options.split,
        judgments=options.judgments,
        seed=options.split_seed,
    )
    return source, split


def prepare(options: TrainOptions, dataset: str, methods: Sequence[str] | None = None) -> Job:
    """Loads a dataset, splits its queries and draws the triplets.

    Args:
      options: Encoder, split, protocol, negatives.
      dataset: The dataset, or one community of it.
      methods: Methods that are to be fitted: what each of them would refuse is refused here, before
        anything is trained. None stands for dive; with none at all nothing is checked.

    Returns:
      The job.

    Raises:
      InputError: If the data are wrong, a part of the split is empty, a method's width is
        impossible, or it needs held-out queries and there can be none.
    """
    source, split = divided(dataset, options)
    qrels = qrels_of(split, source.collection.qrels)
    trained = trained_ids(split, options.protocol)
    scored = scored_ids(split, options.protocol)
    if not scored:
        raise InputError(f"{dataset}: no query to score under --protocol={options.protocol}")
    material = _material(source, split, qrels, options)
    for name in ("dive",) if methods is None else methods:
        if (check := find(name).check) is not None:
            check(material, options)
    return Job(
        source,
        split,
        trained,
        {query: qrels[query] for query in scored},
        tuple(unseen_queries(scored, trained, qrels)),
        overlap(scored, trained, qrels),
        material,
        {query: qrels[query] for query in trained},
    )
