"""Vectors in every kind of file that `compress` reads, a small adapter, and what comes out."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from dive_jax import compress
from dive_jax.artefact import Artefact, save

ROWS, FULL, DIM, CHUNK = 1000, 12, 5, 64
VECTORS = np.random.default_rng(0).normal(size=(ROWS, FULL)).astype(np.float32)
IDS = [f"d{each}" for each in range(ROWS)]


def write_adapter(folder: Path, encoder: str = "toy") -> Path:
    weight = np.random.default_rng(1).normal(size=(DIM, FULL)).astype(np.float32)
    meta: dict[str, Any] = {"format_version": 1, "method": "pca", "sides": "both", "dim": DIM}
    meta |= {"full_dim": FULL, "normalized": True, "encoder": encoder, "fingerprint": "f"}
    save(Artefact("linear", {"weight": weight}, meta), folder)
    return folder


def write_ids(vectors: Path, ids: list[str]) -> None:
    vectors.with_name(f"{vectors.stem}.ids.txt").write_text("".join(f"{each}\n" for each in ids))


def write_npy(folder: Path, values: np.ndarray = VECTORS, ids: list[str] | None = IDS) -> Path:
    np.save(folder / "in.npy", values)
    if ids is not None:
        write_ids(folder / "in.npy", ids)
    return folder / "in.npy"


def as_table(values: np.ndarray, ids: list[str]) -> pa.Table:
    flat = pa.array(values.reshape(-1))
    return pa.table({"id": ids, "emb": pa.FixedSizeListArray.from_arrays(flat, values.shape[1])})


def write_shards(folder: Path, suffix: str, values: np.ndarray = VECTORS) -> Path:
    """Writes five shards of uneven length, numbered without zeros in front of them."""
    (folder / "shards").mkdir()
    ids = [f"d{each}" for each in range(len(values))]
    edges = [0, *(np.array([0.1, 0.13, 0.5, 0.9]) * len(values)).astype(int).tolist(), len(values)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges), 7):
        path = folder / "shards" / f"part-{number}{suffix}"
        if suffix == ".npy":
            np.save(path, values[start:stop])
            write_ids(path, ids[start:stop])
        elif suffix == ".parquet":
            pq.write_table(as_table(values[start:stop], ids[start:stop]), path, row_group_size=150)
        else:
            pyarrow.feather.write_feather(as_table(values[start:stop], ids[start:stop]), path)
    return folder / "shards"


def run(adapter: Path, source: Path, out: Path, *more: str) -> int:
    arguments = [f"--run={adapter}", f"--vectors={source}", f"--out={out}", f"--chunk_rows={CHUNK}"]
    return compress.main([*arguments, *more])


def manifest_of(out: Path) -> dict[str, Any]:
    return json.loads(out.with_name(f"{out.stem}.manifest.json").read_text())


def read_back(out: Path) -> tuple[np.ndarray, list[str]]:
    if out.suffix == ".npy":
        return np.load(out), out.with_name(f"{out.stem}.ids.txt").read_text().splitlines()
    table = pq.read_table(out)
    flat = table["vector"].combine_chunks().flatten().to_numpy()
    return flat.reshape(table.num_rows, -1), table["id"].to_pylist()
