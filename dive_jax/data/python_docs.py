"""The built-in collection: docstrings of Python, numpy, scipy and jax, as a BEIR folder.

The query is a docstring's first paragraph and the relevant document is the rest of it, so a
realistic retrieval task is at hand without any download. Built once per set of versions, cached.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dive_jax import files
from dive_jax.data import docstrings_worker
from dive_jax.types import InputError

_FORMAT_VERSION = 1
_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
_PROVENANCE = "PROVENANCE.json"
_QUERY_PREFIX = "query:"
"""Keeps a query's id apart from its document's: a search drops the document of the query's id."""

_PASSED_ON = (
    *("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE"),
)
_FIXED = {
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore",
    "SETUPTOOLS_USE_DISTUTILS": "stdlib",
    "TERM": "dumb",
}


def versions() -> dict[str, str]:
    """Returns the versions that decide what the collection holds, by package name.

    Raises:
      InputError: If one of the packages is not installed.
    """
    found = {"python": platform.python_version()}
    for package in docstrings_worker.PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise InputError(
                f"python_docs: wanted the package {package} installed, found none; install it"
            ) from None
    return found


def cache_key() -> str:
    """Returns the name of the collection's folder: the format's and every package's version."""
    return "-".join([f"v{_FORMAT_VERSION}", *(name + one for name, one in versions().items())])


def build(folder: Path | None = None, *, timeout_s: float = 180) -> Path:
    """Returns the folder of the built-in collection, built first where it is missing or damaged.

    Args:
      folder: Where built collections lie, one folder a set of versions; default `python_docs`
        in the cache folder.
      timeout_s: Most seconds the collecting may take.

    Returns:
      A BEIR folder: `corpus.jsonl` (ids are qualified names such as `numpy.linalg.svd`, titles
      are empty), `queries.jsonl` (ids `query:<name>`), `qrels/test.tsv` (one relevant document a
      query, gain 1) and `PROVENANCE.json` (versions, counts, SHA-256 of the files).

    Raises:
      InputError: If collecting fails or takes too long, or the folder cannot be written. Nothing
        is left under the final name then.
    """
    base = folder if folder is not None else files.cache_folder() / "python_docs"
    final = base / cache_key()
    if is_intact(final):
        return final
    try:
        aside = base / f".{final.name}.{os.getpid()}.partial"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            _write(aside, _collect(timeout_s))
            _publish(aside, final)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"python_docs: cannot write {final}: {error}; set DIVE_JAX_CACHE to a writable folder"
        ) from None
    return final


def fingerprint(folder: Path) -> str:
    """Returns the fingerprint that a folder's PROVENANCE.json records."""
    return json.loads((folder / _PROVENANCE).read_text(encoding="utf-8"))["fingerprint"]


def is_intact(folder: Path) -> bool:
    """Says whether a built collection is there and holds the bytes that were written."""
    try:
        return fingerprint(folder) == _fingerprint_of(_hashes(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    return {name: files.sha256_file(folder / name) for name in _FILES}


def _fingerprint_of(hashes: dict[str, str]) -> str:
    return files.sha256_json(hashes)


def _environment() -> dict[str, str]:
    """Returns the worker's environment: no screen, no accelerator, nothing that varies."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return kept | _FIXED


def _collect(timeout_s: float) -> dict[str, Any]:
    """Runs the worker in an empty folder and returns what it found."""
    with tempfile.TemporaryDirectory(prefix="python_docs_") as scratch:
        result = Path(scratch) / "result.json"
        work = Path(scratch) / "empty"
        work.mkdir()
        # -P keeps the folder of the worker's file off its import path.
        command = [sys.executable, "-P", docstrings_worker.__file__, str(result)]
        try:
            ended = subprocess.run(
                command,
                cwd=work,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InputError(
                f"python_docs: collecting docstrings took more than {timeout_s:g} s and was "
                "stopped; try again on a less busy machine, or name another --dataset"
            ) from None
        if ended.returncode != 0 or not result.exists():
            said = ended.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(
                f"python_docs: collecting docstrings ended with status {ended.returncode}"
                f"{': ' + said[-1] if said else ''}; name another --dataset"
            )
        return json.loads(result.read_text(encoding="utf-8"))


def _write(folder: Path, collected: dict[str, Any]) -> None:
    """Writes the four files of the collection; the provenance comes last."""
    pairs = [docstrings_worker.Pair(*pair) for pair in collected.pop("pairs")]
    documents = [{"_id": pair.name, "title": "", "text": pair.document} for pair in pairs]
    queries = [{"_id": _QUERY_PREFIX + pair.name, "text": pair.query} for pair in pairs]
    judgments = [f"{_QUERY_PREFIX}{pair.name}\t{pair.name}\t1\n" for pair in pairs]
    files.write_text(folder / "corpus.jsonl", _json_lines(documents))
    files.write_text(folder / "queries.jsonl", _json_lines(queries))
    files.write_text(
        folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n" + "".join(judgments)
    )
    hashes = _hashes(folder)
    provenance = {
        "format_version": _FORMAT_VERSION,
        "about": "Docstrings: first paragraphs are queries, the rest of each its document.",
        "versions": versions(),
        "platform": sys.platform,
        "counts": {"pairs": len(pairs), **collected},
        "files": hashes,
        "fingerprint": _fingerprint_of(hashes),
    }
    files.write_json(folder / _PROVENANCE, provenance)


def _json_lines(rows: list[dict[str, str]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _publish(aside: Path, final: Path) -> None:
    """Renames a finished folder into place; a whole one that another process made stays."""
    if is_intact(final):
        return
    if final.exists():
        shutil.rmtree(final)
    try:
        os.rename(aside, final)
    except OSError:
        if not is_intact(final):
            raise
