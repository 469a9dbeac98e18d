"""JAX sides of `compress_throughput.py`: the library, and the bare products of the same sizes."""

import compress_cases
import jax
import jax.numpy as jnp
from worker import Ready

from dive_jax.artefact import Artefact
from dive_jax.methods.protocol import Compressor

BARE_ROWS = 1024


def build(form: str, full_dim: int, dim: int, vectors: str, chunk_rows: int) -> Ready:
    """Streams a file through a compressor, with its checks and normalisations."""
    meta = {"format_version": 1, "method": form, "sides": "both", "dim": dim, "normalized": True}
    meta |= {"full_dim": full_dim, "encoder": "drawn", "fingerprint": ""}
    held = compress_cases.arrays(form, full_dim, dim)
    compressor = Compressor(Artefact(form, held, meta))
    rows, out = compress_cases.ready(vectors, dim)

    def run() -> None:
        done = 0
        for piece in compressor.stream(rows, chunk_rows=chunk_rows):
            out[done : done + len(piece)] = piece
            done += len(piece)

    run()
    return Ready(run, compress_cases.sample(out))


def bare(form: str, full_dim: int, dim: int, vectors: str) -> Ready:
    """Multiplies the same rows, read in tiles of the same size; nothing is checked or kept."""
    weights = [
        jnp.asarray(each)
        for each in compress_cases.arrays(form, full_dim, dim).values()
        if each.ndim == 2
    ]
    rows, _ = compress_cases.ready(vectors, dim)

    @jax.jit
    def products(x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.matmul(x, weight.T, precision=jax.lax.Precision.HIGHEST)
        return x

    def run() -> None:
        for start in range(0, len(rows), BARE_ROWS):
            jax.block_until_ready(products(jax.device_put(rows[start : start + BARE_ROWS])))

    run()
    return Ready(run, None)
