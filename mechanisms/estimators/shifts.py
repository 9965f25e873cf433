"""Which figures moved: a two-sided CUSUM of how much each window surprises a model that drifts.

Each window is compared with what the windows before it predict, under a local level model
(:mod:`mechanisms.estimators.local_level`): the level changes a little from window to window
(*drift*), and the window is seen with its known standard error and, since the reports of each
window are others, with some further *spread*. The probability of a window at least as high, given
all earlier ones, turned into a normal score, is a standard normal variate independent of the
earlier ones: whatever the errors, also where they differ, and where windows are missing. So one
threshold holds for all figures, and the rate of false alarms is a property of a CUSUM of standard
normal variates alone, which has an integral equation.

Drift and spread are learned unless they are given: the prediction is averaged over several hundred
models (:mod:`mechanisms.estimators.level_models`). To plug in the most likely drift instead gave up
to 15 times the stated rate of false alarms in simulations (``python -m benchmarks alerts``), since
the windows of a year often make a drift look smaller than it is, or like none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from mechanisms.arrays import Floats
from mechanisms.errors import ParameterError
from mechanisms.estimators.level_models import LevelModels, candidates
from mechanisms.halving import turning

#: The CUSUM's allowance, in standard deviations of a score: best for shifts of twice as much.
ALLOWANCE = 1.0
#: Windows of a figure that are learned from before any is judged; 1 where nothing is to be learned.
LEARNED = 8
#: By how much more often than known ones learned models raise false alarms, at most, as simulated.
_LEARNING = 1.25
#: Run lengths that thresholds are given for, in windows between two false alarms.
LEAST_RUN, MOST_RUN = 10.0, 1e8
#: The probability with which a shift is found within the predicted number of windows.
FOUND = 0.9
#: Windows for which that is predicted, and series that are drawn for it.
_AHEAD, _DRAWN = 26, 1000
#: Nodes and weights of the quadrature of the integral equation.
_NODES = np.polynomial.legendre.leggauss(64)
#: Half the width of an interval of 95 %, in standard errors.
_Z95 = 1.959963984540054


@lru_cache(maxsize=256)
def run_length(threshold: float) -> float:
    """Return how many windows pass on average before the first false alarm.

    A side's sum begins at zero, adds each score less the allowance, stays at zero or above, and
    raises an alarm above ``threshold``. Its average run length solves Page's integral equation,
    here by Gauss-Legendre quadrature. When one side raises an alarm, the other's sum is zero (while
    both are above zero, their total falls), so that the rates of the two add up exactly.

    References
    ----------
    Page, "Continuous inspection schemes", Biometrika 41 (1954); Kemp, "The average run length of
    the cumulative sum chart when a V-mask is used", JRSS B 23 (1961), for the two sides.

    >>> round(run_length(2.516), 1)
    369.8
    """
    nodes, weights = _NODES
    sums = np.r_[threshold * (nodes + 1) / 2, 0.0]
    steps = sums[:-1] - sums[:, None] + ALLOWANCE
    density = np.exp(-(steps**2) / 2) / math.sqrt(2 * math.pi)
    moves = np.c_[density * weights * threshold / 2, ndtr(ALLOWANCE - sums)]
    return float(np.linalg.solve(np.eye(len(sums)) - moves, np.ones(len(sums)))[-1]) / 2


@lru_cache(maxsize=256)
def threshold_of(windows: float, *, learned: bool = False) -> float:
    """Return the threshold with one false alarm in so many windows on average, or in more.

    Parameters
    ----------
    windows : float in [LEAST_RUN, MOST_RUN]
    learned : bool
        For series whose drift or spread is learned: a higher threshold, so that those that drift by
        more than their standard error have no more false alarms either.
    """
    if not LEAST_RUN <= windows <= MOST_RUN:
        raise ParameterError(
            f"windows between two false alarms must lie in [{LEAST_RUN:g}, {MOST_RUN:g}], "
            f"not {windows:g}"
        )
    wanted = windows * (_LEARNING if learned else 1)
    return turning(lambda threshold: run_length(threshold) < wanted, 0.0, 20.0, 32)[1]


@dataclass(frozen=True)
class Shift:
    """A figure that moved.

    ``window``: index of the window by which it was told; ``onset``: of the first one after the
    shift, the most likely one. ``before``: the level that was expected at the onset. ``change``,
    with ``standard_error`` and ends ``low`` and ``high`` of an interval of 95 %: by how much the
    level lies above that since then, given that it moved at the onset; in the unit of the values.
    Since only what is large is told, a change that is told at once is rather too large.
    ``predicted``: within how many windows a shift of this size is found, with probability
    :data:`FOUND`; None for more than 26.
    """

    window: int
    onset: int
    before: float
    change: float
    standard_error: float
    predicted: int | None

    @property
    def low(self) -> float:
        return self.change - _Z95 * self.standard_error

    @property
    def high(self) -> float:
        return self.change + _Z95 * self.standard_error


@dataclass(frozen=True)
class Watched:
    """The findings of a series, and how well the next windows are watched.

    ``judged``: how many windows were. ``drift``, ``spread``: medians of the likely ones, in the
    unit of the values. ``level`` and ``error``: what is expected of the next window, and how far
    off that is, with its own noise if that is the last one's; NaN where nothing is known of it.
    """

    shifts: tuple[Shift, ...]
    judged: int
    drift: float = math.nan
    spread: float = math.nan
    level: float = math.nan
    error: float = math.nan
    _next: tuple[LevelModels, float, float] | None = field(default=None, repr=False, compare=False)

    def windows_to_find(self, change: float) -> int | None:
        """Return within how many windows a shift of this size is found from now on.

        With probability :data:`FOUND`; None if that takes more than 26, or ``level`` is unknown.
        """
        if self._next is None:
            return None
        models, error, threshold = self._next
        return windows_to_find(models, change, error, threshold)

    def smallest(self, windows: int) -> float | None:
        """Return the smallest shift that is found within so many windows, to 1 %.

        That is with probability :data:`FOUND`, in the unit of the values; None if ``level`` is
        unknown, or if a shift of 50 times ``error`` is not found.
        """
        if self._next is None:
            return None
        models, error, threshold = self._next

        def found(change: float) -> bool:
            return windows_to_find(models, change, error, threshold, windows) is not None

        low, high = 0.0, 50 * self.error
        if not found(high):
            return None
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if found(middle) else (middle, high)
        return high


def watch(
    values: Floats,
    errors: Floats,
    threshold: float,
    drift: float | None = None,
    spread: float | None = None,
) -> Watched:
    """Return where a series moved.

    After an alarm the level is learned anew from the next window on; drift and spread are not.

    Parameters
    ----------
    values, errors : ndarray of float64, shape (t,)
        One entry a window, in order. A missing window is NaN in ``values``; errors are positive
        and finite where values are not missing.
    threshold : float
        As of :func:`threshold_of`.
    drift, spread : float in [0, inf), optional
        In the unit of the values; learned if not given.

    Utility
    -------
    If drift and spread are given, the rate of false alarms is exact up to the first one, and the
    second window is the first that is judged. Otherwise it is exact on average over the models
    before anything is learned. ``python -m benchmarks alerts`` measures it for some of them: far
    below what is stated where the level hardly drifts and in the first year of windows, and at what
    is stated elsewhere.
    """
    models = _models(values, errors, drift, spread)
    if models is None:
        return Watched((), 0)
    learned = LEARNED if drift is None or spread is None else 1
    finder = _Finder(models, threshold)
    judged, seen, last = 0, 0, math.nan
    for t, (value, error) in enumerate(zip(values.tolist(), errors.tolist(), strict=True)):
        if not math.isfinite(value):
            finder.skip()
            continue
        seen += 1
        judged += seen > learned
        last = error
        finder.take(t, value, error, judge=seen > learned)
        if finder.alarm is not None:
            finder.report(values, errors)
    return _watched(finder, judged, last)


def _watched(finder: _Finder, judged: int, error: float) -> Watched:
    models, shifts = finder.models, tuple(finder.shifts)
    shares = models.probabilities()[0]
    drift, spread = (math.sqrt(_median(shares, of)) for of in (models.drifts, models.spreads))
    if np.isinf(models.variances[0]):
        return Watched(shifts, judged, drift, spread)
    level = float(shares @ models.levels[0])
    off = math.sqrt(_spread_of(shares, models.levels[0], models.predicted(error)))
    known = (models, error, finder.threshold)
    return Watched(shifts, judged, drift, spread, level, off, known)


def _models(
    values: Floats, errors: Floats, drift: float | None, spread: float | None
) -> LevelModels | None:
    """Return the models that a series is compared with; None if it has no window."""
    there = np.flatnonzero(np.isfinite(values))
    if not len(there):
        return None
    if not (np.isfinite(errors[there]).all() and (errors[there] > 0).all()):
        raise ParameterError("errors must be positive and finite where values are not missing")
    for name, given in (("drift", drift), ("spread", spread)):
        if given is not None and not 0 <= given < math.inf:
            raise ParameterError(f"{name} must lie in [0, inf), not {given}")
    unit = float(np.median(errors[there[:LEARNED]]))
    return candidates(unit, drift, spread)


class _Finder:
    """The two sums over one series, and what was known before each window of an excursion."""

    def __init__(self, models: LevelModels, threshold: float) -> None:
        self.models = models
        self.threshold = threshold
        self.shifts: list[Shift] = []
        #: The upper and the lower side: the sum, and since it was at zero, the windows that are
        #: there with the models before each.
        self._sums = [0.0, 0.0]
        self._since: list[dict[int, LevelModels]] = [{}, {}]
        self.alarm: tuple[int, int] | None = None  #: side and window

    def skip(self) -> None:
        self.models.skip()

    def take(self, t: int, value: float, error: float, *, judge: bool) -> None:
        before = self.models.copy()
        score = float(self.models.take(np.array([value]), error)[0])
        if not judge:
            return
        for side, signed in enumerate((score, -score)):
            self._since[side][t] = before
            self._sums[side] = max(0.0, self._sums[side] + signed - ALLOWANCE)
            if self._sums[side] > self.threshold:
                self.alarm = (side, t)
            elif self._sums[side] == 0:
                self._since[side].clear()

    def report(self, values: Floats, errors: Floats) -> None:
        """Note a shift, and take nothing for known of the level after it."""
        assert self.alarm is not None
        side, window = self.alarm
        sign = 1 - 2 * side
        found = {
            t: _change(before.copy(), values, errors, range(t, window + 1))
            for t, before in self._since[side].items()
        }
        # The most likely onset: that with the most significant change.
        onset = max(found, key=lambda t: sign * found[t][0] / found[t][1])
        (change, error), before = found[onset], self._since[side][onset]
        noise = float(np.nanmedian(errors[onset : window + 1]))
        predicted = windows_to_find(before, change, noise, self.threshold)
        level = float(before.probabilities()[0] @ before.levels[0])
        self.shifts.append(Shift(window, onset, level, change, error, predicted))
        # Windows that were chosen for being far off would be a bad beginning of the new level:
        # every false alarm would be followed by another one, back.
        self.models.forget()
        self._sums, self._since, self.alarm = [0.0, 0.0], [{}, {}], None


def _change(
    models: LevelModels, values: Floats, errors: Floats, windows: range
) -> tuple[float, float]:
    """Return by how much the level has changed at the first window, and the standard error.

    Generalized least squares within each model: a change of one adds ``missed`` to a window's
    surprise, which is what the model has not learned of it yet. Models are then averaged.
    """
    missed = np.ones(len(models.drifts))
    shares, total, precision = models.probabilities()[0], 0.0, np.zeros(len(models.drifts))
    for t in windows:
        if not math.isfinite(values[t]):
            models.skip()
            continue
        variance = models.predicted(float(errors[t]))
        surprise = values[t] - models.levels[0]
        total = total + missed * surprise / variance
        precision = precision + missed**2 / variance
        missed = missed * (1 - (models.variances + models.drifts) / variance)
        models.take(values[t : t + 1], float(errors[t]))
    changes = total / precision
    return float(shares @ changes), math.sqrt(_spread_of(shares, changes, 1 / precision))


def _spread_of(shares: Floats, means: Floats, variances: Floats) -> float:
    """Return the variance of a mixture."""
    return float(shares @ (variances + (means - shares @ means) ** 2))


def _median(shares: Floats, values: Floats) -> float:
    """Return the median of values that are so probable."""
    order = np.argsort(values)
    return float(values[order[np.searchsorted(np.cumsum(shares[order]), 0.5)]])


def windows_to_find(
    models: LevelModels, change: float, error: float, threshold: float, most: int = _AHEAD
) -> int | None:
    """Return within how many windows a shift is found, with probability :data:`FOUND`.

    None if these are more than ``most``. Series are drawn from what the models say, with the shift
    in them, and judged by the same steps. The generator has a fixed seed, so that the same series
    give the same prediction; nobody's privacy depends on it.
    """
    draw, models = np.random.default_rng(0), models.likely()
    chosen = draw.choice(len(models.drifts), size=_DRAWN, p=models.probabilities()[0])
    levels = models.levels[0, chosen] + change
    levels = levels + draw.normal(size=_DRAWN) * np.sqrt(models.variances[chosen])
    noise = np.sqrt(models.spreads[chosen] + error**2)
    drift = np.sqrt(models.drifts[chosen])
    drawn, sums = models.copy(_DRAWN), np.zeros(_DRAWN)
    missing = np.ones(_DRAWN, dtype=bool)
    for window in range(1, most + 1):
        levels = levels + draw.normal(size=_DRAWN) * drift
        scores = drawn.take(levels + draw.normal(size=_DRAWN) * noise, error)
        sums = np.maximum(0.0, sums + math.copysign(1.0, change) * scores - ALLOWANCE)
        missing &= sums <= threshold
        if missing.mean() <= 1 - FOUND:
            return window
    return None
