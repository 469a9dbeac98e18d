import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import stats

from dive_jax.operators import (
    dual_only_dimension,
    local_risks,
    sure_power,
    sure_regret,
    sure_select,
)
from tests.operators import reference

KAPPAS = (0, 1, 2, 3, 30, 63, 999, 3960, 20_000)


def grid(dtype):
    """Dimensions, and signals about the threshold, at 0, and as large as promised."""
    kappas, signals = [], []
    for kappa in KAPPAS:
        steps = np.array([-9, -5, -2.5, -1, 0, 0.5, 2, 4, 8])
        around = np.maximum(kappa + steps * math.sqrt(6 * kappa + 1), 0)
        here = np.concatenate([around, [0, 1e-3, 1, 300, 3e4, 1e5]]).astype(dtype)
        kappas += [kappa] * len(here)
        signals += list(here)
    return np.array(kappas, np.int32), np.array(signals, dtype)


def expected_tail(kappa, signal):
    if kappa == 0:
        return -math.expm1(-signal / 2)
    signal = float(signal)
    if signal == 0:
        return stats.chi2.sf(2 * kappa, kappa)
    return stats.ncx2.sf(2 * kappa, kappa, signal)


@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-10), ("float32", 1e-5)])
def test_power_and_regret_are_scipys(dtype, within):
    kappas, signals = grid(dtype)
    expected = np.array([expected_tail(k, s) for k, s in zip(kappas, signals, strict=True)])
    with jax.enable_x64(dtype == "float64"):
        there = jnp.asarray(kappas), jnp.asarray(signals)
        power = jax.jit(jax.vmap(lambda k, s: sure_power(k, signal=s)))(*there)
        regret = jax.jit(jax.vmap(lambda k, s: sure_regret(k, signal=s)))(*there)
    assert power.dtype == dtype
    np.testing.assert_allclose(power, expected, rtol=0, atol=within)
    apart = signals.astype(np.float64) - kappas
    wrong = np.where(apart <= 0, expected, 1 - expected)
    np.testing.assert_allclose(regret, np.abs(apart) * wrong, atol=within * np.abs(apart).max())
    assert (np.asarray(power) >= 0).all()
    assert (np.asarray(power) <= 1 + 1e-6).all()


def test_power_of_no_signal_is_below_its_bound():
    with jax.enable_x64(True):
        for kappa in (1, 2, 33, 60, 600, 3960):
            power = float(sure_power(kappa, signal=0.0))
            assert 0 < power <= (2 / math.e) ** (kappa / 2)
            np.testing.assert_allclose(power, stats.chi2.sf(2 * kappa, kappa), rtol=1e-9)


def test_published_probabilities():
    for ratio, expected in ((0, 0.001), (0.5, 0.093), (1, 0.474), (2, 0.969)):
        assert abs(float(sure_power(30, signal=30.0 * ratio)) - expected) < 6e-4


def test_only_the_ratio_to_the_noise_matters():
    one, other = sure_power(30, signal=40.0), sure_power(30, signal=10.0, variance=0.25)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    risks = local_risks(12, 3, signal=10.0, variance=0.25)
    expected = float(risks.shared - risks.dual) * (1 - float(other))
    np.testing.assert_allclose(sure_regret(30, signal=10.0, variance=0.25), expected, rtol=1e-4)


def test_without_noise_the_choice_is_certain_and_gradients_are_finite():
    assert sure_power(30, signal=1.0, variance=0.0) == 1
    assert sure_power(30, signal=0.0, variance=0.0) < 1e-3
    assert sure_regret(30, signal=1.0, variance=0.0) == 0
    slopes = jax.grad(lambda s, v: sure_power(30, signal=s, variance=v), argnums=(0, 1))
    for signal, variance in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1e30, 1e-30)):
        assert np.isfinite(slopes(jnp.array(signal), jnp.array(variance))).all()


def test_gradients():
    with jax.enable_x64(True):
        for call in (sure_power, sure_regret):
            for signal in (20.0, 45.0):
                check_grads(
                    jax.jit(lambda s, v, call=call: call(30, signal=s, variance=v)),
                    (jnp.array(signal), jnp.array(1.1)),
                    order=1,
                )
        at_zero = jax.grad(lambda s: sure_power(30, signal=s))(jnp.array(0.0))
    rise = (stats.chi2.sf(60, 32) - stats.chi2.sf(60, 30)) / 2
    np.testing.assert_allclose(at_zero, rise, rtol=1e-9)


def test_the_rule_compares_the_dual_only_energy_with_twice_the_cost():
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    moment = rng.normal(size=(5, 5))
    energy = 7 * np.sum(reference.dual_only(axes, moment) ** 2)
    kappa = dual_only_dimension(5, 2)
    there = jnp.asarray(axes, jnp.float32), jnp.asarray(moment, jnp.float32)
    for variance, dual in ((energy / (2.01 * kappa), True), (energy / (1.99 * kappa), False)):
        got = jax.jit(lambda v: sure_select(*there, variance=v, count=7))(jnp.float32(variance))
        np.testing.assert_allclose(got.statistic, energy, rtol=1e-5)
        np.testing.assert_allclose(got.signal, energy - variance * kappa, rtol=1e-4)
        assert bool(got.dual) == dual


def test_ties_and_what_is_not_finite_go_to_shared():
    axes = jnp.eye(2)[:1]
    tie = sure_select(axes, jnp.array([[0.0, 1.0], [-1.0, 0.0]]), variance=1.0)
    assert tie.statistic == tie.threshold
    assert not tie.dual
    assert not sure_select(axes, jnp.zeros((2, 2)), variance=0.0).dual
    bad = sure_select(axes, jnp.full((2, 2), jnp.nan), variance=1.0)
    assert np.isnan(bad.statistic)
    assert not bad.dual


def test_a_negative_dimension_is_told():
    with pytest.raises(ValueError, match="kappa: wanted at least 0, got -1"):
        sure_power(-1, signal=1.0)
