"""Queries held out of those that train: who, and what no longer trains."""

from typing import Any

import numpy as np
import pytest

from dive_jax.data.holdout import Held, NoUnseenError, Pool, hold_out, unseen_part
from dive_jax.data.judgments import make_judgments
from dive_jax.data.qrels import relevant, relevant_to_any
from dive_jax.data.splits import hashed_order
from dive_jax.data.triplets import make_triplets
from dive_jax.types import InputError, TwoSided

Judged = dict[str, dict[str, int]]


def several(queries: int = 40, documents: int = 30, seed: int = 0) -> Judged:
    """Every query has one to three relevant documents, and one judged irrelevant."""
    rng = np.random.default_rng(seed)
    qrels = {}
    for query in range(queries):
        chosen = rng.choice(documents, 1 + int(rng.integers(1, 4)), replace=False)
        gains = [0, *[1] * (len(chosen) - 1)]
        qrels[f"q{query}"] = {f"d{d}": g for d, g in zip(chosen, gains, strict=True)}
    return qrels


def pool(qrels: Judged, documents: int = 30, **changes: Any) -> Pool:
    trained = tuple(qrels)
    ids = TwoSided(query=trained, document=tuple(f"d{i}" for i in range(documents)))
    rows = TwoSided(*({each: row for row, each in enumerate(side)} for side in ids))
    settings: dict[str, Any] = {
        "query_rows": rows.query,
        "document_rows": rows.document,
        "documents": documents,
        "digests": None,
    }
    triplets = make_triplets(trained, qrels, negatives_per_positive=2, **settings)
    judgments = make_judgments(trained, qrels, **settings)
    made = Pool("toy", trained, qrels, ids, rows, triplets, judgments, 2027)
    return made._replace(**changes)


def pairs(held: Held) -> set[tuple[str, str]]:
    rows = zip(held.triplets.query, held.triplets.positive, strict=True)
    return {(held.ids.query[q], held.ids.document[d]) for q, d in rows}


@pytest.mark.parametrize("seed", range(5))
def test_no_relevant_document_of_a_held_out_query_trains(seed: int):
    qrels = several(seed=seed)
    held = hold_out(pool(qrels), "unseen")
    assert held.qrels
    assert len(held.qrels) >= 8  # a fifth of forty
    barred = relevant_to_any(held.qrels, qrels)
    left = {(q, d) for q in qrels if q not in held.qrels for d in relevant(qrels[q])}
    assert pairs(held) == {(q, d) for q, d in left if d not in barred}
    training = {q for q, _ in pairs(held)}
    assert held.counts == {
        "queries held out": len(held.qrels),
        "queries that train": len(training),
        "queries without a pair left": 40 - len(held.qrels) - len(training),
        "pairs dropped": len(left) - len(pairs(held)),
    }


def test_whole_documents_are_held_out_in_hashed_order_until_a_fifth_is():
    """Three queries a document: four documents of twenty are a fifth."""
    qrels = {f"q{i}": {f"d{i % 20}": 1} for i in range(60)}
    held = hold_out(pool(qrels), "unseen")
    first = hashed_order({f"d{i}" for i in range(20)}, 2027)[:4]
    assert relevant_to_any(held.qrels, qrels) == set(first)
    assert len(held.qrels) == 12
    assert hold_out(pool(qrels), "unseen").qrels == held.qrels
    assert hold_out(pool(qrels, seed=1), "unseen").qrels != held.qrels


def test_what_trains_is_a_part_of_all_that_trains():
    """The negatives of a pair stay the same; a dropped positive is no negative of its query."""
    whole = pool(several())
    held = hold_out(whole, "unseen")
    rows = {tuple(map(int, each)) for each in zip(*whole.triplets, strict=True)}
    kept = [tuple(map(int, each)) for each in zip(*held.triplets, strict=True)]
    assert set(kept) < rows
    for query, _, negative in kept:
        assert held.ids.document[negative] not in relevant(whole.qrels[held.ids.query[query]])


def test_dropped_pairs_have_no_gain_and_no_held_out_query_is_judged():
    whole = pool(several())
    held = hold_out(whole, "unseen")
    assert held.judgments is not None
    barred = relevant_to_any(held.qrels, whole.qrels)
    for row, documents, gains in zip(*held.judgments[:3], strict=True):
        query = held.ids.query[row]
        assert query not in held.qrels
        judged = {
            held.ids.document[d]: float(g) for d, g in zip(documents, gains, strict=True) if d >= 0
        }
        assert judged == {d: float(d not in barred) for d in relevant(whole.qrels[query])}
    assert hold_out(whole._replace(judgments=None), "unseen").judgments is None


def test_a_document_that_everyone_asks_for_is_passed_over():
    qrels = {f"q{i}": {"d0": 1, f"d{i + 1}": 1} for i in range(10)}
    held = hold_out(pool(qrels), "unseen")
    assert len(held.qrels) == 2
    assert held.counts["pairs dropped"] == 8
    assert {document for _, document in pairs(held)}.isdisjoint({"d0"})


def test_validation_holds_out_the_part_of_the_split():
    qrels = several()
    held = hold_out(pool(qrels, validation=("q3", "q7")), "validation")
    assert list(held.qrels) == ["q3", "q7"]
    assert pairs(held) == {
        (q, d) for q in qrels if q not in ("q3", "q7") for d in relevant(qrels[q])
    }
    assert held.counts["pairs dropped"] == 0


def test_without_a_part_of_the_split_validation_is_the_last_fifth():
    qrels = several()
    held = hold_out(pool(qrels), "validation")
    assert tuple(held.qrels) == hashed_order(qrels, 2027)[-8:]
    few = {f"q{i}": {f"d{i}": 1} for i in range(3)}
    assert len(hold_out(pool(few), "validation").qrels) == 1


@pytest.mark.parametrize("seed", range(3))
def test_both_holds_out_the_one_and_the_other(seed: int):
    whole = pool(several(seed=seed))
    one, other, both = (hold_out(whole, kind) for kind in ("unseen", "validation", "both"))
    assert set(both.qrels) == set(one.qrels) | set(other.qrels)
    assert pairs(both) == pairs(one) & pairs(other)
    assert both.counts["queries held out"] == len(both.qrels)


SHARED = {f"q{i}": {"d0": 1} for i in range(6)}
TWO = {"q0": {"d0": 1}, "q1": {"d1": 1}}

BAD: dict[str, tuple[Judged, dict[str, Any], str, str]] = {
    "one document for all": (SHARED, {}, "unseen", "no query can be held out whose documents"),
    "one query": ({"q": {"d0": 1}}, {}, "unseen", "nothing would be left to train on"),
    "one document for all, both": (SHARED, {}, "both", "no query can be held out whose documents"),
    "one query left, both": (TWO, {}, "both", "with 2 of 2 queries held out nothing"),
    "an empty part, both": (TWO, {"validation": ()}, "both", "no validation query to hold out"),
    "an empty part": (SHARED, {"validation": ()}, "validation", "no validation query to hold out"),
    "one query, any": ({"q": {"d0": 1}}, {}, "validation", "with 1 of 1 queries held out nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_held_out_is_one_line(name: str):
    qrels, changes, kind, wanted = BAD[name]
    with pytest.raises(InputError, match=wanted) as told:
        hold_out(pool(qrels, **changes), kind)
    message = str(told.value)
    assert message.startswith("toy: ")
    assert "\n" not in message
    assert "--early_stopping=" in message
    assert isinstance(told.value, NoUnseenError) == ("whose documents" in message)


def test_nothing_is_chosen_by_gains_of_zero():
    qrels = {"a": {"x": 1, "y": 0}, "b": {"y": 1}}
    (only,) = unseen_part(("a", "b"), qrels, 1)
    assert only in qrels
