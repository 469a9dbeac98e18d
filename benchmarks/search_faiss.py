"""FAISS's side of `search_efficiency.py`: an exact flat index, on the GPU where FAISS finds one."""

import os
import time

import faiss
import numpy as np
from worker import Ready

ADDED = 65536


def build(documents: str, queries: str, count: int, k: int) -> Ready:
    """Adds the vectors of a file to an index and searches the first `count` queries."""
    faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
    vectors = np.load(documents, mmap_mode="r")
    asked = np.load(queries)[:count]
    began = time.perf_counter()
    index = faiss.IndexFlatIP(vectors.shape[1])
    gpus = getattr(faiss, "get_num_gpus", int)()
    if gpus:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    for start in range(0, len(vectors), ADDED):
        index.add(np.asarray(vectors[start : start + ADDED]))
    adding = time.perf_counter() - began

    def run() -> tuple[np.ndarray, np.ndarray]:
        return index.search(asked, k)

    told = {"index_bytes": 4 * vectors.size, "adding_s": adding, "gpus": gpus}
    return Ready(run, run(), 0.0, told)
