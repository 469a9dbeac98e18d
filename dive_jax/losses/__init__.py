"""Losses as free functions of arrays: pure, unreduced, JAX only.

Hyper-parameters are keyword-only; the caller reduces. A `ValueError` is raised while tracing when a
shape or a hyper-parameter is wrong; a hyper-parameter that is itself traced is not range-checked.
"""

from dive_jax.losses.batch_hinge import (
    allowed_negatives,
    batch_active,
    batch_hinge,
    first_occurrence,
)
from dive_jax.losses.gram import gram_distillation, smooth_l1
from dive_jax.losses.hinge import active, hinge, softplus_hinge
from dive_jax.losses.infonce import infonce
from dive_jax.losses.ntxent import headwise_ntxent, pair_count
from dive_jax.losses.ranking import Weighted, rank_loss, rank_terms, weighted_mean
from dive_jax.losses.reconstruction import absolute_error, prediction_error, squared_error
from dive_jax.losses.similarity import (
    neighbour_distillation,
    pair_distillation,
    prefix_cosines,
    prefix_similarities,
)

__all__ = [
    "Weighted",
    "absolute_error",
    "active",
    "allowed_negatives",
    "batch_active",
    "batch_hinge",
    "first_occurrence",
    "gram_distillation",
    "headwise_ntxent",
    "hinge",
    "infonce",
    "neighbour_distillation",
    "pair_count",
    "pair_distillation",
    "prediction_error",
    "prefix_cosines",
    "prefix_similarities",
    "rank_loss",
    "rank_terms",
    "smooth_l1",
    "softplus_hinge",
    "squared_error",
    "weighted_mean",
]
