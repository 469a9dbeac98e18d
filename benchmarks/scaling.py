"""How time and memory grow: documents, queries, batch, heads, seeds, width, devices.

python benchmarks/scaling.py --out=DIR writes scaling.json and scaling.png, log-log with the slopes
fitted to the three largest sizes. There is no peer: each search must find the documents it asks
with, compressed rows must equal plain products, and several devices must give what one gives.
Documents are float16 rows of --width drawn to a file under --folder (default: DIR), 2.6 GB for
10^7. Devices are this host's cores, divided by XLA's own flag: on as many cores the time tells what
dividing costs, not what more hardware gains.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np
from harness import Process, Side
from steps import Case

DRAWN = 65536
K, QUERIES, SEARCHED = 10, 32, 131_072
FITTED = 3  # sizes a slope is fitted to
EQUAL = 1e-5
LEAST_S = 0.2


class Sweep(NamedTuple):
    """One quantity that grows.

    Attributes:
      over: What grows.
      work: What is timed, a function of `scaling_jax`.
      sizes: How far.
      arguments: Size -> its arguments, but for the file.
    """

    over: str
    work: str
    sizes: tuple[int, ...]
    arguments: Any


def sweeps(quick: bool) -> list[Sweep]:
    """Returns all of them."""
    documents = (10**3, 10**4) if quick else (10**4, 10**5, 10**6, 10**7)
    searched, width, batch = (2000, 64, 16) if quick else (SEARCHED, 768, 128)
    dim, count = (8, 2) if quick else (64, 8)

    def training(full_dim: int = width, heads: int = 4, rows: int = batch) -> dict[str, Any]:
        case = Case(full_dim, full_dim // 2, dim, heads, rows, count)
        return {"case": tuple(case), "seeds": 1, "devices": 1}

    def search(rows: int = searched, queries: int = QUERIES, devices: int = 1) -> dict[str, Any]:
        return {"rows": rows, "queries": queries, "k": K, "devices": devices}

    def first(sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sizes[:2]) if quick else tuple(sizes)

    return [
        Sweep("documents", "search", documents, lambda x: search(rows=x)),
        Sweep("documents", "compress", documents, lambda x: {"rows": x, "devices": 1}),
        Sweep("queries", "search", first([1, 4, 16, 64, 256, 1024, 4096]),
              lambda x: search(queries=x)),
        Sweep("batch", "train", first([32, 64, 128, 256, 512]), lambda x: training(rows=x)),
        Sweep("heads", "train", first([2, 4, 8, 12]), lambda x: training(heads=x)),
        Sweep("seeds", "train", first([1, 2, 4, 8]), lambda x: training() | {"seeds": x}),
        Sweep("width", "train", first([768, 1536, 3072]) if not quick else (64, 128),
              lambda x: training(full_dim=x)),
        Sweep("devices", "search", first([1, 2, 4]), lambda x: search(devices=x)),
        Sweep("devices", "compress", first([1, 2, 4]), lambda x: {"rows": searched, "devices": x}),
        Sweep("devices", "train", first([1, 2, 4]),
              lambda x: training() | {"seeds": 4, "devices": x}),
    ]  # fmt: skip


def draw(path: Path, rows: int, width: int) -> str:
    """Writes float16 vectors of about length 1, a block at a time."""
    rng = np.random.default_rng(rows)
    out = np.lib.format.open_memmap(path, "w+", np.float16, (rows, width))
    for start in range(0, rows, DRAWN):
        block = rng.standard_normal((min(DRAWN, rows - start), width), np.float32)
        out[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return str(path)


def measure(sweep: Sweep, size: int, documents: str, cores: int, pairs: int) -> tuple[Any, Any]:
    """Times one size; returns its row and its result."""
    arguments = sweep.arguments(size)
    if sweep.work != "train":
        arguments |= {"documents": documents}
    flag = f"--xla_force_host_platform_device_count={arguments['devices']}"
    environment = {"XLA_FLAGS": flag} if arguments["devices"] > 1 else {}
    side = Side("ours", "scaling_jax", sweep.work, arguments, environment=environment)
    with Process(side, cores) as process:
        process.build()
        peak = process.ask("peak")
        once = process.ask("time", 1)[0]
        repeats = max(1, int(LEAST_S / max(once, 1e-6)))
        times = np.array([process.ask("time", repeats) for _ in range(pairs)])
        row = {
            "case": f"{sweep.work} by {sweep.over}, {size:,}",
            "cores": cores,
            "peer": "",
            "work": sweep.work,
            "over": sweep.over,
            "size": size,
            "ours_s": float(np.median(times[:, 0])),
            "ours_cpu_s": float(np.median(times[:, 1])),
            "ours_peak_mb": peak,
            "ours_compile_s": process.compile_s,
            "sides": {"ours": process.ask("about")},
        }
        return row, process.result


def swept(sweep: Sweep, documents: str, cores: int, given: Any) -> list[dict[str, Any]]:
    """Times all sizes of a sweep; several devices must give what the first number of them gave."""
    rows, expected = [], None
    for size in sweep.sizes:
        row, result = measure(sweep, size, documents, cores, given.pairs)
        if sweep.over == "devices":
            expected = result if expected is None else expected
            row["max_error"] = harness.close(result, expected, EQUAL)
        print(
            f"{row['case']}, {cores} core(s): {1e3 * row['ours_s']:.4g} ms "
            f"({1e3 * row['ours_cpu_s']:.4g} ms CPU), {row['ours_peak_mb']:.0f} MiB",
            flush=True,
        )
        rows.append(row)
    return rows


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Returns how log y grows with log x at the largest sizes; None where y is next to nothing."""
    points = sorted(points)[-FITTED:]
    if len(points) < 2 or any(y is None or y <= 1e-9 for _, y in points):
        return None
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the slopes of time and memory of every sweep."""
    made = []
    for key in sorted({(row["work"], row["over"], row["cores"]) for row in rows}):
        mine = [row for row in rows if (row["work"], row["over"], row["cores"]) == key]
        found = {
            name: slope([(row["size"], row[field]) for row in mine])
            for name, field in (("time", "ours_s"), ("memory", "ours_peak_mb"))
        }
        made.append(dict(zip(("work", "over", "cores"), key, strict=True)) | found)
    return made


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws time above and memory below, a column for each quantity, on the most cores."""
    from matplotlib.figure import Figure

    cores = max(row["cores"] for row in rows)
    rows = [row for row in rows if row["cores"] == cores]
    slopes = {(each["work"], each["over"]): each for each in exponents(rows)}
    columns = list(dict.fromkeys(row["over"] for row in rows))
    figure = Figure(figsize=(2.6 * len(columns), 5), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False)
    for column, over in enumerate(columns):
        for work in dict.fromkeys(row["work"] for row in rows if row["over"] == over):
            mine = sorted(
                (row["size"], row["ours_s"], row["ours_peak_mb"])
                for row in rows
                if (row["over"], row["work"]) == (over, work)
            )
            sizes, *values = zip(*mine, strict=True)
            for axis, series, name in zip(axes[:, column], values, ("time", "memory"), strict=True):
                found = slopes[work, over][name]
                label = work + ("" if found is None else f" {found:.2f}")
                axis.loglog(sizes, np.maximum(series, 1e-3), marker="o", label=label)
        for axis, label in zip(axes[:, column], ("seconds", "MiB a call"), strict=True):
            axis.set_xlabel(over)
            axis.set_ylabel(label)
            axis.legend(frameon=False, fontsize=7)
    figure.suptitle(f"{cores} core(s); the number is the slope")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(
        __doc__, width=(128, "of the documents"), folder=("", "where the documents lie")
    )
    given.out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in sweeps(given.quick) if given.only in f"{each.work} by {each.over}"]
    most = max([SEARCHED, *(x for each in chosen if each.over == "documents" for x in each.sizes)])
    with tempfile.TemporaryDirectory(dir=given.folder or given.out) as folder:
        rows = 10**4 if given.quick else most
        documents = draw(Path(folder) / "documents.npy", rows, given.width)
        for cores in given.cores:
            for sweep in chosen:
                found = swept(sweep, documents, cores, given)
                harness.save(given.out, "scaling", found, plot=plot)
    grown = exponents(json.loads((given.out / "scaling.json").read_text())["rows"])
    harness.save(given.out, "scaling", [], about={"exponents": grown}, plot=plot)
    for each in grown:
        print(", ".join(f"{name} {value}" for name, value in each.items()))


if __name__ == "__main__":
    main()
