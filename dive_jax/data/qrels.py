"""Judgments: read from files of query id, document id and gain, and put together."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dive_jax.data.lines import check_id, numbered_lines
from dive_jax.types import InputError, Qrels

MOST_GAIN = 10_000
"""Largest gain taken: the measures keep one counter for every gain up to the largest."""


def _is_header(columns: list[str]) -> bool:
    name = re.sub("[^a-z]", "", columns[0].lower())
    return name in ("queryid", "qid", "query") and not re.fullmatch(r"[+-]?[0-9]+", columns[-1])


def _gain(text: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise InputError(f"{where}: gain: wanted an integer, got {text!a}")
    if len(text) > 20 or abs(int(text)) > MOST_GAIN:
        raise InputError(f"{where}: gain: wanted at most {MOST_GAIN} in size, got {text[:24]}")
    return int(text)


def read_qrels(path: Path) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Reads one file of judgments: query id, document id and gain, separated by tabs.

    Args:
      path: The file. A header line is optional. Gains of 0 and below mean not relevant.

    Returns:
      Judgments (query id -> document id -> gain), and how many rows repeat an earlier one.

    Raises:
      InputError: If a row has another number of columns, an empty id or a gain that is not an
        integer, contradicts an earlier row, or if nothing is judged; names file and line.
    """
    qrels: dict[str, dict[str, int]] = {}
    lines: dict[tuple[str, str], int] = {}
    repeated = 0
    for number, line in numbered_lines(path):
        where, columns = f"{path}:{number}", line.split("\t")
        if not line or (number == 1 and _is_header(columns)):
            continue
        if len(columns) != 3:
            raise InputError(
                f"{where}: wanted 3 columns with tabs between them (query id, document id, gain), "
                f"got {len(columns)}"
            )
        query = check_id(columns[0], where, "query id")
        document = check_id(columns[1], where, "document id")
        gain = _gain(columns[2], where)
        first = lines.setdefault((query, document), number)
        known = qrels.setdefault(query, {}).setdefault(document, gain)
        if known != gain:
            raise InputError(
                f"{where}: query {query}, document {document} has gain {gain} here and {known} "
                f"in line {first}; keep one of them"
            )
        repeated += first != number
    if not qrels:
        raise InputError(f"{path}: holds no judgment; wanted lines of query id, document id, gain")
    return qrels, {"repeated judgments": repeated} if repeated else {}


def relevant(gains: Mapping[str, int]) -> set[str]:
    """Returns the documents of gain > 0."""
    return {document for document, gain in gains.items() if gain > 0}


def judged(qrels: Qrels) -> tuple[str, ...]:
    """Returns the queries with at least one document of gain > 0, sorted by id.

    Example:
      >>> judged({"b": {"d": 1}, "a": {"d": 2}, "c": {"d": 0}})
      ('a', 'b')
    """
    return tuple(sorted(query for query, gains in qrels.items() if relevant(gains)))


def relevant_to_any(queries: Iterable[str], qrels: Qrels) -> set[str]:
    """Returns the documents that are relevant for at least one of `queries`."""
    return {document for query in queries for document in relevant(qrels[query])}


def union(qrels_by_file: Mapping[str, Qrels]) -> tuple[dict[str, dict[str, int]], int]:
    """Returns the judgments of all files together.

    Args:
      qrels_by_file: Judgments by file name.

    Returns:
      For each query and document the highest gain of any file, and how many pairs have another
      gain in a later file than the earlier ones gave.

    Example:
      >>> union({"train": {"q": {"d": 1}}, "test": {"q": {"d": 2, "e": 0}}})
      ({'q': {'d': 2, 'e': 0}}, 1)
    """
    merged: dict[str, dict[str, int]] = {}
    differing = 0
    for qrels in qrels_by_file.values():
        for query, gains in qrels.items():
            known = merged.setdefault(query, {})
            for document, gain in gains.items():
                differing += known.get(document, gain) != gain
                known[document] = max(gain, known.get(document, gain))
    return merged, differing
