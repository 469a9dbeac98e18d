"""Our side of `search_efficiency.py`: documents held on the device, searched exactly."""

import time

import numpy as np
from worker import Ready

from dive_jax.retrieval.exact import Held, Ranking


def build(documents: str, queries: str, count: int, k: int, chunk_rows: int) -> Ready:
    """Holds the vectors of a file and searches the first `count` queries.

    Every search takes its queries from the host and gives back scores and rows there.
    """
    vectors = np.load(documents, mmap_mode="r")
    asked = np.load(queries)[:count]
    began = time.perf_counter()
    held = Held(vectors, chunk_rows=chunk_rows)
    placing = time.perf_counter() - began
    began = time.perf_counter()
    result = held.top_k(asked, k=k)
    first = time.perf_counter() - began

    def run() -> Ranking:
        return held.top_k(asked, k=k)

    return Ready(run, tuple(result), first, {"index_bytes": 4 * vectors.size, "placing_s": placing})
