"""A dataset and an encoder by name: ids, judgments and vectors, checked against each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dive_jax.data import beir, python_docs
from dive_jax.data.beir import Collection
from dive_jax.data.embeddings import Side, Store, check_ids, load_store, save_store
from dive_jax.encoders import lsa
from dive_jax.files import cache_folder
from dive_jax.types import InputError, TwoSided

BUILT_IN_DATASET = "python_docs"
BUILT_IN_ENCODER = "lsa"

COMMUNITIES = {
    "cqadupstack": (
        *("android", "english", "gaming", "gis", "mathematica", "physics"),
        *("programmers", "stats", "tex", "unix", "webmasters", "wordpress"),
    )
}
"""Datasets that are scored as the equal mean over their parts, each a dataset of its own."""


class Source(NamedTuple):
    """One dataset with the vectors of one encoder.

    Attributes:
      dataset: Its name.
      collection: Ids and judgments; judgments of queries without a vector are gone.
      store: Vectors, their ids, the encoder.
      counts: What was dropped or odd, in words, and how often.
    """

    dataset: str
    collection: Collection
    store: Store
    counts: dict[str, int]

    @property
    def ids(self) -> TwoSided:
        """Ids of the vectors' rows."""
        return TwoSided(query=self.store.sides.query.ids, document=self.store.sides.document.ids)

    @property
    def vectors(self) -> TwoSided:
        """Frozen vectors, memory-mapped."""
        sides = self.store.sides
        return TwoSided(query=sides.query.vectors, document=sides.document.vectors)


def parts(dataset: str) -> tuple[str, ...]:
    """Returns the datasets that a name stands for: itself, or its communities.

    Example:
      >>> parts("scifact")
      ('scifact',)
      >>> len(parts("cqadupstack"))
      12
    """
    return tuple(f"{dataset}/{part}" for part in COMMUNITIES.get(dataset, ())) or (dataset,)


def check_at_hand(dataset: str, root: str) -> None:
    """Raises `InputError` unless every part of a dataset has its folder."""
    for part in parts(dataset):
        if part != BUILT_IN_DATASET and not (folder := Path(root) / part).is_dir():
            raise InputError(f"{folder}: no such dataset; check --dataset and --data_root")


def _lsa_store(folder: Path, collection: Collection, dim: int) -> Path:
    """Returns the folder of the built-in encoder's vectors, made once under the user's cache."""
    name = f"{collection.name}-{collection.fingerprint[:16]}"
    target = cache_folder() / "embeddings" / name / f"{BUILT_IN_ENCODER}-{dim}"
    if (target / "manifest.json").exists():
        return target
    documents = list(beir.iter_documents(folder))
    queries = list(beir.iter_queries(folder))
    texts = [each.full_text for each in documents]
    encoder = lsa.fit(texts, dim=dim)
    vectors = lsa.encode(encoder, [each.text for each in queries])
    known = np.any(vectors != 0, axis=1)
    ids = [each.id for each in queries]
    dropped = [id for id, keep in zip(ids, known, strict=True) if not keep]
    kept = tuple(id for id, keep in zip(ids, known, strict=True) if keep)
    told = lsa.details(encoder)
    details = {name: value for name, value in told.items() if name not in ("encoder", "dim")}
    save_store(
        target,
        encoder=BUILT_IN_ENCODER,
        documents=Side(tuple(each.id for each in documents), lsa.encode(encoder, texts)),
        queries=Side(kept, vectors[known]),
        details=details
        | {
            "dataset": collection.name,
            "normalized": True,
            "dropped_queries": dropped,
            "encoder_fingerprint_extra": details["fingerprint"],
        },
    )
    return target


def _with_vectors(collection: Collection, ids: Sequence[str]) -> tuple[Collection, int]:
    """Drops the judgments of queries without a vector; says how many queries they were."""
    known = set(ids)
    kept = {
        file: {query: gains for query, gains in qrels.items() if query in known}
        for file, qrels in collection.qrels.items()
    }
    lost = sum(len(collection.qrels[file]) - len(kept[file]) for file in kept)
    return collection._replace(qrels=kept), lost


def load(
    dataset: str, encoder: str, *, root: str, lsa_dim: int = 512, verify: bool = False
) -> Source:
    """Loads a dataset and the vectors of an encoder, built in or from the data root.

    Args:
      dataset: Folder under `root` in BEIR's layout, or "python_docs".
      encoder: Folder under `<dataset>/embeddings`, or "lsa", which is fitted on the documents and
        kept in the user's cache.
      root: Folder of the datasets; nothing is ever written there.
      lsa_dim: Width of the built-in encoder.
      verify: Check the fingerprint of every vector file.

    Returns:
      The source.

    Raises:
      InputError: If a file is missing or wrong, or texts and vectors do not belong together.
    """
    check_at_hand(dataset, root)
    folder = python_docs.build() if dataset == BUILT_IN_DATASET else Path(root) / dataset
    at_hand = folder / "embeddings" / encoder
    if encoder == BUILT_IN_ENCODER and not at_hand.is_dir():
        collection = beir.load_collection(folder)
        at_hand = _lsa_store(folder, collection, lsa_dim)
        store = load_store(at_hand, verify=verify)
    else:
        store = load_store(at_hand, verify=verify)
        collection = beir.load_collection(
            folder, document_ids=store.sides.document.ids, query_ids=store.sides.query.ids
        )
    check_ids(store, at_hand, collection.document_ids, collection.query_ids)
    collection, lost = _with_vectors(collection, store.sides.query.ids)
    counts = dict(collection.counts)
    if lost:
        counts["judged queries without a known word, dropped"] = lost
    return Source(dataset, collection, store, counts)
