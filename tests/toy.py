"""A small dataset that an adapter can learn from, written in the product's own format."""

import json
from pathlib import Path

import numpy as np

from dive_jax.data.embeddings import Side, save_store

FULL_DIM = 32
ENCODER = "toy-encoder"
DETAILS = {"pooling": "mean", "normalized": True, "max_tokens": 8, "source": "toy"}


def _lines(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")


def _judgments(path: Path, pairs: list[tuple[int, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"q{query}\td{document}\t1\n" for query, document in pairs)
    path.write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")


def vectors(documents: int, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents at random; query i is document i % documents, noisy, with a nuisance added."""
    rng = np.random.default_rng(seed)
    document = rng.normal(size=(documents, FULL_DIM)).astype(np.float32)
    query = document[np.arange(queries) % documents] + 0.7 * rng.normal(size=(queries, FULL_DIM))
    query[:, :4] += 2.0
    return document, query.astype(np.float32)


def write(
    root: Path, name: str = "toy", *, documents: int = 60, queries: int = 48, seed: int = 0
) -> Path:
    """Writes corpus.jsonl, queries.jsonl, qrels and one store; returns the dataset's folder."""
    folder = root / name
    texts = [{"_id": f"d{i}", "title": "", "text": f"document {i}"} for i in range(documents)]
    _lines(folder / "corpus.jsonl", texts)
    _lines(folder / "queries.jsonl", [{"_id": f"q{i}", "text": f"ask {i}"} for i in range(queries)])
    pairs = [(i, i % documents) for i in range(queries)]
    cut = queries * 2 // 3
    _judgments(folder / "qrels" / "train.tsv", pairs[:cut])
    _judgments(folder / "qrels" / "test.tsv", pairs[cut:])
    write_store(folder, ENCODER, documents=documents, queries=queries, seed=seed)
    return folder


def write_store(
    folder: Path, encoder: str, *, documents: int = 60, queries: int = 48, seed: int = 0
) -> None:
    """Writes the vectors of one encoder."""
    document, query = vectors(documents, queries, seed)
    save_store(
        folder / "embeddings" / encoder,
        encoder=encoder,
        documents=Side(tuple(f"d{i}" for i in range(documents)), document),
        queries=Side(tuple(f"q{i}" for i in range(queries)), query),
        details=DETAILS,
    )


FLAGS = [
    "--dataset=toy",
    f"--encoder={ENCODER}",
    "--split=official",
    "--dim=4",
    "--heads=2",
    "--batch_size=16",
    "--epochs=3",
    "--seeds=1,2",
    "--early_stopping=off",
]
"""A training command on it that ends in seconds."""
