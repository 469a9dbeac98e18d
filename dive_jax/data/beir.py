"""Collections in BEIR's folder layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv.

Texts are streamed: a loaded collection holds ids, judgments and one 8-byte digest a document.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt64

from dive_jax.data.lines import check_id, numbered_lines, parse_object
from dive_jax.data.qrels import read_qrels
from dive_jax.files import sha256_json
from dive_jax.types import InputError, Qrels

QRELS_FILES = ("train", "dev", "test")
_DOCUMENTS = "corpus.jsonl"
_QUERIES = "queries.jsonl"


class Document(NamedTuple):
    """One text that can be found."""

    id: str
    title: str
    text: str

    @property
    def full_text(self) -> str:
        """Title and text, joined by one space, without space at the ends."""
        return f"{self.title} {self.text}".strip()


class Query(NamedTuple):
    """One text that is searched with."""

    id: str
    text: str


class Collection(NamedTuple):
    """Ids and judgments of one dataset; texts stay on disk.

    Attributes:
      name: Name of the folder.
      document_ids: In the order of the file.
      document_digests: uint64 [documents], `text_digest` of each full text; None if no texts are
        at hand.
      query_ids: In the order of the file.
      qrels: File name (train, dev, test; those that exist) -> judgments. A judged query whose
        documents are all absent stays, with no document.
      counts: Everything dropped or odd, in words, and how often; nothing that did not occur.
      fingerprint: SHA-256 (hex) of ids, texts and judgments.
    """

    name: str
    document_ids: tuple[str, ...]
    document_digests: UInt64[np.ndarray, " documents"] | None
    query_ids: tuple[str, ...]
    qrels: dict[str, dict[str, dict[str, int]]]
    counts: dict[str, int]
    fingerprint: str

    def digests_of(self, ids: Sequence[str]) -> UInt64[np.ndarray, " rows"] | None:
        """Returns the digests in the order of `ids`, such as the rows of a vector store."""
        if self.document_digests is None:
            return None
        row = {each: index for index, each in enumerate(self.document_ids)}
        order = np.fromiter((row[each] for each in ids), np.int64, len(ids))
        return self.document_digests[order]


def text_digest(text: str) -> int:
    """Returns a 64-bit digest that is equal for texts equal up to runs of white space.

    Example:
      >>> text_digest("a  b ") == text_digest("a b")
      True
    """
    plain = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(plain).digest()[:8], "little")


def _text_file(folder: Path, name: str) -> Path | None:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists() and packed.exists():
        raise InputError(f"{folder}: both {name} and {name}.gz exist; remove one of them")
    return next((path for path in (plain, packed) if path.exists()), None)


def _wanted_file(folder: Path, name: str) -> Path:
    if (path := _text_file(folder, name)) is None:
        raise InputError(
            f"{folder / name}: missing, and so is {name}.gz; "
            "put the dataset there, or check --data_root and --dataset"
        )
    return path


def _text(record: dict[str, Any], name: str, where: str) -> str:
    if not isinstance(value := record[name], str):
        raise InputError(f"{where}: {name}: wanted a string, got {type(value).__name__}")
    return value


def _records(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields file:line, id and object of every line that is not blank; `text` is a string."""
    seen: dict[str, int] = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = parse_object(line, where)
        for name in ("_id", "text"):
            if name not in record:
                raise InputError(f"{where}: {name} is missing; wanted the fields _id and text")
        id = check_id(record["_id"], where)
        if (first := seen.setdefault(id, number)) != number:
            raise InputError(f"{where}: _id {id} repeats that of line {first}; ids must be unique")
        _text(record, "text", where)
        yield where, id, record
    if not seen:
        raise InputError(f"{path}: empty; wanted one JSON object a line")


def iter_documents(folder: Path) -> Iterator[Document]:
    """Streams the documents of a BEIR folder.

    Args:
      folder: Holds corpus.jsonl or corpus.jsonl.gz, with the fields _id, text and, optionally,
        title; others are ignored. Blank lines are skipped.

    Yields:
      Documents in the order of the file.

    Raises:
      InputError: If the file is missing, doubled, empty or wrong; names file and line.
    """
    for where, id, record in _records(_wanted_file(folder, _DOCUMENTS)):
        title = "" if record.get("title") is None else _text(record, "title", where)
        yield Document(id, title, record["text"])


def iter_queries(folder: Path) -> Iterator[Query]:
    """Streams the queries of a BEIR folder, as `iter_documents` does its documents.

    Args:
      folder: Holds queries.jsonl or queries.jsonl.gz, with the fields _id and text.

    Yields:
      Queries in the order of the file.

    Raises:
      InputError: If the file is missing, doubled, empty or wrong; names file and line.
    """
    for _, id, record in _records(_wanted_file(folder, _QUERIES)):
        yield Query(id, record["text"])


class _Texts(NamedTuple):
    """What is kept of one side: ids and, where its texts are at hand, their digests."""

    ids: tuple[str, ...]
    digests: np.ndarray | None
    blank: int

    def fingerprint(self) -> str:
        """SHA-256 (hex) of ids and texts."""
        digests = b"" if self.digests is None else self.digests.astype("<u8").tobytes()
        return sha256_json([self.ids, hashlib.sha256(digests).hexdigest()])


def _kept(texts: Iterable[tuple[str, str]]) -> _Texts:
    ids, digests, blank = [], array("Q"), 0
    for id, text in texts:
        ids.append(id)
        digests.append(text_digest(text))
        blank += not text.strip()
    return _Texts(tuple(ids), np.array(digests, dtype=np.uint64), blank)


def _given(ids: Sequence[str]) -> _Texts:
    if len(set(ids)) != len(ids):
        repeated, _ = Counter(ids).most_common(1)[0]
        raise InputError(f"id {repeated} is given more than once; ids must be unique")
    return _Texts(tuple(ids), None, 0)


def _documents(folder: Path, ids: Sequence[str] | None) -> _Texts:
    if ids is not None and _text_file(folder, _DOCUMENTS) is None:
        return _given(ids)
    return _kept((each.id, each.full_text) for each in iter_documents(folder))


def _queries(folder: Path, ids: Sequence[str] | None) -> _Texts:
    if ids is not None and _text_file(folder, _QUERIES) is None:
        return _given(ids)
    return _kept(iter_queries(folder))


def _oddities(documents: _Texts, queries: _Texts) -> dict[str, int]:
    digests = documents.digests
    unknown = len(documents.ids) if digests is None else 0
    twins = 0 if digests is None else len(digests) - len(np.unique(digests))
    return {
        "documents without text": documents.blank,
        "documents whose text repeats an earlier one": twins,
        "documents without texts at hand: identical texts cannot be recognised": unknown,
        "queries without text": queries.blank,
    }


def _known(
    qrels: Qrels, documents: set[str], queries: set[str]
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Returns the judgments whose query and document exist, and what was dropped."""
    kept, no_query, no_document = {}, 0, 0
    for query, gains in qrels.items():
        if query not in queries:
            no_query += len(gains)
            continue
        kept[query] = {id: gain for id, gain in gains.items() if id in documents}
        no_document += len(gains) - len(kept[query])
    return kept, {
        "judgments of absent documents": no_document,
        "judgments of absent queries": no_query,
    }


def load_collection(
    folder: Path,
    document_ids: Sequence[str] | None = None,
    query_ids: Sequence[str] | None = None,
) -> Collection:
    """Loads ids, digests and judgments of a BEIR folder; holds no text.

    Args:
      folder: The dataset.
      document_ids: Ids that stand in for corpus.jsonl where that file is absent, such as those of
        a vector store; ignored where it exists.
      query_ids: The same for queries.jsonl.

    Returns:
      The collection. Judgments of documents or queries that do not exist are dropped and counted.

    Raises:
      InputError: If a file is missing or wrong, or no judgments exist.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; check --data_root and --dataset")
    documents, queries = _documents(folder, document_ids), _queries(folder, query_ids)
    document_set, query_set = set(documents.ids), set(queries.ids)
    counts, qrels = _oddities(documents, queries), {}
    for file in QRELS_FILES:
        if (path := folder / "qrels" / f"{file}.tsv").exists():
            rows, odd = read_qrels(path)
            qrels[file], dropped = _known(rows, document_set, query_set)
            counts |= {f"{what} ({file})": count for what, count in (odd | dropped).items()}
    if not qrels:
        raise InputError(f"{folder / 'qrels'}: wanted test.tsv, train.tsv or dev.tsv, found none")
    return Collection(
        name=folder.resolve().name,
        document_ids=documents.ids,
        document_digests=documents.digests,
        query_ids=queries.ids,
        qrels=qrels,
        counts={what: count for what, count in counts.items() if count},
        fingerprint=sha256_json([documents.fingerprint(), queries.fingerprint(), qrels]),
    )
