"""Indexes on disk: built chunk by chunk, whole or absent, and tied to their adapter and encoder."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.artefact import Artefact
from dive_jax.data.embeddings import Store
from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.files import sha256_file, write_json, write_text
from dive_jax.retrieval import indexes
from dive_jax.retrieval.codes import check_finite
from dive_jax.retrieval.indexes import Settings
from dive_jax.studies.alone import alone
from dive_jax.studies.indexed import Documents, read_ids
from dive_jax.types import InputError

FORMAT_VERSION = 1
INDEX, IDS, ABOUT = "index.faiss", "ids.txt", "index.json"

_COST = 10  # Writing what is there takes at most one part in so many of the time.
_KINDS = {
    "kind": str,
    "parameters": dict,
    "rows": int,
    "dim": int,
    "full_dim": int,
    "method": str,
    "encoder": str,
    "fingerprint": str,
    "adapter_sha256": str,
    "ids_sha256": str,
    "sha256": str,
}

Progress = Callable[[int, int], AbstractContextManager[Any]]


class Index(NamedTuple):
    """An index that can be searched.

    Attributes:
      index: faiss's.
      ids: Id of each row.
      about: What its index.json holds.
    """

    index: Any
    ids: tuple[str, ...]
    about: dict[str, Any]


def _identity(documents: Documents, settings: Settings) -> dict[str, Any]:
    """Returns what decides the bytes of an index, and whom it belongs to."""
    rows, dim = documents.rows, documents.dim
    return {
        "format_version": FORMAT_VERSION,
        "kind": settings.kind,
        "parameters": indexes.parameters(settings, rows, dim),
        "metric": "inner_product",
        "rows": rows,
        "dim": dim,
        **documents.about,
        "chunk_rows": documents.chunk_rows,
        "faiss": indexes.library().__version__,
    }


def build(
    documents: Documents,
    settings: Settings,
    out: Path,
    *,
    checkpoint_seconds: float,
    progress: Progress,
) -> dict[str, Any]:
    """Builds an index; killed, the same call goes on where it stopped, to the same bytes.

    Args:
      documents: The vectors, their ids, and whose they are.
      settings: Kind and settings.
      out: Folder to make: index.faiss, ids.txt and index.json. It is written aside, then renamed.
      checkpoint_seconds: Least time between two writings of what is built so far; large indexes
        are written less often, so that this takes a tenth of the time at most.
      progress: Makes a progress bar from the number of rows and of those done before.

    Returns:
      What index.json holds.

    Raises:
      InputError: If a setting or a vector is wrong, or `out` exists and is something else.
      OSError: If the disk is full or not writable; what was written before is kept aside.
    """
    identity = _identity(documents, settings)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        return _there(out, identity)
    aside = out.with_name(f".{out.name}.partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone(out.with_name(f".{out.name}.lock"), f"--out: {out}"):
        aside.mkdir(exist_ok=True)
        if _begun(aside) != identity:
            _clear(aside)
            write_json(aside / ABOUT, identity)
        elif (aside / INDEX).is_file():  # killed after all but the last renaming
            os.rename(aside / INDEX, aside / f"rows-{documents.rows}.faiss")
        _fill(documents, identity, aside, checkpoint_seconds, progress)
        _finish(aside, identity, documents.ids)
        os.rename(aside, out)
    return _about(out / ABOUT)


def _clear(folder: Path, *kept: str) -> None:
    """Removes all files of a folder but some."""
    for each in folder.iterdir():
        if each.name not in kept:
            each.unlink()


def _there(out: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Returns what a finished index says of itself, or refuses what is not this one."""
    about = _about(out / ABOUT) if (out / ABOUT).is_file() else {}
    if {name: about.get(name) for name in identity} != identity:
        raise InputError(
            f"--out: {out} exists and is not the index that this command builds; remove it, or "
            "name another folder"
        )
    return about


def _begun(aside: Path) -> dict[str, Any] | None:
    """Returns whose index an earlier start was building, without what it learned at its end."""
    if not (aside / ABOUT).is_file():
        return None
    found = _about(aside / ABOUT, whole=False)
    return {name: each for name, each in found.items() if name not in ("ids_sha256", "sha256")}


def _partials(aside: Path) -> list[tuple[int, Path]]:
    """Returns (rows, file) of what earlier starts have built, most rows first."""
    found = []
    for path in aside.glob("rows-*.faiss"):
        count = path.stem.removeprefix("rows-")
        if count.isdigit():
            found.append((int(count), path))
    return sorted(found, reverse=True)


def _keep(index: Any, aside: Path) -> float:
    """Writes what is built so far, drops what was there before; returns the seconds it took."""
    began, before = time.monotonic(), _partials(aside)
    final = aside / f"rows-{index.ntotal}.faiss"
    fresh = aside / "fresh.faiss"
    try:
        indexes.write(index, fresh)
        with open(fresh, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(fresh, final)
    finally:
        fresh.unlink(missing_ok=True)
    for _, path in before:
        if path != final:
            path.unlink()
    return time.monotonic() - began


def _fill(
    documents: Documents,
    identity: dict[str, Any],
    aside: Path,
    checkpoint_seconds: float,
    progress: Progress,
) -> None:
    """Builds what is missing, until the file of all rows is there."""
    kept = _partials(aside)
    if kept and kept[0][0] == documents.rows:
        return
    index = indexes.read(kept[0][1]) if kept else None
    done = 0 if index is None else index.ntotal
    with progress(documents.rows, done) as bar:
        if index is None:
            index = indexes.empty(identity["kind"], documents.dim, identity["parameters"])
            if not index.is_trained:
                bar.update(0, "learning from a sample")
                sample = documents.sample(indexes.sample_rows(documents.rows))
                check_finite(sample, "documents")
                indexes.train(index, sample)
                _keep(index, aside)
        saved, cost = time.monotonic(), 0.0
        for piece in documents.pieces(done):
            check_finite(piece, f"documents from row {index.ntotal}")
            indexes.add(index, piece, identity["parameters"])
            bar.update(index.ntotal, "")
            if time.monotonic() - saved >= max(checkpoint_seconds, _COST * cost):
                cost = _keep(index, aside)
                saved = time.monotonic()
        _keep(index, aside)


def _finish(aside: Path, identity: dict[str, Any], ids: tuple[str, ...]) -> None:
    """Writes ids and index.json beside the index, which gets its name last."""
    ((_, whole),) = _partials(aside)
    write_text(aside / IDS, "".join(f"{each}\n" for each in ids))
    hashes = {"ids_sha256": sha256_file(aside / IDS), "sha256": sha256_file(whole)}
    write_json(aside / ABOUT, identity | hashes)
    os.rename(whole, aside / INDEX)
    _clear(aside, INDEX, IDS, ABOUT)


def _about(path: Path, *, whole: bool = True) -> dict[str, Any]:
    """Reads an index.json and checks that it holds what is read of it."""
    if not path.is_file():
        raise InputError(
            f"{path}: missing; wanted the folder of an index that dive_jax.index wrote"
        )
    about = parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))
    if (version := about.get("format_version")) != FORMAT_VERSION:
        raise InputError(
            f"{path}: format_version: wanted {FORMAT_VERSION}, got {str(version)[:80]}"
        )
    for key, kind in _KINDS.items() if whole else ():
        if type(about.get(key)) is not kind:
            got = str(about.get(key))[:80]
            raise InputError(f"{path}: {key}: wanted a {kind.__name__}, got {got}")
    return about


def load(folder: Path) -> Index:
    """Opens an index and checks that its files belong together.

    Args:
      folder: What `build` made.

    Raises:
      InputError: If a file is missing, changed or damaged.
    """
    about = _about(folder / ABOUT)
    for name, key in ((INDEX, "sha256"), (IDS, "ids_sha256")):
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: missing; build the index again")
        if (got := sha256_file(folder / name)) != about[key]:
            raise InputError(
                f"{folder / name}: changed since the index was built (SHA-256 wanted "
                f"{about[key][:12]}…, got {got[:12]}…); build it again"
            )
    index = indexes.read(folder / INDEX)
    if (index.ntotal, index.d) != (about["rows"], about["dim"]):
        raise InputError(
            f"{folder / INDEX}: wanted {about['rows']} rows, {about['dim']} wide, got "
            f"{index.ntotal} and {index.d}; build it again"
        )
    return Index(index, read_ids(folder / IDS, about["rows"]), about)


def check_index(index: Index, folder: Path, artefact: Artefact, store: Store) -> None:
    """Refuses an index of another adapter, or of vectors of another encoder.

    Args:
      index: The index.
      folder: Where it lies, for the error.
      artefact: The adapter that queries go through.
      store: The vectors that queries and documents come from.

    Raises:
      InputError: If one of them is another than the index's.
    """
    about = index.about
    if about["adapter_sha256"] != artefact.meta["sha256"]:
        raise InputError(
            f"--index: {folder} was built with another adapter ({about['method']}, "
            f"{about['adapter_sha256'][:12]}…) than this one ({artefact.meta['method']}, "
            f"{artefact.meta['sha256'][:12]}…); name its --run, --method and --seed, or build it "
            "again"
        )
    wanted = {"encoder": store.encoder, "fingerprint": store.encoder_fingerprint}
    for key, value in wanted.items():
        if about[key] not in ("", value):
            raise InputError(
                f"--index: {folder} holds vectors of another encoder: its {key} is "
                f"{about[key]!r}, these are of {value!r}"
            )
