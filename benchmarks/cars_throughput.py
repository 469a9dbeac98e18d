"""CARS for a grid of ranks in one call, against a plain NumPy loop over splits, halves and ranks.

python benchmarks/cars_throughput.py --out=DIR writes cars_throughput.json and cars_throughput.png.
Both sides score the same halves of the same triples; the scores must agree to 1e-5 of their size
before anything is timed. NumPy's linear algebra computes in float64 in either case.
"""

from typing import Any

import harness
import numpy as np
from harness import Side

FULL: dict[str, Any] = {"count": 1024, "dim": 256, "ranks": (4, 8, 16, 32)}
QUICK: dict[str, Any] = {"count": 64, "dim": 16, "ranks": (2, 4)}
SPLITS, BATCH, TOLERANCE = 20, 4, 1e-5


def agreement(ours: Any, peer: Any) -> float:
    """Holds every split's score, and their mean, against the peer's, relative to their sizes."""
    one = np.abs(ours["scores"] - peer["scores"]) / peer["sizes"]
    mean = np.abs(ours["score"] - peer["scores"].mean(axis=0)) / peer["sizes"].mean(axis=0)
    error = float(max(one.max(), mean.max()))
    if not error <= TOLERANCE:
        raise SystemExit(f"the two sides differ by {error:g}; nothing was timed")
    return error


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    shape = QUICK if given.quick else FULL
    for cores in given.cores:
        for dtype in ("float32", "float64"):
            if given.only not in dtype:
                continue
            shared = shape | {"dtype": dtype}
            rows = harness.compare(
                f"{dtype}, p = {shape['dim']}, {SPLITS} splits, {len(shape['ranks'])} ranks",
                Side("ours", "cars_jax", "build", shared | {"splits": SPLITS, "batch": BATCH}),
                [
                    Side(
                        "NumPy loop",
                        "cars_numpy",
                        "build",
                        lambda ours, shared=shared: shared | {"halves": ours["halves"]},
                    )
                ],
                cores=cores,
                check=agreement,
                pairs=given.pairs,
            )
            harness.save(given.out, "cars_throughput", rows, about=shape)


if __name__ == "__main__":
    main()
