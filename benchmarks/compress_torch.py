"""PyTorch's side of `compress_throughput.py`: inference mode, chunk by chunk from the same file."""

import compress_cases
import torch
from torch.nn import functional
from worker import Ready

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build(
    form: str, full_dim: int, dim: int, vectors: str, chunk_rows: int, compiled: bool
) -> Ready:
    """Streams a file through the same map, eager or compiled."""
    held = {
        name: torch.from_numpy(each).to(DEVICE)
        for name, each in compress_cases.arrays(form, full_dim, dim).items()
    }
    rows, out = compress_cases.ready(vectors, dim)
    kept = torch.from_numpy(out)

    def mapped(x: torch.Tensor) -> torch.Tensor:
        x = functional.normalize(x)
        if form == "linear":
            return functional.normalize(functional.linear(x, held["weight"]))
        hidden = functional.linear(x, held["hidden_weight"], held["hidden_bias"]).relu()
        moved = functional.linear(hidden, held["out_weight"], held["out_bias"])
        return functional.normalize(x[:, :dim] + moved)

    step = torch.compile(mapped) if compiled else mapped

    @torch.inference_mode()
    def run() -> None:
        for start in range(0, len(rows), chunk_rows):
            chunk = torch.from_numpy(rows[start : start + chunk_rows]).to(DEVICE)
            kept[start : start + len(chunk)] = step(chunk)

    run()
    return Ready(run, compress_cases.sample(out))
