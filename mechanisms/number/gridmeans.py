"""Estimates from the counts of mechanisms on a grid: mean, missing share, distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.estimate import SCORE_REPORTS, Estimate, kept_interval, nothing, two_sided
from mechanisms.estimators.expectation import expectation_maximization
from mechanisms.estimators.frequency import shares
from mechanisms.number.contributions import contributions, matrix
from mechanisms.number.duchi import DuchiLadder
from mechanisms.number.gridded import GridLadder
from mechanisms.number.results import NumericEstimates, counts_of, scaled, usable
from mechanisms.number.survival import Cdf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: What reports say about the spread of the values is believed but for so many standard errors.
_SPREAD_ERRORS = 2


@dataclass(frozen=True, eq=False)
class _Rung:
    """Contributions of one rung as floats, shape ``(outputs,)``, and its channel.

    ``rounding`` is the most that the rounding to the inputs adds to a variance.
    """

    value: NDArray[np.float64]
    present: NDArray[np.float64]
    square: NDArray[np.float64] | None
    channel: NDArray[np.float64]
    rounding: float

    def variances(self, y: float) -> NDArray[np.float64]:
        """Return the variance of ``value - y * present`` for every input."""
        each = self.value - y * self.present
        mean = self.channel @ each
        spread: NDArray[np.float64] = self.channel @ each**2 - mean**2
        return spread

    @property
    def step(self) -> float:
        """The least difference between the contributions of two outputs."""
        import numpy as np

        gaps = np.diff(np.unique(self.value[self.channel.any(axis=0)]))
        return float(gaps.min()) if gaps.size else 0.0


@dataclass(frozen=True, eq=False)
class GridMeanRegion:
    """The means of the values present that a two-sided test does not reject.

    Under a hypothetical mean m, the sum of value − (m − 1/2) × present has mean zero and at most
    the variance of reports about the input where that is largest; the test is normal with a
    continuity correction of half the step between two outputs. Only means in [0, 1] are tested.

    Parameters
    ----------
    rungs : tuple
        The contributions of every rung.
    reports : tuple of int
        Reports of every rung.
    value, present : float
        Sums of the contributions.
    low, high : float
        What 0 and 1 stand for.
    """

    rungs: tuple[_Rung, ...]
    reports: tuple[int, ...]
    value: float
    present: float
    low: float
    high: float

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``."""
        z = two_sided(level)
        used = [(rung, n) for rung, n in zip(self.rungs, self.reports, strict=True) if n]
        half = min(rung.step for rung, _ in used) / 2

        def keeps(mean: float) -> bool:
            y = min(max(mean, 0.0), 1.0) - 0.5
            most = sum(n * (float(rung.variances(y).max()) + rung.rounding) for rung, n in used)
            return abs(self.value - (mean - 0.5) * self.present) - half <= z * math.sqrt(most)

        ends = kept_interval(0.5 + self.value / self.present, keeps)
        low, high = (self.low + (self.high - self.low) * end for end in ends)
        return low, high


def grid_estimates(
    ladder: GridLadder | DuchiLadder,
    table: NDArray[np.int64],
    low: float,
    high: float,
    quantiles: Sequence[float],
) -> NumericEstimates:
    """Estimate mean and missing share, and of the square wave the distribution.

    Parameters
    ----------
    ladder : GridLadder or DuchiLadder
    table : ndarray, shape (levels, outputs), integers
    low, high : float
        The range.
    quantiles : sequence of float in (0, 1)

    Notes
    -----
    The mean adds up the exact contributions of all reports, whatever their levels. What varies is
    the randomization: from the scatter of the contributions goes off what the reports say
    about the spread of the values, less two standard errors of that and less what the rounding to
    the grid adds at most. Where they say nothing (one bit), nothing goes off, and the
    interval covers more than it states.
    """
    reports = table.sum(axis=1)
    by_level, n = counts_of(reports), int(reports.sum())
    missing = _missing(ladder, table) if ladder.missing else None
    if n == 0:
        return NumericEstimates(nothing(by_level), missing)
    rungs = tuple(_rung(ladder, level) for level in range(ladder.levels))
    mean = _mean(ladder, rungs, table, missing, low, high)
    if ladder.name != "square_wave" or not math.isfinite(mean.standard_error):
        return NumericEstimates(mean, missing)
    cdf = _distribution(ladder, rungs, table, 0.0 if missing is None else missing.value, low, high)
    found = {tau: _quantile(cdf, tau, by_level) for tau in quantiles}
    return NumericEstimates(mean, missing, cdf=cdf, quantiles=found, smoothed=True)


def _rung(ladder: GridLadder | DuchiLadder, level: int) -> _Rung:
    import numpy as np

    shape, law = ladder.shape, ladder.laws[level]
    exact = contributions(shape, law)
    value, present = (np.array(row, dtype=float) for row in (exact.value, exact.present))
    square = None if exact.square is None else np.array(exact.square, dtype=float)
    return _Rung(value, present, square, matrix(shape, law), 1 / (4 * shape.steps**2))


def _missing(ladder: GridLadder | DuchiLadder, table: NDArray[np.int64]) -> Estimate:
    import numpy as np

    pairs = np.array([[float(law.gone), float(law.here)] for law in ladder.laws])
    return shares(table[:, -1:], table.sum(axis=1), pairs)[0]


def _mean(
    ladder: GridLadder | DuchiLadder,
    rungs: tuple[_Rung, ...],
    table: NDArray[np.int64],
    missing: Estimate | None,
    low: float,
    high: float,
) -> Estimate:
    by_level = counts_of(table.sum(axis=1))
    n = sum(by_level)
    value = sum(float(row @ rung.value) for row, rung in zip(table, rungs, strict=True))
    present = sum(float(row @ rung.present) for row, rung in zip(table, rungs, strict=True))
    if missing is not None and not usable(present / n, missing.standard_error):
        return nothing(by_level)
    y = value / present
    variance, least = 0.0, 0.0
    for row, reports, rung in zip(table, by_level, rungs, strict=True):
        scatter = float(row @ (rung.value - y * rung.present) ** 2)
        variance += scatter - _spread(row, rung, y)
        least += reports * float(rung.variances(min(max(y, -0.5), 0.5)).min())
    error = math.sqrt(max(variance, least)) / present
    region = None
    if n < SCORE_REPORTS:
        region = GridMeanRegion(rungs, by_level, value, present, low, high)
    return scaled(Estimate(0.5 + y, error, n, by_level, region=region), low, high)


def _spread(row: NDArray[np.int64], rung: _Rung, y: float) -> float:
    """Return how much the values of a rung's clients are spread at least, added up."""
    if rung.square is None or not row.any():
        return 0.0
    each = rung.square - 2 * y * rung.value + y * y * rung.present
    reports = int(row.sum())
    total = float(row @ each)
    error = math.sqrt(max(float(row @ each**2) - total**2 / reports, 0.0))
    return max(total - _SPREAD_ERRORS * error - reports * rung.rounding, 0.0)


def _distribution(
    ladder: GridLadder | DuchiLadder,
    rungs: tuple[_Rung, ...],
    table: NDArray[np.int64],
    missing: float,
    low: float,
    high: float,
) -> Cdf:
    """Estimate the distribution of the values present; those missing are mixed into every row."""
    import numpy as np

    points = ladder.shape.points
    gone = min(max(missing, 0.0), 1.0)
    channels = []
    for rung in rungs:
        channel = rung.channel[:points]
        channels.append((1 - gone) * channel + gone * rung.channel[-1] if gone else channel)
    found = expectation_maximization(channels, list(table), smooth=True).values
    rising = np.cumsum(found)
    # An input stands for the numbers that are closer to it than to the next one.
    edges = (np.arange(points) + 0.5) / (points - 1)
    grid = low + (high - low) * np.minimum(edges, 1.0)
    return Cdf(grid, np.minimum(rising / rising[-1], 1.0), np.full(points, math.inf))


def _quantile(cdf: Cdf, tau: float, by_level: tuple[int, ...]) -> Estimate:
    """Return where the estimated distribution function reaches ``tau``."""
    import numpy as np

    value = float(np.interp(tau, cdf.values, cdf.grid))
    return Estimate(value, math.inf, sum(by_level), by_level)
