"""The sign-flip test against full enumeration, against scipy, and under the null."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dive_jax.metrics import paired
from dive_jax.metrics.paired import randomisation_test
from dive_jax.types import InputError


def enumerated(differences):
    """Share of sign patterns at least as far out, in exact integer arithmetic."""
    observed = abs(sum(differences))
    patterns = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(p, differences, strict=True))) for p in patterns]
    return sum(each >= observed for each in sums) / len(sums)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_small_cases_equal_exact_enumeration(tenths):
    # Tenths are no binary fractions: sums that tie on paper differ in their last digits.
    a = np.array([0.1 * each for each in tenths]) + 0.3
    b = np.full(len(tenths), 0.3)
    result = randomisation_test(a, b)
    assert result.p_value == pytest.approx(enumerated(tenths))
    assert result.queries == len(tenths)
    assert result.difference == pytest.approx(sum(tenths) / 10 / len(tenths), abs=1e-15)


def test_equals_scipys_exact_test():
    rng = np.random.default_rng(1)
    a, b = rng.random(9), rng.random(9)

    def statistic(x, y, axis):
        return np.mean(x - y, axis=axis)

    expected = stats.permutation_test(
        (a, b), statistic, permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    result = randomisation_test(a, b)
    assert result.p_value == pytest.approx(expected.pvalue)
    assert result.difference == pytest.approx(expected.statistic)
    assert result.draws == 2**9


def test_random_patterns_come_near_the_exact_value():
    rng = np.random.default_rng(2)
    a = rng.random(12)
    b = a + rng.normal(-0.03, 0.1, 12)
    exact = randomisation_test(a, b, draws=4096)
    near = randomisation_test(a, b, draws=4095)
    assert (exact.draws, near.draws) == (4096, 4095)
    assert 0.05 < exact.p_value < 0.95
    assert near.p_value == pytest.approx(exact.p_value, abs=0.03)
    assert near.p_value != exact.p_value


def test_the_least_p_value_of_random_patterns_is_not_zero():
    a = np.ones(200)
    result = randomisation_test(a, np.zeros(200), draws=999)
    assert result == (1.0, 1 / 1000, 200, 999)


def test_queries_that_do_not_differ_change_no_p_value():
    a, b = np.array([0.9, 0.7, 0.6, 0.2]), np.array([0.5, 0.6, 0.5, 0.3])
    same = np.linspace(0, 1, 500)
    short = randomisation_test(a, b)
    long = randomisation_test(np.concatenate([a, same]), np.concatenate([b, same]))
    assert (long.p_value, long.draws, long.queries) == (short.p_value, 16, 504)
    assert long.difference == pytest.approx(short.difference * 4 / 504)


@pytest.mark.parametrize("count", [1, 5, 3000])
def test_no_difference_at_all(count):
    scores = np.random.default_rng(3).random(count)
    assert randomisation_test(scores, scores.copy()) == (0.0, 1.0, count, 1)


def test_the_sides_may_be_swapped():
    rng = np.random.default_rng(4)
    a, b = rng.random(40), rng.random(40)
    one, other = randomisation_test(a, b), randomisation_test(b, a)
    assert one.difference == -other.difference
    assert one.p_value == other.p_value


def test_a_seed_repeats_and_another_differs():
    rng = np.random.default_rng(5)
    a, b = rng.random(50), rng.random(50)
    once = [randomisation_test(a, b, seed=seed) for seed in (7, 7, 8)]
    assert once[0] == once[1]
    assert once[0] != once[2]
    assert once[0].p_value == pytest.approx(once[2].p_value, abs=0.03)


def test_p_values_are_uniform_under_the_null():
    rng = np.random.default_rng(6)
    values = []
    for _ in range(300):
        scores = rng.random((2, 25))
        values.append(randomisation_test(scores[0], scores[1], draws=200).p_value)
    assert stats.kstest(values, "uniform").pvalue > 0.01
    assert np.mean(np.array(values) <= 0.05) == pytest.approx(0.05, abs=0.035)


def test_a_real_difference_is_found():
    rng = np.random.default_rng(7)
    a = rng.random(300)
    assert randomisation_test(a, a - rng.normal(0.04, 0.1, 300)).p_value < 0.01


@pytest.mark.parametrize("count", [11, 60])
def test_the_size_of_the_pieces_does_not_matter(monkeypatch, count):
    rng = np.random.default_rng(8)
    a, b = rng.random(count), rng.random(count)
    whole = randomisation_test(a, b, draws=5000)
    monkeypatch.setattr(paired, "_SIGNS_AT_ONCE", 64 * count)
    assert randomisation_test(a, b, draws=5000) == whole


@pytest.mark.parametrize(
    ("a", "b", "rest", "message"),
    [
        ([0.1, 0.2], [0.1], {}, "scores: wanted the same queries twice, got 2 and 1"),
        ([], [], {}, "scores: wanted at least one query, got none"),
        ([0.1, np.nan], [0.1, 0.2], {}, "scores: wanted finite ones, got nan and 0.2 in row 1"),
        ([0.1], [-np.inf], {}, "scores: wanted finite ones, got 0.1 and -inf in row 0"),
        ([0.1], [0.2], {"draws": 0}, "draws: wanted at least 1, got 0"),
        ([0.1], [0.2], {"seed": -1}, "seed: wanted at least 0, got -1"),
    ],
)
def test_mistakes_are_told_in_one_line(a, b, rest, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        randomisation_test(np.array(a, np.float64), np.array(b, np.float64), **rest)
