"""A BEIR collection from the hub, a zip or a folder to a folder of its own, checked and recorded.

What is got is written to a folder aside, file by file, and renamed when all of it is sound: killed,
the same command goes on with the files that are missing.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dive_jax.data import archives, hub
from dive_jax.data.beir_writer import write_judgments, write_texts
from dive_jax.files import sha256_file, write_json
from dive_jax.studies.alone import alone
from dive_jax.studies.prepared import FILES, RECORD, Wanted, made_record, read_object, there
from dive_jax.types import InputError

_NOTE, _LOCK, _CACHE = "note.json", ".lock", ".cache"
Progress = Callable[[int, str, str], AbstractContextManager[Any]]
"""Makes a progress bar from a number of pieces, what is done, and what is counted."""


def check_name(dataset: str) -> None:
    """Raises `InputError` unless a dataset's name makes a folder below the data root.

    Example:
      >>> check_name("cqadupstack/android")
    """
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", dataset, re.ASCII):
        raise InputError(
            f"--dataset: wanted a name such as scifact or cqadupstack/android, got {dataset[:80]!a}"
        )


def prepare(wanted: Wanted, progress: Progress) -> dict[str, Any]:
    """Makes a collection's folder, unless it is there.

    Args:
      wanted: What, from where, and where to.
      progress: Makes a progress bar.

    Returns:
      What `prepared.json` holds, with `new`: whether it was made now. A collection that was put
      there by other means has no source.

    Raises:
      InputError: If the source cannot be reached, is damaged or not to be trusted, is no sound
        collection, or the folder holds something else.
    """
    check_name(wanted.dataset)
    if (already := there(wanted)) is not None:
        return already | {"new": False}
    aside = wanted.target.with_name(f".{wanted.target.name}.partial")
    aside.mkdir(parents=True, exist_ok=True)
    with _working(aside):
        origin = _origin(wanted, aside)
        if _note(aside) != origin:
            _clear(aside)
            write_json(aside / _NOTE, origin)
        (aside / "qrels").mkdir(exist_ok=True)
        if origin["kind"] in ("hub", "repositories"):
            _from_repositories(wanted, origin, aside, progress)
        else:
            _from_files(wanted, aside, progress)
        told = made_record(wanted.dataset, origin, aside)
        write_json(aside / RECORD, told)
        _publish(aside, wanted.target)
    return told | {"new": True}


def _origin(wanted: Wanted, aside: Path) -> dict[str, Any]:
    """Returns where the collection comes from, as it is recorded and a resumption is known by."""
    if wanted.source == "hub":
        return _on_the_hub(wanted, _note(aside) or {})
    source = Path(wanted.source)
    if source.is_file():
        return {"kind": "zip", "name": source.name, "sha256": sha256_file(source)}
    if not source.is_dir():
        raise InputError(f"--source: no such zip or folder: {source}")
    if source.resolve() == wanted.target.resolve():
        raise InputError(f"--source: {source} is the folder to write; name another --data_root")
    if (found := archives.folder_files(source, wanted.dataset)) is not None:
        return {"kind": "folder", "name": source.name, "fingerprint": found.fingerprint}
    texts, qrels = _copies(source, wanted)
    return {
        "kind": "repositories",
        "texts": texts.name,
        "qrels": qrels.name,
        "qrels_configuration": _repositories(wanted).qrels_configuration,
        "fingerprint": hub.fingerprint({"texts": texts, "qrels": qrels}),
    }


def _repositories(wanted: Wanted) -> hub.Repositories:
    """Returns the repositories that hold a collection, as named by the user or known."""
    if wanted.repository is not None:
        return hub.Repositories(wanted.repository, wanted.repository, "default")
    try:
        return hub.repositories(wanted.dataset)
    except InputError:
        if wanted.source == "hub":
            raise
        return hub.Repositories(wanted.dataset, f"{wanted.dataset}-qrels")


def _on_the_hub(wanted: Wanted, note: Mapping[str, Any]) -> dict[str, Any]:
    place = _repositories(wanted)
    same = wanted.qrels_revision or (wanted.revision if place.qrels == place.texts else None)
    told: dict[str, Any] = {
        "kind": "hub",
        "texts": place.texts,
        "qrels": place.qrels,
        "qrels_configuration": place.qrels_configuration,
        "asked_revision": wanted.revision,
        "asked_qrels_revision": same,
    }
    if told.items() <= note.items():  # goes on with the revisions it began with
        return dict(note)
    try:
        told["revision"] = hub.resolve(place.texts, wanted.revision)
        told["qrels_revision"] = hub.resolve(place.qrels, same)
    except InputError as error:
        raise InputError(f"{error}; {wanted.filling}") from error
    return told


def _copies(source: Path, wanted: Wanted) -> tuple[Path, Path]:
    """Returns the folders of a source that hold copies of a collection's two repositories."""
    place = _repositories(wanted)
    for names in (place[:2], [each.rpartition("/")[2] for each in place[:2]]):
        texts, qrels = (source / name for name in names)
        if texts.is_dir() and qrels.is_dir():
            return texts, qrels
    raise InputError(
        f"--source: {source} holds neither corpus.jsonl, here or in {wanted.dataset}/, nor copies "
        f"of the repositories {place.texts} and {place.qrels}"
    )


def _from_repositories(
    wanted: Wanted, origin: Mapping[str, Any], aside: Path, progress: Progress
) -> None:
    """Writes what is still missing of a collection in two repositories."""
    texts, qrels = (
        hub.Place(origin["texts"], origin.get("revision")),
        hub.Place(origin["qrels"], origin.get("qrels_revision")),
    )
    if origin["kind"] == "repositories":
        folders, cache = _copies(Path(wanted.source), wanted), str(aside / _CACHE)
        texts, qrels = (hub.Place(str(folder), None, cache) for folder in folders)
    try:
        for kind in ("corpus", "queries"):
            if not (path := aside / f"{kind}.jsonl").exists():
                count, records = hub.texts(texts, kind)
                with progress(count, f"{wanted.dataset}: writing {path.name}", "texts") as bar:
                    write_texts(path, _told(records, bar), titles=kind == "corpus")
        for file, (count, records) in hub.judgments(qrels, origin["qrels_configuration"]).items():
            if not (path := aside / "qrels" / f"{file}.tsv").exists():
                with progress(count, f"{wanted.dataset}: writing {path.name}", "judgments") as bar:
                    write_judgments(path, _told(records, bar))
    except InputError as error:
        if origin["kind"] == "hub":
            raise InputError(f"{error}; {wanted.filling}") from error
        raise


def _from_files(wanted: Wanted, aside: Path, progress: Progress) -> None:
    """Copies what is still missing of a collection in BEIR's layout."""
    source = Path(wanted.source)
    with contextlib.ExitStack() as stack:
        if source.is_dir():
            found = archives.folder_files(source, wanted.dataset)
        else:
            archive = stack.enter_context(archives.open_zip(source))
            found = archives.zip_files(archive, source, wanted.dataset)
        if found is None:
            raise InputError(f"--source: {source} no longer holds {wanted.dataset}")
        bar = stack.enter_context(progress(found.size, f"{wanted.dataset}: copying", "bytes"))
        archives.take(found, aside, source=source, done=bar.update)


def _told(records: Iterable[Any], bar: Any) -> Iterator[Any]:
    count = 0
    for count, record in enumerate(records, 1):
        yield record
        if count % 1000 == 0:
            bar.update(count)
    bar.update(count)


def _note(aside: Path) -> dict[str, Any] | None:
    return read_object(aside / _NOTE) if (aside / _NOTE).exists() else None


def _clear(folder: Path, kept: Iterable[str] = (_LOCK,)) -> None:
    for each in folder.iterdir():
        if each.name not in kept:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def _publish(aside: Path, target: Path) -> None:
    """Renames a whole collection to its name, without what was of use on the way only."""
    shutil.rmtree(aside / _CACHE, ignore_errors=True)
    for path in (*aside.glob(".*.partial.*"), *aside.glob("qrels/.*.partial.*")):
        path.unlink()
    (aside / _NOTE).unlink()
    (aside / _LOCK).unlink()
    os.replace(aside, target)


@contextlib.contextmanager
def _working(aside: Path) -> Iterator[None]:
    """Holds the folder aside for this process; removes it if it fails with nothing in it."""
    with alone(aside / _LOCK, str(aside)):
        try:
            yield
        except BaseException:
            if not any((aside / name).exists() for name in FILES):
                shutil.rmtree(aside)
            raise
