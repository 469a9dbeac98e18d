from pathlib import Path
from typing import Any

import pytest

from dive_jax.data.beir import iter_documents, iter_queries
from dive_jax.data.beir_writer import write_judgments, write_texts
from dive_jax.data.qrels import read_qrels
from dive_jax.types import InputError
from tests import hub_files


def test_the_reader_reads_what_is_written(tmp_path: Path):
    assert write_texts(tmp_path / "corpus.jsonl", hub_files.DOCUMENTS, titles=True) == 3
    assert write_texts(tmp_path / "queries.jsonl", hub_files.QUERIES, titles=False) == 2
    got = [
        {"_id": each.id, "title": each.title, "text": each.text}
        for each in iter_documents(tmp_path)
    ]
    assert got == hub_files.DOCUMENTS
    assert [
        {"_id": each.id, "text": each.text} for each in iter_queries(tmp_path)
    ] == hub_files.QUERIES
    rows = [
        {"query-id": query, "corpus-id": document, "score": float(gain)}
        for query, document, gain in hub_files.JUDGMENTS["test"]
    ]
    assert write_judgments(tmp_path / "test.tsv", rows) == 2
    assert read_qrels(tmp_path / "test.tsv")[0] == {"001": {"1": 1}, "q2": {"02": 0}}


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"_id": None, "text": "a"}, "corpus.jsonl: record 2: _id: wanted a string, got NoneType"),
        ({"_id": 7, "text": "a"}, "record 2: _id: wanted a string, got int"),
        ({"_id": "a\tb", "text": "a"}, "holds a tab"),
        ({"_id": "d", "text": None}, "record 2: text: wanted a string, got NoneType"),
        ({"_id": "d", "title": 3, "text": "a"}, "record 2: title: wanted a string, got int"),
    ],
)
def test_odd_texts_are_refused_and_nothing_is_left(tmp_path: Path, record: Any, wanted: str):
    with pytest.raises(InputError, match=wanted):
        write_texts(tmp_path / "corpus.jsonl", [hub_files.DOCUMENTS[0], record], titles=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"query-id": None}, "test.tsv: record 1: query-id: wanted a string"),
        ({"corpus-id": ""}, "corpus-id: empty"),
        ({"score": 0.5}, "score: wanted a whole number, got '0.5'"),
        ({"score": None}, "score: wanted a whole number"),
        ({"score": float("nan")}, "score: wanted a whole number, got 'nan'"),
        ({"score": 1e9}, "score: wanted a whole number"),
    ],
)
def test_odd_judgments_are_refused(tmp_path: Path, change: Any, wanted: str):
    record = {"query-id": "q", "corpus-id": "d", "score": 1} | change
    with pytest.raises(InputError, match=wanted):
        write_judgments(tmp_path / "test.tsv", [record])
    assert list(tmp_path.iterdir()) == []
