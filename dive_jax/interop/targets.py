"""An adapter into a folder for another runtime: its files, a manifest, and how to load them."""

import contextlib
import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from reprlib import repr as short  # one line, cut to about 30 characters
from typing import Any, NamedTuple

from dive_jax import safetensors
from dive_jax.artefact import Artefact
from dive_jax.files import to_json
from dive_jax.interop import dense_modules, faiss_transform, onnx_graph
from dive_jax.interop.readme import readme
from dive_jax.types import InputError

FORMAT_VERSION = 1
MANIFEST, README = "manifest.json", "README.md"

Files = dict[str, bytes]


def _told(artefact: Artefact) -> dict[str, Any]:
    """Returns what an artefact says of itself, in the order of its own file."""
    keys = ("method", "form", "sides", "dim", "full_dim", "normalized", "encoder", "fingerprint")
    return {key: artefact.meta[key] for key in keys}


def _plain(artefact: Artefact) -> Files:
    """Returns the artefact's own files."""
    data = safetensors.encode(artefact.arrays)
    meta = {"format_version": artefact.meta["format_version"], **_told(artefact)}
    meta |= {"about": artefact.meta["about"], "sha256": hashlib.sha256(data).hexdigest()}
    return {"adapter.safetensors": data, "adapter.json": to_json(meta).encode()}


def _with_source(name: str) -> Callable[[Artefact], Files]:
    """Returns what adds a reader in one source file to the artefact's own files."""
    source = Path(__file__).with_name(name)
    return lambda artefact: _plain(artefact) | {name: source.read_bytes()}


class Target(NamedTuple):
    """A runtime to export to.

    Attributes:
      files: Artefact -> the content of its files by path, "/" between folders.
      extra: What of our extras brings the packages that writing needs; "" for none.
      packages: Those packages, by the name they are imported with -> their distributions' names,
        of which the first that is there tells the version.
    """

    files: Callable[[Artefact], Files]
    extra: str = ""
    packages: tuple[tuple[str, tuple[str, ...]], ...] = ()


TARGETS = {
    "safetensors": Target(_plain),
    "onnx": Target(onnx_graph.files, "onnx", (("onnx", ("onnx",)),)),
    "torch": Target(_with_source("adapter_torch.py")),
    "sentence-transformers": Target(dense_modules.files),
    "faiss": Target(
        faiss_transform.files, "faiss", (("faiss", ("faiss-cpu", "faiss-gpu", "faiss")),)
    ),
    "numpy": Target(_with_source("adapter_numpy.py")),
}
"""Runtimes by the name that --to takes."""


_ALWAYS = (("numpy", ("numpy",)),)


def _version(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


def _need(name: str, target: Target) -> None:
    missing = [each for each, _ in target.packages if importlib.util.find_spec(each) is None]
    if missing:
        raise InputError(
            f"--to={name}: needs {' and '.join(missing)}, not installed here; "
            f"pip install 'dive_jax[{target.extra}]'"
        )


def contents(artefact: Artefact, name: str) -> Files:
    """Returns all files of an export.

    Args:
      artefact: As `dive_jax.artefact.load` gives it.
      name: One of `TARGETS`.

    Raises:
      InputError: If a package is missing, or the runtime cannot keep such an adapter.
    """
    target, meta = TARGETS[name], artefact.meta
    _need(name, target)
    made = target.files(artefact)
    versions = {"dive_jax": _version(("dive_jax",)), "python": platform.python_version()}
    versions |= {each: _version(found) for each, found in (*_ALWAYS, *target.packages)}
    manifest = {
        "format_version": FORMAT_VERSION,
        "target": name,
        **_told(artefact),
        "adapter_sha256": meta["sha256"],
        "about": meta["about"],
        "versions": versions,
        "files": {path: hashlib.sha256(data).hexdigest() for path, data in sorted(made.items())},
    }
    return made | {
        MANIFEST: to_json(manifest).encode(),
        README: readme(artefact, name, versions).encode(),
    }


def write(files: Files, folder: Path) -> bool:
    """Puts files into a folder of their own: written aside, then renamed; all of them or none.

    Args:
      files: Content by path, "/" between folders.
      folder: New, empty, or holding exactly these files already.

    Returns:
      Whether anything was written.

    Raises:
      InputError: If the folder holds anything else, or cannot be written.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if (other := _difference(files, folder)) is None:
                return False
            raise InputError(
                f"--out: {folder} exists and is not this export (see {short(other)}); remove it, "
                "or name a new folder"
            )
        _place(files, folder.resolve())
    except OSError as error:
        raise InputError(f"--out: {folder}: {error.strerror or error}") from error
    return True


def _difference(files: Files, folder: Path) -> str | None:
    """Returns the path of a file that is not as it would be written; None if all are."""
    missing = set(files)
    for each in folder.rglob("*"):
        path = each.relative_to(folder).as_posix()
        if each.is_dir() and not each.is_symlink():
            continue
        if path not in files or not each.is_file() or each.read_bytes() != files[path]:
            return path
        missing.discard(path)
    return min(missing, default=None)


def _place(files: Files, folder: Path) -> None:
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.partial"):
        if not _alive(left.name.split(".")[-2]):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
    try:
        for path, data in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_bytes(data)
        os.rename(aside, folder)  # onto nothing, or an empty folder
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _alive(process: str) -> bool:
    if not process.isdigit():
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
