"""The decay fit: known curves, noise against scipy's optimum, and curves without a decay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from dive_jax.metrics.decay import first_below, fit_decay
from dive_jax.types import InputError

EPOCHS = np.arange(50)


def curve(rho0, beta, rho_star, epochs=EPOCHS):
    return rho0 * np.exp(-beta * epochs) + rho_star


def squares(parameters, y):
    return float(np.sum((curve(*parameters, np.arange(len(y))) - y) ** 2))


def scipys(y):
    """The best of several bounded searches from other starts."""
    starts = [(0.5, beta, 0.05) for beta in (0.003, 0.03, 0.3, 3.0)]
    bounds = ([0, 0, 0], [np.inf, 50, np.inf])
    found = [
        optimize.least_squares(lambda p: curve(*p, np.arange(len(y))) - y, s, bounds=bounds).x
        for s in starts
    ]
    return min(found, key=lambda each: squares(each, y))


@settings(deadline=None, max_examples=40)
@given(st.floats(0.1, 0.8), st.floats(0.02, 2.0), st.floats(0, 0.2))
def test_a_curve_of_the_form_gives_its_parameters(rho0, beta, rho_star):
    fit = fit_decay(curve(rho0, beta, rho_star))
    np.testing.assert_allclose(fit[:3], [rho0, beta, rho_star], rtol=1e-6, atol=1e-6)
    assert fit.rmse < 1e-8
    assert fit.total == pytest.approx(curve(rho0, beta, rho_star).sum())
    np.testing.assert_allclose(fit.curve(50), curve(rho0, beta, rho_star), atol=1e-8)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.1, 0.8]), st.sampled_from([0.0, 0.1]))
def test_under_noise_no_other_parameters_fit_better(seed, beta, rho_star):
    noise = np.random.default_rng(seed).normal(0, 0.02, 50)
    y = np.clip(curve(0.7, beta, rho_star) + noise, 0, 1)
    fit, other = fit_decay(y), scipys(y)
    assert squares(fit[:3], y) <= squares(other, y) * (1 + 1e-9)
    assert fit.rmse == pytest.approx((squares(fit[:3], y) / 50) ** 0.5)
    assert min(fit[:3]) >= 0
    assert fit.rho_star <= y.mean()


def test_noise_moves_the_parameters_little_and_evenly():
    rng = np.random.default_rng(1)
    fits = [fit_decay(curve(0.7, 0.15, 0.08) + rng.normal(0, 0.005, 50))[:3] for _ in range(50)]
    # A floor held under the least ratio would be about two deviations too low.
    np.testing.assert_allclose(np.mean(fits, axis=0), [0.7, 0.15, 0.08], rtol=0.01)
    np.testing.assert_allclose(fits, [[0.7, 0.15, 0.08]] * 50, rtol=0.12)


def test_the_same_curve_gives_the_same_bits_in_either_precision():
    y = curve(0.7, 0.15, 0.08).astype(np.float32)
    assert fit_decay(y) == fit_decay(y.copy()) == fit_decay(y.astype(np.float64))


@pytest.mark.parametrize("epochs", [1, 2, 50])
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_constant_curve_has_no_decay(epochs, value):
    fit = fit_decay(np.full(epochs, value))
    assert (fit.rho0, fit.beta) == (0, 0)
    assert fit.rho_star == pytest.approx(value)
    assert fit.rmse == pytest.approx(0, abs=1e-15)
    assert fit.total == pytest.approx(epochs * value)


def test_a_mean_of_ones_may_be_rounded_up():
    ratio = np.nextafter(np.ones(3, np.float32), np.float32(2))
    assert fit_decay(ratio).rho_star == pytest.approx(1)


def test_a_rising_curve_has_no_decay_either():
    fit = fit_decay(np.linspace(0.2, 0.6, 20))
    assert fit[:3] == (0, 0, pytest.approx(0.4))
    assert fit.rmse == pytest.approx(np.linspace(0.2, 0.6, 20).std())


@pytest.mark.parametrize("later", [0.6, 0.2, 0.01])
def test_two_epochs_are_met_by_the_slowest_decay(later):
    fit = fit_decay(np.array([0.8, later]))
    assert fit[:4] == pytest.approx((0.8, np.log(0.8 / later), 0, 0), abs=1e-6)


def test_a_single_jump_is_the_fastest_decay():
    fit = fit_decay(np.array([0.9] + [0.1] * 20))
    assert fit.curve(21) == pytest.approx([0.9] + [0.1] * 20, abs=1e-6)
    assert fit.beta > 10
    gone = fit_decay(np.array([0.9, 0.0]))
    assert gone.curve(2) == pytest.approx([0.9, 0], abs=1e-6)


def test_a_straight_fall_leaves_no_floor():
    y = np.linspace(0.9, 0.5, 50)
    fit = fit_decay(y)
    assert fit.rho_star == 0
    assert 0.008 < fit.beta < 0.016
    assert squares(fit[:3], y) <= squares(scipys(y), y) * (1 + 1e-9)


def test_a_hardly_falling_curve_is_still_met():
    y = np.linspace(0.5, 0.4999, 50)
    assert fit_decay(y).rmse < 1e-8


@pytest.mark.parametrize(
    ("ratio", "level", "epoch"),
    [
        ([0.5, 0.2, 0.09, 0.2, 0.05], 0.1, 3),
        ([0.5, 0.1], 0.1, None),
        ([0.05], 0.1, 1),
        ([0.5, 0.4], 0.45, 2),
    ],
)
def test_the_first_epoch_under_a_level(ratio, level, epoch):
    assert first_below(np.array(ratio), level) == epoch


def test_the_level_is_a_tenth_unless_told():
    assert first_below(np.array([0.2, 0.11, 0.099])) == 3


@pytest.mark.parametrize("function", [fit_decay, first_below])
@pytest.mark.parametrize(
    ("ratio", "message"),
    [
        ([], "active ratio: wanted at least one epoch, got none"),
        ([0.5, np.nan], "active ratio: wanted shares from 0 to 1, got nan in epoch 2"),
        ([0.5, 0.4, 1.01], "active ratio: wanted shares from 0 to 1, got 1.01 in epoch 3"),
        ([-0.1], "active ratio: wanted shares from 0 to 1, got -0.1 in epoch 1"),
    ],
)
def test_mistakes_are_told_in_one_line(function, ratio, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        function(np.array(ratio, float))
