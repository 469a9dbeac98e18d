"""How fast a share of active triplets dies out: an exponential fitted to a measured curve."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dive_jax.types import InputError

_SLOWEST, _FASTEST = 1e-6, 50.0  # Rates tried, per epoch: a straight line, a single jump.
_FIRST_GRID, _GRID, _ZOOMS = 512, 33, 8
_ROUNDING = 1e-6  # A float32 mean of ones may be a little over 1.
_EQUAL = 1e-24  # Squared errors this close, in units of the curve's energy, differ by rounding.


class Decay(NamedTuple):
    """The curve rho(t) = rho0 * exp(-beta * t) + rho_star, with t = 0 in the first epoch.

    Attributes:
      rho0: What dies out, as a share at the first epoch, at least 0.
      beta: Rate per epoch, at least 0; 0 if the curve does not fall.
      rho_star: What stays, as a share, at least 0.
      rmse: Root of the mean squared difference between curve and fit.
      total: Sum of the measured ratios over the epochs.
    """

    rho0: float
    beta: float
    rho_star: float
    rmse: float
    total: float

    def curve(self, epochs: int) -> Float[np.ndarray, " epochs"]:
        """Returns the fitted ratio of epochs 1 to `epochs`."""
        return self.rho0 * np.exp(-self.beta * np.arange(epochs)) + self.rho_star


def fit_decay(ratio: Float[np.ndarray, " epochs"]) -> Decay:
    """Fits rho0 * exp(-beta * t) + rho_star by least squares; all three are at least 0.

    For a given rate the other two follow in closed form, so one number is searched for: on a grid
    of rates, then on ever narrower ones around the best. Of rates that fit equally well (two
    epochs, for instance) the slowest counts, and no decay at all before any.

    Args:
      ratio: Share of active triplets by epoch, each from 0 to 1.

    Returns:
      The fit; rho_star never exceeds the curve's mean.

    Raises:
      InputError: If there is no epoch, or a value is not a share.

    Source:
      Zhao, DIVE, appendix A.1, for the form of the curve.

    Example:
      >>> fit = fit_decay(0.8 * np.exp(-0.25 * np.arange(40)) + 0.05)
      >>> print(f"{fit.rho0:.4f} {fit.beta:.4f} {fit.rho_star:.4f} {fit.total:.3f}")
      0.8000 0.2500 0.0500 5.616
    """
    y = _checked(ratio).astype(np.float64)
    tie = _EQUAL * float(y @ y)
    flat, falling = _with_rates(y, np.zeros(1)), _slowest_best(y, tie)
    best = flat if flat.errors[0] <= falling.errors[0] + tie else falling
    rho0, beta, rho_star, error = (float(each[0]) for each in best)
    return Decay(rho0, beta, rho_star, (error / len(y)) ** 0.5, float(y.sum()))


def first_below(ratio: Float[np.ndarray, " epochs"], level: float = 0.1) -> int | None:
    """Returns the first epoch, counted from 1, whose ratio is under a level; None if none is.

    Raises:
      InputError: If there is no epoch, or a value is not a share.

    Example:
      >>> first_below(np.array([0.4, 0.1, 0.09, 0.2])), first_below(np.array([0.4]))
      (3, None)
    """
    under = _checked(ratio) < level
    return int(under.argmax()) + 1 if under.any() else None


class _Tried(NamedTuple):
    """The best constants of each rate, and what they leave."""

    rho0: np.ndarray
    rates: np.ndarray
    rho_star: np.ndarray
    errors: np.ndarray


def _with_rates(y: Float[np.ndarray, " epochs"], rates: Float[np.ndarray, " rates"]) -> _Tried:
    """Solves for the two constants, neither below 0, at each rate."""
    falls = np.exp(-rates[:, None] * np.arange(len(y)))
    middle = falls.mean(axis=1, keepdims=True)
    apart = falls - middle
    energy = np.sum(apart**2, axis=1)
    # A straight line through (falls, y); a slope below 0 means that a constant is best.
    slope = np.maximum(apart @ (y - y.mean()) / np.where(energy == 0, 1.0, energy), 0.0)
    floor = y.mean() - slope * middle[:, 0]
    through_zero = (falls @ y) / np.sum(falls**2, axis=1)
    rho0 = np.where(floor < 0, through_zero, slope)
    rho_star = np.maximum(floor, 0.0)
    errors = np.sum((rho0[:, None] * falls + rho_star[:, None] - y) ** 2, axis=1)
    return _Tried(rho0, rates, rho_star, errors)


def _slowest_best(y: np.ndarray, tie: float) -> _Tried:
    """Returns the slowest of the rates above 0 that leave the least error."""
    rates = np.geomspace(_SLOWEST, _FASTEST, _FIRST_GRID)
    best = rates[:1]
    for _ in range(_ZOOMS):
        errors = _with_rates(y, rates).errors
        at = int(np.argmax(errors <= errors.min() + tie))
        best = rates[at : at + 1]
        rates = np.geomspace(rates[max(0, at - 1)], rates[min(at + 1, len(rates) - 1)], _GRID)
    return _with_rates(y, best)


def _checked(ratio: np.ndarray) -> np.ndarray:
    if not len(ratio):
        raise InputError("active ratio: wanted at least one epoch, got none")
    bad = ~((ratio >= 0) & (ratio <= 1 + _ROUNDING))
    if bad.any():
        at = bad.argmax()
        raise InputError(
            f"active ratio: wanted shares from 0 to 1, got {ratio[at]} in epoch {at + 1}"
        )
    return ratio
