"""Compressing a memory-mapped file: rows a second and memory, against PyTorch and bare products.

python benchmarks/compress_throughput.py --out=DIR [--torch_python=PATH] writes
compress_throughput.json and compress_throughput.png. Vectors of 4096, 2048 and 768 coordinates go
to 128 through a linear map (PCA and alike) and through DIVE's residual block. "product" multiplies
the same rows by the same matrices: no checks, no normalisation, nothing kept. A second file of a
quarter of the rows shows that memory does not grow with them.
"""

import tempfile
from pathlib import Path
from typing import Any

import compress_cases
import harness
from harness import Side

WIDTHS, DIM = (4096, 2048, 768), 128
ENTRIES = 1 << 26
"""Numbers in a file: 256 MiB."""

CHUNK_ROWS, TORCH_ROWS = 16384, 2048
TOLERANCE = 1e-4


def agreement(ours: Any, peer: Any) -> float:
    """Holds compressed rows against the peer's; products alone make nothing to compare."""
    return 0.0 if peer is None else harness.close(ours, peer, TOLERANCE)


def measure(form: str, full_dim: int, entries: int, cores: int, folder: Path, given: Any) -> None:
    """Compares one form at one width, on a file and on a quarter of it."""
    for rows in (entries // full_dim, entries // full_dim // 4):
        vectors = compress_cases.draw(folder / f"{rows}.npy", rows, full_dim)
        shared = {"form": form, "full_dim": full_dim, "dim": DIM}
        read = shared | {"vectors": vectors}
        found = harness.compare(
            f"{form}, {full_dim} to {DIM}, {rows:,} rows",
            Side("ours", "compress_jax", "build", read | {"chunk_rows": CHUNK_ROWS}),
            [
                Side("product", "compress_jax", "bare", read),
                *(
                    Side(f"torch {name}", "compress_torch", "build",
                         read | {"chunk_rows": TORCH_ROWS, "compiled": compiled},
                         python=given.torch_python)
                    for name, compiled in (("eager", False), ("compiled", True))
                ),
            ],
            cores=cores, check=agreement, pairs=given.pairs, rows=rows, full_dim=full_dim,
            form=form, flops=compress_cases.flops(form, full_dim, DIM, rows),
        )  # fmt: skip
        for row in found:
            row["ours_rows_per_s"], row["peer_rows_per_s"] = (
                rows / row[f"{side}_s"] for side in ("ours", "peer")
            )
        harness.save(given.out, "compress_throughput", found)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    widths, entries = ((192,), 1 << 18) if given.quick else (WIDTHS, ENTRIES)
    for cores in given.cores:
        for full_dim in widths:
            for form in ("linear", "residual"):
                if given.only in f"{form} {full_dim}":
                    given.out.mkdir(parents=True, exist_ok=True)
                    with tempfile.TemporaryDirectory(dir=given.out) as folder:
                        measure(form, full_dim, entries, cores, Path(folder), given)


if __name__ == "__main__":
    main()
