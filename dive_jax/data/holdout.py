"""Queries held out of those that train, to choose on: of documents that do not train, or any."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dive_jax.data.judgments import Judgments
from dive_jax.data.qrels import relevant, relevant_to_any
from dive_jax.data.splits import hashed_order
from dive_jax.types import InputError, Qrels, Triplets, TwoSided

SHARE = 5
"""One in this many of the queries that train is held out."""


class NoUnseenError(InputError):
    """No query can be held out whose relevant documents do not train."""


class Pool(NamedTuple):
    """What queries are held out of; nothing of it is scored in the end.

    Attributes:
      where: What stands first in a message, such as the dataset's name.
      trained: Ids of the queries that train, each with a relevant document.
      qrels: Their judgments.
      ids: Ids of the rows of the vectors.
      rows: Id -> row, a side each.
      triplets: All that train.
      judgments: Of all that train; None where no method asks.
      seed: Seed of the hashed order.
      validation: Those of `trained` that validate; None: the last fifth in hashed order.
    """

    where: str
    trained: tuple[str, ...]
    qrels: Qrels
    ids: TwoSided
    rows: TwoSided
    triplets: Triplets
    judgments: Judgments | None
    seed: int
    validation: tuple[str, ...] | None = None


class Held(NamedTuple):
    """What trains while queries are held out, and what is held out.

    Attributes:
      kind: unseen, validation or both.
      triplets: What trains: those of other queries, and for unseen and both of other documents.
      judgments: Of the queries that train; a pair that was dropped has gain 0, but its document is
        no negative of its query either.
      ids: Ids of the rows of the vectors.
      qrels: Judgments of the queries held out.
      counts: Queries held out, and what no longer trains.
    """

    kind: str
    triplets: Triplets
    judgments: Judgments | None
    ids: TwoSided
    qrels: Qrels
    counts: dict[str, int]


def unseen_part(trained: tuple[str, ...], qrels: Qrels, seed: int) -> tuple[str, ...]:
    """Returns queries to hold out, so that none of their relevant documents trains.

    The relevant documents are gone through in hashed order. All queries of a document are held out
    together, until a fifth of all is. A document is passed over if nothing would be left to train.

    Args:
      trained: Ids of queries, each with a relevant document.
      qrels: Their judgments.
      seed: Seed of the order.

    Returns:
      Ids in the order of `trained`; none if every document is passed over.

    Example:
      >>> unseen_part(("a", "b"), {"a": {"x": 1}, "b": {"y": 1}}, 1)
      ('a',)
      >>> unseen_part(("a", "b"), {"a": {"x": 1}, "b": {"x": 1}}, 1)
      ()
    """
    documents_of = {query: relevant(qrels[query]) for query in trained}
    queries_of: dict[str, list[str]] = {}
    for query, documents in documents_of.items():
        for document in documents:
            queries_of.setdefault(document, []).append(query)
    held: set[str] = set()
    barred: set[str] = set()
    for document in hashed_order(queries_of, seed):
        if len(held) * SHARE >= len(trained):
            break
        more = set(queries_of[document]) - held
        with_them = relevant_to_any(more, qrels)
        some_pair_is_left = any(
            documents_of[query] - barred - with_them
            for query in trained
            if query not in held and query not in more
        )
        if some_pair_is_left:
            held |= more
            barred |= with_them
    return tuple(query for query in trained if query in held)


def _validation_part(pool: Pool) -> tuple[str, ...]:
    if pool.validation is not None:
        return pool.validation
    order = hashed_order(pool.trained, pool.seed)
    return order[-max(1, len(order) // SHARE) :]


def _rows(ids: set[str], row_of: Mapping[str, int]) -> np.ndarray:
    return np.array(sorted(row_of[each] for each in ids), np.int64)


def _judgments(
    judgments: Judgments | None, queries: np.ndarray, documents: np.ndarray
) -> Judgments | None:
    """Returns judgments without some queries, and with gain 0 for some documents."""
    if judgments is None:
        return None
    kept = ~np.isin(judgments.query, queries)
    document = judgments.document[kept]
    gain = np.where(np.isin(document, documents), np.float32(0), judgments.gain[kept])
    return judgments._replace(query=judgments.query[kept], document=document, gain=gain)


def _without(pool: Pool, kind: str, part: tuple[str, ...], barred: set[str]) -> Held:
    """Takes queries out of what trains, and every pair of the barred documents."""
    queries, documents = _rows(set(part), pool.rows.query), _rows(barred, pool.rows.document)
    others = ~np.isin(pool.triplets.query, queries)
    kept = others & ~np.isin(pool.triplets.positive, documents)
    triplets = Triplets(*(column[kept] for column in pool.triplets))
    dropped = np.unique(np.stack([*pool.triplets[:2]])[:, others & ~kept], axis=1).shape[1]
    left = len(pool.trained) - len(part)
    return Held(
        kind,
        triplets,
        _judgments(pool.judgments, queries, documents),
        pool.ids,
        {query: pool.qrels[query] for query in part},
        {
            "queries held out": len(part),
            "queries that train": len(np.unique(triplets.query)),
            "queries without a pair left": left - len(np.unique(triplets.query)),
            "pairs dropped": int(dropped),
        },
    )


def hold_out(pool: Pool, kind: str) -> Held:
    """Holds out a fifth of the queries that train, about, or two fifths.

    Args:
      pool: Who trains, on what.
      kind: unseen: whole documents with all their queries, and no pair of a document of theirs
        trains; see `unseen_part`. validation: the split's validation part, or the last fifth in
        hashed order, whatever their documents. both: the one and the other, since queries of
        either kind come.

    Returns:
      What is left to train on, a part of the pool's triplets, and what is held out.

    Raises:
      NoUnseenError: If `kind` is not validation, and holding out any query would leave nothing to
        train on.
      InputError: If no query is held out, or no pair is left to train on.
    """
    if kind not in (kinds := ("unseen", "validation", "both")):
        raise ValueError(f"kind: wanted one of {', '.join(kinds)}, got {kind}")
    part: tuple[str, ...] = ()
    barred: set[str] = set()
    if kind != "validation":
        part = unseen_part(pool.trained, pool.qrels, pool.seed)
        if not part:
            raise NoUnseenError(
                f"{pool.where}: no query can be held out whose documents do not train, nothing "
                "would be left to train on; take --early_stopping=validation or off"
            )
        barred = relevant_to_any(part, pool.qrels)
    if kind != "unseen":
        if not (any_documents := _validation_part(pool)):
            raise InputError(
                f"{pool.where}: no validation query to hold out; take another --split, or "
                "--early_stopping=off and --dial=off"
            )
        part = tuple(dict.fromkeys([*part, *any_documents]))
    held = _without(pool, kind, part, barred)
    if not len(held.triplets.query):
        raise InputError(
            f"{pool.where}: with {len(part)} of {len(pool.trained)} queries held out nothing is "
            "left to train on; take more judgments, or --early_stopping=off and --dial=off"
        )
    return held
