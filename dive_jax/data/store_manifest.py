"""The manifest of an embedding store: what it must hold, and the fingerprints made of it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.files import sha256_file, sha256_json, write_json
from dive_jax.types import InputError

FORMAT_VERSION = 1

_IDENTITY = (
    "encoder",
    "pooling",
    "normalized",
    "max_tokens",
    "query_prefix",
    "document_prefix",
    "source",
    "encoder_fingerprint_extra",
)
"""Manifest keys that, with the width, tell one encoder from another."""

_WRITTEN = ("format_version", "encoder", "dtype", "sides")


def _is_kind(value: Any, kind: str) -> bool:
    if kind == "an object":
        return isinstance(value, dict)
    if kind == "a positive integer":
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if kind == "a SHA-256 in hex":
        return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    if kind == "a list of ids":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, str) and value != ""


_SIDE_KEYS = {
    "rows": "a positive integer",
    "dim": "a positive integer",
    "vectors_sha256": "a SHA-256 in hex",
    "ids_sha256": "a SHA-256 in hex",
}


def _demand(mapping: Mapping[str, Any], key: str, kind: str, where: str) -> None:
    if key not in mapping:
        raise InputError(f"{where}{key} is missing; wanted {kind}")
    if not _is_kind(mapping[key], kind):
        raise InputError(f"{where}{key}: wanted {kind}, got {str(mapping[key])[:80]!a}")


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads and checks a store's manifest.

    Args:
      path: The file manifest.json.

    Returns:
      Its content.

    Raises:
      InputError: If it is not JSON, of another format version, or lacks a key; names the key.
    """
    manifest = parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))
    version = manifest.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise InputError(
            f"{path}: format_version: wanted {FORMAT_VERSION}, got {version}; "
            "write the store anew with this version"
        )
    _demand(manifest, "encoder", "a name", f"{path}: ")
    if "dropped_queries" in manifest:
        _demand(manifest, "dropped_queries", "a list of ids", f"{path}: ")
    _demand(manifest, "sides", "an object", f"{path}: ")
    sides = manifest["sides"]
    for name in ("documents", "queries"):
        _demand(sides, name, "an object", f"{path}: sides.")
        for key, kind in _SIDE_KEYS.items():
            _demand(sides[name], key, kind, f"{path}: sides.{name}.")
    if (of_queries := sides["queries"]["dim"]) != (dim := sides["documents"]["dim"]):
        raise InputError(
            f"{path}: wanted one width, got {of_queries} for the queries, {dim} for the documents"
        )
    return manifest


def fingerprints(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the fingerprints of the encoder and of the store.

    Args:
      manifest: A checked manifest.

    Returns:
      SHA-256 (hex) of what identifies the encoder, its width among it, and SHA-256 (hex) of the
      four recorded file hashes with the former.
    """
    sides = manifest["sides"]
    identity = {key: manifest[key] for key in _IDENTITY if key in manifest}
    encoder = sha256_json(identity | {"dim": sides["documents"]["dim"]})
    hashes = [
        sides[name][f"{part}_sha256"]
        for name in ("documents", "queries")
        for part in ("vectors", "ids")
    ]
    return encoder, sha256_json([*hashes, encoder])


def write_manifest(
    folder: Path,
    encoder: str,
    dtype: str,
    shapes: Mapping[str, tuple[int, ...]],
    details: Mapping[str, Any],
) -> None:
    """Writes the manifest of the four files in `folder`.

    Args:
      folder: Holds the files.
      encoder: The encoder's name.
      dtype: Type of the documents' vectors.
      shapes: Shape of the vectors of "documents" and "queries".
      details: More to record.

    Raises:
      ValueError: If `details` holds a key that is written here.
    """
    if clash := sorted(set(details) & set(_WRITTEN)):
        raise ValueError(f"details: wanted other keys than {_WRITTEN}, got {clash}")
    sides = {
        name: {
            "rows": rows,
            "dim": dim,
            "vectors_sha256": sha256_file(folder / f"{name}.npy"),
            "ids_sha256": sha256_file(folder / f"{name}.ids.txt"),
        }
        for name, (rows, dim) in shapes.items()
    }
    head = {"format_version": FORMAT_VERSION, "encoder": encoder}
    write_json(folder / "manifest.json", head | dict(details) | {"dtype": dtype, "sides": sides})
