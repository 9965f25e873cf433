"""Estimates from the counts of mechanisms on a grid: mean, missing share, distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from mechanisms.arrays import ArrayLike, Floats, Ints, np
from mechanisms.estimate import SCORE_REPORTS, Estimate, kept_interval, nothing, two_sided
from mechanisms.estimators.expectation import expectation_maximization
from mechanisms.estimators.frequency import shares
from mechanisms.number.answers import NumericEstimates, counts_of, scaled, usable
from mechanisms.number.laws import Law, Shape, contributions, matrix
from mechanisms.number.strata import Cdf

#: The reports' spread of the values is believed but for so many standard errors.
_SPREAD_ERRORS = 2
#: Rare outputs far from the truth make an interval so many times as long at most.
_MOST_TAIL = 1.25
#: So many answers that are as far away as can be may be missing by chance, when few are expected.
_UNSEEN = 4


@dataclass(frozen=True, eq=False)
class _LevelSums:
    """Contributions of one level, its channel, and the most that rounding adds to a variance."""

    value: Floats
    present: Floats
    square: Floats | None
    channel: Floats
    rounding: float

    def variances(self, y: float) -> Floats:
        """Return the variance of ``value - y * present`` for every input."""
        each = self.value - y * self.present
        mean = self.channel @ each
        spread: Floats = self.channel @ each**2 - mean**2
        return spread

    @cached_property
    def step(self) -> float:
        """The least difference between the contributions of two outputs."""
        gaps = np.diff(np.unique(self.value[self.channel.any(axis=0)]))
        return float(gaps.min()) if gaps.size else 0.0

    @cached_property
    def fourth(self) -> float:
        """The fourth cumulant of ``value`` for the input where it is largest, at least 0."""
        apart = self.value - (self.channel @ self.value)[:, None]
        fourth = (self.channel * apart**4).sum(axis=1) - 3 * self.variances(0.0) ** 2
        return max(float(fourth.max()), 0.0)


@dataclass(frozen=True, eq=False)
class GridMeanRegion:
    """The means in [0, 1] of the values present that a two-sided test does not reject.

    Under a hypothetical mean m, the sum of value − (m − 1/2) × present has mean zero and at most
    the variance of reports about the input where that is largest; the test is normal with a
    continuity correction of half the step between two outputs. At a large epsilon one report in
    hundreds is far from the truth and has most of the variance, so that sums of few reports are far
    from normal: the critical value z has the first term of Cornish and Fisher's expansion for the
    excess kurtosis k, (z³ − 3z) k / 24, but is at most a quarter larger.

    ``levels`` are the contributions of every level and ``reports`` its reports; ``value`` and
    ``present`` are sums of contributions; ``low`` and ``high`` are what 0 and 1 stand for;
    ``left_out`` is the share of clients whom coins have not chosen to answer. Values in [0, 1] of
    mean m have at most the variance m (1 − m), and are taken to have the same part of it as at the
    estimate: by so much an answer scatters, ``scatter``, more than the randomization. Rare values
    may not be among n answers: 4/n of the largest squared distance from m is added, less what 4/200
    is, from where on intervals are normal. Those who answer add so much of the variance as a sample
    of all without replacement.

    References
    ----------
    R. Bhatia, C. Davis, "A Better Bound on the Variance", American Mathematical Monthly 107(4),
    2000. W. G. Cochran, "Sampling Techniques", Wiley 1977, section 2.6.
    E. A. Cornish, R. A. Fisher, "Moments and Cumulants in the Specification of Distributions",
    Revue de l'Institut International de Statistique 5(4), 1938.
    """

    levels: tuple[_LevelSums, ...]
    reports: tuple[int, ...]
    value: float
    present: float
    low: float
    high: float
    left_out: float = 0.0
    scatter: float = 0.0

    def interval(self, level: float) -> tuple[float, float]:
        z = two_sided(level)
        used = [(sums, n) for sums, n in zip(self.levels, self.reports, strict=True) if n]
        half = min(sums.step for sums, _ in used) / 2
        fourth = sum(n * sums.fourth for sums, n in used)
        n_all = sum(self.reports)
        unseen = _UNSEEN * (1 / n_all - 1 / SCORE_REPORTS)
        largest = 0.25 - (self.value / self.present) ** 2

        def keeps(mean: float) -> bool:
            y = min(max(mean, 0.0), 1.0) - 0.5
            most = sum(n * (float(sums.variances(y).max()) + sums.rounding) for sums, n in used)
            spread = max(self.scatter - most / n_all, 0) / largest if largest > 0 else 1
            spread = spread * (0.25 - y * y) + unseen * (0.5 + abs(y)) ** 2
            most += n_all * self.left_out * min(spread, 0.25 - y * y)
            errors = z * min(1 + max(z**2 - 3, 0) / 24 * fourth / most**2, _MOST_TAIL)
            return abs(self.value - (mean - 0.5) * self.present) - half <= errors * math.sqrt(most)

        return kept_interval(0.5 + self.value / self.present, keeps, (self.low, self.high))


def grid_estimates(
    shape: Shape,
    laws: Sequence[Law],
    table: Ints,
    low: float,
    high: float,
    quantiles: Sequence[float] | None = None,
) -> NumericEstimates:
    """Estimate mean and missing share and, if quantiles are asked for, the distribution.

    ``laws`` are those of every level; ``table``, ``(levels, outputs)``, counts the reports. The
    mean adds up the exact contributions of all reports, whatever their levels. Its error is that of
    the randomization alone: the scatter of the contributions less the spread of the values, as far
    as the reports show that. The spread is taken two standard errors low, and less the most that
    the rounding to the grid adds. If the reports show nothing of it (one bit), nothing is
    subtracted, and the interval covers more than it states.
    """
    reports = table.sum(axis=1)
    by_level, n = counts_of(reports), int(reports.sum())
    missing = None
    if shape.missing:
        pairs = np.array([[float(law.gone), float(law.here)] for law in laws])
        [missing] = shares(table[:, -1:], reports, pairs)
    if n == 0:
        return NumericEstimates(nothing(by_level), missing)
    levels = tuple(_level_sums(shape, law) for law in laws)
    mean = _mean(levels, table, missing, low, high)
    if quantiles is None or not math.isfinite(mean.standard_error):
        return NumericEstimates(mean, missing)
    gone = 0.0 if missing is None else missing.value
    cdf = _distribution(shape.points, levels, table, gone, low, high)
    at = np.interp(quantiles, cdf.values, cdf.grid).tolist()
    found = {tau: Estimate(x, math.inf, n, by_level) for tau, x in zip(quantiles, at, strict=True)}
    return NumericEstimates(mean, missing, cdf=cdf, quantiles=found, smoothed=True)


@lru_cache(maxsize=16)
def _level_sums(shape: Shape, law: Law) -> _LevelSums:
    exact = contributions(shape, law)
    value, present = (np.array(row, dtype=float) for row in (exact.value, exact.present))
    square = None if exact.square is None else np.array(exact.square, dtype=float)
    channel = matrix(shape, law)
    for each in (value, present, square, channel):
        if each is not None:
            each.flags.writeable = False
    return _LevelSums(value, present, square, channel, 1 / (4 * shape.steps**2))


def _mean(
    levels: tuple[_LevelSums, ...], table: Ints, missing: Estimate | None, low: float, high: float
) -> Estimate:
    by_level = counts_of(table.sum(axis=1))
    n = sum(by_level)
    value = sum(float(row @ sums.value) for row, sums in zip(table, levels, strict=True))
    present = sum(float(row @ sums.present) for row, sums in zip(table, levels, strict=True))
    if missing is not None and not usable(present / n, missing.standard_error):
        return nothing(by_level)
    y = value / present
    variance, least = 0.0, 0.0
    for row, reports, sums in zip(table, by_level, levels, strict=True):
        scatter = float(row @ (sums.value - y * sums.present) ** 2)
        # Few outputs may scatter less than they vary: see mechanisms.number.answers.
        variance += scatter + sums.step**2 * (reports > 0) - _spread(row, sums, y)
        least += reports * float(sums.variances(min(max(y, -0.5), 0.5)).min())
    error = math.sqrt(max(variance, least)) / present
    few = n < SCORE_REPORTS
    region = GridMeanRegion(levels, by_level, value, present, low, high) if few else None
    each = [sums.value for sums, reports in zip(levels, by_level, strict=True) if reports]
    scores = (0.5 + float(np.min(each)), 0.5 + float(np.max(each))) if missing is None else None
    found = Estimate(0.5 + y, error, n, by_level, region=region, scores=scores)
    return scaled(found, low, high, levels[-1].step)


def _spread(row: Ints, sums: _LevelSums, y: float) -> float:
    """Return a lower bound on the squared deviations of a level's values, added up."""
    if sums.square is None or not row.any():
        return 0.0
    each = sums.square - 2 * y * sums.value + y * y * sums.present
    reports, total = int(row.sum()), float(row @ each)
    error = math.sqrt(max(float(row @ each**2) - total**2 / reports, 0.0))
    return max(total - _SPREAD_ERRORS * error - reports * sums.rounding, 0.0)


def _distribution(
    points: int,
    levels: tuple[_LevelSums, ...],
    table: Ints,
    missing: float,
    low: float,
    high: float,
) -> Cdf:
    """Estimate the distribution of the values present; those missing are mixed into every row."""
    gone = min(max(missing, 0.0), 1.0)
    channels = [(1 - gone) * s.channel[:points] + gone * s.channel[-1] for s in levels]
    found = expectation_maximization(channels, list(table), smooth=True).values
    rising = np.cumsum(found)
    # An input stands for the numbers that are closer to it than to the next one.
    edges = (np.arange(points) + 0.5) / (points - 1)
    grid = low + (high - low) * np.minimum(edges, 1.0)
    return Cdf(grid, np.minimum(rising / rising[-1], 1.0), np.full(points, math.inf))


def grid_variance(shape: Shape, law: Law, values: ArrayLike) -> float:
    """Return the variance of the mean of a mechanism on a grid, times the number of reports.

    All reports are of one level; ``values`` lie in [0, 1], and none is missing.
    """
    x = np.asarray(values, dtype=np.float64)
    sums = _level_sums(shape, law)
    squares = sums.channel @ (sums.value - (float(x.mean()) - 0.5) * sums.present) ** 2
    inputs = np.linspace(0.0, 1.0, shape.points)
    return float(np.interp(x, inputs, squares[: shape.points]).mean() - x.var())


def published_variance(shape: Shape, law: Law, values: ArrayLike) -> Callable[[float], float]:
    """Return n times the squared standard error that n reports are expected to give.

    It exceeds :func:`grid_variance` by as much of the values' spread as :func:`_spread` gives up.
    """
    x, sums = np.asarray(values, dtype=np.float64), _level_sums(shape, law)
    variance, spread = grid_variance(shape, law, x), float(x.var())
    if sums.square is None:
        return lambda n: variance + spread
    y = float(x.mean()) - 0.5
    each = sums.square - 2 * y * sums.value + y * y * sums.present
    inputs, channel = np.linspace(0.0, 1.0, shape.points), sums.channel[: shape.points]
    square = float(np.interp(x, inputs, channel @ each**2).mean())
    error = _SPREAD_ERRORS * math.sqrt(max(square - spread**2, 0.0))
    return lambda n: variance + min(spread, error / math.sqrt(n) + sums.rounding)


def worst_pictures(shape: Shape) -> list[Floats]:
    """Return values of which some are the worst.

    The part that a report adds is quadratic in its number, but for the rounding: the worst is that
    all are the same, at an input or half-way between two, or that all are 0 or 1.
    """
    same = np.linspace(0, 1, 2 * shape.steps + 1)[:, None]
    apart = (np.arange(20) < np.arange(1, 20)[:, None]).astype(float)
    return [*same, *apart]


def sampled_grid_estimates(
    shape: Shape, laws: Sequence[Law], table: Ints, low: float, high: float, share: float
) -> NumericEstimates:
    """Estimate a mean over all clients, of whom coins have chosen a share that answers.

    Given the values, the variance is the scatter of the contributions less ``share`` times the
    spread of the values. :func:`grid_estimates`, of the clients that answer, subtracts the whole
    spread: the two are weighted accordingly.
    """
    found = grid_estimates(shape, laws, table, low, high)
    mean = found.mean
    if not (share < 1 and math.isfinite(mean.standard_error)):
        return found
    values = np.array([[float(value) for value in contributions(shape, law).value] for law in laws])
    centred = values - (table * values).sum() / int(table.sum())
    scatter = float((table * centred**2).sum()) / mean.n
    sampled = scatter * (high - low) ** 2 / mean.n
    variance = share * mean.standard_error**2 + (1 - share) * sampled
    error = math.sqrt(max(variance, mean.standard_error**2))
    region = mean.region
    if isinstance(region, GridMeanRegion):
        region = replace(region, left_out=1 - share, scatter=scatter)
    return replace(found, mean=replace(mean, standard_error=error, region=region))
