"""Runs the code of an export's README.md, as a user would: started by a path, without dive_jax.

Arguments: the target, and a folder with jobs.json; writes results.npz into it.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np


def code(folder: Path, which: int = 0) -> str:
    """Returns a code block of the README."""
    return (folder / "README.md").read_text("utf-8").split("```python\n")[which + 1].split("```")[0]


def run(target: str, folder: Path, side: str, vectors: Path) -> np.ndarray:
    """Returns what the README's code computes, in the export's folder."""
    text = code(folder).replace("query", side).replace("document", side)
    shutil.copy(vectors, folder / "vectors.npy")
    os.chdir(folder)
    space: dict = {}
    if target == "sentence-transformers":
        return adapted(np.load(vectors), side)
    exec(text, space)
    return np.asarray(space["compressed"])


def adapted(vectors: np.ndarray, side: str) -> np.ndarray:
    """Returns what the modules of the current folder make of vectors that are there already."""
    import torch
    from sentence_transformers import SentenceTransformer

    adapter = SentenceTransformer(".", device="cpu")
    features = {"sentence_embedding": torch.from_numpy(vectors)}
    routed = {"task": side} if Path("0_Router").is_dir() else {}
    with torch.inference_mode():
        return adapter(features, **routed)["sentence_embedding"].numpy()


def main(target: str, out: Path) -> None:
    """Does the jobs."""
    given = json.loads((out / "jobs.json").read_text())
    sys.path.insert(0, "")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder in given["folders"].items():
            shutil.copytree(folder, Path(scratch) / name)
        for job in given["jobs"]:
            folder = Path(scratch) / job["name"]
            results[job["key"]] = run(target, folder, job["side"], Path(job["vectors"]))
        os.chdir(out)
    results["modules"] = np.array(sorted({name.split(".")[0] for name in sys.modules}))
    np.savez(out / "results.npz", **results)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
