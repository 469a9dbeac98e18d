"""Why decompositions of one program must not run side by side on a CPU, and how to keep them apart.

jaxlib 0.10 hands the matrices of one *batched* LAPACK call to the pool of threads that runs the
program, and waits. As many such calls at once as there are threads wait for each other for ever
(seen here on two cores: two independent batched calls, `eigh` and `svd`). `vmap` makes any call a
batched one. So: one call for all matrices where they are alike, else one after another.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def after(first: Float[Array, "..."], other: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns `other`, but not before `first` is known; NaN where `first` is not finite."""
    return other + 0 * jax.lax.stop_gradient(jnp.sum(first)).astype(other.dtype)
