"""Is one method better than another on the same queries, or could it be chance?"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.types import InputError

_SIGNS_AT_ONCE = 1 << 21
_TIE = 1e-12


class Paired(NamedTuple):
    """Outcome of a paired comparison.

    Attributes:
      difference: Mean of a - b over the queries.
      p_value: Two-sided, in (0, 1].
      queries: Number of queries compared.
      draws: Sign patterns tried: all of them in the exact test, else random ones.
    """

    difference: float
    p_value: float
    queries: int
    draws: int


def randomisation_test(
    a: Float[np.ndarray, " queries_a"],
    b: Float[np.ndarray, " queries_b"],
    *,
    draws: int = 10_000,
    seed: int = 0,
) -> Paired:
    """Tests whether two methods differ on the same queries: two-sided, paired, by sign flips.

    If the methods were exchangeable, each query's difference could as well have the other sign. The
    p-value is the share of sign patterns whose summed difference is at least as far from 0 as the
    observed one. Queries without a difference have no sign to flip and change no share; with m
    others, all 2**m patterns are tried where that is at most `draws` (the exact test), else `draws`
    random ones, and the observed pattern is counted once more: (count + 1) / (draws + 1).

    Args:
      a: Score of each query under one method.
      b: Score of the same queries, in the same order, under the other.
      draws: Sign patterns at most, at least 1.
      seed: Seed of the random patterns, at least 0.

    Returns:
      A `Paired`; p_value is 1 if no query differs.

    Raises:
      InputError: If lengths differ, there is no query, a score is not finite, or a setting is out
        of range.

    Source:
      Smucker, Allan and Carterette, A Comparison of Statistical Significance Tests for Information
      Retrieval Evaluation, CIKM 2007; Phipson and Smyth, Permutation P-values Should Never Be Zero,
      2010, for the added one.

    Example:
      >>> randomisation_test(np.array([1.0, 0.75, 0.5]), np.array([0.5, 0.5, 0.25]))
      Paired(difference=0.3333333333333333, p_value=0.25, queries=3, draws=8)
    """
    _check(a, b, draws, seed)
    differences = a.astype(np.float64) - b.astype(np.float64)
    flips = differences[differences != 0]
    if len(flips) < 63 and 2 ** len(flips) <= draws:
        draws = 2 ** len(flips)
        p_value = _at_least_as_far(flips, draws, None) / draws
    else:
        generator = np.random.default_rng(seed)
        p_value = (_at_least_as_far(flips, draws, generator) + 1) / (draws + 1)
    return Paired(math.fsum(differences) / len(a), p_value, len(a), draws)


def _check(a: np.ndarray, b: np.ndarray, draws: int, seed: int) -> None:
    if len(a) != len(b):
        raise InputError(f"scores: wanted the same queries twice, got {len(a)} and {len(b)}")
    if not len(a):
        raise InputError("scores: wanted at least one query, got none")
    bad = ~(np.isfinite(a) & np.isfinite(b))
    if bad.any():
        row = bad.argmax()
        raise InputError(f"scores: wanted finite ones, got {a[row]} and {b[row]} in row {row}")
    if draws < 1:
        raise InputError(f"draws: wanted at least 1, got {draws}")
    if seed < 0:
        raise InputError(f"seed: wanted at least 0, got {seed}")


def _at_least_as_far(flips: np.ndarray, draws: int, generator: np.random.Generator | None) -> int:
    """Counts the patterns, all in turn or random, whose sum is as far from 0 as the observed one.

    Sums that are equal on paper may differ in their last digits: they count as equal.
    """
    wanted = abs(flips.sum()) - _TIE * np.abs(flips).sum()
    step = max(1, _SIGNS_AT_ONCE // max(1, len(flips)))
    count = 0
    for first in range(0, draws, step):
        patterns = min(step, draws - first)
        if generator is None:
            numbers = np.arange(first, first + patterns)
            bits = numbers[:, None] >> np.arange(len(flips)) & 1
        else:
            bits = generator.integers(0, 2, (patterns, len(flips)), dtype=np.int8)
        sums = (1 - 2 * bits.astype(np.float64)) @ flips
        count += int((np.abs(sums) >= wanted).sum())
    return count
