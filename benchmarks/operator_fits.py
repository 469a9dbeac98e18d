"""Dual and shared fits from n triples of width p, against NumPy and SciPy.

python benchmarks/operator_fits.py --out=DIR writes operator_fits.json and operator_fits.png. All
sides fit rank 16 in float32 to the same triples; values and products with a few vectors must agree.
Peers: "numpy" forms the p x p moment and decomposes it; "numpy thin" does by hand what ours does;
"scipy" iterates (svds, eigsh) on products with the two thin factors. `exponents` in the JSON tells
how our time grows with n at the greatest p and with p at n = 256, where n < p. A whole
decomposition at p = 4096 takes a minute and more: it is timed --full_pairs times, without a
warm-up and without its memory. --only="p 1024" and the like measure a part.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fits_data
import harness
import numpy as np
from harness import Side

WIDTHS, COUNTS = (256, 1024, 4096), (32, 256, 1024, 4096)
FAMILIES = ("dual", "shared")
TOLERANCE = 2e-4
AT = 256


def agreement(ours: Any, peer: Any) -> float:
    """Holds values and products against the peer's."""
    return harness.close(ours, peer, TOLERANCE)


def measure(family: str, dim: int, count: int, cores: int, given: Any) -> list[dict[str, Any]]:
    """Compares one family at one size."""
    shared = {"family": family, "dim": dim, "count": count}
    slow = dim == max(WIDTHS)
    rows = []
    for peers in ("full",), ("thin", "scipy") if 2 * count <= dim else ("scipy",):
        long = slow and peers == ("full",)
        rows += harness.compare(
            f"{family}, p {dim}, n {count}",
            Side("ours", "fits_jax", "build", shared),
            [
                Side(
                    {"full": "numpy", "thin": "numpy thin", "scipy": "scipy"}[how],
                    "fits_numpy", "build", shared | {"how": how},
                )
                for how in peers
            ],
            cores=cores, check=agreement, pairs=given.full_pairs if long else given.pairs,
            warm=not long, memory=not long, family=family, p=dim, n=count,
        )  # fmt: skip
    return rows


def exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Returns the slope of log time against log size."""
    sizes, times = (np.log(each) for each in zip(*sorted(points), strict=True))
    return float(np.polyfit(sizes, times, 1)[0]) if len(sizes) > 1 else None


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns how our time grows with n and p, where n < p."""
    made = []
    for family in FAMILIES:
        for cores in sorted({row["cores"] for row in rows}):
            mine = {
                (row["p"], row["n"]): row["ours_s"]
                for row in rows
                if (row["family"], row["cores"]) == (family, cores) and row["n"] < row["p"]
            }
            widest = max((p for p, _ in mine), default=0)
            by_count = {n: s for (p, n), s in mine.items() if p == widest and n >= AT}
            by_width = {p: s for (p, n), s in mine.items() if n == AT}
            for name, by in (("n", by_count), ("p", by_width)):
                if len(by) > 1:
                    slope = exponent(by.items())
                    made.append({"family": family, "cores": cores, "by": name, "exponent": slope})
    return made


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws time by n at the greatest p, one line a side, on the least number of cores."""
    from matplotlib.figure import Figure

    cores, widest = min(row["cores"] for row in rows), max(row["p"] for row in rows)
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    for axis, family in zip(figure.subplots(1, 2), FAMILIES, strict=True):
        lines: dict[str, dict[int, float]] = {}
        for row in rows:
            if (row["cores"], row["p"], row["family"]) == (cores, widest, family):
                lines.setdefault("ours", {})[row["n"]] = row["ours_s"]
                lines.setdefault(row["peer"], {})[row["n"]] = row["peer_s"]
        for name, points in lines.items():
            axis.loglog(*zip(*sorted(points.items()), strict=True), marker="o", label=name)
        axis.set_xlabel("triples n")
        axis.set_ylabel("seconds")
        axis.set_title(f"{family}, p {widest}, rank {fits_data.RANK}, {cores} core(s)")
        if lines:
            axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__, full_pairs=(2, "pairs with numpy's whole decompositions"))
    widths, counts = ((96,), (16,)) if given.quick else (WIDTHS, COUNTS)
    for cores in given.cores:
        for dim in widths:
            for count in counts:
                for family in FAMILIES:
                    if given.only in f"{family}, p {dim}, n {count}":
                        rows = measure(family, dim, count, cores, given)
                        harness.save(given.out, "operator_fits", rows, plot=plot)
    if (path := given.out / "operator_fits.json").exists():
        grown = exponents(json.loads(path.read_text())["rows"])
        about = {"rank": fits_data.RANK, "exponents": grown}
        harness.save(given.out, "operator_fits", [], about=about, plot=plot)
        for each in grown:
            print(", ".join(f"{name} {value}" for name, value in each.items()))


if __name__ == "__main__":
    main()
