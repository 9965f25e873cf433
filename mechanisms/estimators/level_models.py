"""Local level models with many drifts and spreads, averaged by how well each has predicted.

The level of a figure changes a little from window to window (*drift*); a window is seen with its
known standard error and some further *spread*. Every model of a grid of both has its own filter,
and a weight by how well it has predicted so far.

All windows are learned from, also those of an alarm: to leave these out would make the drift look
smaller after each false alarm, so that the next one comes sooner. Instead, a window teaches only so
much: for learning, a normal variate is taken to be ten times as large in one of a hundred windows
(Tukey's contaminated normal), and in one of ten thousand to have Cauchy's law, under which a window
that is hundreds of standard errors off hardly speaks for any drift or spread. So a real shift, or a
spike, is no drift.

References
----------
Harrison and Stevens, "Bayesian forecasting", JRSS B 38 (1976): several models, averaged. West and
Harrison, "Bayesian Forecasting and Dynamic Models", 2nd ed. (1997), chapters 11 and 12: outliers
and shifts. Tukey, "A survey of sampling from contaminated distributions" (1960).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from mechanisms.arrays import Floats

#: Models that are averaged over: by up to how many times a window, and the prediction of it, are
#: further off than by a window's standard error; and in which steps.
_FURTHEST, _FINE, _COARSE = 128.0, 1.05, 1.21
#: With spread, the prediction is further off than a window by this factor at most.
_RATIO = 2.5
#: For learning, one of so many windows is so many times as far off as it should be; and one of so
#: many anywhere, by a law whose tail hardly falls.
_OUTLIERS, _OUTLYING, _ANYWHERE = 100, 10.0, 10_000
#: Models that stand for all where windows are predicted, at most.
_STAND = 100


class LevelModels:
    """Models on one or more series at a time: levels and weights of each, (s, m)."""

    def __init__(self, drifts: Floats, spreads: Floats, shares: Floats) -> None:
        self.drifts, self.spreads = drifts**2, spreads**2
        self.weights = np.log(shares)[None]  # logarithms
        self.forget()

    def forget(self) -> None:
        """Take nothing for known of the level; the weights stay."""
        self.levels = np.zeros((1, len(self.drifts)))
        self.variances = np.full(len(self.drifts), np.inf)

    def copy(self, series: int = 1) -> LevelModels:
        other = object.__new__(LevelModels)
        other.drifts, other.spreads = self.drifts, self.spreads
        other.levels = np.repeat(self.levels, series, axis=0)
        other.weights = np.repeat(self.weights, series, axis=0)
        other.variances = self.variances
        return other

    def probabilities(self) -> Floats:
        shares: Floats = np.exp(self.weights - self.weights.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def likely(self) -> LevelModels:
        """Return the models that matter, of one series: all but those of a billionth together.

        The average of some neighbours stands for them if there are many, so that there are at most
        :data:`_STAND`.
        """
        shares = self.probabilities()[0]
        order = np.argsort(shares)[::-1]
        kept = np.sort(order[: 1 + int(np.searchsorted(np.cumsum(shares[order]), 1 - 1e-9))])
        starts = np.linspace(0, len(kept), min(len(kept), _STAND), endpoint=False).astype(np.intp)
        sums = np.add.reduceat(shares[kept], starts)

        def average(of: Floats) -> Floats:
            found: Floats = np.add.reduceat(shares[kept] * of[kept], starts) / sums
            return found

        other = object.__new__(LevelModels)
        other.drifts, other.spreads = average(self.drifts), average(self.spreads)
        other.weights, other.levels = np.log(sums)[None], average(self.levels[0])[None]
        other.variances = average(self.variances)
        return other

    def predicted(self, error: float) -> Floats:
        """Return the variance, by model, of a next window's value around its level."""
        total: Floats = self.variances + self.drifts + self.spreads + error**2
        return total

    def skip(self) -> None:
        """Take it that a window is missing."""
        self.variances = self.variances + self.drifts

    def take(self, values: Floats, error: float, most: float = math.inf) -> Floats:
        """Learn from a window of each series, shape (s,); return its scores, 0 of a first one.

        A level follows a window as if it were ``most`` standard deviations off at most, so that a
        single one far off does not make those after it look far off on the other side.
        """
        noise = self.spreads + error**2
        if np.isinf(self.variances[0]):
            self.levels, self.variances = self.levels + (values[:, None] - self.levels), noise
            return np.zeros(len(values))
        self.variances = self.variances + self.drifts
        total = self.variances + noise
        surprise = values[:, None] - self.levels
        standard = surprise / np.sqrt(total)
        shares = self.probabilities()
        # The tail on the value's own side loses no digits.
        side = np.where((shares * standard).sum(axis=1) < 0, -1.0, 1.0)
        tail = (shares * ndtr(-side[:, None] * standard)).sum(axis=1)
        self.weights = self.weights + _learned(standard) - 0.5 * np.log(total)
        gain = self.variances / total
        self.levels = self.levels + gain * np.sqrt(total) * np.clip(standard, -most, most)
        self.variances = gain * noise
        scores: Floats = -side * ndtri(np.maximum(tail, 1e-300))
        return scores


def candidates(unit: float, drift: float | None, spread: float | None) -> LevelModels:
    """Return the models that a series is compared with, each as likely as its neighbours.

    Parameters
    ----------
    unit : float > 0
        The standard error of a window, in the unit of the values.
    drift, spread : float in [0, inf), optional
        Of all models, in the unit of the values; a grid of them if not given.
    """
    if drift is not None:
        spreads = unit * np.sqrt(_steps(_FINE, _FURTHEST) ** 2 - 1) if spread is None else spread
        tried: Floats = np.atleast_1d(np.asarray(spreads, np.float64))
        return LevelModels(np.full(len(tried), drift), tried, _evenly(len(tried)))
    noise = unit if spread is None else math.hypot(unit, spread)
    drifts = noise * _drifts(_steps(_FINE, _FURTHEST))
    if spread is not None:
        return LevelModels(drifts, np.full(len(drifts), spread), _evenly(len(drifts)))
    # One half without any spread.
    steps = _steps(_COARSE, _FURTHEST)[1:], _steps(_FINE, _RATIO)
    noises, ratios = np.meshgrid(*steps, indexing="ij")
    drifts_of_spread = unit * (noises * _drifts(ratios)).ravel()
    spreads = unit * np.sqrt(noises**2 - 1).ravel()
    return LevelModels(
        np.r_[drifts, drifts_of_spread],
        np.r_[np.zeros(len(drifts)), spreads],
        np.r_[_evenly(len(drifts)), _evenly(len(spreads))] / 2,
    )


def _steps(factor: float, most: float) -> Floats:
    number = 1 + math.floor(math.log(most) / math.log(factor))
    found: Floats = np.power(factor, np.arange(number), dtype=np.float64)
    return found


def _evenly(number: int) -> Floats:
    return np.full(number, 1 / number)


def _drifts(ratios: Floats) -> Floats:
    """Return the drifts by which predictions are so many times further off than windows are.

    In units of the latter. In the long run the filter's variance F of a surprise, for windows of
    variance 1, solves ``drift**2 = (F - 1)**2 / F``. Equal steps of its logarithm are as easily
    told apart; small drifts hardly matter, and their steps are wide.

    >>> _drifts(np.array([1.0, 2.0]))
    array([0. , 1.5])
    """
    return ratios - 1 / ratios


def _learned(standard: Floats) -> Floats:
    """Return the logarithms of how likely surprises are, in their standard deviations."""
    square = standard**2
    outlying = square / _OUTLYING**2
    density = (1 - 1 / _OUTLIERS - 1 / _ANYWHERE) * np.exp(-square / 2)
    density += np.exp(-outlying / 2) / (_OUTLIERS * _OUTLYING)
    # Cauchy's, in units of the others: by the square root of 2π.
    density += math.sqrt(2 / math.pi) / (_ANYWHERE * _OUTLYING) / (1 + outlying)
    found: Floats = np.log(density)
    return found
