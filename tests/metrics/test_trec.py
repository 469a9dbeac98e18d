"""trec_eval's measures against the definition, written out here in other words."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dive_jax.metrics.trec import mean, per_query, spread
from dive_jax.retrieval.exact import to_run, top_k
from dive_jax.types import InputError


def gain_at(gains, document):
    return max(0, gains.get(document, 0))


def ndcg(gains, found, depth):
    """Linear gains over log2(place + 1), divided by what the best order would have."""

    def discounted(values):
        return sum(value / math.log2(place + 2) for place, value in enumerate(values[:depth]))

    ranked = sorted(found, key=lambda each: (np.float32(found[each]), each), reverse=True)
    ideal = sorted((max(0, gain) for gain in gains.values()), reverse=True)
    return discounted([gain_at(gains, each) for each in ranked]) / discounted(ideal)


def recall(gains, found, depth):
    ranked = sorted(found, key=lambda each: (np.float32(found[each]), each), reverse=True)
    relevant = {each for each, gain in gains.items() if gain > 0}
    return len(relevant & set(ranked[:depth])) / len(relevant)


DOCUMENTS = st.sampled_from([f"d{number}" for number in range(14)])
GAINS = st.dictionaries(DOCUMENTS, st.integers(-2, 4), max_size=14)
# Few distinct scores, so that ties occur.
FOUND = st.dictionaries(DOCUMENTS, st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.75]), max_size=14)


@given(
    st.dictionaries(st.sampled_from("qrstu"), GAINS, max_size=5),
    st.dictionaries(st.sampled_from("qrstuv"), FOUND, max_size=6),
    st.sampled_from([1, 3, 10]),
)
def test_measures_follow_their_definition(qrels, run, depth):
    judged = [query for query, gains in qrels.items() if max([0, *gains.values()]) > 0]
    if not judged:
        with pytest.raises(InputError, match=r"^qrels: wanted a query with a document of gain"):
            per_query(qrels, run)
        return
    before = copy.deepcopy((qrels, run))
    result = per_query(qrels, run, measures=(f"ndcg@{depth}", f"recall@{depth}"))
    assert (qrels, run) == before
    assert list(result) == judged
    for query in judged:
        found = run.get(query, {})
        expected = {
            f"ndcg@{depth}": ndcg(qrels[query], found, depth),
            f"recall@{depth}": recall(qrels[query], found, depth),
        }
        assert result[query] == pytest.approx(expected, abs=1e-12)


def test_a_worked_example():
    qrels = {"q": {"a": 2, "b": 1, "c": 0}}
    run = {"q": {"c": 3.0, "b": 2.0, "a": 1.0}}
    expected = (1 / math.log2(3) + 2 / math.log2(4)) / (2 + 1 / math.log2(3))
    assert per_query(qrels, run)["q"]["ndcg@10"] == pytest.approx(expected)
    assert per_query(qrels, run)["q"]["recall@10"] == 1.0


def test_queries_missing_from_the_run_count_as_zero():
    qrels = {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}, "unjudged": {"x": 0}, "empty": {}}
    run = {"c": {}, "a": {"x": 1.0}, "other": {"x": 1.0}, "unjudged": {"x": 1.0}}
    result = per_query(qrels, run)
    assert list(result) == ["a", "b", "c"]
    assert mean(result) == pytest.approx({"ndcg@10": 1 / 3, "recall@10": 1 / 3})


def test_a_run_of_none_of_the_judged_queries():
    assert per_query({"a": {"x": 1}}, {}) == {"a": {"ndcg@10": 0.0, "recall@10": 0.0}}


def test_only_the_first_ten_count():
    found = {f"d{place:02}": -float(place) for place in range(20)}
    qrels = {"q": {"d09": 1}, "r": {"d10": 1}}
    result = per_query(qrels, {"q": found, "r": found})
    assert result["q"] == pytest.approx({"ndcg@10": 1 / math.log2(11), "recall@10": 1.0})
    assert result["r"] == {"ndcg@10": 0.0, "recall@10": 0.0}


def test_values_are_plain_floats_in_the_order_asked_for():
    result = per_query({"q": {"a": 1}}, {"q": {"a": 1.0}}, measures=["recall@5", "ndcg@3"])
    assert list(result["q"]) == ["recall@5", "ndcg@3"]
    assert all(type(value) is float for value in result["q"].values())


@pytest.mark.parametrize("name", ["ndcg", "ndcg@0", "ndcg@-1", "map@10", "ndcg@1.5", "ndcg_cut_10"])
def test_unknown_measures_are_refused(name):
    with pytest.raises(InputError, match=r"^measure: wanted ndcg@<depth> or recall@<depth>"):
        per_query({"q": {"a": 1}}, {}, measures=[name])


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused_by_name(score):
    with pytest.raises(InputError, match="for query 'q', document 'b'"):
        per_query({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}})


def test_mean_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one query"):
        mean({})


def test_spread_is_the_sample_deviation():
    values = [0.7, 0.72, 0.69]
    assert spread(values) == pytest.approx((np.mean(values), np.std(values, ddof=1)))


@given(st.floats(-1, 1), st.integers(1, 7))
def test_equal_values_have_exactly_no_spread(value, count):
    assert spread([value] * count) == (value, 0.0)


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_spread_of_nothing_or_not_finite_is_refused(values):
    with pytest.raises(InputError, match=r"^values: wanted at least one, all finite"):
        spread(values)


@pytest.mark.parametrize(
    ("encoder", "known"), [("all-mpnet-base-v2", 0.6412), ("all-MiniLM-L6-v2", 0.6451)]
)
def test_frozen_scifact_vectors_reach_the_known_figure(data_root, encoder, known):
    folder = data_root / "scifact" / "embeddings" / encoder

    def side(name):
        ids = (folder / f"{name}.ids.txt").read_text(encoding="utf-8").split()
        vectors = np.load(folder / f"{name}.npy", mmap_mode="r")
        return ids, vectors

    def unit(rows):
        rows = np.asarray(rows, np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    qrels: dict[str, dict[str, int]] = {}
    lines = (data_root / "scifact" / "qrels" / "test.tsv").read_text().splitlines()
    for query, document, gain in (line.split("\t") for line in lines[1:]):
        qrels.setdefault(query, {})[document] = int(gain)
    (query_ids, queries), (document_ids, documents) = side("queries"), side("documents")
    rows = [row for row, each in enumerate(query_ids) if each in qrels]
    ranking = top_k(unit(queries[rows]), documents, k=11, chunk_rows=2048, transform=unit)
    run = to_run(ranking, [query_ids[row] for row in rows], document_ids)
    scores = per_query(qrels, run)
    assert len(scores) == 300
    assert mean(scores)["ndcg@10"] == pytest.approx(known, abs=5e-5)
