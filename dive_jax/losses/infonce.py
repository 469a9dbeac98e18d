"""InfoNCE: the cross-entropy of a relevant document among negatives."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dive_jax.losses.checks import Scalar, check_range, check_scores
from dive_jax.numerics.vectors import widened


def infonce(
    similarity: Float[Array, "queries documents"],
    positive: Float[Array, " queries"],
    negatives: Bool[Array, "queries documents"],
    *,
    temperature: Scalar = 0.05,
) -> Float[Array, " queries"]:
    """Cross-entropy of each query's relevant document against its negatives.

    Args:
      similarity: Of each query to each document, inner products of any size.
      positive: Of each query to its relevant document; it is not among its negatives.
      negatives: Which documents count for which query.
      temperature: t, above 0.

    Returns:
      log(1 + sum over the negatives of exp((s - positive) / t)), float32 for float16 and bfloat16
      input, else in the similarities' dtype. 0, with gradient 0, where there is no negative.

    Raises:
      ValueError: If the temperature is outside its range, or a shape does not fit.

    Source:
      van den Oord et al., Contrastive Predictive Coding, 2018.

    Example:
      >>> similarity, negatives = jnp.zeros((2, 3)), jnp.array([[True] * 3, [False] * 3])
      >>> print(infonce(similarity, jnp.zeros(2), negatives))
      [1.3862944 0.       ]
    """
    check_scores(similarity, positive, negatives)
    check_range("temperature", temperature)
    some = jnp.any(negatives, axis=1)
    scores = jnp.where(negatives, widened(similarity), 0.0)
    wanted = jnp.where(some, widened(positive).astype(scores.dtype), 0.0)
    leads = (scores - wanted[:, None]) / jnp.asarray(temperature, scores.dtype)
    # The relevant document stands first; what is no negative has no weight, and no gradient.
    lowest = jnp.finfo(leads.dtype).min
    logits = jnp.concatenate(
        [jnp.zeros_like(leads[:, :1]), jnp.where(negatives, leads, lowest)], axis=1
    )
    return jax.nn.logsumexp(logits, axis=1)
