"""Our side of `operator_fits.py`."""

import time

import fits_data
import jax
import jax.numpy as jnp
from worker import Ready

from dive_jax.operators import dual_from_triples, shared_from_triples

FITS = {"dual": dual_from_triples, "shared": shared_from_triples}


def build(family: str, dim: int, count: int) -> Ready:
    """Fits a family to triples that lie on the device; the result is its values and products."""
    query, apart = (jnp.asarray(side) for side in fits_data.triples(dim, count))
    began = time.perf_counter()
    fit = jax.jit(
        lambda query, apart: FITS[family](query, apart, jnp.zeros_like(apart), fits_data.RANK)
    )
    compiled = fit.lower(query, apart).compile()
    taken = time.perf_counter() - began
    found = compiled(query, apart)
    scaled = found.values[:, None] * (found.document @ jnp.asarray(fits_data.probes(dim)))
    result = jax.device_get((found.values, found.query.T @ scaled))
    return Ready(lambda: jax.block_until_ready(compiled(query, apart)), result, taken)
