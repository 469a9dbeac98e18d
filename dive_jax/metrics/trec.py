"""trec_eval's measures, averaged over all judged queries."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dive_jax.types import InputError, Qrels, Run

_TREC_NAMES = {"ndcg": "ndcg_cut", "recall": "recall"}


class Spread(NamedTuple):
    """How a figure varies over seeds.

    Attributes:
      mean: Arithmetic mean.
      std: Sample standard deviation (n - 1), 0.0 for a single value.
    """

    mean: float
    std: float


def per_query(
    qrels: Qrels, run: Run, *, measures: Sequence[str] = ("ndcg@10", "recall@10")
) -> dict[str, dict[str, float]]:
    """Measures every judged query.

    A query is judged if a document of it has a gain above 0. One that is missing from the run
    scores 0.0; a query of the run that is not judged is ignored. trec_eval reads scores as float32
    and orders equal ones by document id, descending. A gain below 0 counts as 0.

    Args:
      qrels: Judgments; left as they are.
      run: What the search returned; left as it is.
      measures: "ndcg@<depth>" (gains linear, discount log2) or "recall@<depth>", depth >= 1.

    Returns:
      Query id -> measure -> value between 0 and 1, in the order of `qrels`.

    Raises:
      InputError: If a measure is unknown, a score is not finite, or no query is judged.

    Source:
      trec_eval's ndcg_cut and recall, through pytrec_eval (Van Gysel and de Rijke, 2018).

    Example:
      >>> qrels = {"q": {"a": 1}, "missing": {"b": 2}}
      >>> per_query(qrels, {"q": {"c": 0.9, "a": 0.8}}, measures=["recall@1", "recall@2"])
      {'q': {'recall@1': 0.0, 'recall@2': 1.0}, 'missing': {'recall@1': 0.0, 'recall@2': 0.0}}
    """
    trec_names = {name: _trec_name(name) for name in measures}
    judged = {
        query: {document: int(gain) for document, gain in gains.items()}
        for query, gains in qrels.items()
        if any(gain > 0 for gain in gains.values())
    }
    if not judged:
        raise InputError("qrels: wanted a query with a document of gain above 0, got none")
    found = _evaluate(judged, run, trec_names)
    nothing = dict.fromkeys(trec_names.values(), 0.0)
    return {
        query: {name: found.get(query, nothing)[trec] for name, trec in trec_names.items()}
        for query in judged
    }


def _trec_name(measure: str) -> str:
    parts = re.fullmatch(r"(\w+)@([1-9][0-9]*)", measure, re.ASCII)
    if parts is None or parts[1] not in _TREC_NAMES:
        raise InputError(
            f"measure: wanted ndcg@<depth> or recall@<depth>, depth at least 1, got {measure!r}"
        )
    return f"{_TREC_NAMES[parts[1]]}_{parts[2]}"


def _evaluate(
    judged: dict[str, dict[str, int]], run: Run, trec_names: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    import pytrec_eval

    scored = {}
    for query, found in run.items():
        if query not in judged:
            continue
        scored[query] = {document: float(score) for document, score in found.items()}
        for document, score in scored[query].items():
            if not math.isfinite(score):
                raise InputError(
                    f"run: wanted finite scores, got {score} for query {query!r}, document "
                    f"{document!r}"
                )
    wanted = {".".join(name.rsplit("_", 1)) for name in trec_names.values()}
    return pytrec_eval.RelevanceEvaluator(judged, wanted).evaluate(scored) if scored else {}


def mean(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Averages each measure over all queries.

    Args:
      scores: What `per_query` returned.

    Returns:
      Measure -> arithmetic mean.

    Raises:
      InputError: If there is no query.

    Example:
      >>> mean({"q": {"ndcg@10": 1.0}, "r": {"ndcg@10": 0.0}})
      {'ndcg@10': 0.5}
    """
    if not scores:
        raise InputError("scores: wanted at least one query, got none")
    measures = next(iter(scores.values()))
    return {
        name: math.fsum(each[name] for each in scores.values()) / len(scores) for name in measures
    }


def spread(values: Sequence[float]) -> Spread:
    """Summarises one figure per seed.

    Args:
      values: At least one finite figure.

    Returns:
      Mean and sample standard deviation; equal values give exactly that value and 0.0.

    Raises:
      InputError: If there is no value, or one is not finite.

    Example:
      >>> spread([0.7, 0.7, 0.7])
      Spread(mean=0.7, std=0.0)
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise InputError(f"values: wanted at least one, all finite, got {list(values)}")
    exact = [float(value) for value in values]
    std = statistics.stdev(exact) if len(exact) > 1 else 0.0
    return Spread(float(statistics.mean(exact)), std)
