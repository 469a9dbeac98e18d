"""Copies of the datasets hub's repositories, small, in the layouts that the real ones have."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENTS = [
    {"_id": "1", "title": "Snow", "text": "Snow is white.\nAnd cold."},
    {"_id": "02", "title": "", "text": "Grass is grün."},
    {"_id": "MED-3", "title": "Sea", "text": "The sea\u2028is blue."},
]
QUERIES = [{"_id": "001", "text": "What is white?"}, {"_id": "q2", "text": "What is blue?"}]
JUDGMENTS = {"train": [("q2", "MED-3", 2)], "test": [("001", "1", 1), ("q2", "02", 0)]}
CARD = """---
configs:
- config_name: corpus
  data_files:
  - split: corpus
    path: corpus*
- config_name: queries
  data_files:
  - split: queries
    path: queries*
{more}---
"""


def columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [each.get(name) for each in records] for name in records[0]}


def repositories(
    folder: Path,
    name: str = "scifact",
    documents: list[dict[str, Any]] = DOCUMENTS,
    queries: list[dict[str, Any]] = QUERIES,
) -> Path:
    """Writes a repository of Parquet files and one of judgments, as BEIR's own are."""
    texts, qrels = folder / name, folder / f"{name}-qrels"
    texts.mkdir(parents=True)
    qrels.mkdir()
    (texts / "README.md").write_text(CARD.format(more=""))
    half = len(documents) // 2
    for part, rows in enumerate((documents[:half], documents[half:])):
        pq.write_table(pa.table(columns(rows)), texts / f"corpus-0000{part}-of-00002.parquet")
    pq.write_table(pa.table(columns(queries)), texts / "queries-00000-of-00001.parquet")
    for split, rows in JUDGMENTS.items():
        lines = "".join(f"{query}\t{document}\t{gain}\n" for query, document, gain in rows)
        (qrels / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


def forum(folder: Path, name: str = "cqadupstack-android") -> Path:
    """Writes one repository of JSON lines with its judgments within, as a forum's is."""
    one = folder / name
    one.mkdir(parents=True)
    more = "- config_name: default\n  data_files:\n  - split: test\n    path: qrels/test.jsonl\n"
    (one / "README.md").write_text(CARD.format(more=more))
    lines = {"corpus": DOCUMENTS, "queries": QUERIES}
    names = ("query-id", "corpus-id", "score")
    judged = [dict(zip(names, (*row[:2], float(row[2])), strict=True)) for row in JUDGMENTS["test"]]
    (one / "qrels").mkdir()
    for path, rows in (*lines.items(), ("qrels/test", judged)):
        text = "".join(json.dumps(each) + "\n" for each in rows)
        (one / f"{path}.jsonl").write_text(text)
    return folder
