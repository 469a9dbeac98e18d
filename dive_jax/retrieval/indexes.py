"""Indexes of compressed vectors by faiss: the same vectors in the same chunks give the same bytes.

faiss is an extra: it is imported when an index is first wanted.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.retrieval.exact import Ranking
from dive_jax.types import InputError

KINDS = ("flat", "hnsw", "ivfpq", "int8", "binary")

SAMPLE = 65536
"""Vectors that clusters, codebooks and ranges are learned from, at most."""

_SEED = 1234
_CENTROIDS = 256  # of one byte of a product code
_LEAST_A_LIST = 39  # training vectors a list, below which faiss finds its clusters unsound


class Settings(NamedTuple):
    """How an index is built and searched; each kind reads its own.

    Attributes:
      kind: "flat" (exact), "hnsw" (a graph over float32 vectors), "ivfpq" (lists of product codes),
        "int8" (one byte a coordinate), "binary" (one bit a coordinate, the best scored again with
        an int8 copy).
      hnsw_links: hnsw: neighbours of a node.
      ef_construction: hnsw: candidates while building.
      ef_search: hnsw: candidates while searching.
      lists: ivfpq: lists; None for about 4 sqrt(rows), as far as there are rows to learn from.
      probes: ivfpq: lists searched; None for 32.
      code_bytes: ivfpq: bytes a vector, a divisor of the width; None for the greatest up to a
        quarter of it.
      oversampling: binary: candidates scored again for each document wanted.
      threads: hnsw: cores that build. With more than one the bytes may differ from build to build.
    """

    kind: str = "flat"
    hnsw_links: int = 32
    ef_construction: int = 200
    ef_search: int = 64
    lists: int | None = None
    probes: int | None = None
    code_bytes: int | None = None
    oversampling: int = 4
    threads: int = 1


def library() -> Any:
    """Returns the module faiss.

    Raises:
      InputError: If it is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise InputError(
            "an index needs faiss, which is not installed; "
            "pip install 'dive_jax[faiss]', or search exactly, without --index"
        ) from None
    return faiss


def _code_bytes(settings: Settings, dim: int) -> int:
    wanted = settings.code_bytes
    if wanted is None:
        return max(each for each in range(1, max(1, dim // 4) + 1) if dim % each == 0)
    if dim % wanted:
        raise InputError(f"--code_bytes: wanted a divisor of the width {dim}, got {wanted}")
    return wanted


def _ivfpq(settings: Settings, rows: int, dim: int) -> dict[str, int]:
    if rows < _CENTROIDS:
        raise InputError(
            f"--kind: ivfpq learns {_CENTROIDS} centroids and needs as many vectors, got {rows}; "
            "take flat or int8"
        )
    lists = settings.lists
    if lists is None:
        lists = max(1, min(round(4 * rows**0.5), min(rows, SAMPLE) // _LEAST_A_LIST))
    if lists > min(rows, SAMPLE):
        raise InputError(f"--lists: wanted at most {min(rows, SAMPLE)} here, got {lists}")
    probes = min(32, lists) if settings.probes is None else settings.probes
    if probes > lists:
        raise InputError(f"--probes: wanted at most the {lists} lists, got {probes}")
    return {"lists": lists, "probes": probes, "code_bytes": _code_bytes(settings, dim)}


def parameters(settings: Settings, rows: int, dim: int) -> dict[str, int]:
    """Returns all that decides an index's bytes beside the vectors and their chunks.

    Args:
      settings: Kind, and settings of every kind.
      rows: Vectors that will be indexed.
      dim: Their width.

    Raises:
      InputError: If a setting does not fit, or there are too few rows to learn from.

    Example:
      >>> parameters(Settings("ivfpq"), rows=10_000, dim=64)
      {'lists': 256, 'probes': 32, 'code_bytes': 16}
    """
    if settings.kind == "hnsw":
        return {
            "links": settings.hnsw_links,
            "ef_construction": settings.ef_construction,
            "ef_search": settings.ef_search,
            "threads": settings.threads,
        }
    if settings.kind == "ivfpq":
        return _ivfpq(settings, rows, dim)
    if settings.kind == "binary":
        return {"oversampling": settings.oversampling}
    if settings.kind in KINDS:
        return {}
    raise InputError(f"--kind: wanted one of {', '.join(KINDS)}, got {settings.kind}")


@contextlib.contextmanager
def _cores(count: int) -> Iterator[None]:
    """Bounds the cores that faiss and its linear algebra use."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=count):
        yield


def empty(kind: str, dim: int, chosen: dict[str, int]) -> Any:
    """Returns an index without vectors, by inner product; `train` comes next.

    Args:
      kind: One of `KINDS`.
      dim: Width of the vectors.
      chosen: What `parameters` returned.
    """
    faiss = library()
    product = faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dim)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, chosen["links"], product)
        index.hnsw.efConstruction = chosen["ef_construction"]
        index.hnsw.efSearch = chosen["ef_search"]
        return index
    if kind == "ivfpq":
        coarse = faiss.IndexFlatIP(dim)
        index = faiss.IndexIVFPQ(coarse, dim, chosen["lists"], chosen["code_bytes"], 8, product)
        for clustering in (index.cp, index.pq.cp):
            clustering.seed = _SEED
            clustering.min_points_per_centroid = 1  # said in our own words, or not at all
        index.nprobe = chosen["probes"]
        return index
    bytes_each = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, product)
    if kind == "int8":
        return bytes_each
    bits = faiss.IndexLSH(dim, dim, False, False)  # the signs, neither turned nor shifted
    bits.metric_type = product
    index = faiss.IndexRefine(bits, bytes_each)
    index.k_factor = float(chosen["oversampling"])
    return index


def sample_rows(rows: int) -> np.ndarray:
    """Returns evenly spaced rows to learn from, at most `SAMPLE`.

    Example:
      >>> sample_rows(3)
      array([0, 1, 2])
    """
    return np.linspace(0, rows - 1, min(SAMPLE, rows)).astype(np.int64)


def train(index: Any, sample: Float[np.ndarray, "rows dim"]) -> None:
    """Learns clusters, codebooks or ranges, on one core, where the kind has any.

    Args:
      index: What `empty` returned.
      sample: float32 vectors.
    """
    with _cores(1):
        index.train(np.ascontiguousarray(sample, np.float32))


def add(
    index: Any, vectors: Float[np.ndarray, "rows dim"], chosen: dict[str, int] | None = None
) -> None:
    """Adds a chunk of vectors behind those that are there.

    What comes of it depends on the chunks, not on whether the index was written and read between.

    Args:
      index: A trained index.
      vectors: float32.
      chosen: What `parameters` returned.
    """
    if hasattr(index, "hnsw"):
        # The generator of levels is not kept in a file, so each chunk begins its own.
        index.hnsw.rng = library().RandomGenerator(_SEED + index.ntotal)
    with _cores((chosen or {}).get("threads", 1)):
        index.add(np.ascontiguousarray(vectors, np.float32))


def search(index: Any, queries: Float[np.ndarray, "queries dim"], k: int) -> Ranking:
    """Finds about the k best documents of each query by inner product.

    Args:
      index: A filled index.
      queries: float32 query vectors.
      k: Documents wanted, at least 1.

    Returns:
      A `Ranking` of min(k, rows) columns; equal scores are ordered by row. Where an approximate
      index found fewer, the rest has row -1 and score -inf.

    Raises:
      InputError: If the widths differ or k is below 1.
    """
    if k < 1:
        raise InputError(f"k: wanted at least 1, got {k}")
    if queries.shape[1] != index.d:
        raise InputError(f"queries: wanted the index's width {index.d}, got {queries.shape[1]}")
    wanted = min(k, index.ntotal)
    how = None
    if hasattr(index, "k_factor") and wanted * index.k_factor > index.ntotal:
        # Asked for more candidates than there are, it would put missing ones first.
        how = library().IndexRefineSearchParameters(k_factor=index.ntotal / wanted)
    scores, rows = index.search(np.ascontiguousarray(queries, np.float32), wanted, params=how)
    scores = np.where(rows < 0, -np.inf, scores).astype(np.float32)
    order = np.lexsort((rows, -scores), axis=1)
    return Ranking(
        np.take_along_axis(scores, order, axis=1),
        np.take_along_axis(rows, order, axis=1).astype(np.int32),
    )


def size(index: Any) -> int:
    """Returns the bytes of an index's file: vectors or codes, links, codebooks and lists."""
    return library().serialize_index(index).nbytes


def write(index: Any, path: Path) -> None:
    """Writes an index's file.

    Raises:
      OSError: If it cannot be written, for want of space say.
    """
    try:
        library().write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(f"{path}: cannot be written ({_reason(error)})") from error


def read(path: Path) -> Any:
    """Reads an index's file.

    Raises:
      InputError: If it is not one, or damaged.
    """
    try:
        return library().read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: not a whole index of faiss's ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    """Returns faiss's words without where in its source they were said."""
    return " ".join(str(error).rpartition("Error:")[2].split()) or type(error).__name__
