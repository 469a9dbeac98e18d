"""A training step of every trained method against PyTorch, eager and compiled, with fused AdamW.

python benchmarks/step_throughput.py --out=DIR [--torch_python=PATH] writes step_throughput.json and
step_throughput.png. Both sides start from the same weights and see the same batches: the losses of
the first steps and the gradients of the first must agree before anything is timed. DIVE is held
against the module as the paper writes it ("all columns") and against PyTorch that also skips the
columns nobody reads. --only=dive measures DIVE alone, --only="smec 768" one method at one shape,
--only=others all methods but DIVE.
"""

from typing import Any

import harness
import steps
from harness import Side
from steps import Case

SHAPES = (
    Case(4096, 2048, 128, 4, 128, 2),
    Case(2048, 2048, 128, 4, 128, 2),
    Case(768, 384, 128, 4, 128, 8),
    Case(384, 192, 64, 4, 128, 16),
)
QUICK = Case(64, 32, 8, 4, 16, 2)
OTHERS = (
    *("dive_mlp", "dive_batch", "dive_batch_linear", "autoencoder", "search_adaptor"),
    *("matryoshka_adaptor", "smec", "linear_shared", "linear_dual"),
)
LOSS, LATER, GRADIENT = 1e-5, 1e-3, 1e-4


def agreement(loss: float, gradient: float) -> Any:
    """Returns a check of first losses, those after AdamW's steps, and the first gradient.

    A gradient is held against the greatest entry of its own array. Where a parameter exists on our
    side alone (a bias that a normalisation takes away), its gradient must be 0.
    """

    def check(ours: Any, peer: Any) -> float:
        error = harness.close(ours["losses"][:1], peer["losses"][:1], loss)
        harness.close(ours["losses"], peer["losses"], max(LATER, loss))
        for name, each in ours["gradients"].items():
            if name not in peer["gradients"]:
                harness.close(each, 0 * each, 0.0)
                continue
            there = peer["gradients"][name]
            there = there.T if there.shape != each.shape else there
            error = max(error, harness.close(each, there, gradient))
        return error

    return check


def _peers(method: str, case: Case, python: str) -> list[Side]:
    modules = {"dive": ("dive, all columns", "dive")}.get(method, (method,))
    return [
        Side(
            f"torch {'compiled' if compiled else 'eager'}"
            + (", all columns" if "columns" in module else ""),
            "step_torch",
            "build",
            lambda ours, module=module, compiled=compiled: {
                "method": module,
                "case": tuple(case),
                "compiled": compiled,
                "draws": ours.get("draws", ()),
            },
            python=python,
        )
        for module in modules
        for compiled in (False, True)
    ]


def measure(method: str, case: Case, cores: int, given: Any) -> list[dict[str, Any]]:
    """Compares one method at one shape."""
    narrow = method.endswith("bfloat16")
    known = method in ("dive", "dive bfloat16", "dive_batch")
    return harness.compare(
        f"{method}, {case.full_dim} to {case.dim}",
        Side("ours", "step_jax", "build", {"method": method, "case": tuple(case)}),
        _peers(method, case, given.torch_python),
        cores=cores,
        check=agreement(2e-2, 2e-1) if narrow else agreement(LOSS, GRADIENT),
        pairs=given.pairs,
        flops=steps.product_flops(case, case.width) if known else None,
        steps=case.steps,
        shape=case._asdict(),
    )


def main() -> None:
    """Measures, prints and writes."""
    given = harness.arguments(__doc__)
    jobs = [(method, case) for method in ("dive", "dive bfloat16") for case in SHAPES]
    jobs += [(method, case) for method in OTHERS for case in (SHAPES[0], SHAPES[2])]
    if given.quick:
        jobs = [(method, QUICK) for method in ("dive", "dive bfloat16", *OTHERS)]
    for method, case in jobs:
        names = {method, f"{method} {case.full_dim}", "others" if method in OTHERS else method}
        if given.only and not names & set(given.only.split(",")):
            continue
        for cores in given.cores:
            rows = measure(method, case, cores, given)
            harness.save(given.out, "step_throughput", rows, about={"rows": "seconds a step"})


if __name__ == "__main__":
    main()
