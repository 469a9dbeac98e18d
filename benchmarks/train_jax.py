"""Our side of `training_run.py`: all seeds in one compiled program, then the scores."""

import atexit
import shutil
import tempfile
from typing import Any

import jax
import numpy as np
import training_data
from worker import Ready

from dive_jax.methods import dive
from dive_jax.methods.protocol import Fitting, Material
from dive_jax.scoring import mean, score


def build(**arguments: Any) -> Ready:
    """Makes the run from frozen vectors to the table; the result is the table of a first one."""
    run = training_data.prepare(**arguments)
    options, seeds = run.options, run.options.seeds
    material = Material(run.vectors, run.triplets, options.encoder, "", {})
    seconds: dict[str, float] = {}
    logged: dict[str, Any] = {}

    # As the commands do: what was compiled once is read back from disk.
    cache = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    def table() -> list[float]:
        jax.clear_caches()  # so that every run starts as a new process would
        fitted = dive.fit(material, options, Fitting(seeds))
        seconds.update(compile=fitted.compile_seconds, train=fitted.train_seconds)
        logged["loss"] = fitted.history["loss"]
        how = {"chunk_rows": options.chunk_rows}
        scores = [
            score(run.vectors, run.ids, run.scored, compress=each.sides(), **how)
            for each in fitted.compressors
        ]
        return [mean(each, "ndcg@10") or 0.0 for each in scores]

    task = dive.task(material.full_dim, options)
    starts = [jax.device_get(task.init(jax.random.key(np.uint32(seed))).params) for seed in seeds]
    result = {"ndcg@10": table(), "loss": logged["loss"], "starts": starts}
    told = {"train_s": seconds["train"], "ndcg@10": result["ndcg@10"]}
    return Ready(table, result, seconds["compile"], told)
