"""Questions: read from words or a file, and mapped to frozen vectors by the documents' encoder."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.data import beir
from dive_jax.data.lines import check_id, numbered_lines, parse_object
from dive_jax.data.python_docs import build
from dive_jax.encoders import lsa, lsa_files
from dive_jax.files import cache_folder
from dive_jax.sources import BUILT_IN_DATASET, BUILT_IN_ENCODER, Source
from dive_jax.studies.encoding import Elsewhere, encode
from dive_jax.types import InputError

_WHOLE_LINES = (".jsonl", ".jsonl.gz")

Encode = Callable[[Sequence[str]], Float[np.ndarray, "texts full_dim"]]
"""Maps texts of queries to frozen vectors; a text without a known word may become zeros."""


class Question(NamedTuple):
    """What is asked.

    Attributes:
      id: Its id; a number where none was given.
      text: Its words; None to take the dataset's query of that id.
      where: Where it was said, for errors.
    """

    id: str
    text: str | None
    where: str


class Asked(NamedTuple):
    """A question that is understood.

    Attributes:
      id: Its id.
      text: Its words.
      vector: Its frozen vector, [full_dim].
      known: Whether it is one of the dataset's queries; then a document of its id does not count.
    """

    id: str
    text: str
    vector: np.ndarray
    known: bool


def read_questions(path: Path) -> list[Question]:
    """Reads queries: one a line, or JSON objects with _id and text in a file named .jsonl.

    Args:
      path: The file; .gz is unpacked. Blank lines are skipped. An object without text names a query
        of the dataset by its _id, and so does a line that is the id of one.

    Raises:
      InputError: If the file cannot be read or holds no query, or a line is wrong.
    """
    if not path.is_file():
        raise InputError(f"--queries: no such file as {path}; wanted one query a line")
    found = list(_lines(path))
    if not found:
        raise InputError(f"{path}: holds no query; wanted one a line")
    first: dict[str, str] = {}
    for each in found:
        if (earlier := first.setdefault(each.id, each.where)) != each.where:
            raise InputError(f"{each.where}: _id {each.id} repeats that of {earlier}")
    return found


def _lines(path: Path) -> Iterator[Question]:
    objects = path.name.endswith(_WHOLE_LINES)
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if not objects:
            yield Question(str(number), line.strip(), where)
            continue
        record = parse_object(line, where)
        id, text = check_id(record.get("_id"), where), record.get("text")
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise InputError(f"{where}: text: wanted words, got {str(text)[:80]!r}")
        yield Question(id, text, where)


def texts_folder(dataset: str, root: str) -> Path:
    """Returns the folder of a dataset's texts."""
    return build() if dataset == BUILT_IN_DATASET else Path(root) / dataset


def _query_texts(folder: Path) -> dict[str, str]:
    """Returns id -> text of the dataset's queries, none where their texts are not at hand."""
    if not any((folder / f"queries.jsonl{end}").exists() for end in ("", ".gz")):
        return {}
    return {each.id: each.text for each in beir.iter_queries(folder)}


def understand(
    questions: Sequence[Question], source: Source, folder: Path, encoder: Encode
) -> list[Asked]:
    """Finds the frozen vector of every question.

    One that is a query of the dataset, by its id or word by word, has a vector already; the others
    are encoded.

    Args:
      questions: At least one.
      source: The dataset and its vectors.
      folder: The dataset's texts.
      encoder: Encodes texts as the queries of the dataset were encoded; called once, if at all.

    Raises:
      InputError: If an id is unknown, or the encoder knows no word of a text.
    """
    texts, rows = _query_texts(folder), source.store.sides.query.row_of
    ids = {text: id for id, text in texts.items() if id in rows}
    said: list[tuple[str, str, int | None]] = []
    for each in questions:
        at = (
            each.id if each.text is None else each.text if each.text in rows else ids.get(each.text)
        )
        if each.text is None and at not in rows:
            raise InputError(
                f"{each.where}: no text, and {source.dataset} has no vector of a query {each.id}"
            )
        if at is None:
            said.append((each.id, each.text or "", None))
        else:
            said.append((at, texts.get(at, at), rows[at]))
    unknown = [at for at, (_, _, row) in enumerate(said) if row is None]
    vectors = np.zeros((len(said), source.store.dim), np.float32)
    if unknown:
        vectors[unknown] = encoder([said[at][1] for at in unknown])
    for at, (_, _, row) in enumerate(said):
        if row is not None:
            vectors[at] = source.vectors.query[row]
        elif not vectors[at].any():
            raise InputError(
                f"{questions[at].where}: {source.store.encoder} knows none of the words of "
                f"{said[at][1]!r}; ask in other words"
            )
    return [
        Asked(id, text, vector, row is not None)
        for (id, text, row), vector in zip(said, vectors, strict=True)
    ]


def encoder_of(source: Source, folder: Path, how: Elsewhere, note: Callable[[str], None]) -> Encode:
    """Returns what encodes texts as the queries of a dataset were encoded.

    Args:
      source: The dataset and its vectors.
      folder: The dataset's texts.
      how: How encoders that are not built in are run.
      note: Told what takes a while.
    """
    fitted = source.store.manifest.get("encoder_fingerprint_extra")
    if source.store.encoder == BUILT_IN_ENCODER and isinstance(fitted, str):
        return lambda texts: lsa.encode(_lsa(fitted, source, folder, note), texts)
    return lambda texts: encode(texts, source.store, _query_texts(folder), how, note)


def _lsa(fingerprint: str, source: Source, folder: Path, note: Callable[[str], None]) -> lsa.Lsa:
    """Returns the built-in encoder that made a dataset's vectors, kept in the user's cache."""
    place = cache_folder() / "encoders" / f"{lsa.NAME}-{fingerprint[:16]}"
    if place.is_dir():
        encoder = lsa_files.load(place)
    else:
        note(f"fitting {lsa.NAME} on the documents once, for {place}")
        texts = [each.full_text for each in beir.iter_documents(folder)]
        encoder = lsa.fit(texts, dim=source.store.dim)
        lsa_files.save(encoder, place)
    if (got := lsa.fingerprint(encoder)) != fingerprint:
        raise InputError(
            f"{lsa.NAME}: the vectors of {source.dataset} are of another fit ({fingerprint[:12]}…) "
            f"than this one ({got[:12]}…); remove {place} and those vectors, and train again"
        )
    return encoder
