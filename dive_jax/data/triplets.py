"""Training triplets: every (query, positive) pair with seeded negatives."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt64

from dive_jax.data.qrels import relevant
from dive_jax.types import InputError, Qrels, Triplets, TwoSided

HARD_POOL = 10
"""Hard negatives come from this many best unjudged documents."""


class _Twins:
    """Finds the documents whose text is that of given ones."""

    def __init__(self, digests: UInt64[np.ndarray, " documents"] | None) -> None:
        self._digests = digests
        if digests is not None:
            self._order = np.argsort(digests, kind="stable")
            self._sorted = digests[self._order]

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Returns `rows` and every row of equal text, sorted, each once."""
        if self._digests is None:
            return np.unique(rows)
        wanted = self._digests[rows]
        low = np.searchsorted(self._sorted, wanted, side="left")
        high = np.searchsorted(self._sorted, wanted, side="right")
        return np.unique(np.concatenate([self._order[a:b] for a, b in zip(low, high, strict=True)]))


def _generator(seed: int, query: str) -> np.random.Generator:
    digest = hashlib.sha256(f"triplets:{seed}:{query}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def _draw(generator: np.random.Generator, pool: int, count: int) -> np.ndarray:
    """Returns `count` numbers below `pool`: distinct, or every one before any comes again."""
    if count <= pool:
        return generator.choice(pool, count, replace=False)
    rounds = [generator.permutation(pool) for _ in range(-(-count // pool))]
    return np.concatenate(rounds)[:count]


def _best_allowed(
    ranked: Sequence[int], barred: np.ndarray, documents: int, query: str
) -> np.ndarray:
    """Returns the best ranked rows that are not `barred`, at most `HARD_POOL`."""
    rows = np.array(list(dict.fromkeys(ranked)), dtype=np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < documents:
        raise InputError(f"query {query}: its ranking holds rows outside 0 to {documents - 1}")
    return rows[~np.isin(rows, barred)][:HARD_POOL]


def _negatives(
    generator: np.random.Generator,
    query: str,
    barred: np.ndarray,
    documents: int,
    shape: tuple[int, int],
    ranked: Sequence[int] | None,
) -> np.ndarray:
    """Draws rows [pairs, negatives] that are not `barred` (sorted, distinct).

    From all documents, or from the best of `ranked` if that is given.
    """
    best = None if ranked is None else _best_allowed(ranked, barred, documents, query)
    pool = documents - len(barred) if best is None else len(best)
    if pool == 0:
        where = f"of {documents} documents" if ranked is None else f"among {len(ranked)} ranked"
        raise InputError(
            f"query {query}: no document {where} is left as a negative, {len(barred)} are judged "
            "or equal a positive's text; drop its judgments or take more documents"
        )
    drawn = np.stack([_draw(generator, pool, shape[1]) for _ in range(shape[0])])
    if best is not None:
        return best[drawn]
    # The n-th allowed row is n plus the number of barred rows before it.
    return drawn + np.searchsorted(barred - np.arange(len(barred)), drawn, side="right")


def _rows(ids: Sequence[str], rows: Mapping[str, int], query: str) -> np.ndarray:
    if missing := [id for id in ids if id not in rows]:
        raise InputError(
            f"query {query}: its relevant document {missing[0]} has no vector; "
            "embed it, or drop the judgment"
        )
    return np.array([rows[id] for id in ids], dtype=np.int64)


def _check(documents: int, digests: np.ndarray | None, negatives: str, count: int) -> None:
    if negatives not in ("random", "hard"):
        raise InputError(f"--negatives: wanted random or hard, got {negatives}")
    if count < 1:
        raise InputError(f"--negatives_per_positive: wanted at least 1, got {count}")
    if digests is not None and len(digests) != documents:
        raise ValueError(f"digests: wanted one for each of {documents} rows, got {len(digests)}")


def make_triplets(
    query_ids: Sequence[str],
    qrels: Qrels,
    *,
    query_rows: Mapping[str, int],
    document_rows: Mapping[str, int],
    documents: int,
    digests: UInt64[np.ndarray, " documents"] | None,
    negatives: str = "random",
    negatives_per_positive: int = 5,
    seed: int = 2027,
    ranking: Mapping[str, Sequence[int]] | None = None,
) -> Triplets:
    """Makes the training rows: each relevant document of each query, with drawn negatives.

    A negative is never relevant for its query, never of the same text as one of its positives,
    and never the document whose id is the query's. Negatives of a pair are distinct where enough
    documents exist. What is drawn for a query depends on the seed and on that query alone.

    Args:
      query_ids: Training queries, in the order of the rows; one without a relevant document
        gives none.
      qrels: Judgments; documents of gain > 0 are the positives, taken in the order of their ids.
      query_rows: Query id -> row of its vector.
      document_rows: Document id -> row of its vector.
      documents: Number of document rows.
      digests: uint64 [documents], digest of each row's text; None where texts are not at hand.
      negatives: random: any document left. hard: one of the ten best of `ranking` that are not
        judged.
      negatives_per_positive: At least 1.
      seed: Seed of the draws.
      ranking: For hard: query id -> document rows, best first; more than ten, since judged ones
        and their twins are passed over.

    Returns:
      int32 rows, pairs × negatives_per_positive of them.

    Raises:
      InputError: If a query or relevant document has no vector, no negative is left for a query,
        or there is no pair at all.

    Source:
      Zhao, DIVE (arXiv 2605.20689), section 4; the draws are this library's choice.
    """
    _check(documents, digests, negatives, negatives_per_positive)
    if negatives == "hard" and ranking is None:
        raise ValueError("ranking: hard negatives need the frozen ranking of every query")
    twins, parts = _Twins(digests), []
    for query in query_ids:
        gains = qrels.get(query, {})
        positives = _rows(sorted(relevant(gains)), document_rows, query)
        if len(positives) == 0:
            continue
        if query not in query_rows:
            raise InputError(f"query {query}: has no vector; embed it, or drop its judgments")
        others = [query] if negatives == "random" else [query, *gains]
        rows = [document_rows[id] for id in others if id in document_rows]
        barred = np.union1d(twins.of(positives), np.array(rows, dtype=np.int64))
        ranked = None if negatives == "random" or ranking is None else ranking.get(query, ())
        shape = (len(positives), negatives_per_positive)
        drawn = _negatives(_generator(seed, query), query, barred, documents, shape, ranked)
        query_row = np.full(drawn.size, query_rows[query])
        parts.append((query_row, positives.repeat(negatives_per_positive), drawn.ravel()))
    if not parts:
        raise InputError(
            f"no training pair: none of {len(query_ids)} training queries has a relevant document"
        )
    return Triplets(*(np.concatenate(part).astype(np.int32) for part in zip(*parts, strict=True)))


def compact(triplets: Triplets) -> tuple[Triplets, TwoSided]:
    """Renumbers triplets over the rows that they use, so that only those need a device.

    Args:
      triplets: Rows of two vector files.

    Returns:
      Triplets whose rows count within the second result: for each side int32 rows used, sorted.

    Example:
      >>> rows = [np.array(each, np.int32) for each in ([7, 7], [4, 4], [9, 2])]
      >>> small, used = compact(Triplets(*rows))
      >>> small.negative, used.document
      (array([2, 0], dtype=int32), array([2, 4, 9], dtype=int32))
    """
    queries, query = np.unique(triplets.query, return_inverse=True)
    documents, document = np.unique(
        np.concatenate([triplets.positive, triplets.negative]), return_inverse=True
    )
    positive, negative = np.split(document.astype(np.int32), 2)
    small = Triplets(query.astype(np.int32), positive, negative)
    return small, TwoSided(query=queries, document=documents)
