"""What an export was asked for, and what is found of it: settings, state, manifest."""

import contextlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.data.shards import GrowingVectors, tidy
from dive_jax.data.store_manifest import read_manifest
from dive_jax.encoders import weights
from dive_jax.encoders.presets import Encoder, Spec
from dive_jax.files import to_json, write_json
from dive_jax.options import ExportOptions
from dive_jax.studies.alone import alone
from dive_jax.types import InputError, TwoSided

STATE, _LOCK = "export.json", ".lock"
FILES = TwoSided(query="queries", document="documents")
"""Name of each side's files."""

_PACKAGES = ("torch", "transformers", "tokenizers", "sentence-transformers", "llm2vec", "peft")
_FLAG_OF = {"dtype": "store_dtype", "computed_in": "dtype", "source": "encoder"}
_WORDS = {"texts_fingerprint": "other texts", "encoder_fingerprint_extra": "other weights"}


class Job(NamedTuple):
    """One store to write.

    Attributes:
      dataset: Its dataset, or one community of it.
      source: Folder of the texts.
      final: Folder of the store.
      texts: `Texts` of each side.
      spec: The encoder.
      options: The command's.
    """

    dataset: str
    source: Path
    final: Path
    texts: TwoSided
    spec: Spec
    options: ExportOptions

    @property
    def folder(self) -> Path:
        """Where the store lies until it is whole."""
        return self.final.with_name(f".{self.final.name}.export")

    def asked(self, encoder: Encoder | None = None) -> dict[str, Any]:
        """Returns what decides the vectors, as the manifest tells it.

        Args:
          encoder: Once it is loaded: then with all that it decides, and the order of the work.
        """
        spec, options = self.spec, self.options
        texts = {FILES.document: self.texts.document, FILES.query: self.texts.query}
        told = {
            "encoder": spec.name,
            "source": spec.source,
            "pooling": spec.pooling if encoder is None else encoder.pooling,
            "query_prefix": spec.query_prefix,
            "document_prefix": spec.document_prefix,
            "max_tokens": spec.max_tokens if encoder is None else encoder.max_tokens,
            "computed_in": options.dtype,
            "dtype": options.store_dtype,
            "texts_fingerprint": {name: each.fingerprint for name, each in texts.items()},
        }
        if encoder is None:
            return {key: value for key, value in told.items() if value is not None}
        work = {"batch_size": options.batch_size, "shard_rows": options.shard_rows}
        return told | work | {"encoder_fingerprint_extra": encoder.fingerprint}


def _differences(asked: dict[str, Any], found: dict[str, Any]) -> str:
    """Returns the flags whose values differ, in words; nothing if none does."""
    return ", ".join(
        _WORDS.get(key) or f"--{_FLAG_OF.get(key, key)}={value} (there {found.get(key)})"
        for key, value in json.loads(to_json(asked)).items()
        if value != found.get(key)
    )


def finished(job: Job) -> dict[str, Any] | None:
    """Returns the manifest of a store that is what is asked for; None if there is no store.

    Raises:
      InputError: If something else has its name.
    """
    final = job.final
    if not final.exists():
        return None
    if not (final / "manifest.json").is_file():
        raise InputError(f"{final}: exists and is not a store; choose another --name")
    manifest = read_manifest(final / "manifest.json")
    asked = job.asked()
    if weights.is_folder(job.spec.weights):
        asked["encoder_fingerprint_extra"] = weights.fingerprint([job.spec.weights, *job.spec.peft])
    if told := _differences(asked, manifest):
        raise InputError(
            f"{final}: holds vectors made otherwise: {told}; choose another --name, or remove it"
        )
    clean(final)
    return manifest


def clean(final: Path) -> None:
    """Removes what only an unfinished store needs."""
    tidy(final, STATE, _LOCK)


def environment(encoder: Encoder) -> dict[str, Any]:
    """Returns what decides the last digits of a vector."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    cores = len(os.sched_getaffinity(0))
    return {"compute": encoder.compute, "versions": versions, "usable_cores": cores}


@contextlib.contextmanager
def claimed(job: Job, encoder: Encoder, note: Callable[[str], None]) -> Iterator[None]:
    """Holds the folder of an unfinished store, and ties it to its settings.

    Raises:
      InputError: If another process holds it, or it was begun under other settings.
    """
    folder, asked, now = job.folder, job.asked(encoder), environment(encoder)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / _LOCK, str(folder)):
        try:
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            before, told = state["environment"], _differences(asked, state["asked"])
        except (OSError, ValueError, KeyError, TypeError):
            before, told = now, ""
            write_json(folder / STATE, {"asked": asked, "environment": now})
        if told:
            raise InputError(
                f"{folder}: an unfinished export with other settings: {told}; give those again, "
                "or remove that folder"
            )
        if changed := [name for name in now if now[name] != before.get(name)]:
            note(
                f"this export began with other {', '.join(changed)}; its last digits may differ "
                "from those of an undisturbed one"
            )
        yield


def details(job: Job, encoder: Encoder, written: TwoSided, ids: TwoSided) -> dict[str, Any]:
    """Returns what the manifest says beside the files."""
    told = {k: value for k, value in job.asked(encoder).items() if k not in ("encoder", "dtype")}
    spec, kept = job.spec, set(ids.query)
    return {
        "dataset": job.dataset,
        "normalized": True,
        **told,
        "revision": weights.commit(spec.weights, spec.revision),
        "texts": {
            name: _counts(side, len(texts.blank))
            for name, side, texts in zip(FILES, written, job.texts, strict=True)
        },
        "dropped_queries": [id for id in job.texts.query.ids if id not in kept],
        "loaded": {"kind": spec.kind, "weights": spec.weights, "peft": list(spec.peft)},
        **environment(encoder),
    }


def _counts(written: GrowingVectors, blank: int) -> dict[str, Any]:
    truncated = sum(each["truncated"] for each in written.facts)
    return {
        "tokens": sum(each["tokens"] for each in written.facts),
        "truncated": truncated,
        "truncated_share": truncated / written.rows,
        "without_text": blank,
    }
