"""The store of embeddings: two vector files, their ids and a manifest in one folder.

Layout: documents.npy, documents.ids.txt, queries.npy, queries.ids.txt, manifest.json.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.data.arrays import check_rows, open_vectors
from dive_jax.data.arrays import unit_rows as unit_rows
from dive_jax.data.lines import check_id, numbered_lines
from dive_jax.data.store_manifest import fingerprints, read_manifest, write_manifest
from dive_jax.files import sha256_file
from dive_jax.types import InputError, TwoSided

FILES = ("documents.npy", "documents.ids.txt", "queries.npy", "queries.ids.txt", "manifest.json")


class Side(NamedTuple):
    """Vectors of the queries or of the documents.

    Attributes:
      ids: Id of each row.
      vectors: float16 or float32 [rows, dim], memory-mapped when loaded.
    """

    ids: tuple[str, ...]
    vectors: Float[np.ndarray, "rows dim"]

    @property
    def row_of(self) -> dict[str, int]:
        """Id -> row."""
        return {id: row for row, id in enumerate(self.ids)}


class Store(NamedTuple):
    """What one encoder made of one collection.

    Attributes:
      sides: A `Side` for the queries and one for the documents.
      encoder: The encoder's name.
      dim: Width of the vectors.
      encoder_fingerprint: SHA-256 (hex) of what identifies the encoder; equal for all collections
        that it embedded.
      fingerprint: SHA-256 (hex) of the four recorded file hashes and the encoder's fingerprint.
      manifest: As read.
    """

    sides: TwoSided
    encoder: str
    dim: int
    encoder_fingerprint: str
    fingerprint: str
    manifest: dict[str, Any]

    @property
    def dropped_queries(self) -> tuple[str, ...]:
        """Queries that have a text but, by design, no vector (one without known words, say)."""
        return tuple(self.manifest.get("dropped_queries", ()))


def _read_ids(path: Path) -> tuple[str, ...]:
    lines: dict[str, int] = {}
    for number, line in numbered_lines(path):
        first = lines.setdefault(check_id(line, f"{path}:{number}", "id"), number)
        if first != number:
            raise InputError(f"{path}:{number}: id {line} repeats line {first}; ids must be unique")
    return tuple(lines)


def _present(folder: Path) -> None:
    if not folder.is_dir():
        others = sorted(path.parent.name for path in folder.parent.glob("[!.]*/manifest.json"))
        hint = f"there are: {', '.join(others)}" if others else "check --dataset and --encoder"
        raise InputError(f"{folder}: no such embeddings; {hint}")
    for name in FILES:
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: missing; a store needs {', '.join(FILES)}")


def _check_shape(side: Side, path: Path, recorded: Mapping[str, Any]) -> None:
    rows, dim = side.vectors.shape
    if not rows == len(side.ids) == recorded["rows"]:
        raise InputError(
            f"{path}: wanted as many rows as ids and as the manifest says, got {rows} rows, "
            f"{len(side.ids)} ids and {recorded['rows']} in the manifest"
        )
    if dim != recorded["dim"]:
        raise InputError(f"{path}: wanted the manifest's width {recorded['dim']}, got {dim}")


def _load_side(folder: Path, name: str, manifest: Mapping[str, Any], verify: bool) -> Side:
    vectors, ids, recorded = folder / f"{name}.npy", folder / f"{name}.ids.txt", manifest["sides"]
    for path, key in ((vectors, "vectors_sha256"), (ids, "ids_sha256")) if verify else ():
        if (got := sha256_file(path)) != (wanted := recorded[name][key]):
            raise InputError(
                f"{path}: changed since the manifest was written (SHA-256 wanted {wanted[:12]}…, "
                f"got {got[:12]}…); fetch or write the store again"
            )
    side = Side(_read_ids(ids), open_vectors(vectors))
    _check_shape(side, vectors, recorded[name])
    check_rows(side.vectors, side.ids, vectors)
    return side


def _check_ids(
    side: Side, texts: Sequence[str], dropped: Sequence[str], what: str, where: Path
) -> None:
    known, wanted = set(side.ids), set(texts)
    if orphans := [id for id in side.ids if id not in wanted]:
        raise InputError(
            f"{where}: {len(orphans)} of {len(known)} {what} have a vector but no text, the first "
            f"is {orphans[0]}; these embeddings belong to another version of the dataset"
        )
    without = known.union(dropped)
    if missing := [id for id in texts if id not in without]:
        raise InputError(
            f"{where}: {len(missing)} of {len(wanted)} {what} have a text but no vector, the first "
            f"is {missing[0]}; embed them, or list queries under dropped_queries in the manifest"
        )


def check_ids(
    store: Store,
    folder: Path,
    document_ids: Sequence[str] | None = None,
    query_ids: Sequence[str] | None = None,
) -> None:
    """Raises `InputError` unless vectors and texts have the same ids, in any order.

    Args:
      store: The vectors.
      folder: Where they lie, for the error.
      document_ids: Ids of the documents' texts; None skips the check.
      query_ids: The same for the queries; one may lack a vector if the manifest lists it under
        `dropped_queries`.
    """
    if document_ids is not None:
        _check_ids(store.sides.document, document_ids, (), "documents", folder)
    if query_ids is not None:
        _check_ids(store.sides.query, query_ids, store.dropped_queries, "queries", folder)


def load_store(
    folder: Path,
    *,
    verify: bool = False,
    document_ids: Sequence[str] | None = None,
    query_ids: Sequence[str] | None = None,
) -> Store:
    """Opens a store and checks it: shapes, ids, finite values, no rows of zeros.

    Args:
      folder: `<data_root>/<dataset>/embeddings/<encoder>`.
      verify: Also compare the SHA-256 of every file with the manifest.
      document_ids: See `check_ids`.
      query_ids: See `check_ids`.

    Returns:
      The store, its vectors memory-mapped, rows in the store's order.

    Raises:
      InputError: If a check fails; names the file, and the line or row and id.
    """
    _present(folder)
    manifest = read_manifest(folder / "manifest.json")
    sides = TwoSided(
        query=_load_side(folder, "queries", manifest, verify),
        document=_load_side(folder, "documents", manifest, verify),
    )
    encoder_fingerprint, fingerprint = fingerprints(manifest)
    store = Store(
        sides=sides,
        encoder=manifest["encoder"],
        dim=manifest["sides"]["documents"]["dim"],
        encoder_fingerprint=encoder_fingerprint,
        fingerprint=fingerprint,
        manifest=manifest,
    )
    check_ids(store, folder, document_ids, query_ids)
    return store


def _check_side(side: Side, path: Path, dim: int) -> None:
    """Raises `InputError` unless the side could be loaded again from `path`."""
    shape, dtype = side.vectors.shape, side.vectors.dtype
    if dtype not in (np.float16, np.float32) or len(shape) != 2 or 0 in shape:
        raise InputError(
            f"{path}: wanted at least one row of float16 or float32, got {dtype.str} {shape}"
        )
    for row, id in enumerate(side.ids):
        check_id(id, f"{path}: row {row}", "id")
    if (distinct := len(set(side.ids))) != len(side.ids):
        raise InputError(f"{path}: wanted unique ids, got {distinct} among {len(side.ids)}")
    _check_shape(side, path, {"rows": len(side.ids), "dim": dim})
    check_rows(side.vectors, side.ids, path)


def _place(aside: Path, folder: Path) -> None:
    """Renames `aside` onto `folder`; a store that stands there goes."""
    if folder.exists() and not (folder / "manifest.json").exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not a store of embeddings; choose another name")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    while aside.exists():
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder, old)
        try:
            os.rename(aside, folder)
        except OSError as error:  # another process placed its store between the two
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)


def save_store(
    folder: Path, *, encoder: str, documents: Side, queries: Side, details: dict[str, Any]
) -> Store:
    """Writes a store, whole or not at all; one that stands there is replaced.

    Args:
      folder: `<dataset>/embeddings/<encoder>`; created.
      encoder: The encoder's name.
      documents: Ids and float16 or float32 vectors.
      queries: The same for the queries.
      details: More for the manifest, such as dataset, pooling, normalized, max_tokens,
        query_prefix, document_prefix, source, dropped_queries and encoder_fingerprint_extra.

    Returns:
      The store, loaded again.

    Raises:
      InputError: If ids or vectors would be refused on load.
      ValueError: If `details` holds a key that is written here.
    """
    sides = {"documents": documents, "queries": queries}
    for name, side in sides.items():
        _check_side(side, folder / f"{name}.npy", documents.vectors.shape[-1])
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        aside.mkdir(parents=True)
        for name, side in sides.items():
            np.save(aside / f"{name}.npy", side.vectors)
            (aside / f"{name}.ids.txt").write_text("".join(f"{id}\n" for id in side.ids), "utf-8")
        dtype = documents.vectors.dtype.name
        write_manifest(
            aside, encoder, dtype, {k: s.vectors.shape for k, s in sides.items()}, details
        )
        _place(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return load_store(folder)
