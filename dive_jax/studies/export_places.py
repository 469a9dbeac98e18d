"""What is embedded and where the vectors go: an encoder by name, texts, folders that are written.

Imports neither jax nor torch.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.data import beir, python_docs
from dive_jax.data.beir import QRELS_FILES
from dive_jax.encoders import weights
from dive_jax.encoders.presets import DEFAULT_MAX_TOKENS, PRESETS, Spec, find
from dive_jax.files import replacing, sha256_file
from dive_jax.options import ExportOptions
from dive_jax.sources import BUILT_IN_DATASET, BUILT_IN_ENCODER
from dive_jax.types import InputError

LOCAL_ROOT = "data"
"""Where vectors go if the dataset's own folder cannot be written."""


class Texts(NamedTuple):
    """One side's texts, as far as they are held.

    Attributes:
      ids: In the order of the file.
      blank: Rows without text.
      fingerprint: SHA-256 (hex) of ids and texts, as they are.
    """

    ids: tuple[str, ...]
    blank: frozenset[int]
    fingerprint: str


def stream(folder: Path, side: str) -> Iterator[tuple[str, str]]:
    """Yields id and text of each "query" or "document" of a BEIR folder."""
    if side == "query":
        return ((each.id, each.text) for each in beir.iter_queries(folder))
    return ((each.id, each.full_text) for each in beir.iter_documents(folder))


def survey(folder: Path, side: str) -> Texts:
    """Reads a side once: its ids, the rows without text, and a fingerprint of all."""
    digest, ids, blank = hashlib.sha256(), [], set()
    for row, (id, text) in enumerate(stream(folder, side)):
        digest.update(json.dumps([id, text]).encode() + b"\n")
        ids.append(id)
        if not text.strip():
            blank.add(row)
    return Texts(tuple(ids), frozenset(blank), digest.hexdigest())


def resolve(options: ExportOptions) -> Spec:
    """Returns what to load and how to feed it: the flags, else the preset, else the files.

    Raises:
      InputError: If the encoder is not named, or is neither preset, folder nor hub id; if the hub
        is needed and out of reach.
    """
    if not options.encoder:
        raise InputError(f"--encoder: wanted a preset ({', '.join(PRESETS)}), a folder or a hub id")
    if options.encoder == BUILT_IN_ENCODER:
        raise InputError("--encoder: lsa is built in and made on the fly; there is nothing to do")
    preset = find(options.encoder)
    spec = preset or _unknown(options)
    if preset is not None and options.kind not in ("auto", preset.kind):
        raise InputError(f"--kind: {preset.name} is run as {preset.kind}, got {options.kind}")
    if options.weights is not None:
        spec = dataclasses.replace(spec, weights=_expanded(options.weights))
    chosen = {
        name: value
        for name in ("revision", "peft", "pooling", "query_prefix", "document_prefix", "max_tokens")
        if (value := getattr(options, name)) is not None
    }
    if spec.kind == "pipeline" and "pooling" in chosen:
        raise InputError(
            f"--pooling: {options.encoder} has modules of its own ({spec.pooling}), which "
            "sentence-transformers runs as they are; leave the flag out"
        )
    spec = dataclasses.replace(spec, **chosen, name=options.name or spec.name)
    if spec.peft and spec.kind != "llm2vec":
        raise InputError("--peft: goes with --kind=llm2vec only")
    if "/" in spec.name or "\\" in spec.name or spec.name.startswith("."):
        raise InputError(f"--name: wanted the name of a folder, got {spec.name!r}")
    return spec


def _expanded(name: str) -> str:
    return str(Path(name).expanduser()) if weights.is_folder(name) else name


def _unknown(options: ExportOptions) -> Spec:
    """Returns what the files of an encoder without preset say."""
    name = _expanded(options.encoder)
    folder = weights.is_folder(name)
    if not folder and name.count("/") != 1:
        raise InputError(
            f"--encoder: {name} is no folder, no hub id (owner/name), and none of the presets "
            f"{', '.join(PRESETS)}"
        )
    if options.kind == "llm2vec" or options.peft:
        found: dict[str, Any] = {"kind": "llm2vec"}
    else:
        weights.need("export", "torch", "transformers", "huggingface_hub")
        with weights.explained(name):
            found = weights.facts(_expanded(options.weights or name), options.revision)
        found = found or {"usual_tokens": DEFAULT_MAX_TOKENS}
        if options.kind == "transformer" and found.get("kind") == "pipeline":
            found = found | {"kind": options.kind, "pooling": None}
    source = "a folder" if folder else name
    short = Path(name).resolve().name if folder else name.rpartition("/")[2]
    return Spec(name=short, weights=name, source=source, **found)


def is_writable(folder: Path) -> bool:
    """Says whether a folder, or the nearest above it that exists, can be written.

    A folder without any write bit counts as read-only, for the administrator too.
    """
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    bits = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    return folder.is_dir() and os.access(folder, os.W_OK) and bool(folder.stat().st_mode & bits)


def folders(options: ExportOptions, part: str) -> tuple[Path, Path]:
    """Returns a dataset's folder, and the folder of the same dataset that is written.

    Args:
      options: `out` wins; else the dataset's own folder if it can be written; else, unless
        `data_root` names it, the one under `data`.
      part: The dataset, or one community of it.

    Raises:
      InputError: If the dataset is absent, or its vectors cannot be written.
    """
    built_in = part == BUILT_IN_DATASET
    source = python_docs.build() if built_in else Path(options.root) / part
    if not source.is_dir():
        raise InputError(f"{source}: no such dataset; check --dataset and --data_root")
    target = source if options.out is None else Path(options.out) / part
    if options.out is None and options.data_root is None and not built_in:
        target = source if is_writable(source / "embeddings") else Path(LOCAL_ROOT) / part
    if not is_writable(target / "embeddings"):
        raise InputError(f"{target}: cannot be written; name a folder that can with --out")
    return source, target


def copy_collection(source: Path, target: Path) -> None:
    """Copies texts and judgments beside the vectors, so that `target` is a dataset of its own.

    Raises:
      InputError: If other texts or judgments lie there.
      OSError: If the disk is full or fails.
    """
    if source.resolve() == target.resolve():
        return
    names = ["corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz"]
    for name in [*names, *(f"qrels/{file}.tsv" for file in QRELS_FILES)]:
        one, other = source / name, target / name
        if not one.is_file() and not other.is_file():
            continue
        if not other.is_file():
            with replacing(other) as aside:
                shutil.copyfile(one, aside)
        elif not one.is_file() or sha256_file(one) != sha256_file(other):
            raise InputError(
                f"{other}: differs from {one}, so vectors of one would stand beside texts of the "
                "other; choose another --out"
            )
