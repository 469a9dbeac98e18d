"""Encoder and adapter in one sentence-transformers model: started by a path, without dive_jax.

Arguments: a folder of exports with texts.json beside them, the encoder's folder; writes
results.npz into the first.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np


def encoded(model, texts: list[str]) -> dict[str, np.ndarray]:
    """Returns what a model makes of texts, by side where it asks for one."""
    if any(type(module).__name__ == "Router" for module in model):
        try:
            model.encode(texts)
        except ValueError:
            return {"query": model.encode_query(texts), "document": model.encode_document(texts)}
        raise AssertionError("encode chose a side by itself")
    return {"document": model.encode(texts)}


def run(folder: Path, weights: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """Runs the README's code, encodes, saves, loads, and encodes again."""
    from runtime import code  # beside this script

    os.chdir(folder)
    Path("all-MiniLM-L6-v2").symlink_to(weights)
    space: dict = {}
    exec(code(Path()), space)
    model, results = space["model"], {"frozen": space["encoder"].encode(texts)}
    results |= {f"first {side}": rows for side, rows in encoded(model, texts).items()}
    model.save_pretrained("saved")
    again = space["SentenceTransformer"]("saved")
    results |= {f"again {side}": rows for side, rows in encoded(again, texts).items()}
    results["width"] = np.array(again.get_embedding_dimension())
    results["code"] = np.array([each.as_posix() for each in Path("saved").rglob("*.py")])
    return results


def main(exports: Path, weights: Path) -> None:
    """Does so for every export."""
    texts, results = json.loads((exports / "texts.json").read_text()), {}
    for folder in sorted(each for each in exports.iterdir() if each.is_dir()):
        made = run(folder, weights, texts)
        results |= {f"{folder.name} {key}": values for key, values in made.items()}
    results["modules"] = np.array(sorted({name.split(".")[0] for name in sys.modules}))
    np.savez(exports / "results.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
