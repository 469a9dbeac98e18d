"""Names and shapes that every floor shares. No logic lives here."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Qrels = Mapping[str, Mapping[str, int]]
"""Judgments: query id -> document id -> gain (an integer; above 0 means relevant)."""

Run = Mapping[str, Mapping[str, float]]
"""What a search returned: query id -> document id -> score (higher is better)."""


class InputError(ValueError):
    """A mistake of the user's: the message is one line that says what, where and what to do.

    The command line prints it without a traceback and exits with status 2.
    """


class TwoSided(NamedTuple):
    """What exists once for queries and once for documents; never a positional pair.

    The fields are of one kind, which the user of this type names in its own docstring.
    """

    query: Any
    document: Any


class Triplets(NamedTuple):
    """Training rows: each query must rank its positive above its negative.

    Attributes:
      query: int32 [triplets], rows of the query vectors.
      positive: int32 [triplets], rows of the document vectors.
      negative: int32 [triplets], rows of the document vectors.
    """

    query: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


class TrainingError(RuntimeError):
    """Training cannot go on (a loss is not finite, …): one line, exit status 1."""
