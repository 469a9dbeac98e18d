"""Files of vectors through an adapter, in bounded memory; killed, it goes on where it stopped."""

import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dive_jax.artefact import Artefact, check_encoder
from dive_jax.data.arrays import open_vectors
from dive_jax.data.store_manifest import fingerprints, read_manifest
from dive_jax.files import sha256_file, to_json, write_json
from dive_jax.methods.protocol import Compressor, load
from dive_jax.types import InputError

FORMAT_VERSION = 1
_TYPES = ("float16", "float32", "float64")

Progress = Callable[[int, int], AbstractContextManager[Any]]


def manifest_path(vectors: Path) -> Path:
    """Returns where the manifest of a file of vectors lies: x.npy has x.manifest.json."""
    return vectors.with_name(f"{vectors.stem}.manifest.json")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a JSON object; remove it, or write it again")
    return found


def _declared(vectors: Path) -> dict[str, Any]:
    """Returns encoder and fingerprint of a file of vectors, where a manifest beside it tells."""
    if (own := manifest_path(vectors)).is_file():
        found = _read_json(own)
        return {name: found.get(name) for name in ("encoder", "fingerprint")}
    store = vectors.with_name("manifest.json")
    if vectors.name in ("documents.npy", "queries.npy") and store.is_file():
        manifest = read_manifest(store)
        return {"encoder": manifest["encoder"], "fingerprint": fingerprints(manifest)[0]}
    return {}


def _header(shape: tuple[int, int], dtype: str) -> bytes:
    buffer = io.BytesIO()
    described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


def _identity(
    artefact: Artefact, vectors: Path, rows: int, side: str, dtype: str, chunk_rows: int
) -> dict[str, Any]:
    """Returns what decides the bytes of the result."""
    stat = vectors.stat()
    return {
        "format_version": FORMAT_VERSION,
        **{name: artefact.meta[name] for name in ("method", "full_dim", "dim", "normalized")},
        **{name: artefact.meta[name] for name in ("encoder", "fingerprint")},
        "about": artefact.meta.get("about", {}),
        "adapter_sha256": artefact.meta["sha256"],
        "side": side,
        "dtype": dtype,
        "rows": rows,
        "chunk_rows": chunk_rows,
        "source": {"name": vectors.name, "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns},
    }


def _written(aside: Path, note: Path, identity: dict[str, Any], header: int, row: int) -> int:
    """Returns how many whole rows an earlier start of the same work left, else clears the way."""
    if aside.is_file() and note.is_file() and _read_json(note) == identity:
        return max(0, aside.stat().st_size - header) // row
    aside.unlink(missing_ok=True)
    write_json(note, identity)
    return 0


def _write(
    compressor: Compressor,
    vectors: Float[np.ndarray, "rows full_dim"],
    aside: Path,
    identity: dict[str, Any],
    done: int,
    progress: Progress,
) -> None:
    """Writes the rows from `done` on; whole chunks only are kept of what is there."""
    dtype, chunk = np.dtype(identity["dtype"]), identity["chunk_rows"]
    header = _header((len(vectors), compressor.dim), dtype.name)
    first = done // chunk * chunk if done < len(vectors) else done
    with (
        open(aside, "r+b" if aside.exists() else "w+b") as out,
        progress(len(vectors), first) as bar,
    ):
        out.write(header)
        out.truncate(len(header) + first * compressor.dim * dtype.itemsize)
        out.seek(0, os.SEEK_END)
        if first < len(vectors):
            pieces = compressor.stream(
                vectors, side=identity["side"], chunk_rows=chunk, start=first
            )
            for piece in pieces:
                out.write(piece.astype(dtype, copy=False).tobytes())
                first += len(piece)
                bar.update(first, "")
        out.flush()
        os.fsync(out.fileno())


def compress_file(
    adapter: Path,
    vectors: Path,
    out: Path,
    *,
    side: str,
    dtype: str,
    chunk_rows: int,
    encoder: str | None,
    progress: Progress,
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Streams a .npy file through an adapter; memory does not grow with the rows.

    Args:
      adapter: Folder of a saved compressor.
      vectors: [rows, full_dim] of float16, float32 or float64, in C or Fortran order.
      out: The .npy file to write; a manifest, x.manifest.json, comes beside it.
      side: Which side the vectors belong to, "query" or "document".
      dtype: Type written, float32 or float16.
      chunk_rows: Rows held at once.
      encoder: Encoder that the user says the vectors come from; None to go by the manifest beside
        `vectors`, if there is one.
      progress: Makes a progress bar from the number of rows and of those done before.
      warn: Told when nothing says which encoder the vectors come from.

    Returns:
      What the manifest holds, with bytes_before and bytes_after.

    Raises:
      InputError: If the vectors are of another encoder or width, a row is zero or not finite, or
        `out` exists and is something else.
      OSError: If the disk is full or not writable; what is written so far is kept aside.
    """
    compressor = load(adapter)
    rows = open_vectors(vectors, _TYPES)
    declared = _declared(vectors)
    if encoder is None and not declared:
        warn(f"{vectors} has no manifest beside it, so its encoder is not checked; --encoder tells")
    check_encoder(
        compressor.artefact,
        encoder=encoder or declared.get("encoder"),
        fingerprint=declared.get("fingerprint"),
        dim=rows.shape[1],
    )
    identity = _identity(compressor.artefact, vectors, len(rows), side, dtype, chunk_rows)
    row_bytes = compressor.dim * np.dtype(dtype).itemsize
    sizes = {"bytes_before": vectors.stat().st_size, "bytes_after": len(rows) * row_bytes}
    final = manifest_path(out)
    aside, note = (out.with_name(f".{out.stem}.partial{end}") for end in (".npy", ".json"))
    if out.exists():
        _finish_renaming(out, final, note, identity)
        return identity | sizes
    out.parent.mkdir(parents=True, exist_ok=True)
    header = len(_header((len(rows), compressor.dim), dtype))
    done = _written(aside, note, identity, header, row_bytes)
    _write(compressor, rows, aside, identity, done, progress)
    os.replace(aside, out)
    _finish_renaming(out, final, note, identity)
    return identity | sizes


def _finish_renaming(out: Path, final: Path, note: Path, identity: dict[str, Any]) -> None:
    """Writes the manifest of a result that is whole under its name, or refuses a foreign file."""
    if final.is_file():
        found = _read_json(final)
        same = {name: found.get(name) for name in identity} == json.loads(to_json(identity))
    else:
        same = note.is_file() and _read_json(note) == identity
    if not same:
        raise InputError(
            f"--out: {out} exists and is not what this command writes; "
            "remove it, or name another file"
        )
    if not final.is_file():
        write_json(final, identity | {"sha256": sha256_file(out)})
    note.unlink(missing_ok=True)
