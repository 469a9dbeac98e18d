"""A fitted method on disk: a folder of `adapter.safetensors` and `adapter.json`, no pickle.

Standard library and NumPy only. A file may come from a stranger: all of it is checked before it is
used, and what is wrong first is told in one line that names the file.
"""

import contextlib
import hashlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short  # one line, cut to about 30 characters
from typing import Any

import numpy as np

from dive_jax import forms, safetensors
from dive_jax.files import to_json
from dive_jax.types import InputError

FORMAT_VERSION = 1
_ARRAYS, _META = "adapter.safetensors", "adapter.json"
_META_LIMIT = 10_000_000  # bytes
_SIDES = ("both", "query", "document")
_KINDS = {
    "format_version": int,
    "method": str,
    "form": str,
    "sides": str,
    "dim": int,
    "full_dim": int,
    "normalized": bool,
    "encoder": str,
    "fingerprint": str,
    "about": dict,
    "sha256": str,
}


@dataclass(frozen=True, eq=False)
class Artefact:
    """A fitted method: what it computes, with which arrays, for vectors of which encoder.

    Attributes:
      form: "prefix", "linear", "sided", "residual", "mlp" or "chain"; `dive_jax.forms` says what
        each is.
      arrays: Weights [out, in], biases and offset [out]; float16, float32 or float64. Coordinates
        that a chain keeps; int32.
      meta: format_version (1), method, sides ("both", "query", "document"), dim, full_dim,
        normalized (are results divided by their length?), encoder and fingerprint ("" if unknown),
        and free keys under about. Reading adds form and sha256 (of the arrays' file).
    """

    form: str
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]


def save(artefact: Artefact, folder: Path | str) -> None:
    """Writes an artefact; the folder is complete, as before, or absent, never half-written.

    Args:
      artefact: What to write.
      folder: New, empty, or the folder of an older artefact, which is replaced.

    Raises:
      InputError: If the artefact is not sound, the folder holds anything else, or it cannot be
        written.
    """
    with _naming(Path(folder)):
        if artefact.meta.get("form", artefact.form) != artefact.form:
            raise InputError(f"form: {artefact.form!r} and in meta {artefact.meta['form']!r}")
        data = safetensors.encode(artefact.arrays)
        digest = hashlib.sha256(data).hexdigest()
        meta = {"about": {}, **artefact.meta, "form": artefact.form, "sha256": digest}
        _check_meta(meta)
        _check_arrays(meta, {name: np.asarray(each) for name, each in artefact.arrays.items()})
        try:
            text = to_json({key: meta[key] for key in _KINDS}).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"about: cannot be written as JSON: {error}") from error
        _place({_ARRAYS: data, _META: text}, Path(folder).resolve())


def load(folder: Path | str) -> Artefact:
    """Reads and checks an artefact.

    Args:
      folder: Holds `adapter.safetensors` and `adapter.json`.

    Raises:
      InputError: If a file is missing, damaged, hostile, or made by a newer version.
    """
    with _naming(Path(folder) / _META) as path:
        meta = {"about": {}, **safetensors.parse_object(_read(path, _META_LIMIT))}
        _check_meta(meta)
    with _naming(Path(folder) / _ARRAYS) as path:
        data = _read(path)
        if (digest := hashlib.sha256(data).hexdigest()) != meta["sha256"]:
            raise InputError(
                f"wanted the SHA-256 {short(meta['sha256'])} of {_META}, got {short(digest)}; take "
                "both files from one folder again"
            )
        arrays = safetensors.decode(data)
        _check_arrays(meta, arrays)
    return Artefact(meta["form"], arrays, meta)


def apply(artefact: Artefact, x: np.ndarray, side: str = "document") -> np.ndarray:
    """Maps vectors, each row on its own: the reference for every other runtime.

    Args:
      artefact: A sound artefact.
      x: [rows, full_dim], any float type; rows of length 1 where the method was fitted on such.
      side: Whose vectors they are, "query" or "document".

    Returns:
      float32 [rows, dim], of length 1 (or all 0) where meta["normalized"].

    Raises:
      InputError: If x has another shape or type.
    """
    dim, full_dim = artefact.meta["dim"], artefact.meta["full_dim"]
    if x.ndim != 2 or x.shape[1] != full_dim or x.dtype.kind != "f":
        raise InputError(f"vectors: wanted floats [rows, {full_dim}], got {x.dtype} {x.shape}")
    arrays = {
        name: np.asarray(each, np.float32) if each.dtype.kind == "f" else each
        for name, each in artefact.arrays.items()
    }
    z = forms.mapped(artefact.form, arrays, x.astype(np.float32), dim, dot=np.matmul, side=side)
    if artefact.meta["normalized"]:
        length = np.linalg.norm(z, axis=1, keepdims=True)
        z = z / np.where(length < 1e-12, np.float32(np.inf), length)
    return z


def check_encoder(
    artefact: Artefact,
    *,
    encoder: str | None = None,
    fingerprint: str | None = None,
    dim: int | None = None,
) -> None:
    """Refuses vectors that an artefact was not made for; what is None or "" is not compared.

    Args:
      artefact: What is to be applied.
      encoder: Name of the encoder of the vectors.
      fingerprint: Fingerprint of that encoder.
      dim: Width of the vectors.

    Raises:
      InputError: If one of them is another than the artefact's.
    """
    got = {"encoder": encoder, "fingerprint": fingerprint, "full_dim": dim}
    for key, value in got.items():
        if value not in (None, "", artefact.meta[key]) and artefact.meta[key] != "":
            fitted = f"the adapter {artefact.meta['method']!r} wants {artefact.meta[key]!r}"
            raise InputError(
                f"{key}: {fitted}, got vectors of {value!r}; use vectors of the encoder it was "
                "fitted on, or fit one for these"
            )


def _check_meta(meta: dict[str, Any]) -> None:
    version = meta.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise InputError(
            f"made by a newer version: format_version {short(version)}, this one reads "
            f"{FORMAT_VERSION}; update dive_jax"
        )
    for key in (*meta, *_KINDS):
        if key not in _KINDS:
            raise InputError(f"unknown key {short(key)}; free keys belong under about")
        if type(meta.get(key)) is not _KINDS[key]:
            got = short(meta[key]) if key in meta else "nothing"
            raise InputError(f"{key}: wanted a value of type {_KINDS[key].__name__}, got {got}")
    for key, allowed in (
        ("format_version", (FORMAT_VERSION,)),
        ("form", forms.FORMS),
        ("sides", _SIDES),
    ):
        if meta[key] not in allowed:
            raise InputError(f"{key}: wanted one of {allowed}, got {short(meta[key])}")
    if not 1 <= meta["dim"] <= meta["full_dim"]:
        raise InputError(
            f"dim: wanted from 1 to full_dim = {short(meta['full_dim'])}, got {short(meta['dim'])}"
        )


def _check_arrays(meta: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    forms.check(meta["form"], arrays, dim=meta["dim"], full_dim=meta["full_dim"])


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[Path]:
    """Puts the name of a file before what is wrong with it."""
    try:
        yield path
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _read(path: Path, limit: float = math.inf) -> bytes:
    if not path.is_file():
        got = "something else" if path.exists() else "nothing"
        raise InputError(f"wanted a file of a saved adapter's folder, got {got}")
    if path.stat().st_size > limit:
        raise InputError(f"wanted at most {limit} bytes, got {path.stat().st_size}")
    return path.read_bytes()


def _place(contents: dict[str, bytes], folder: Path) -> None:
    """Puts files into a folder of their own: written aside, then renamed together."""
    if folder.exists():
        others = sorted(set(os.listdir(folder)) - contents.keys())
        if others:
            raise InputError(
                f"wanted a new or empty folder, or an older adapter's; it holds {short(others[0])}"
            )
        if all(
            (folder / name).is_file() and (folder / name).read_bytes() == content
            for name, content in contents.items()
        ):
            return
    aside, old = (
        folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("partial", "old")
    )
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, content in contents.items():
            (aside / name).write_bytes(content)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(folder, old)
        os.rename(aside, folder)
    finally:
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
