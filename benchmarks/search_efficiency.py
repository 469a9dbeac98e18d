"""Exact search by width: index bytes, latency of one query, queries a second; ours and FAISS flat.

python benchmarks/search_efficiency.py --out=DIR writes search_efficiency.json and
search_efficiency.png: 522,931 unit vectors of each of --widths, batches of --batches queries, ten
documents each. Vectors are drawn, since their values do not matter to an exact search, and lie in
files under --folder (default: DIR) while a width is measured. A width whose index FAISS and the
file's pages could not both hold in memory is halved until it fits, and the row tells. Published
beside it: LLM2Vec-Mistral-7B's 4096 against 256 and 128, an exact flat index on one A100.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Side

DOCUMENTS, K = 522_931, 10
CHUNK_ROWS = 65536
DRAWN = 16384
QUERIES = 1000
CLEAR = 1e-5
_SHARE = 0.9  # of the memory that is free
PUBLISHED = {
    256: {"bytes": 16.0, "latency": 2.96, "throughput": 7.50},
    128: {"bytes": 32.0, "latency": 3.31, "throughput": 9.51},
}


def draw(path: Path, rows: int, width: int, seed: int) -> str:
    """Writes unit vectors, a block at a time."""
    rng = np.random.default_rng([seed, width])
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    for start in range(0, rows, DRAWN):
        block = rng.standard_normal((min(DRAWN, rows - start), width), np.float32)
        out[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return str(path)


def agreement(ours: Any, peer: Any) -> float:
    """Wants the same documents wherever the scores of neighbours differ clearly."""
    (scores, rows), (expected, there) = ours, peer
    error = harness.close(scores, expected, CLEAR)
    clear = np.ones(rows.shape, bool)
    apart = -np.diff(expected, axis=1) > CLEAR
    clear[:, 1:] &= apart
    clear[:, :-1] &= apart
    clear[:, -1] = False  # what comes next is not known
    if (rows != there)[clear].any() or clear.mean() < 0.5:
        raise SystemExit("the two sides find other documents; nothing timed")
    return error


def fitting(width: int, rows: int) -> int:
    """Returns the width, halved until twice its vectors fit in memory."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if (path := Path("/proc/meminfo")).exists():  # where pages of files count as free
        lines = dict(line.split(":") for line in path.read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    while 2 * 4 * rows * width > _SHARE * free:
        width //= 2
    return width


def measure(width: int, rows: int, batches: Sequence[int], folder: Path, given: Any) -> None:
    """Measures all batches at one width."""
    taken = fitting(width, rows)
    documents = draw(folder / "documents.npy", rows, taken, 1)
    queries = draw(folder / "queries.npy", QUERIES, taken, 2)
    shared = {"documents": documents, "queries": queries, "k": K}
    for cores in given.cores:
        for batch in batches:
            found = harness.compare(
                f"{taken} wide, {batch} quer{'y' if batch == 1 else 'ies'}",
                Side("ours", "search_jax", "build",
                     shared | {"count": batch, "chunk_rows": CHUNK_ROWS}),
                [Side("FAISS flat", "search_faiss", "build", shared | {"count": batch})],
                cores=cores, check=agreement, pairs=given.pairs, flops=2.0 * rows * taken * batch,
                rows=rows, width=taken, batch=batch, asked_width=width,
            )  # fmt: skip
            harness.save(given.out, "search_efficiency", found, plot=plot)


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what each width gains on the widest: bytes, latency and throughput, a row a side."""
    made = []
    for cores in sorted({row["cores"] for row in rows}):
        at = {(row["width"], row["batch"]): row for row in rows if row["cores"] == cores}
        widths = sorted({width for width, _ in at}, reverse=True)
        one, many = 1, max(batch for _, batch in at)
        for width in widths[1:]:
            if not {(width, one), (width, many), (widths[0], one), (widths[0], many)} <= set(at):
                continue
            for side in ("ours", "peer"):
                gain = {
                    name: at[widths[0], batch][f"{side}_s"] / at[width, batch][f"{side}_s"]
                    for name, batch in (("latency", one), ("throughput", many))
                }
                made.append(
                    {"cores": cores, "side": side, "from": widths[0], "to": width}
                    | {"bytes": widths[0] / width, **gain}
                    | {"published": PUBLISHED.get(width) if widths[0] == 4096 else None}
                )
    return made


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws index size, latency and throughput by width, one line a side, on the most cores."""
    from matplotlib.figure import Figure

    cores = max(row["cores"] for row in rows)
    rows = [row for row in rows if row["cores"] == cores]
    many = max(row["batch"] for row in rows)
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots(1, 3)
    for side, name in (("ours", "ours"), ("peer", "FAISS flat")):
        one, all_ = (
            sorted((row["width"], row[f"{side}_s"]) for row in rows if row["batch"] == batch)
            for batch in (1, many)
        )
        axes[1].loglog(*zip(*((w, 1e3 * s) for w, s in one), strict=True), marker="o", label=name)
        speed = ((w, many / s) for w, s in all_)
        axes[2].loglog(*zip(*speed, strict=True), marker="o", label=name)
    sizes = sorted({(row["width"], row["ours_told"]["index_bytes"] / 2**20) for row in rows})
    axes[0].loglog(*zip(*sizes, strict=True), marker="o")
    labels = ("index, MiB", "one query, ms", f"queries a second, {many} at once")
    for axis, label in zip(axes, labels, strict=True):
        axis.set_xlabel("width")
        axis.set_ylabel(label)
    axes[1].legend(frameon=False)
    figure.suptitle(f"exact top {K}, {cores} core(s)")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(
        __doc__,
        widths=("4096,768,256,128", "widths to measure"),
        batches=("1,32,1000", "queries at once"),
        folder=("", "where the vectors lie while they are measured"),
    )
    widths, batches = ([int(x) for x in text.split(",")] for text in (given.widths, given.batches))
    rows = DOCUMENTS
    if given.quick:
        widths, batches, rows = [32, 16], [1, 32], 20_000
    given.out.mkdir(parents=True, exist_ok=True)
    for width in widths:
        if given.only in f"{width} wide":
            with tempfile.TemporaryDirectory(dir=given.folder or given.out) as folder:
                measure(width, rows, batches, Path(folder), given)
    gains = ratios(json.loads((given.out / "search_efficiency.json").read_text())["rows"])
    harness.save(given.out, "search_efficiency", [], about={"ratios": gains}, plot=plot)
    for each in gains:
        print(", ".join(f"{name} {value}" for name, value in each.items()))


if __name__ == "__main__":
    main()
