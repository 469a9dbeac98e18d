"""The Python face: plain arrays and judgments in, a compressor out."""

import functools
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.data.arrays import check_rows
from dive_jax.data.beir import text_digest
from dive_jax.data.holdout import Pool, hold_out
from dive_jax.data.judgments import make_judgments
from dive_jax.data.qrels import judged
from dive_jax.data.triplets import make_triplets
from dive_jax.methods.protocol import Compressor, Fitting, Material
from dive_jax.methods.registry import find
from dive_jax.options import AdapterOptions, SplitOptions, TripletOptions
from dive_jax.types import InputError, Triplets, TwoSided

_DRAWING = ("negatives_per_positive", "triplet_seed")
_SPLIT_SEED = SplitOptions().split_seed
_NONE = np.zeros(0, np.int32)


def _ids(given: Sequence[Hashable] | None, rows: int, side: str) -> list[str]:
    # A row number is no id: query 3 and document 3 have nothing in common, unlike equal ids.
    ids = [f"{side} {row}" for row in range(rows)] if given is None else [str(i) for i in given]
    if len(ids) != rows:
        raise InputError(f"{side}_ids: wanted one id a row, {rows} in all, got {len(ids)}")
    if len(set(ids)) != rows:
        raise InputError(f"{side}_ids: wanted ids that differ from each other")
    return ids


def _checked(vectors: Any, ids: Sequence[str], side: str) -> np.ndarray:
    vectors = np.asanyarray(vectors)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        shape = list(vectors.shape)
        raise InputError(f"{side}: wanted floats [rows, full_dim], got {vectors.dtype} {shape}")
    check_rows(vectors, ids, Path(side))
    return vectors


def _row_of(ids: Sequence[str]) -> dict[str, int]:
    return {each: row for row, each in enumerate(ids)}


def _known(
    qrels: Mapping[Any, Mapping[Any, int]], ids: TwoSided, given: TwoSided
) -> dict[str, dict[str, int]]:
    """Returns judgments by id; `given` are the ids that the user gave, None where none."""

    def name(side: str, each: Hashable) -> str:
        return f"{side} {each}" if getattr(given, side) is None else str(each)

    named = {
        name("query", query): {name("document", each): gain for each, gain in gains.items()}
        for query, gains in qrels.items()
    }
    for side, known, found in (
        ("query", set(ids.query), set(named)),
        ("document", set(ids.document), {each for gains in named.values() for each in gains}),
    ):
        if unknown := sorted(found - known):
            raise InputError(
                f"qrels: {len(unknown)} {side} ids have no vector, the first is {unknown[0]!r}"
            )
    return named


def fit(
    queries: Any,
    documents: Any,
    qrels: Mapping[Any, Mapping[Any, int]],
    *,
    dim: int,
    method: str = "dive",
    seed: int = 2027,
    query_ids: Sequence[Hashable] | None = None,
    document_ids: Sequence[Hashable] | None = None,
    document_texts: Sequence[str] | None = None,
    encoder: str = "unnamed",
    **options: Any,
) -> Compressor:
    """Fits a compressor on frozen vectors and relevance judgments.

    Args:
      queries: [queries, full_dim], any float type, memory-mapped or not.
      documents: [documents, full_dim]; only one chunk and the rows that train are held in memory.
      qrels: query -> document -> gain; keys are ids, or row numbers where no ids are given. A gain
        above 0 means relevant.
      dim: Coordinates kept.
      method: Name of a method, such as dive, pca or dive_batch; auto tries several on queries held
        out of `qrels`, and fits the best.
      seed: Seed of the training.
      query_ids: Ids of the rows of `queries`.
      document_ids: Ids of the rows of `documents`.
      document_texts: Texts of the documents; those identical to a relevant one are never negatives.
      encoder: Name of the encoder, kept in the result.
      **options: Settings of `dive_jax.options.AdapterOptions` and `TripletOptions` but
        `negatives`, such as margin=0.5, basis="principal", epochs=20 or early_stopping="unseen".

    Returns:
      A compressor: `compress(x, side=...)`, `save(path)`, `load(path)`.

    Raises:
      InputError: For unknown ids, wrong shapes, rows that are zero or not finite, or a setting
        outside its range.
      TypeError: For a setting that does not exist.

    Example:
      >>> axes = np.eye(16, dtype=np.float32)
      >>> compressor = fit(axes, axes, {0: {1: 1}, 2: {3: 1}}, dim=4, heads=2, epochs=1)
      >>> compressor.compress(axes).shape
      (16, 4)
    """
    drawing = {name: options.pop(name) for name in _DRAWING if name in options}
    adapter = AdapterOptions(dim=dim, **options)
    ids = TwoSided(
        query=_ids(query_ids, len(queries), "query"),
        document=_ids(document_ids, len(documents), "document"),
    )
    vectors = TwoSided(
        query=_checked(queries, ids.query, "queries"),
        document=_checked(documents, ids.document, "documents"),
    )
    if vectors.query.shape[1] != vectors.document.shape[1]:
        widths = f"{vectors.query.shape[1]} and {vectors.document.shape[1]}"
        raise InputError(f"queries and documents: wanted one width, got {widths}")
    material = Material(vectors, Triplets(_NONE, _NONE, _NONE), encoder, "", {})
    if find(method).seeded:
        known = _known(qrels, ids, TwoSided(query=query_ids, document=document_ids))
        material = _with_judgments(material, known, ids, document_texts, TripletOptions(**drawing))
    fitted = find(method).fit(material, adapter, Fitting(seeds=(seed,)))
    return fitted.compressors[0]


def _with_judgments(
    material: Material,
    qrels: Mapping[str, Mapping[str, int]],
    ids: TwoSided,
    texts: Sequence[str] | None,
    options: TripletOptions,
) -> Material:
    """Adds triplets and judgments by row, and how queries are held out of them."""
    trained = judged(qrels)
    digests = None
    if texts is not None:
        digests = np.array([text_digest(text) for text in texts], np.uint64)
    rows: dict[str, Any] = {
        "query_rows": _row_of(ids.query),
        "document_rows": _row_of(ids.document),
        "documents": len(ids.document),
        "digests": digests,
    }
    triplets = make_triplets(
        trained,
        qrels,
        negatives_per_positive=options.negatives_per_positive,
        seed=options.triplet_seed,
        **rows,
    )
    judgments = make_judgments(trained, qrels, **rows)
    pool = Pool(
        "qrels",
        trained,
        qrels,
        ids,
        TwoSided(query=rows["query_rows"], document=rows["document_rows"]),
        triplets,
        judgments,
        _SPLIT_SEED,
    )
    held = functools.cache(functools.partial(hold_out, pool))
    return material._replace(triplets=triplets, judgments=judgments, hold_out=held)
