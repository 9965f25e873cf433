"""Which figures moved: how much each window, and several together, surprise a model that drifts.

Each window is compared with what the windows before it predict, under a local level model
(:mod:`mechanisms.estimators.local_level`): the level changes a little from window to window
(*drift*), and the window is seen with its known standard error and, since the reports of each
window are others, with some further *spread*. The probability of a window at least as high, given
all earlier ones, turned into a normal score, is a standard normal variate independent of the
earlier ones: whatever the errors, also where they differ, and where windows are missing. So one
threshold holds for all figures, and the rate of false alarms is a property of a two-sided CUSUM of
standard normal variates alone, which has an integral equation. Scores are clipped: a single window
never raises an alarm, whatever its size, so that errors with heavy tails seldom do.

A shift that is small and lasts is lost on such sums, since the model slowly follows it. So the
change of the level :data:`POOLED` windows ago is estimated from all windows since, too, in each
model as it was then: models that drift explain a change by themselves, and give it a larger error.

Drift and spread are learned unless they are given: the prediction is averaged over several hundred
models (:mod:`mechanisms.estimators.level_models`). To plug in the most likely drift instead gave up
to 15 times the stated rate of false alarms in simulations, since the windows of a year often make a
drift look smaller than it is, or like none. Rates of false alarms in simulations, and the shifts
found, are in ``docs/reference/figures.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from mechanisms.arrays import Floats
from mechanisms.errors import ParameterError
from mechanisms.estimators.level_models import LevelModels, candidates
from mechanisms.halving import turning

#: The CUSUM's allowance, in standard deviations of a score: best for shifts of twice as much.
ALLOWANCE = 1.0
#: A window adds at most so much of the threshold to a sum: two are needed, and may be enough.
CLIPPED = 0.568
#: Windows that a small shift is looked for in, all together; and the share of the false alarms that
#: this adds, at most, to those of single windows.
POOLED, _POOLED_SHARE = 13, 0.12
#: Windows of a figure that are learned from before any is judged; 1 where nothing is to be learned.
LEARNED = 8
#: By how much more often than known ones learned models raise false alarms, at most, as simulated.
_LEARNING = 1.25
#: Run lengths that thresholds are given for, in windows between two false alarms.
LEAST_RUN, MOST_RUN = 25.0, 1e8
#: The probability with which a shift is found within the predicted number of windows.
FOUND = 0.9
#: Windows for which that is predicted, and series that are drawn for it.
_AHEAD, _DRAWN = 26, 1000
#: Nodes and weights of the quadrature of the integral equation, on each of two parts.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
#: Values of a polynomial at the nodes to its coefficients.
_COEFFICIENTS = np.linalg.inv(np.polynomial.legendre.legvander(_NODES, len(_NODES) - 1))
#: Half the width of an interval of 95 %, in standard errors.
_Z95 = 1.959963984540054


@lru_cache(maxsize=256)
def run_length(threshold: float) -> float:
    """Return how many windows pass on average before the first false alarm of the sums.

    A side's sum begins at zero, adds each score less the allowance, but at most
    ``CLIPPED * threshold``, stays at zero or above, and raises an alarm above ``threshold``. Its
    average run length solves Page's integral equation, here by Gauss-Legendre quadrature: above
    ``(1 - CLIPPED) * threshold`` a clipped score raises an alarm, below it leads to a sum above.
    When one side raises an alarm, the other's sum is zero (while both are above zero, their total
    falls), so that the rates of the two add up exactly.

    References
    ----------
    Page, "Continuous inspection schemes", Biometrika 41 (1954); Kemp, "The average run length of
    the cumulative sum chart when a V-mask is used", JRSS B 23 (1961), for the two sides.

    >>> round(run_length(3.167), 1)
    1953.4
    """
    most, size = CLIPPED * threshold, len(_NODES)
    part, split = (_NODES + 1) / 2, threshold - most
    sums = np.r_[split * part, split + most * part, 0.0]

    def density(steps: Floats) -> Floats:
        found: Floats = np.exp(-((steps + ALLOWANCE) ** 2) / 2) / math.sqrt(2 * math.pi)
        return found

    def among_upper(sums: Floats) -> Floats:
        """Return by which of the upper nodes' values a value between them is interpolated."""
        scaled = 2 * (np.atleast_1d(sums) - split) / most - 1
        found: Floats = np.polynomial.legendre.legvander(scaled, size - 1) @ _COEFFICIENTS
        return found

    weights = np.r_[split * _WEIGHTS, most * _WEIGHTS] / 2
    moves = np.c_[density(sums[:-1] - sums[:, None]) * weights, ndtr(ALLOWANCE - sums)]
    clipped = ndtr(-most - ALLOWANCE)
    for row in np.flatnonzero(sums < split):
        reach = sums[row] + most - split
        ends = split + reach * part
        inner = density(ends - sums[row]) * _WEIGHTS * reach / 2
        moves[row, size:-1] = inner @ among_upper(ends) + clipped * among_upper(split + reach)[0]
    return float(np.linalg.solve(np.eye(len(sums)) - moves, np.ones(len(sums)))[-1]) / 2


@lru_cache(maxsize=256)
def threshold_of(windows: float, *, learned: bool = False) -> float:
    """Return the sums' threshold with one false alarm in so many windows on average, or in more.

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

    ``judged``: how many windows were. ``drift``: the median of the likely ones, in the unit of the
    values. ``level`` and ``error``: what is expected of the next window, and how far
    off that is, with its own noise if that is the last one's; NaN where nothing is known of it.
    """

    shifts: tuple[Shift, ...]
    judged: int
    drift: float = math.nan
    level: float = math.nan
    error: float = math.nan
    _next: tuple[LevelModels, float, float] | None = field(default=None, repr=False, compare=False)

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
    before anything is learned. It was simulated for some of them (``docs/reference/figures.md``):
    far below what is stated where the level hardly drifts and in the first year of windows, and at
    what is stated elsewhere.
    """
    models = _models(values, errors, drift, spread)
    if models is None:
        return Watched((), 0)
    learned = LEARNED if drift is None or spread is None else 1
    finder = _Finder(models, threshold)
    seen, last = 0, math.nan
    for t, (value, error) in enumerate(zip(values.tolist(), errors.tolist(), strict=True)):
        if not math.isfinite(value):
            finder.models.skip()
            continue
        seen += 1
        last = error
        finder.take(t, value, error, judge=seen > learned)
    return _watched(finder, max(seen - learned, 0), last)


def _watched(finder: _Finder, judged: int, error: float) -> Watched:
    models, shifts = finder.models, tuple(finder.shifts)
    shares = models.probabilities()[0]
    drift = math.sqrt(_median(shares, models.drifts))
    if np.isinf(models.variances[0]):
        return Watched(shifts, judged, drift)
    level = float(shares @ models.levels[0])
    off = math.sqrt(_spread_of(shares, models.levels[0], models.predicted(error)))
    return Watched(shifts, judged, drift, level, off, (models, error, finder.threshold))


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
    return candidates(float(np.median(errors[there[:LEARNED]])), drift, spread)


class _Surprise:
    """A window as models see it that have learned of those before it: what all onsets add of it."""

    def __init__(self, models: LevelModels, value: float, error: float, clip: float) -> None:
        variance = models.predicted(error)
        off = value - models.levels[0]
        # The level follows a window that is far off only so far.
        share = clip / np.maximum(np.abs(off) / np.sqrt(variance), clip)
        self.error, self.precision = error, 1 / variance
        self.weighed = off / variance
        self.clipped = share * self.weighed
        self.missed = 1 - share * (models.variances + models.drifts) / variance


class _Onset:
    """A window at which the level may have changed: by how much it has, given the windows since.

    Generalized least squares within each model: a change of one adds ``missed`` to a window's
    surprise, which is what the model has not learned of it yet. Models are then averaged, by how
    likely they were before. For alarms surprises are clipped, as scores are.
    """

    def __init__(self, models: LevelModels) -> None:
        self.before, self.surprises = models.copy(), list[_Surprise]()

    @property
    def noise(self) -> float:
        """The median of the windows' standard errors."""
        return float(np.median([each.error for each in self.surprises]))

    def change(self, *, clipped: bool = False) -> tuple[float, float]:
        """Return the change of the level, and its standard error."""
        shares, since = self.before.probabilities()[0], self.surprises
        missed = np.cumprod([np.ones(len(shares)), *(each.missed for each in since[:-1])], axis=0)
        precision = (missed**2 * [each.precision for each in since]).sum(axis=0)
        weighed = [each.clipped if clipped else each.weighed for each in since]
        changes = (missed * weighed).sum(axis=0) / precision
        error = math.sqrt(_spread_of(shares, changes, 1 / precision))
        return float(shares @ changes), error


class _Finder:
    """The two sums over one series, and the windows at which it may have moved."""

    def __init__(self, models: LevelModels, threshold: float) -> None:
        self.models = models
        self.threshold = threshold
        self.shifts: list[Shift] = []
        self._clip = ALLOWANCE + CLIPPED * threshold
        self._pooled = -float(ndtri(_POOLED_SHARE / 2 / run_length(threshold)))
        self._begin()

    def _begin(self) -> None:
        #: The upper and the lower side: the sum, and the first window since it was at zero.
        self._sums, self._since = [0.0, 0.0], [0, 0]
        self._onsets: dict[int, _Onset] = {}

    def take(self, t: int, value: float, error: float, *, judge: bool) -> None:
        """Learn from a window, and note a shift if it shows one."""
        if judge and np.isfinite(self.models.variances[0]):
            self._onsets[t] = _Onset(self.models)
            surprise = _Surprise(self.models, value, error, self._clip)
            for onset in self._onsets.values():
                onset.surprises.append(surprise)
        score = float(self.models.take(np.array([value]), error, self._clip)[0])
        if not judge:
            return
        for side, signed in enumerate((score, -score)):
            added = min(signed, self._clip) - ALLOWANCE
            self._sums[side] = max(0.0, self._sums[side] + added)
            if self._sums[side] > self.threshold:
                self._report(t, side, [at for at in self._onsets if at >= self._since[side]])
                return
            if self._sums[side] == 0:
                self._since[side] = t + 1
        self._look_together(t)
        kept = min(self._since)
        self._onsets = {
            at: each
            for at, each in self._onsets.items()
            if at >= kept or len(each.surprises) < POOLED
        }

    def _look_together(self, t: int) -> None:
        """Look for a change since :data:`POOLED` windows, by all of them together."""
        for at, onset in self._onsets.items():
            if len(onset.surprises) == POOLED:
                change, error = onset.change(clipped=True)
                if abs(change) > self._pooled * error:
                    self._report(t, int(change < 0), [each for each in self._onsets if each >= at])
                    return

    def _report(self, window: int, side: int, onsets: Sequence[int]) -> None:
        """Note a shift, and take nothing for known of the level after it."""
        sign = 1 - 2 * side
        found = {t: self._onsets[t].change() for t in onsets}
        # The most likely onset: that with the most significant change.
        at = max(found, key=lambda t: sign * found[t][0] / found[t][1])
        (change, error), onset = found[at], self._onsets[at]
        predicted = windows_to_find(onset.before, change, onset.noise, self.threshold)
        level = float(onset.before.probabilities()[0] @ onset.before.levels[0])
        self.shifts.append(Shift(window, at, level, change, error, predicted))
        # Windows that were chosen for being far off would be a bad beginning of the new level:
        # every false alarm would be followed by another one, back.
        self.models.forget()
        self._begin()


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
    in them, and judged by the same sums; windows together may show it sooner. The generator has a
    fixed seed, so that the same series give the same prediction; nobody's privacy depends on it.
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
        values = levels + draw.normal(size=_DRAWN) * noise
        scores = drawn.take(values, error, ALLOWANCE + CLIPPED * threshold)
        added = np.minimum(math.copysign(1.0, change) * scores - ALLOWANCE, CLIPPED * threshold)
        sums = np.maximum(0.0, sums + added)
        missing &= sums <= threshold
        if missing.mean() <= 1 - FOUND:
            return window
    return None
