import numpy as np
import pytest

from dive_jax.scoring import mean, score
from dive_jax.types import TwoSided


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


RNG = np.random.default_rng(0)
DOCUMENTS = unit(RNG.normal(size=(30, 8)))
PLAIN = TwoSided(query=unit, document=unit)


def scored(queries: np.ndarray, query_ids: list[str], qrels: dict, chunk_rows: int = 7):
    return score(
        TwoSided(query=queries, document=DOCUMENTS),
        TwoSided(query=query_ids, document=[f"d{i}" for i in range(30)]),
        qrels,
        compress=PLAIN,
        chunk_rows=chunk_rows,
    )


def test_a_query_equal_to_its_document_scores_one():
    scores = scored(DOCUMENTS[:3], ["a", "b", "c"], {"b": {"d1": 1}})
    assert scores == {"b": {"ndcg@10": 1.0, "recall@10": 1.0}}


def test_a_document_with_the_querys_own_id_is_not_its_answer():
    """As in ArguAna: the argument itself stands among the documents and would come first."""
    first, second = np.argsort(-DOCUMENTS @ DOCUMENTS[4])[:2]
    assert first == 4
    scores = scored(DOCUMENTS[4:5], ["d4"], {"d4": {f"d{second}": 1}})
    assert scores["d4"]["ndcg@10"] == 1.0


def test_a_judged_query_without_vector_scores_zero():
    scores = scored(DOCUMENTS[:1], ["a"], {"a": {"d0": 1}, "lost": {"d1": 1}})
    assert scores["lost"] == {"ndcg@10": 0.0, "recall@10": 0.0}
    assert mean(scores, "ndcg@10") == 0.5


@pytest.mark.parametrize("chunk_rows", [1, 4, 30, 100])
def test_the_chunk_does_not_matter(chunk_rows: int):
    qrels = {name: {f"d{i}": 1} for i, name in enumerate("abc")}
    noisy = unit(DOCUMENTS[:3] + 0.5 * RNG.normal(size=(3, 8)))
    wanted = scored(noisy, list("abc"), qrels)
    assert scored(noisy, list("abc"), qrels, chunk_rows) == wanted


def test_means_over_some_queries_and_over_none():
    scores = {"a": {"ndcg@10": 1.0}, "b": {"ndcg@10": 0.0}}
    assert mean(scores, "ndcg@10", ["a"]) == 1.0
    assert mean(scores, "ndcg@10", []) is None
