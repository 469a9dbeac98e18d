"""Writes the files of a BEIR collection from records, each whole or absent."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dive_jax.data.lines import check_id
from dive_jax.data.qrels import MOST_GAIN
from dive_jax.files import replacing
from dive_jax.types import InputError


def write_texts(path: Path, records: Iterable[Mapping[str, Any]], *, titles: bool) -> int:
    r"""Writes documents or queries, one JSON object a line.

    Args:
      path: corpus.jsonl or queries.jsonl.
      records: With _id, text and, for documents, perhaps title; None counts as no title.
      titles: Whether a title is written.

    Returns:
      How many were written.

    Raises:
      InputError: If an id cannot serve as one, or a text is not a string.

    Example:
      >>> import tempfile
      >>> path = Path(tempfile.mkdtemp()) / "corpus.jsonl"
      >>> write_texts(path, [{"_id": "d1", "text": "Snow."}], titles=True)
      1
      >>> path.read_text()
      '{"_id": "d1", "title": "", "text": "Snow."}\n'
    """
    count = 0
    with replacing(path) as aside, open(aside, "w", encoding="utf-8") as out:
        for count, record in enumerate(records, 1):
            where = f"{path.name}: record {count}"
            line = {"_id": check_id(record["_id"], where)}
            if titles:
                line["title"] = _string(record.get("title") or "", "title", where)
            line["text"] = _string(record["text"], "text", where)
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return count


def write_judgments(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Writes judgments with a header line: query id, document id and gain, tabs between.

    Args:
      path: qrels/<split>.tsv.
      records: With query-id, corpus-id and score, a whole number of any type.

    Returns:
      How many were written.

    Raises:
      InputError: If an id cannot serve as one, or a score is no whole number.
    """
    count = 0
    with replacing(path) as aside, open(aside, "w", encoding="utf-8") as out:
        out.write("query-id\tcorpus-id\tscore\n")
        for count, record in enumerate(records, 1):
            where = f"{path.name}: record {count}"
            query = check_id(record["query-id"], where, "query-id")
            document = check_id(record["corpus-id"], where, "corpus-id")
            out.write(f"{query}\t{document}\t{_whole(record['score'], where)}\n")
    return count


def _string(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: {name}: wanted a string, got {type(value).__name__}")
    return value


def _whole(value: Any, where: str) -> int:
    fits = isinstance(value, int | float) and abs(value) <= MOST_GAIN and int(value) == value
    if not fits:
        raise InputError(f"{where}: score: wanted a whole number, got {str(value)[:40]!a}")
    return int(value)
