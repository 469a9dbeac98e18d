"""Texts through an encoder into a store, shard by shard; killed, it goes on where it stopped.

Imports neither jax nor torch: the encoder that is handed in does that.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.shards import GrowingVectors, finish
from dive_jax.data.store_manifest import read_manifest
from dive_jax.encoders.presets import Encoder, Spec
from dive_jax.options import ExportOptions
from dive_jax.sources import parts
from dive_jax.studies.export_places import (
    Texts,
    copy_collection,
    folders,
    stream,
    survey,
)
from dive_jax.studies.export_record import FILES, Job, claimed, clean, details, finished
from dive_jax.types import InputError, TwoSided

Load = Callable[[Spec], Encoder]
Progress = Callable[[str, int, int], AbstractContextManager[Any]]
Note = Callable[[str], None]


class Exported(NamedTuple):
    """One store that stands.

    Attributes:
      dataset: Its dataset, or one community of it.
      folder: Where the store is.
      root: The data root that it belongs to.
      manifest: As written.
      fresh: Whether this process finished it.
    """

    dataset: str
    folder: Path
    root: Path
    manifest: dict[str, Any]
    fresh: bool


def export(
    options: ExportOptions, spec: Spec, *, load: Load, progress: Progress, note: Note
) -> list[Exported]:
    """Embeds a dataset's documents and queries, once.

    Args:
      options: The command's.
      spec: The encoder, of `export_places.resolve`.
      load: Loads the encoder; called only if there is something to embed.
      progress: Makes a progress bar from a label, the texts in all and those done before.
      note: Told what a user should know, a line each.

    Returns:
      One store a dataset: twelve for a dataset of twelve communities.

    Raises:
      InputError: If texts, encoder or folders are missing or wrong, a vector is not finite, or an
        export under other settings has that name.
      OSError: If the disk is full or fails; earlier shards are kept.
    """
    places = [(part, *folders(options, part)) for part in parts(options.dataset)]
    encoder, stores = None, []
    for part, source, target in places:
        final = target / "embeddings" / spec.name
        texts = TwoSided(query=survey(source, "query"), document=survey(source, "document"))
        job = Job(part, source, final, texts, spec, options)
        if fresh := (manifest := finished(job)) is None:
            encoder = encoder or _fitting(spec, load(spec))
            with _writing(target):
                copy_collection(source, target)
                _export_one(job, encoder, progress, note)
            manifest = read_manifest(final / "manifest.json")
        stores.append(Exported(part, final, target.parents[part.count("/")], manifest, fresh))
    return stores


def _fitting(spec: Spec, encoder: Encoder) -> Encoder:
    """Raises `InputError` if weights are of another width than their preset's."""
    if spec.dim not in (None, encoder.dim):
        raise InputError(
            f"{spec.weights}: {encoder.dim} wide, but {spec.source} is {spec.dim} wide; these are "
            "other weights"
        )
    return encoder


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turns a folder that cannot be made or written into a mistake of the user's."""
    try:
        yield
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise InputError(
            f"{error.filename or target}: cannot be written ({error.strerror}); name a folder that "
            "can with --out"
        ) from None


def _kept_rows(job: Job, side: str, encoder: Encoder, note: Note) -> list[int]:
    """Returns the rows to embed: a text of which the encoder makes no token has no vector.

    Raises:
      InputError: If a document, or every query, is such a text.
    """
    texts, name = getattr(job.texts, side), getattr(FILES, side)
    rows = range(len(texts.ids))
    if not texts.blank:
        return list(rows)
    if int(encoder.lengths([""], side)[0]) > 0:
        note(f"{name}: {len(texts.blank)} have no text; embedded as they are")
        return list(rows)
    if side == "document" or len(texts.blank) == len(rows):
        raise InputError(
            f"{side} {texts.ids[min(texts.blank)]}: has no text, and of that this encoder makes no "
            f"vector ({len(texts.blank)} of the {name}); give it a text, or remove it"
        )
    note(f"{name}: {len(texts.blank)} have no text and get no vector (dropped_queries)")
    return [row for row in rows if row not in texts.blank]


def _export_one(job: Job, encoder: Encoder, progress: Progress, note: Note) -> None:
    """Writes one store."""
    with claimed(job, encoder, note):
        written, ids = {}, {}
        for side, name in (("document", FILES.document), ("query", FILES.query)):
            texts: Texts = getattr(job.texts, side)
            rows = _kept_rows(job, side, encoder, note)
            ids[side] = tuple(texts.ids[row] for row in rows)
            written[side] = vectors = GrowingVectors(
                job.folder, name, len(rows), encoder.dim, job.options.store_dtype
            )
            kept = set(rows)
            words = (text for row, text in enumerate(stream(job.source, side)) if row in kept)
            with progress(f"{job.dataset} {name}", vectors.rows, vectors.done) as bar:
                _embed(words, vectors, side, encoder, job.options, bar)
        sides, named = TwoSided(**written), TwoSided(**ids)
        finish(
            job.folder,
            job.final,
            encoder=job.spec.name,
            sides=sides,
            ids=named,
            details=details(job, encoder, sides, named),
        )
        clean(job.final)


def _embed(
    texts: Iterator[tuple[str, str]],
    vectors: GrowingVectors,
    side: str,
    encoder: Encoder,
    options: ExportOptions,
    bar: Any,
) -> None:
    """Embeds what is not written yet. Batches depend on the shard alone, so a resume has them."""
    texts = islice(texts, vectors.done, None)
    while shard := list(islice(texts, options.shard_rows)):
        ids, words = [id for id, _ in shard], [text for _, text in shard]
        lengths = encoder.lengths(words, side)
        if (nothing := np.flatnonzero(lengths == 0)).size:
            raise InputError(
                f"{side} {ids[int(nothing[0])]}: the encoder's tokenizer makes nothing of its "
                "text; give it another, or remove it"
            )
        cut = np.minimum(lengths, encoder.max_tokens)
        order = np.argsort(-cut, kind="stable")
        rows = np.empty((len(words), encoder.dim), np.float32)
        for start in range(0, len(words), options.batch_size):
            batch = order[start : start + options.batch_size]
            rows[batch] = encoder.encode([words[row] for row in batch], side)
            bar.update(vectors.done + start + len(batch))
        facts = {"tokens": int(cut.sum()), "truncated": int((lengths > cut).sum())}
        vectors.append(_checked(rows, ids, side, encoder), facts)


def _checked(
    vectors: Float32[np.ndarray, "rows dim"], ids: list[str], side: str, encoder: Encoder
) -> Float32[np.ndarray, "rows dim"]:
    """Returns unit rows.

    Raises:
      InputError: If a row is not finite or has no direction.
    """
    finite = np.all(np.isfinite(vectors), axis=1)
    units = unit_rows(np.where(finite[:, None], vectors, 0))
    if (bad := np.flatnonzero(~units.any(axis=1))).size:
        row = int(bad[0])
        what = "a vector of zeros" if finite[row] else "a vector that is not finite (NaN)"
        raise InputError(
            f"{side} {ids[row]}: the encoder, in {encoder.compute}, gave {what}; check its "
            "weights, or try --dtype=float32"
        )
    return units
