"""Three seeds of DIVE in one program: one after another (lax.map) against side by side (vmap).

python benchmarks/seeds.py --out=DIR writes seeds.json and seeds.png: seconds a step and seed of one
epoch, whose first step also measures the gradient energies. Both sides train the same seeds on the
same batches; their parameters must agree to 1e-4 before anything is timed.
"""

from typing import Any

import harness
import numpy as np
from harness import Side
from steps import Case

SHAPES = (
    Case(768, 384, 128, 4, 128, 12),
    Case(512, 256, 64, 4, 128, 12),
    Case(384, 192, 64, 4, 128, 12),
)
QUICK = (Case(64, 32, 8, 4, 16, 3),)
SEEDS, TOLERANCE = (1, 2, 3), 1e-4


def agreement(ours: Any, peer: Any) -> float:
    """Holds every parameter against the peer's."""
    error = max(float(np.abs(ours[name] - peer[name]).max()) for name in ours)
    if not error <= TOLERANCE:
        raise SystemExit(f"the two sides differ by {error:g}; nothing was timed")
    return error


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    for case in QUICK if given.quick else SHAPES:
        shared = {"case": tuple(case), "seeds": SEEDS}
        for cores in given.cores:
            rows = harness.compare(
                f"{case.full_dim} to {case.dim}",
                Side("lax.map", "seeds_jax", "build", shared | {"side_by_side": False}),
                [Side("vmap", "seeds_jax", "build", shared | {"side_by_side": True})],
                cores=cores,
                check=agreement,
                pairs=given.pairs,
                steps=case.steps * len(SEEDS),
            )
            harness.save(given.out, "seeds", rows, about={"seeds": len(SEEDS)})


if __name__ == "__main__":
    main()
