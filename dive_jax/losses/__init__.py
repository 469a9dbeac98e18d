"""Losses as free functions of arrays: pure, unreduced, JAX only.

Hyper-parameters are keyword-only; the caller reduces. A `ValueError` is raised while tracing when a
shape or a hyper-parameter is wrong; a hyper-parameter that is itself traced is not range-checked.
"""

from dive_jax.losses.gram import gram_distillation, smooth_l1
from dive_jax.losses.hinge import active, hinge, softplus_hinge
from dive_jax.losses.ntxent import headwise_ntxent, pair_count

__all__ = [
    "active",
    "gram_distillation",
    "headwise_ntxent",
    "hinge",
    "pair_count",
    "smooth_l1",
    "softplus_hinge",
]
