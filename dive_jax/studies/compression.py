"""Files of vectors through an adapter, in bounded memory; killed, it goes on where it stopped."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.artefact import Artefact, check_encoder
from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.data.unique import check_unique
from dive_jax.files import sha256_file, to_json, write_json
from dive_jax.methods.protocol import Compressor, load
from dive_jax.studies import compressed_outputs as outputs
from dive_jax.studies.alone import alone
from dive_jax.studies.compressed_sources import Rows, declared, open_rows
from dive_jax.types import InputError

FORMAT_VERSION = 1

Progress = Callable[[int, int], AbstractContextManager[Any]]


class Choices(NamedTuple):
    """How vectors are read and written.

    Attributes:
      side: Which side the vectors belong to, "query" or "document".
      dtype: float32, float16, int8 or binary.
      chunk_rows: Rows held at once.
      calibration_rows: Rows that the ranges of int8 are fitted to.
      column: Column of vectors in a table; None for the only one.
      id_column: Column of ids in a table; None for id or _id.
      encoder: Encoder that the user says the vectors come from; None to go by the manifest beside
        them, if there is one.
    """

    side: str = "document"
    dtype: str = "float32"
    chunk_rows: int = 16384
    calibration_rows: int = 10000
    column: str | None = None
    id_column: str | None = None
    encoder: str | None = None


class _Places(NamedTuple):
    """Where the result and what is on its way lie."""

    out: Path

    @property
    def manifest(self) -> Path:
        return manifest_path(self.out)

    @property
    def ids(self) -> Path:
        return self.out.with_name(f"{self.out.stem}.ids.txt")

    @property
    def aside(self) -> Path:
        return self.out.with_name(f".{self.out.stem}.partial.npy")

    @property
    def lock(self) -> Path:
        return self.out.with_name(f".{self.out.stem}.partial.lock")

    @property
    def note(self) -> Path:
        return self.out.with_name(f".{self.out.stem}.partial.json")


def manifest_path(vectors: Path) -> Path:
    """Returns where the manifest of a file of vectors lies: x.npy has x.manifest.json."""
    return vectors.with_name(f"{vectors.stem}.manifest.json")


def compress_file(
    adapter: Path,
    vectors: Path,
    out: Path,
    choices: Choices,
    *,
    progress: Progress,
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Streams vectors through an adapter; memory does not grow with the rows.

    Args:
      adapter: Folder of a saved compressor.
      vectors: A file or folder that `open_rows` reads, of float16, float32 or float64.
      out: The .npy or .parquet file to write; a manifest, x.manifest.json, comes beside it, and
        the ids of a .npy, x.ids.txt, where there are any.
      choices: How they are read and written.
      progress: Makes a progress bar from the number of rows and of those done before.
      warn: Told when nothing says which encoder the vectors come from.

    Returns:
      What the manifest holds, with bytes_before, bytes_after and, if rows were compressed now,
      rows_per_s.

    Raises:
      InputError: If the vectors are of another encoder or width, a row is zero or not finite, ids
        repeat, or `out` exists and is something else.
      OSError: If the disk is full or not writable; what is written so far is kept aside.
    """
    compressor, places = load(adapter), _Places(out)
    if out.suffix == ".parquet":
        outputs.library()
    rows = open_rows(vectors, side=choices.side, column=choices.column, id_column=choices.id_column)
    told = declared(vectors, manifest_path(vectors))
    if choices.encoder is None and not told:
        warn(f"{vectors} has no manifest beside it, so its encoder is not checked; --encoder tells")
    check_encoder(
        compressor.artefact,
        encoder=choices.encoder or told.get("encoder"),
        fingerprint=told.get("fingerprint"),
        dim=rows.shape[1],
    )
    identity = _identity(compressor.artefact, rows, choices)
    out.parent.mkdir(parents=True, exist_ok=True)
    speed: dict[str, float] = {}
    with alone(places.lock, str(out)):
        if not out.exists():
            told = identity | _begin(places, identity, compressor, rows, choices)
            speed = _write(compressor, rows, places.aside, told, progress)
            _place(places, rows, told)
        manifest = _finish(places, identity)
    return manifest | speed | {"bytes_before": rows.bytes, "bytes_after": out.stat().st_size}


def _identity(artefact: Artefact, rows: Rows, choices: Choices) -> dict[str, Any]:
    """Returns what decides the bytes of the result."""
    return {
        "format_version": FORMAT_VERSION,
        **{name: artefact.meta[name] for name in ("method", "full_dim", "dim", "normalized")},
        **{name: artefact.meta[name] for name in ("encoder", "fingerprint")},
        "about": artefact.meta.get("about", {}),
        "adapter_sha256": artefact.meta["sha256"],
        "side": choices.side,
        "dtype": choices.dtype,
        **({"calibration_rows": choices.calibration_rows} if choices.dtype == "int8" else {}),
        "rows": len(rows),
        "chunk_rows": choices.chunk_rows,
        "source": rows.identity(),
    }


def _read_note(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what an interrupted start was doing, and what it had found out."""
    if not path.is_file():
        return {}, {}
    note = _read_json(path)
    identity, found = note.get("identity"), note.get("found")
    return (identity, found) if isinstance(identity, dict) and isinstance(found, dict) else ({}, {})


def _read_json(path: Path) -> dict[str, Any]:
    return parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))


def _begin(
    places: _Places, identity: dict[str, Any], compressor: Compressor, rows: Rows, choices: Choices
) -> dict[str, Any]:
    """Returns what must be known first, from an earlier start of the same work or found now."""
    before, found = _read_note(places.note)
    if before == identity and places.aside.is_file():
        return found
    for path in (places.ids, places.manifest):
        if path.exists() and before == {}:
            raise InputError(
                f"--out: {path} exists and {places.out.name} does not; remove it, or name another "
                "file"
            )
    places.aside.unlink(missing_ok=True)
    found = {}
    if rows.ids is not None:
        found["ids_sha256"] = check_unique(rows.ids, places.out.parent, str(rows.where))
    if choices.dtype == "int8":
        found["calibration"] = outputs.sampled_ranges(
            compressor,
            rows,
            side=choices.side,
            chunk_rows=choices.chunk_rows,
            count=choices.calibration_rows,
        )
    write_json(places.note, {"identity": identity, "found": found})
    places.aside.touch()
    return found


def _write(
    compressor: Compressor,
    rows: Rows,
    aside: Path,
    told: dict[str, Any],
    progress: Progress,
) -> dict[str, float]:
    """Writes the rows that are missing, and tells the speed; whole chunks that are there stay."""
    dtype, chunk = told["dtype"], told["chunk_rows"]
    shape, kind = outputs.stored_shape(dtype, len(rows), compressor.dim), outputs.stored_type(dtype)
    header, row_bytes = outputs.npy_header(shape, kind), shape[1] * kind.itemsize
    ranges = outputs.ranges_of(told) if dtype == "int8" else None
    done = min(len(rows), max(0, aside.stat().st_size - len(header)) // row_bytes)
    first = begun = done // chunk * chunk if done < len(rows) else done
    with _kept(aside), open(aside, "r+b") as out, progress(len(rows), first) as bar:
        out.write(header)
        out.truncate(len(header) + first * row_bytes)
        out.seek(0, os.SEEK_END)
        clock, pace = time.monotonic(), 0.0
        if first < len(rows):
            pieces = compressor.stream(rows, side=told["side"], chunk_rows=chunk, start=first)
            with rows.naming():
                for piece in pieces:
                    out.write(outputs.encoded(piece, dtype, ranges).tobytes())
                    first += len(piece)
                    pace = (first - begun) / max(time.monotonic() - clock, 1e-9)
                    bar.update(first, f"{pace:,.0f} rows/s")
        out.flush()
        os.fsync(out.fileno())
    return {} if first == begun else {"rows_per_s": pace}


@contextlib.contextmanager
def _kept(aside: Path) -> Iterator[None]:
    """Says of a disk that is full that the rows before are kept."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        told = (
            f"{error.strerror or error}; the rows written so far are kept, and the same command "
            "goes on from them"
        )
        raise OSError(error.errno, told, str(aside)) from error


def _place(places: _Places, rows: Rows, told: dict[str, Any]) -> None:
    """Gives finished vectors their name, with their ids."""
    if places.out.suffix == ".parquet":
        outputs.write_parquet(places.out, places.aside, rows.ids, told)
        return
    if rows.ids is not None:
        outputs.write_ids(places.ids, rows.ids)
    os.replace(places.aside, places.out)


def _finish(places: _Places, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the manifest of a result that is whole under its name, or refuses a foreign file."""
    before, found = _read_note(places.note)
    if places.manifest.is_file():
        told = _read_json(places.manifest)
        same = {name: told.get(name) for name in identity} == json.loads(to_json(identity))
    else:
        told, same = dict(identity) | found, before == identity
    if not same:
        raise InputError(
            f"--out: {places.out} exists and is not what this command writes; "
            "remove it, or name another file"
        )
    if not places.manifest.is_file():
        told["sha256"] = sha256_file(places.out)
        write_json(places.manifest, told)
    for path in (places.aside, places.note):
        path.unlink(missing_ok=True)
    for path in places.out.parent.glob(f".{places.out.stem}.*.partial{places.out.suffix}"):
        path.unlink()  # of a process that was killed
    return told
