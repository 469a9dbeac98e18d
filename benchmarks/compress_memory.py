"""Peak memory of `compress` by the operating system's own figure, for 10^5, 10^6 and 10^7 rows.

python benchmarks/compress_memory.py --out=DIR writes compress_memory.json; `--rows=10000000` adds
the largest. Each run is a process of its own, whose greatest resident set the kernel tells when it
ends (ru_maxrss of wait4). A run of 100 rows is the least: Python, JAX, a compiled program. Above it
no run, of however many rows, may take more than `COPIES` chunks of float32: 192 MiB here.

This process itself stays small, and writes the sources in others: what a process held when it
started another counts as that one's.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.artefact import Artefact, save

FULL_DIM, DIM, CHUNK = 256, 64, 16384
BLOCK = 100_000
COPIES = 12
BOUND = COPIES * CHUNK * FULL_DIM * 4
KINDS = {
    "npy": ("npy", "npy", "float32"),
    "shards": ("shards", "npy", "int8"),
    "parquet": ("parquet", "parquet", "float32"),
}


def adapter(folder: Path) -> Path:
    """Writes a linear adapter of random weights."""
    weight = np.random.default_rng(0).normal(size=(DIM, FULL_DIM)).astype(np.float32)
    meta: dict[str, Any] = {"format_version": 1, "method": "random_projection", "sides": "both"}
    meta |= {"dim": DIM, "full_dim": FULL_DIM, "normalized": True}
    save(Artefact("linear", {"weight": weight}, meta | {"encoder": "", "fingerprint": ""}), folder)
    return folder


def _blocks(rows: int) -> Any:
    rng = np.random.default_rng(1)
    block = rng.normal(size=(min(BLOCK, rows), FULL_DIM)).astype(np.float16)
    for start in range(0, rows, BLOCK):
        yield start, block[: min(BLOCK, rows - start)]


def source(kind: str, path: Path, rows: int) -> None:
    """Writes so many float16 rows, block by block, as one of the kinds."""
    if kind == "npy":
        with open(path, "wb") as out:
            described = {"descr": "<f2", "fortran_order": False, "shape": (rows, FULL_DIM)}
            np.lib.format.write_array_header_1_0(out, described)
            for _, block in _blocks(rows):
                out.write(block.tobytes())
    elif kind == "shards":
        path.mkdir()
        for start, block in _blocks(rows):
            np.save(path / f"documents-{start // BLOCK:05}.npy", block)
    else:
        _table(path, rows)


def _table(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.list_(pa.float16(), FULL_DIM)
    schema = pa.schema([("id", pa.string()), ("vector", kind)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as out:
        for start, block in _blocks(rows):
            ids = pa.array([f"document-{start + each}" for each in range(len(block))])
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), FULL_DIM)
            out.write_table(pa.Table.from_arrays([ids, vectors], schema=schema), len(block))


def measure(kind: str, made: Path, rows: int, work: Path) -> dict[str, Any]:
    """Runs compress on so many rows in a process of its own; returns its peak and its time."""
    given, ending, dtype = KINDS[kind]
    folder = work / f"{kind}-{rows}"
    folder.mkdir()
    path = folder / f"in.{given}"
    subprocess.run(
        [sys.executable, __file__, f"--make={given},{rows}", f"--out={path}"], check=True
    )
    flags = {"run": made, "vectors": path, "out": folder / f"out.{ending}", "dtype": dtype}
    command = [sys.executable, "-m", "dive_jax.compress", f"--chunk_rows={CHUNK}"]
    began = time.perf_counter()
    child = subprocess.Popen(
        [*command, *(f"--{name}={value}" for name, value in flags.items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    told = child.stdout.read().decode().strip()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"compress_memory.py: {kind}, {rows:,} rows: compress failed")
    size = sum(each.stat().st_size for each in path.rglob("*")) or path.stat().st_size
    shutil.rmtree(folder)
    return {
        "kind": kind,
        "dtype": dtype,
        "rows": rows,
        "bytes_before": size,
        "peak_bytes": usage.ru_maxrss * 1024,
        "seconds": seconds,
        "told": told.partition(": ")[2],
    }


def check(kind: str, rows: list[dict[str, Any]]) -> list[str]:
    """Returns what is wrong with the peaks of one kind; the first is that of hardly any rows."""
    least, wrong = rows[0]["peak_bytes"], []
    for each in rows[1:]:
        if (above := each["peak_bytes"] - least) > BOUND:
            wrong.append(f"{kind}, {each['rows']:,} rows: {above / 2**20:.0f} MiB above the least")
    return wrong


def main() -> None:
    """Measures, prints, writes and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000, help="the most rows, up to 10^7")
    parser.add_argument("--kinds", default=",".join(KINDS), help="sources, with commas between")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        kind, rows = given.make.split(",")
        return source(kind, given.out, int(rows))
    sizes = [100, *(size for size in (10**5, 10**6, 10**7) if size <= given.rows)]
    rows, wrong = [], []
    with tempfile.TemporaryDirectory(dir=given.out.parent) as work:
        made = adapter(Path(work) / "adapter")
        for kind in given.kinds.split(","):
            found = [measure(kind, made, size, Path(work)) for size in sizes]
            for each in found:
                print(
                    f"{kind} {each['dtype']}, {each['rows']:,} rows, "
                    f"{each['bytes_before'] / 2**20:,.0f} MiB: peak "
                    f"{each['peak_bytes'] / 2**20:.0f} MiB, {each['seconds']:.1f} s",
                    flush=True,
                )
            rows, wrong = rows + found, wrong + check(kind, found)
    told = {
        "processor": platform.processor() or platform.machine(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "shape": {"full_dim": FULL_DIM, "dim": DIM, "chunk_rows": CHUNK},
        "allowed_bytes_above_least": BOUND,
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "compress_memory.json").write_text(json.dumps(told, indent=2) + "\n")
    if wrong:
        raise SystemExit("compress_memory.py: the bound does not hold: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
