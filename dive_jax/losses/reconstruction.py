"""How far vectors lie from those they should reproduce, coordinate by coordinate."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from dive_jax.losses.checks import check_array, check_same
from dive_jax.losses.ranking import Weighted, judge
from dive_jax.numerics.vectors import absolute, widened


def absolute_error(
    adapted: Float[Array, "rows dim"], frozen: Float[Array, "rows dim"]
) -> Float[Array, " rows"]:
    """Sums the absolute differences of each row.

    Args:
      adapted: Vectors after the adapter.
      frozen: Frozen vectors of the same rows; no gradient reaches them.

    Returns:
      The sum over coordinates of |adapted - frozen|, float32 for float16 and bfloat16 input, else
      in adapted's dtype. Its gradient is the sign of each difference, 0 at 0: an adapter that
      changes nothing is at rest.

    Raises:
      ValueError: If the shapes differ.

    Source:
      Yoon et al., Search-Adaptor, 2024, the recovery loss.

    Example:
      >>> print(absolute_error(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]])))
      [2.]
    """
    return jnp.sum(absolute(_difference("adapted", adapted, frozen)), axis=1)


def squared_error(
    reconstructed: Float[Array, "rows dim"], frozen: Float[Array, "rows dim"]
) -> Float[Array, " rows"]:
    """Averages the squared differences of each row.

    Args:
      reconstructed: What a decoder made of the compressed rows.
      frozen: Frozen vectors of the same rows; no gradient reaches them.

    Returns:
      The mean over coordinates of the squared difference, float32 for float16 and bfloat16 input,
      else in the first argument's dtype.

    Raises:
      ValueError: If the shapes differ.

    Example:
      >>> print(squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]])))
      [2.]
    """
    return jnp.mean(jnp.square(_difference("reconstructed", reconstructed, frozen)), axis=1)


def prediction_error(
    queries: Float[Array, "queries dim"],
    predicted: Float[Array, "documents dim"],
    gains: Shaped[Array, "queries documents"],
    *,
    most_relevant: int | None = None,
    query_mask: Bool[Array, " queries"] | None = None,
    document_mask: Bool[Array, " documents"] | None = None,
) -> Weighted:
    """Asks of what is predicted from a document to equal the queries it is relevant for.

    Memory does not grow with the number of relevant documents: their differences are made one a
    query at a time, and again for the gradient.

    Args:
      queries: Vectors of the queries after the adapter.
      predicted: A query predicted from each document. Each document should be there once: mask its
        repetitions.
      gains: y, the judgments, 0 if there is none; below 0 counts as 0. No gradient reaches them.
      most_relevant: How many documents of each query, of highest gain, count. Exact if no query has
        more documents of gain above 0 in a batch; of any more, those of least gain are left out of
        sum and weight. None keeps all.
      query_mask: False for queries that only pad the batch.
      document_mask: False for documents that only pad the batch.

    Returns:
      For each query, the sum over documents of y_j times the sum over coordinates of |query -
      predicted_j|, and the sum of the y_j; float32 for float16 and bfloat16 input, else in the
      queries' dtype. Both 0 for masked queries. `weighted_mean` divides one by the other.

    Raises:
      ValueError: If most_relevant is below 1, or a shape does not fit.

    Source:
      Yoon et al., Search-Adaptor, 2024, the prediction loss.

    Example:
      >>> queries, predicted = jnp.zeros((1, 2)), jnp.array([[1.0, 1.0], [3.0, 3.0]])
      >>> print(*prediction_error(queries, predicted, jnp.array([[2, 0]])))
      [4.] [2.]
    """
    check_array("queries", queries, "queries dim")
    check_array("predicted", predicted, "documents dim")
    if queries.shape[1] != predicted.shape[1]:
        raise ValueError(
            "queries and predicted: wanted one dim,"
            f" got {list(queries.shape)} and {list(predicted.shape)}"
        )
    shape = (queries.shape[0], predicted.shape[0])
    judged = judge(gains, shape, most_relevant, query_mask, document_mask)
    wide = jnp.where(jnp.any(judged.valid, axis=1)[:, None], widened(queries), 0.0)
    if not shape[1]:  # nothing to take rows from
        return Weighted(jnp.zeros(shape[0], wide.dtype), jnp.zeros(shape[0], wide.dtype))
    guesses = jnp.where(jnp.any(judged.valid, axis=0)[:, None], predicted.astype(wide.dtype), 0.0)

    @jax.checkpoint
    def distances(places: Array) -> Array:
        return jnp.sum(absolute(wide - guesses[places]), axis=1)

    gaps = jax.lax.map(distances, judged.places.T)
    weights = judged.highest.T.astype(wide.dtype)
    return Weighted(jnp.sum(weights * gaps, axis=0), jnp.sum(weights, axis=0))


def _difference(
    name: str, rows: Float[Array, "rows dim"], frozen: Float[Array, "rows dim"]
) -> Float[Array, "rows dim"]:
    check_array(name, rows, "rows dim")
    check_array("frozen", frozen, "rows dim")
    check_same(f"{name} and frozen", rows, frozen)
    wide = widened(rows)
    return wide - jax.lax.stop_gradient(frozen).astype(wide.dtype)
