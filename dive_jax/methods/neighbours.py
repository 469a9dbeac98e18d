"""Documents that lie near: of each other, and of queries that must keep them low."""

import numpy as np
from jaxtyping import Int

from dive_jax.data.embeddings import unit_rows
from dive_jax.data.judgments import Judgments
from dive_jax.data.triplets import compact
from dive_jax.methods.protocol import Fitting, Material
from dive_jax.methods.shared import Prepared
from dive_jax.retrieval.exact import top_k
from dive_jax.types import InputError

_TWINS = 50  # ranks searched beyond the judged documents, for texts that repeat a relevant one


def nearest(
    material: Material, rows: Int[np.ndarray, " rows"], count: int, chunk_rows: int
) -> Int[np.ndarray, "rows neighbours"]:
    """Returns the nearest documents of some documents by frozen cosine, never themselves.

    Args:
      material: Whose documents are searched, all of them.
      rows: Documents to find the neighbours of.
      count: How many, fewer where there are not as many other documents.
      chunk_rows: Documents held at once.
    """
    vectors = material.vectors.document
    found = top_k(
        unit_rows(vectors, rows), vectors, k=count + 1, chunk_rows=chunk_rows, transform=unit_rows
    ).rows
    own = found == rows[:, None]
    order = np.argsort(own, axis=1, kind="stable")  # itself last
    return np.take_along_axis(found, order, axis=1)[:, : found.shape[1] - 1]


def with_neighbours(ready: Prepared, material: Material, fitting: Fitting, count: int) -> Prepared:
    """Adds each document's neighbours to what is trained on, those that were missing as rows."""
    _, used = compact(material.triplets)
    found = nearest(material, used.document, count, fitting.chunk_rows)
    extra = np.setdiff1d(found, used.document)
    place = np.zeros(len(material.vectors.document), np.int32)
    rows = np.concatenate([used.document, extra])
    place[rows] = np.arange(len(rows), dtype=np.int32)
    vectors = unit_rows(material.vectors.document, extra)
    if ready.axes is not None:
        vectors = vectors @ ready.axes.T
    document = np.concatenate([ready.data.document, vectors])
    return ready._replace(data=ready.data._replace(document=document, neighbours=place[found]))


def hard_negatives(
    material: Material, count: int, chunk_rows: int
) -> Int[np.ndarray, "queries hard"]:
    """Returns the best documents of each training query that are not relevant for it.

    Args:
      material: Vectors, and the judgments of the queries that train.
      count: How many; -1 fills a row with fewer.
      chunk_rows: Documents held at once.

    Returns:
      Rows, best first, in the order of the judgments' queries. A document of the same text as a
      relevant one is left out.
    """
    known = judgments(material)
    rows = known.query.astype(np.int64)
    found = np.asarray(
        top_k(
            unit_rows(material.vectors.query, rows),
            material.vectors.document,
            k=min(count + known.document.shape[1] + _TWINS, len(material.vectors.document)),
            chunk_rows=chunk_rows,
            transform=unit_rows,
        ).rows
    )
    text = np.append(known.text, -2)  # no document has the text of a missing one
    relevant = text[known.document][:, None, :] == text[found][:, :, None]
    barred = relevant.any(axis=2)
    order = np.argsort(barred, axis=1, kind="stable")[:, :count]
    chosen = np.take_along_axis(found, order, axis=1)
    return np.where(np.take_along_axis(barred, order, axis=1), -1, chosen).astype(np.int32)


def judgments(material: Material) -> Judgments:
    """Returns the judgments, or raises `InputError` where there are none."""
    if material.judgments is None:
        raise InputError("this method needs judgments, and there are none")
    return material.judgments
