"""Answers: what a compressed collection finds for a question, beside what the full vectors find."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dive_jax.artefact import check_encoder
from dive_jax.data import beir
from dive_jax.data.embeddings import unit_rows
from dive_jax.methods.protocol import Compressor
from dive_jax.retrieval import indexes
from dive_jax.retrieval.exact import Ranking, top_k
from dive_jax.sources import Source
from dive_jax.studies.asking import Asked
from dive_jax.studies.indexing import Index
from dive_jax.types import InputError

DEPTH = 100
"""How far down a document's place in the other ranking is looked for."""

SNIPPET = 300
"""Characters of a document's text that are kept."""


class Hit(NamedTuple):
    """One document found.

    Attributes:
      rank: Its place, from 1.
      id: Its id.
      score: Its inner product with the query; a cosine for most methods.
      other: Its place in the other ranking; None where it is below `DEPTH` or none was asked for.
    """

    rank: int
    id: str
    score: float
    other: int | None = None


class Answer(NamedTuple):
    """What was found for one question.

    Attributes:
      id: The question's id.
      text: Its words.
      compressed: Documents found among the compressed vectors, best first.
      frozen: Documents found among the full vectors; None unless asked for.
    """

    id: str
    text: str
    compressed: list[Hit]
    frozen: list[Hit] | None


class Texts(NamedTuple):
    """What a document says: its title, and the start of its text on one line."""

    title: str
    snippet: str


def _compressed(
    asked: Sequence[Asked],
    compressor: Compressor,
    source: Source,
    index: Index | None,
    depth: int,
    chunk_rows: int,
) -> tuple[Ranking, Sequence[str]]:
    """Returns the ranking by compressed vectors, and the ids of its rows."""
    vectors = np.stack([each.vector for each in asked])
    queries = compressor.compress(vectors, side="query")
    if index is not None:
        return indexes.search(index.index, queries, depth), index.ids
    found = top_k(
        queries,
        source.vectors.document,
        k=depth,
        chunk_rows=chunk_rows,
        transform=compressor.sides(chunk_rows).document,
    )
    return found, source.ids.document


def _frozen(asked: Sequence[Asked], source: Source, depth: int, chunk_rows: int) -> Ranking:
    return top_k(
        unit_rows(np.stack([each.vector for each in asked])),
        source.vectors.document,
        k=depth,
        chunk_rows=chunk_rows,
        transform=unit_rows,
    )


def _hits(ranking: Ranking, ids: Sequence[str], asked: Sequence[Asked]) -> list[list[Hit]]:
    """Returns each question's documents; one whose id is a known query's own does not count."""
    found = []
    for each, scores, rows in zip(asked, ranking.scores, ranking.rows, strict=True):
        listed = zip(scores.tolist(), rows.tolist(), strict=True)
        pairs = [(ids[int(row)], value) for value, row in listed if row >= 0]
        kept = (pair for pair in pairs if not (each.known and pair[0] == each.id))
        found.append([Hit(rank, id, score) for rank, (id, score) in enumerate(kept, 1)])
    return found


def _placed(hits: Sequence[Hit], others: Sequence[Hit], k: int) -> list[Hit]:
    """Returns the first k, each with its place among the others."""
    ranks = {each.id: each.rank for each in others if each.rank <= DEPTH}
    return [each._replace(other=ranks.get(each.id)) for each in hits[:k]]


def check(compressor: Compressor, source: Source, *, k: int, index: Index | None = None) -> None:
    """Refuses a search that cannot be, before any question is encoded.

    Args:
      compressor: The adapter.
      source: The documents and their frozen vectors.
      k: Documents wanted.
      index: Where to search; None for the dataset.

    Raises:
      InputError: If the vectors are not those of the adapter's encoder, or there are fewer than k
        documents.
    """
    store, total = source.store, len(source.ids.document if index is None else index.ids)
    if k > total:
        raise InputError(f"--top_k: wanted at most the {total:,} documents, got {k:,}")
    check_encoder(
        compressor.artefact,
        encoder=store.encoder,
        fingerprint=store.encoder_fingerprint,
        dim=store.dim,
    )


def search(
    asked: Sequence[Asked],
    compressor: Compressor,
    source: Source,
    *,
    k: int,
    index: Index | None = None,
    compare: bool = False,
    chunk_rows: int = 16384,
) -> list[Answer]:
    """Finds the best documents of each question.

    Args:
      asked: Questions with their frozen vectors.
      compressor: The adapter.
      source: The documents and their frozen vectors.
      k: Documents wanted.
      index: Where to search; None for exact search over the dataset.
      compare: Also search the frozen vectors, exactly.
      chunk_rows: Documents held at once.

    Raises:
      InputError: As `check` does.
    """
    check(compressor, source, k=k, index=index)
    depth = (max(k, DEPTH) if compare else k) + 1
    ranking, ids = _compressed(asked, compressor, source, index, depth, chunk_rows)
    found = _hits(ranking, ids, asked)
    if not compare:
        return [Answer(a.id, a.text, hits[:k], None) for a, hits in zip(asked, found, strict=True)]
    full = _hits(_frozen(asked, source, depth, chunk_rows), source.ids.document, asked)
    return [
        Answer(a.id, a.text, _placed(hits, others, k), _placed(others, hits, k))
        for a, hits, others in zip(asked, found, full, strict=True)
    ]


def _snippet(text: str) -> str:
    """Returns how a text begins, on one line, without the rules that underline headings."""
    words = (word for word in text.split() if word.strip("-=~"))
    return " ".join(words)[:SNIPPET]


def texts_of(answers: Sequence[Answer], folder: Path) -> dict[str, Texts]:
    """Returns what the documents found say, as far as their texts are at hand.

    Args:
      answers: What `search` returned.
      folder: The dataset's texts, read once.
    """
    wanted = {hit.id for each in answers for hit in (*each.compressed, *(each.frozen or ()))}
    if not any((folder / f"corpus.jsonl{end}").exists() for end in ("", ".gz")):
        return {}
    return {
        each.id: Texts(" ".join(each.title.split()), _snippet(each.text))
        for each in beir.iter_documents(folder)
        if each.id in wanted
    }


def as_json(answers: Sequence[Answer], texts: dict[str, Texts]) -> list[dict[str, Any]]:
    """Returns answers as JSON takes them."""

    def told(hits: Sequence[Hit], other: str) -> list[dict[str, Any]]:
        found = []
        for hit in hits:
            said = texts.get(hit.id, Texts("", ""))
            entry = {"rank": hit.rank, "id": hit.id, "score": hit.score, **said._asdict()}
            found.append(entry | ({f"{other}_rank": hit.other} if other else {}))
        return found

    listed = []
    for each in answers:
        entry: dict[str, Any] = {"id": each.id, "text": each.text}
        entry["compressed"] = told(each.compressed, "" if each.frozen is None else "frozen")
        if each.frozen is not None:
            entry["frozen"] = told(each.frozen, "compressed")
        listed.append(entry)
    return listed
