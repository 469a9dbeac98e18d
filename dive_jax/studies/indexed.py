"""What an index is built of: compressed documents, read chunk by chunk, and whose they are."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.artefact import check_encoder
from dive_jax.data.arrays import open_vectors
from dive_jax.data.lines import check_id, numbered_lines, parse_object
from dive_jax.files import sha256_file
from dive_jax.methods.protocol import Compressor
from dive_jax.sources import Source
from dive_jax.types import InputError

_TYPES = ("float16", "float32")


class Documents(NamedTuple):
    """Compressed documents.

    Attributes:
      ids: Id of each row.
      dim: Width.
      chunk_rows: Rows of a chunk.
      pieces: First row -> the chunks from there on, float32; the row begins a chunk.
      sample: Rows -> their vectors.
      about: method, full_dim, normalized, encoder, fingerprint, adapter_sha256 and source.
    """

    ids: tuple[str, ...]
    dim: int
    chunk_rows: int
    pieces: Callable[[int], Iterator[np.ndarray]]
    sample: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.ids)


def of_run(compressor: Compressor, source: Source, chunk_rows: int) -> Documents:
    """Returns the documents of a dataset as an adapter compresses them, chunk by chunk.

    Args:
      compressor: The adapter.
      source: The dataset and its frozen vectors.
      chunk_rows: Rows compressed at once.

    Raises:
      InputError: If the vectors are not those of the adapter's encoder.
    """
    store, vectors = source.store, source.vectors.document
    check_encoder(
        compressor.artefact,
        encoder=store.encoder,
        fingerprint=store.encoder_fingerprint,
        dim=store.dim,
    )
    meta = compressor.artefact.meta
    about = {name: meta[name] for name in ("method", "full_dim", "normalized")}
    about |= {"encoder": store.encoder, "fingerprint": store.encoder_fingerprint}
    about |= {"adapter_sha256": meta["sha256"]}
    about |= {"source": {"dataset": source.dataset, "vectors": store.fingerprint}}
    return Documents(
        source.ids.document,
        compressor.dim,
        chunk_rows,
        lambda first: compressor.stream(vectors, chunk_rows=chunk_rows, start=first),
        lambda rows: compressor.compress(vectors[rows], chunk_rows=chunk_rows),
        about,
    )


def _manifest(path: Path, vectors: Path) -> dict[str, Any]:
    """Reads the manifest that compress left beside its vectors."""
    if not path.is_file():
        raise InputError(
            f"--vectors: {vectors} has no {path.name} beside it to say which adapter made it; "
            "wanted what dive_jax.compress wrote"
        )
    found = parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))
    kinds = {"method": str, "encoder": str, "fingerprint": str, "adapter_sha256": str}
    kinds |= {"side": str, "sha256": str, "full_dim": int, "dim": int, "normalized": bool}
    for key, kind in kinds.items():
        if type(found.get(key)) is not kind:
            got = str(found.get(key))[:80]
            raise InputError(f"{path}: {key}: wanted a {kind.__name__}, got {got}")
    if found["side"] != "document":
        raise InputError(f"--vectors: {vectors} holds queries; wanted compressed documents")
    return found


def of_file(
    vectors: Path, manifest: Path, ids: Callable[[int], tuple[str, ...]], chunk_rows: int
) -> Documents:
    """Returns the vectors of a file that compress wrote.

    Args:
      vectors: The .npy file, float16 or float32.
      manifest: The manifest beside it.
      ids: Number of rows -> their ids.
      chunk_rows: Rows added at once.

    Raises:
      InputError: If the manifest is missing or of another file, or these are queries.
    """
    found = _manifest(manifest, vectors)
    opened = open_vectors(vectors, _TYPES)
    if opened.shape[1] != found["dim"]:
        raise InputError(
            f"{vectors}: wanted {found['dim']} coordinates as its manifest says, got "
            f"{opened.shape[1]}"
        )
    if (got := sha256_file(vectors)) != found["sha256"]:
        raise InputError(
            f"{vectors}: changed since its manifest was written (SHA-256 wanted "
            f"{found['sha256'][:12]}…, got {got[:12]}…); compress again"
        )
    names = ("method", "full_dim", "normalized", "encoder", "fingerprint", "adapter_sha256")
    return Documents(
        ids(len(opened)),
        opened.shape[1],
        chunk_rows,
        lambda first: _slices(opened, first, chunk_rows),
        lambda rows: np.asarray(opened[rows], np.float32),
        {name: found[name] for name in names} | {"source": {"vectors": found["sha256"]}},
    )


def read_ids(path: Path, rows: int) -> tuple[str, ...]:
    """Reads one id a line.

    Args:
      path: A text file.
      rows: How many there must be.

    Raises:
      InputError: If there are others, or one is empty or occurs twice.
    """
    lines: dict[str, int] = {}
    for number, line in numbered_lines(path):
        first = lines.setdefault(check_id(line, f"{path}:{number}", "id"), number)
        if first != number:
            raise InputError(f"{path}:{number}: id {line} repeats line {first}; ids must be unique")
    if len(lines) != rows:
        raise InputError(f"{path}: wanted {rows} ids, one a row, got {len(lines)}")
    return tuple(lines)


def _slices(
    vectors: Float[np.ndarray, "rows dim"], first: int, chunk_rows: int
) -> Iterator[Float[np.ndarray, "chunk dim"]]:
    for start in range(first, len(vectors), chunk_rows):
        yield np.asarray(vectors[start : start + chunk_rows], np.float32)
