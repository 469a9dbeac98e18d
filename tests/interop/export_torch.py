"""The module for PyTorch in what PyTorch offers: started by a path, without dive_jax.

Argument: a folder of exports, each with vectors.npy beside it; writes results.npz into it.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np


def refused(folder: Path) -> bool:
    """Says whether a pickle in the place of the arrays is refused, unread."""
    from adapter_torch import load

    pickle = b"\x80\x04cos\nsystem\n(S'touch executed'\ntR."
    (folder / "adapter.safetensors").write_bytes(pickle)
    told = json.loads((folder / "adapter.json").read_text())
    told["sha256"] = hashlib.sha256(pickle).hexdigest()
    (folder / "adapter.json").write_text(json.dumps(told))
    try:
        load(folder)
    except ValueError as error:
        return "no sound adapter" in str(error) and not Path("executed").exists()
    return False


def main(exports: Path) -> None:
    """Saves as a program with a batch of any size, loads it, and trains the module for a step."""
    import torch

    results = {}
    for folder in sorted(each for each in exports.iterdir() if each.is_dir()):
        os.chdir(folder)
        sys.path[0] = str(folder)
        from adapter_torch import load

        rows = torch.from_numpy(np.load(exports / "vectors.npy"))
        module = load(".")
        batch = ({0: torch.export.Dim("batch", min=1)},)
        program = torch.export.export(module, (rows[:3],), dynamic_shapes=batch)
        results[folder.name] = program.module()(rows).numpy()
        results[f"{folder.name} bf16"] = module.to(torch.bfloat16)(rows).numpy()
        module = load(".").requires_grad_()
        weights = list(module.parameters())
        grads = (
            torch.autograd.grad(module(rows).sum(), weights, materialize_grads=True)
            if weights
            else []
        )
        results[f"{folder.name} gradients"] = np.array([float(each.abs().sum()) for each in grads])
        results[f"{folder.name} refused"] = np.array(refused(folder))
    np.savez(exports / "results.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
