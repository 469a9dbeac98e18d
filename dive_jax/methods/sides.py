"""Whether queries and documents get a projection each: CARS on the pairs that are to train."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.methods.shared import Prepared
from dive_jax.operators import cars
from dive_jax.types import InputError

LEAST = 4
"""Fewest queries: two disjoint halves of two."""

_SEED, _SPLITS = 2027, 20


class Choice(NamedTuple):
    """A family of projections, and why.

    Attributes:
      family: shared or dual.
      told: What CARS found, for the artefact; empty where it was not asked.
    """

    family: Literal["shared", "dual"]
    told: dict[str, Any]


def chosen(ready: Prepared, rank: int) -> Choice:
    """Lets CARS choose the family at one rank.

    Each query counts once: its first pair, and its nearest hard negative before any projection.

    Args:
      ready: Pairs that train, with hard negatives a query.
      rank: Width of the projections.

    Raises:
      InputError: If fewer than 4 queries have a pair and a negative.

    Source:
      arXiv 2609.32488, the cross-fitted asymmetry score (CARS).
    """
    if ready.data.hard is None:
        raise ValueError("ready: wanted hard negatives, got none")
    query, first = np.unique(ready.triplets.query, return_index=True)
    positive, negative = ready.triplets.positive[first], ready.data.hard[query, 0]
    kept = negative >= 0
    if (count := int(kept.sum())) < LEAST:
        raise InputError(
            f"CARS: wanted at least {LEAST} queries with a relevant document and a negative, got "
            f"{count}; take linear_shared or linear_dual"
        )
    documents = ready.data.document
    sides = (ready.data.query[query[kept]], documents[positive[kept]], documents[negative[kept]])
    found = cars(*map(jnp.asarray, sides), ranks=(rank,), seed=_SEED, splits=_SPLITS)
    found = jax.device_get(found)
    told = {"score": float(found.score[0]), "spread": float(found.spread[0]), "queries": count}
    return Choice("dual" if found.dual[0] else "shared", {"cars": told})
