"""The pairwise rank loss over graded judgments, without a cube of queries, documents, documents."""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from dive_jax.losses.checks import check_array, row_mask
from dive_jax.numerics.vectors import widened

Reduction = Literal["mean", "sum"]
"""Over all triples of the batch: their mean, or their sum as published."""


class Weighted(NamedTuple):
    """A sum for each query and what it is to be divided by, once both are added up.

    Attributes:
      total: The weighted sum of each query.
      weight: How many terms, or how much weight, went into it.
    """

    total: Float[Array, " queries"]
    weight: Float[Array, " queries"]


def rank_terms(
    similarity: Float[Array, "queries documents"],
    gains: Shaped[Array, "queries documents"],
    *,
    most_relevant: int | None = None,
    query_mask: Bool[Array, " queries"] | None = None,
    document_mask: Bool[Array, " documents"] | None = None,
) -> Weighted:
    """Asks of every document to lie above each document of lower gain for the same query.

    Memory is queries * most_relevant * documents: only a document of gain above 0 can lie above
    another.

    Args:
      similarity: s, of each query to each document of the batch, cosine units. Each document
        should be there once: mask its repetitions.
      gains: y, the judgments, 0 if there is none; below 0 counts as 0. No gradient reaches them.
      most_relevant: How many documents of each query, of highest gain, are held above others. Exact
        if no query has more documents of gain above 0 in a batch; of any more, those of least gain
        (then: later in the batch) lie above nothing, though others still lie above them. None
        keeps all.
      query_mask: False for queries that only pad the batch.
      document_mask: False for documents that only pad the batch.

    Returns:
      For each query, the sum of (y_j - y_l) log(1 + exp(s_l - s_j)) over the documents j, l with
      y_j > y_l, and the number of these pairs; float32 for float16 and bfloat16 input, else in the
      similarities' dtype. Both 0 for masked queries.

    Raises:
      ValueError: If most_relevant is below 1, or a shape does not fit.

    Source:
      Yoon et al., Search-Adaptor, 2024, the ranking loss.
    """
    check_array("similarity", similarity, "queries documents")
    judged = judge(gains, similarity.shape, most_relevant, query_mask, document_mask)
    scores = jnp.where(judged.valid, widened(similarity), 0.0)
    above = _taken(scores, judged.places)
    # Gains are few and small, so float32 holds their differences.
    highest, gains = judged.highest.astype(scores.dtype), judged.gains.astype(scores.dtype)
    leads = highest[:, :, None] - gains[:, None, :]
    wanted = (leads > 0) & (gains >= 0)[:, None, :]
    losses = _softplus(scores[:, None, :] - above[:, :, None])
    total = jnp.sum(jnp.where(wanted, leads * losses, 0.0), axis=(1, 2))
    return Weighted(total, jnp.sum(wanted, axis=(1, 2), dtype=scores.dtype))


def rank_loss(
    similarity: Float[Array, "queries documents"],
    gains: Shaped[Array, "queries documents"],
    *,
    reduction: Reduction = "mean",
    most_relevant: int | None = None,
    query_mask: Bool[Array, " queries"] | None = None,
    document_mask: Bool[Array, " documents"] | None = None,
) -> Float[Array, ""]:
    """Reduces `rank_terms` over a batch.

    Args:
      similarity: Of each query to each document of the batch, cosine units.
      gains: The judgments, 0 if there is none.
      reduction: "sum" as published, "mean" over the triples of query, higher and lower document.
      most_relevant: As in `rank_terms`.
      query_mask: False for queries that only pad the batch.
      document_mask: False for documents that only pad the batch.

    Returns:
      One number; 0, with gradient 0, if no query tells two documents apart.

    Raises:
      ValueError: If reduction is neither, most_relevant is below 1, or a shape does not fit.

    Source:
      Yoon et al., Search-Adaptor, 2024, the ranking loss.

    Example:
      >>> gains = jnp.array([[2, 0, 0], [0, 1, 0]])
      >>> print(rank_loss(jnp.zeros((2, 3)), gains), rank_loss(jnp.zeros((2, 3)), gains > 0))
      1.0397208 0.6931472
    """
    if reduction not in get_args(Reduction):
        wanted = ", ".join(get_args(Reduction))
        raise ValueError(f"reduction: wanted one of {wanted}, got {reduction!r}")
    terms = rank_terms(
        similarity,
        gains,
        most_relevant=most_relevant,
        query_mask=query_mask,
        document_mask=document_mask,
    )
    return jnp.sum(terms.total) if reduction == "sum" else weighted_mean(*terms)


def weighted_mean(
    total: Float[Array, " queries"], weight: Float[Array, " queries"]
) -> Float[Array, ""]:
    """Divides the sum of the totals by that of the weights.

    Args:
      total: A weighted sum for each query.
      weight: The weight in it, not below 0.

    Returns:
      The mean over all terms; 0, with gradient 0, if no weight is above 0.

    Example:
      >>> print(weighted_mean(jnp.array([3.0, 1.0]), jnp.array([3.0, 5.0])))
      0.5
    """
    weights = jnp.sum(weight)
    some = weights > 0
    return jnp.where(some, jnp.sum(total), 0.0) / jnp.where(some, weights, 1.0)


@jax.custom_jvp
def _softplus(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns log(1 + exp(x)), with a gradient that compiles to less work than `jax.nn`'s."""
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@_softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _softplus(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]


def _taken(
    scores: Float[Array, "queries documents"], places: Int[Array, "queries kept"]
) -> Float[Array, "queries kept"]:
    """Returns the scores at the places; every score where all of them are kept.

    Compares in place of looking up: the gradient of a look-up is a scatter, which a CPU does number
    after number.
    """
    documents = scores.shape[1]
    if places.shape[1] == documents:  # then `judge` keeps their order
        return scores
    here = places[:, :, None] == jnp.arange(documents, dtype=places.dtype)[None, None, :]
    return jnp.sum(jnp.where(here, scores[:, None, :], 0.0), axis=2)


class Judged(NamedTuple):
    """What a loss over judgments needs of them.

    Attributes:
      valid: Where query and document are both real.
      gains: The judgments, 0 where they are below 0, -1 where not valid.
      highest: The highest gains of each query.
      places: In which columns they stand.
    """

    valid: Bool[Array, "queries documents"]
    gains: Float[Array, "queries documents"]
    highest: Float[Array, "queries kept"]
    places: Int[Array, "queries kept"]


def judge(
    gains: Shaped[Array, "queries documents"],
    shape: tuple[int, ...],
    most_relevant: int | None,
    query_mask: Bool[Array, " queries"] | None,
    document_mask: Bool[Array, " documents"] | None,
) -> Judged:
    """Applies the masks to the judgments and finds each query's most relevant documents.

    Args:
      gains: The judgments, integers or floats.
      shape: The shape they must have.
      most_relevant: How many documents a query to find; None finds all.
      query_mask: False for queries that only pad the batch.
      document_mask: False for documents that only pad the batch.

    Returns:
      Gains in float32, or wider if they came so. Of equal gains the earlier columns are kept.

    Raises:
      ValueError: If most_relevant is below 1, or a shape does not fit.
    """
    if gains.shape != shape or jnp.issubdtype(gains.dtype, jnp.complexfloating):
        raise ValueError(
            f"gains: wanted numbers {list(shape)}, got {gains.dtype} {list(gains.shape)}"
        )
    if most_relevant is not None and most_relevant < 1:
        raise ValueError(f"most_relevant: wanted at least 1 document, got {most_relevant}")
    queries, documents = shape
    valid = row_mask(query_mask, queries)[:, None] & row_mask(document_mask, documents)[None, :]
    floats = gains if jnp.issubdtype(gains.dtype, jnp.floating) else gains.astype(jnp.float32)
    known = jax.lax.stop_gradient(jnp.where(valid, jnp.maximum(widened(floats), 0.0), -1.0))
    if most_relevant is None or most_relevant >= documents:
        highest, places = known, jnp.broadcast_to(jnp.arange(documents)[None, :], shape)
    else:
        highest, places = jax.lax.top_k(known, most_relevant)
    return Judged(valid, known, jnp.maximum(highest, 0.0), places)
