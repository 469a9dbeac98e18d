"""Questions through an encoder of PyTorch, in a process of its own: `python -m dive_jax.export`."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.data.embeddings import Side, Store, load_store, unit_rows
from dive_jax.encoders.presets import POOLINGS, find
from dive_jax.types import InputError

ALIKE = 0.98
"""Least cosine of a query encoded again with its vector in the store; bfloat16 costs far less."""

_CHECKED = 3
_DATASET, _NAME = "questions", "asked"


class Elsewhere(NamedTuple):
    """How questions are encoded.

    Attributes:
      python: The Python that has dive_jax with the extra export.
      weights: Folder or hub id of the encoder; None for where the documents' manifest, or a preset
        of that name, says.
    """

    python: str = sys.executable
    weights: str | None = None


def _flags(manifest: Mapping[str, Any], weights: str | None, root: Path) -> list[str]:
    """Returns the flags of an export that feeds queries as the manifest says."""
    loaded = manifest.get("loaded")
    loaded = loaded if isinstance(loaded, dict) else {}
    name, place = manifest["encoder"], weights or loaded.get("weights")
    if find(name) is None and place is None:
        raise InputError(
            f"the question must be encoded by {name}, of which nothing says where its weights lie; "
            "name their folder or hub id with --weights"
        )
    chosen = {
        "encoder": name if find(name) is not None else place,
        "weights": place,
        "kind": loaded.get("kind") if loaded.get("kind") in ("transformer", "llm2vec") else None,
        "peft": ",".join(loaded.get("peft") or ()) or None,
        **{key: manifest.get(key) for key in ("query_prefix", "max_tokens")},
        "pooling": manifest.get("pooling") if manifest.get("pooling") in POOLINGS else None,
        "dtype": manifest.get("computed_in"),
        "store_dtype": "float32",
        "name": _NAME,
        "dataset": _DATASET,
        "data_root": root,
    }
    if loaded.get("kind") == "pipeline":  # made of modules of its own
        del chosen["pooling"]
    return [f"--{key}={value}" for key, value in chosen.items() if value is not None]


def _run(python: str, flags: Sequence[str], encoder: str) -> None:
    """Runs the export and turns its failure into one line."""
    try:
        done = subprocess.run(
            [python, "-m", "dive_jax.export", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    except OSError as error:
        raise InputError(f"--encode_with: {python}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise InputError(
            f"the question must be encoded by {encoder}, and that failed: "
            f"{said.removeprefix('dive_jax.export: ')}; --encode_with names the Python of an "
            "environment with the extra export, --weights where the encoder lies"
        )


def _check(found: Side, known: Mapping[str, str], store: Store) -> None:
    """Refuses an encoder whose vectors of known queries are not those of the store."""
    rows = store.sides.query.row_of
    for number, id in enumerate(known):
        one = unit_rows(found.vectors, np.array([number]))[0]
        other = unit_rows(store.sides.query.vectors, np.array([rows[id]]))[0]
        alike = float(one @ other) if one.shape == other.shape else None
        if alike is None or alike < ALIKE:
            got = f"{len(one)} wide" if alike is None else f"cosine {alike:.3f}"
            raise InputError(
                f"--weights: not the encoder of these vectors: query {id}, encoded again, differs "
                f"from its vector in the store ({got}); name the weights of {store.encoder}"
            )


def encode(
    texts: Sequence[str],
    store: Store,
    known: Mapping[str, str],
    how: Elsewhere,
    note: Callable[[str], None],
) -> Float[np.ndarray, "texts full_dim"]:
    """Encodes questions as the queries of a store were encoded, and checks that it is so.

    A few queries of the dataset are encoded with them: unless their vectors come out as they are
    in the store, these are other weights, or fed otherwise.

    Args:
      texts: Questions, none of them empty.
      store: The documents' vectors, and what its manifest says of the encoder.
      known: Id -> text of the dataset's queries; only those that have a vector are used.
      how: Which Python, which weights.
      note: Told what takes a while, and if nothing can be checked.

    Returns:
      One unit vector a question.

    Raises:
      InputError: If the encoder cannot be run or is another.
    """
    rows = store.sides.query.row_of
    some = [(id, text) for id, text in known.items() if id in rows and text.strip()][:_CHECKED]
    if not some:
        note("no texts of known queries are at hand, so the encoder is not checked")
    count = "a question" if len(texts) == 1 else f"{len(texts):,} questions"
    note(f"encoding {count} by {store.encoder}, in a process of its own")
    with tempfile.TemporaryDirectory(prefix="dive_jax_questions_") as root:
        folder = Path(root) / _DATASET
        folder.mkdir()
        words = [text for _, text in some] + list(texts)
        lines = [json.dumps({"_id": str(at), "text": text}) for at, text in enumerate(words)]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "corpus.jsonl").write_text('{"_id": "0", "text": "none"}\n', encoding="utf-8")
        _run(how.python, _flags(store.manifest, how.weights, Path(root)), store.encoder)
        found = load_store(folder / "embeddings" / _NAME).sides.query
        _check(found, dict(some), store)
        vectors = unit_rows(found.vectors)[len(some) :]
    if vectors.shape != (len(texts), store.dim):
        raise InputError(
            f"--weights: wanted an encoder {store.dim} wide, got {vectors.shape[1]}; name the "
            f"weights of {store.encoder}"
        )
    return vectors
