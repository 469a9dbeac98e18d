import csv
import io

import numpy as np
import pytest

from dive_jax.studies import results


def entry(ndcg: float, recall: float = 0.5) -> dict[str, float]:
    return {"ndcg@10": ndcg, "recall@10": recall}


FIRST = {"a": entry(1.0), "b": entry(0.0), "c": entry(0.5)}
SECOND = {"a": entry(0.5), "b": entry(0.0), "c": entry(0.5)}


def test_means_deviations_and_unseen_queries():
    made = results.summarise([FIRST, SECOND], 64, ["a"])
    assert (made["dim"], made["bytes"]) == (64, 256)
    assert made["ndcg@10"]["per_seed"] == pytest.approx([0.5, 1 / 3])
    assert made["ndcg@10"]["std"] == pytest.approx(np.std([0.5, 1 / 3], ddof=1))
    assert made["unseen"]["ndcg@10"]["mean"] == pytest.approx(0.75)


def test_nothing_unseen_is_nothing_and_not_zero():
    assert results.summarise([FIRST], 64, [])["unseen"]["ndcg@10"] is None


def test_parts_weigh_the_same_whatever_their_size():
    large = {f"q{i}": entry(0.0) for i in range(50)}
    parts = [results.summarise([FIRST], 8, []), results.summarise([large], 8, [])]
    assert results.mean_of_parts(parts)["ndcg@10"]["mean"] == pytest.approx(0.25)
    assert results.mean_of_parts(parts)["unseen"]["ndcg@10"] is None


def test_comparison_pairs_queries_over_the_mean_of_seeds():
    made = results.compare([FIRST, SECOND], [SECOND])
    assert made["difference"] == pytest.approx(0.25 / 3)
    assert made["queries"] == 3
    assert 0 < made["p_value"] <= 1


def test_a_comparison_may_be_of_some_queries_whatever_their_order():
    turned = {query: SECOND[query] for query in ("c", "b", "a")}
    assert results.compare([FIRST], [turned])["difference"] == pytest.approx(0.5 / 3)
    some = results.compare([FIRST], [turned], ["a", "c"])
    assert (some["difference"], some["queries"]) == (pytest.approx(0.25), 2)


def test_the_row_best_on_unseen_documents_is_named():
    tests = {name: {"difference": value} for name, value in (("a - frozen", -1), ("b - frozen", 1))}
    found = results.best_unseen({"unseen_comparisons": tests})
    assert list(found) == ["b - frozen, unseen documents"]
    assert results.best_unseen({}) == results.best_unseen({"unseen_comparisons": {}}) == {}


def test_rows_show_a_deviation_only_over_several_seeds():
    methods = {
        "one": results.summarise([FIRST], 8, ["a"]),
        "two": results.summarise([FIRST, SECOND], 8, []),
    }
    one, two = results.table_rows(methods)
    assert one["ndcg@10"][1] is None
    assert two["ndcg@10"][1] > 0
    assert two["unseen"] is None


def metrics(dive: float) -> dict:
    methods = {
        name: results.summarise([{"a": entry(value)}], 8, [])
        for name, value in (("pca", 0.5), ("dive", dive))
    }
    overlap = {"documents": 4, "seen_documents": 1}
    return {"methods": methods, "comparisons": {}, "overlap": overlap}


def test_a_warning_stands_where_the_adapter_loses():
    assert any("warning: dive scores below pca" in each for each in results.remarks(metrics(0.4)))
    assert not any("warning" in each for each in results.remarks(metrics(0.6)))


def test_csv_files_hold_every_digit():
    text = results.per_query_csv({"dive": {"1": {"a": entry(1 / 3)}}}, ["a"])
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["query_id"], row["seed"], row["unseen"]) == ("a", "1", "1")
    assert float(row["ndcg@10"]) == 1 / 3
