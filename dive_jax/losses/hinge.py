"""The self-limiting triplet loss, its smooth ablation, and which triplets are still active."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.losses.checks import Scalar, check_array, check_range, check_same
from dive_jax.numerics.vectors import widened


def hinge(
    positive: Float[Array, " batch"], negative: Float[Array, " batch"], *, margin: Scalar
) -> Float[Array, " batch"]:
    """Self-limiting triplet loss: zero, with zero gradient, once a triplet clears the margin.

    A lead equal to the margin counts as cleared.

    Args:
      positive: Similarity of each query to its relevant document, cosine units.
      negative: Similarity to the document it must outrank.
      margin: Wanted lead in cosine units, 0 < margin <= 2.

    Returns:
      max(0, margin - (positive - negative)), unreduced, in the inputs' dtype.

    Raises:
      ValueError: If margin is outside its range, or the shapes differ.

    Source:
      DIVE, arXiv 2605.20689, the self-limiting triplet loss.

    Example:
      >>> print(hinge(jnp.array([0.75, 1.0]), jnp.array([0.5, 0.0]), margin=0.5))
      [0.25 0.  ]
    """
    # jax.nn.relu has gradient 0 at 0; that of jnp.maximum is 0.5.
    return jax.nn.relu(_shortfall(positive, negative, margin)).astype(positive.dtype)


def softplus_hinge(
    positive: Float[Array, " batch"], negative: Float[Array, " batch"], *, margin: Scalar
) -> Float[Array, " batch"]:
    """The hinge without its self-limit, for the ablation: every triplet keeps a gradient.

    Args:
      positive: Similarity of each query to its relevant document, cosine units.
      negative: Similarity to the document it must outrank.
      margin: Wanted lead in cosine units, 0 < margin <= 2.

    Returns:
      log(1 + exp(margin - (positive - negative))), unreduced, in the inputs' dtype.

    Raises:
      ValueError: If margin is outside its range, or the shapes differ.

    Source:
      DIVE, arXiv 2605.20689, the ablation without self-limiting.
    """
    return jax.nn.softplus(_shortfall(positive, negative, margin)).astype(positive.dtype)


def active(
    positive: Float[Array, " batch"], negative: Float[Array, " batch"], *, margin: Scalar
) -> Bool[Array, " batch"]:
    """Tells which triplets still have a hinge gradient; the mean is the active ratio.

    Args:
      positive: Similarity of each query to its relevant document, cosine units.
      negative: Similarity to the document it must outrank.
      margin: Wanted lead in cosine units, 0 < margin <= 2.

    Returns:
      True where positive - negative < margin, which is where `hinge` is above 0.

    Raises:
      ValueError: If margin is outside its range, or the shapes differ.

    Source:
      DIVE, arXiv 2605.20689, the active ratio.
    """
    return _shortfall(positive, negative, margin) > 0


def _shortfall(
    positive: Float[Array, " batch"], negative: Float[Array, " batch"], margin: Scalar
) -> Float[Array, " batch"]:
    check_array("positive", positive, "batch")
    check_array("negative", negative, "batch")
    check_same("positive and negative", positive, negative)
    check_range("margin", margin, high=2.0)
    lead = widened(positive) - widened(negative)
    return jnp.asarray(margin, lead.dtype) - lead
