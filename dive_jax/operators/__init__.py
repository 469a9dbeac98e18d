"""When queries and documents deserve two projections: the operator theory as free functions.

A score is query^T M document. One shared projection makes M positive semi-definite; two make it any
matrix of the rank. All functions are pure and can be compiled and mapped over; all but the
drawing of halves are JAX alone. They work in float32 or float64, as their arrays come. A
`ValueError` is raised while tracing when a shape or a number is wrong; values that are not finite
give results that are not.

Where results depend on a decomposition, gradients are those of JAX: those of singular values and
eigenvalues are finite everywhere, those of axes are not where values repeat.
"""

from dive_jax.operators.asymmetry import asymmetry
from dive_jax.operators.cars import Cars, cars, corrected, half_splits
from dive_jax.operators.fits import Operator, bilinear, dual, factors, shared
from dive_jax.operators.from_triples import dual_from_triples, shared_from_triples
from dive_jax.operators.gap import ApproximationGap, approximation_gap
from dive_jax.operators.moments import RelevanceMoment, relevance_moment
from dive_jax.operators.rademacher import RademacherBound, rademacher_bound
from dive_jax.operators.rotation import rotate_queries
from dive_jax.operators.separation import (
    Separation,
    Views,
    Whitened,
    separating,
    separation,
    separation_of,
    views,
    whiten,
)
from dive_jax.operators.sure import SureSelection, sure_power, sure_regret, sure_select
from dive_jax.operators.tangent import (
    LocalRisks,
    TangentDimensions,
    dual_only,
    dual_only_dimension,
    dual_only_energy,
    local_risks,
    tangent_dimensions,
    tangent_dual,
    tangent_shared,
)

__all__ = [
    "ApproximationGap",
    "Cars",
    "LocalRisks",
    "Operator",
    "RademacherBound",
    "RelevanceMoment",
    "Separation",
    "SureSelection",
    "TangentDimensions",
    "Views",
    "Whitened",
    "approximation_gap",
    "asymmetry",
    "bilinear",
    "cars",
    "corrected",
    "dual",
    "dual_from_triples",
    "dual_only",
    "dual_only_dimension",
    "dual_only_energy",
    "factors",
    "half_splits",
    "local_risks",
    "rademacher_bound",
    "relevance_moment",
    "rotate_queries",
    "separating",
    "separation",
    "separation_of",
    "shared",
    "shared_from_triples",
    "sure_power",
    "sure_regret",
    "sure_select",
    "tangent_dimensions",
    "tangent_dual",
    "tangent_shared",
    "views",
    "whiten",
]
