"""Searches and compresses on four host devices and on one, and prints what differs."""

import json
import sys

import jax
import numpy as np

from dive_jax.artefact import Artefact
from dive_jax.methods.protocol import Compressor
from dive_jax.retrieval.exact import Held, top_k

META = {
    "format_version": 1,
    "method": "toy",
    "sides": "both",
    "dim": 6,
    "full_dim": 16,
    "normalized": True,
    "encoder": "toy",
    "fingerprint": "0" * 64,
}


def main(rows: int) -> None:
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(rows, 16)).astype(np.float32) / 4
    queries = rng.normal(size=(9, 16)).astype(np.float32)
    documents[rows // 2 :: 7] = documents[3]  # equal scores in every share
    queries[0] = documents[3]
    one = jax.devices()[:1]
    told: dict[str, object] = {"devices": len(jax.devices())}
    for name, chunk_rows in (("whole", rows), ("uneven", rows // 3 + 1)):
        wanted = top_k(queries, documents, k=12, chunk_rows=chunk_rows, devices=one)
        got = top_k(queries, documents, k=12, chunk_rows=chunk_rows)
        held = Held(documents, chunk_rows=chunk_rows).top_k(queries, k=12)
        told[f"{name} rows"] = int((got.rows != wanted.rows).sum() + (held.rows != got.rows).sum())
        told[f"{name} error"] = float(np.abs(got.scores - wanted.scores).max())
    weight = rng.normal(size=(6, 16)).astype(np.float32)
    compressor = Compressor(Artefact("linear", {"weight": weight}, META))
    got = compressor.compress(documents, chunk_rows=rows // 3 + 1)
    wanted = compressor.compress(documents, chunk_rows=rows // 3 + 1, devices=one)
    told["compressed error"] = float(np.abs(got - wanted).max())
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]))
