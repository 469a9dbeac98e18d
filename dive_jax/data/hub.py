"""BEIR collections on the datasets hub, and copies of its files at hand, through `datasets`.

One repository holds the texts (configurations `corpus` and `queries`), another the judgments (a
split a file). The library `datasets` (extra `datasets`) is imported when it is first needed.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.files import sha256_json
from dive_jax.types import InputError

FILES_OF_SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "test": "test"}
"""Split of a judgments repository -> name of the file that BEIR keeps it in."""

_BATCH = 1000
_JUDGMENT = ("query-id", "corpus-id", "score")
_PLAIN = (
    *("scifact", "fiqa", "arguana", "quora", "nfcorpus", "scidocs", "msmarco", "fever", "nq"),
    *("hotpotqa", "trec-covid", "dbpedia-entity", "climate-fever", "webis-touche2020"),
)
_FORUMS = "cqadupstack/"


class Repositories(NamedTuple):
    """Where the two halves of a collection lie.

    Attributes:
      texts: Repository of documents and queries.
      qrels: Repository of the judgments; may be the same.
      qrels_configuration: Which of its configurations; None where it has but one.
    """

    texts: str
    qrels: str
    qrels_configuration: str | None = None


def repositories(dataset: str) -> Repositories:
    """Returns the repositories of a collection that is on the hub.

    Args:
      dataset: One of BEIR's names, or one forum of CQADupStack.

    Raises:
      InputError: If the hub's layout of that name is not known.

    Example:
      >>> repositories("scifact")
      Repositories(texts='BeIR/scifact', qrels='BeIR/scifact-qrels', qrels_configuration=None)
      >>> repositories("cqadupstack/android").texts
      'mteb/cqadupstack-android'
    """
    if dataset.startswith(_FORUMS):
        one = "mteb/" + dataset.replace("/", "-")
        return Repositories(one, one, "default")
    if dataset in _PLAIN:
        return Repositories(f"BeIR/{dataset}", f"BeIR/{dataset}-qrels")
    raise InputError(
        f"--dataset: no collection {dataset!r} on the hub is known; wanted one of "
        f"{', '.join(_PLAIN)}, cqadupstack or cqadupstack/<forum>, or a --source at hand"
    )


class Place(NamedTuple):
    """A repository on the hub at a revision, or a folder with a copy of its files.

    Attributes:
      path: The repository's name, or the folder.
      revision: Commit of the hub; None for a folder.
      cache: Folder for what `datasets` writes; None for the user's.
    """

    path: str
    revision: str | None = None
    cache: str | None = None


def resolve(repository: str, revision: str | None) -> str:
    """Returns the commit that a revision of a repository means now; asks the hub.

    Args:
      repository: The repository.
      revision: Branch, tag or commit; None for the main branch. A whole commit is not asked for.

    Raises:
      InputError: If the hub cannot be reached, or has no such thing.
    """
    if revision and len(revision) == 40 and set(revision) <= set("0123456789abcdef"):
        return revision
    library = _library()
    if Path(repository).exists():
        raise InputError(
            f"{repository}: a folder of that name lies in the working folder and would stand in "
            "for the hub's repository; start elsewhere, or name the folder with --source"
        )
    with _one_line(repository):
        api = library("huggingface_hub").HfApi()
        return str(api.dataset_info(repository, revision=revision).sha)


def fingerprint(folders: Mapping[str, Path]) -> str:
    """Returns the SHA-256 (hex) of names, sizes and times of all files in some folders."""
    told = []
    for name, folder in sorted(folders.items()):
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            stat = path.stat()
            told.append([name, str(path.relative_to(folder)), stat.st_size, stat.st_mtime_ns])
    return sha256_json(told)


def texts(place: Place, kind: str) -> tuple[int, Iterator[dict[str, Any]]]:
    """Opens the documents ("corpus") or the queries ("queries") of a repository.

    Returns:
      How many there are, and their records with _id, text and perhaps title.

    Raises:
      InputError: If they cannot be got or read.
    """
    splits = _splits(place, kind)
    if kind not in splits and len(splits) != 1:
        raise InputError(f"{place.path}: wanted a split {kind}, got {', '.join(sorted(splits))}")
    rows = splits.get(kind) or next(iter(splits.values()))
    wanted = [name for name in ("_id", "title", "text") if name in rows.column_names]
    if missing := {"_id", "text"} - set(wanted):
        raise InputError(
            f"{place.path}: {kind}: wanted columns _id and text, no {sorted(missing)[0]} among "
            f"{', '.join(rows.column_names)}"
        )
    return len(rows), _records(rows.select_columns(wanted), place)


def judgments(
    place: Place, configuration: str | None
) -> dict[str, tuple[int, Iterator[dict[str, Any]]]]:
    """Opens the judgments of a repository.

    Returns:
      Name of the file (train, dev, test) -> how many there are, and their records with query-id,
      corpus-id and score. Ids are strings as written, "007" among them.

    Raises:
      InputError: If they cannot be got or read.
    """
    datasets = _library()("datasets")
    string, number = datasets.Value("string"), datasets.Value("float64")
    features = dict(zip(_JUDGMENT, (string, string, number), strict=True))
    splits = _splits(place, configuration, features=datasets.Features(features))
    known = {name: rows for name, rows in splits.items() if name in FILES_OF_SPLITS}
    if not known:
        raise InputError(
            f"{place.path}: wanted judgments in splits train, validation or test, got "
            f"{', '.join(sorted(splits)) or 'none'}"
        )
    return {
        FILES_OF_SPLITS[name]: (len(rows), _records(rows, place)) for name, rows in known.items()
    }


def _splits(place: Place, configuration: str | None, **more: Any) -> dict[str, Any]:
    datasets = _library()("datasets")
    with _one_line(place.path):
        builder = datasets.load_dataset_builder(
            place.path, configuration, revision=place.revision, cache_dir=place.cache, **more
        )
        _check_within(builder.config.data_files or {}, place)
        builder.download_and_prepare()
        return dict(builder.as_dataset())


def _check_within(files: Mapping[Any, Iterable[Any]], place: Place) -> None:
    """Refuses a repository whose card names files that lie outside of it.

    Links are not followed: the hub's own cache is made of them.
    """
    folder = os.path.abspath(place.path)
    for name in (str(each) for several in files.values() for each in several):
        if place.revision is None:
            inside = Path(os.path.abspath(name)).is_relative_to(folder)
        else:
            inside = name.startswith(f"hf://datasets/{place.path}@") and "/../" not in name
        if not inside:
            raise InputError(f"{place.path}: its card names a file outside of it, {name[:200]!a}")


def _records(rows: Any, place: Place) -> Iterator[dict[str, Any]]:
    with _one_line(place.path):
        for batch in rows.iter(batch_size=_BATCH):
            names = list(batch)
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(names, values, strict=True))


def _library() -> Any:
    """Returns `import_module` once `datasets` is there, and quiet."""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise InputError(
            "--source: reading dataset repositories wants the package datasets; install "
            "dive_jax[datasets], or give a zip or folder in BEIR's layout"
        ) from None
    for name in ("datasets", "huggingface_hub"):
        import_module(
            f"{name}.utils.logging"
        ).set_verbosity_error()  # failures are told once, by us
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    return import_module


@contextlib.contextmanager
def _one_line(path: str) -> Iterator[None]:
    """Turns what the library raises, of a dozen kinds, into one line that names the repository."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        cause = error.__cause__ if str(error).startswith("An error occurred") else None
        reason = " ".join(str(cause or error).split())[:300] or type(error).__name__
        raise InputError(f"{path}: cannot be got or read ({reason})") from error
