"""Estimates: a value, how sure it is, and what it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Protocol

from mechanisms.errors import ParameterError, check_probability, check_share
from mechanisms.halving import turning

#: Fewer reports than this, and the interval of a share inverts a test instead of being normal.
SCORE_REPORTS = 200
#: The same if chance makes fewer answers than about so many that are not true.
SCORE_CHANCES = 20
#: The error and the power with which a detection floor is stated.
FLOOR_ERROR, FLOOR_POWER = 0.05, 0.8

_NORMAL = NormalDist()
#: So many standard errors is the detection floor where the error does not depend on the truth.
FLOOR_ERRORS = _NORMAL.inv_cdf(1 - FLOOR_ERROR / 2) + _NORMAL.inv_cdf(FLOOR_POWER)


class Region(Protocol):
    """A confidence region that is no multiple of the standard error."""

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``."""
        ...


@dataclass(frozen=True)
class Estimate:
    """An estimate from randomized reports.

    The population is the reports that were accepted: their true values are fixed, the
    randomization is random, and standard error and interval cover that alone.

    Parameters
    ----------
    value, standard_error : float
        The unbiased one, which can be negative or above one, and its error, estimated; NaN and
        infinite if the reports determine nothing.
    n, reports_by_level : int, tuple of int
        Reports behind the estimate; the same by level, weakest first.
    detection_floor : float or None
        Of a share: the smallest true share whose estimate exceeds the two-sided 5 % threshold
        of a share of zero with power 0.8. Above 1, no share can be told from none.
    region : Region or None
        Where the interval comes from, unless it is the normal one.
    reach : tuple of tuple of float, or None
        How far one forged report of a level, weakest first, can raise and lower n times the value;
        see :meth:`under`. A value that is divided by an estimated share, such as that of numbers
        that are present, also has how far it can raise n times that share, as a multiple of it.
        None where no bound is known.
    scores : (float, float), or None
        The least and the largest score that one more report can have, at any level that has
        reports: a score s moves the value x to x + (s - x) / (n + 1). None where a report has no
        such score, as of quotients and quantiles.
    half : float
        By so much a normal interval is longer on each side: see :attr:`ShareNoise.half`.

    >>> low, high = Estimate(0.5, 0.1, 1000, (1000,)).interval(0.95)
    >>> round(low, 3), round(high, 3)
    (0.304, 0.696)
    """

    value: float
    standard_error: float
    n: int
    reports_by_level: tuple[int, ...]
    detection_floor: float | None = None
    region: Region | None = field(default=None, repr=False, compare=False)
    reach: tuple[tuple[float, ...], ...] | None = field(default=None, repr=False, compare=False)
    scores: tuple[float, float] | None = field(default=None, repr=False, compare=False)
    half: float = field(default=0.0, repr=False, compare=False)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided interval at a ``level`` in (0, 1); infinite if nothing is known."""
        check_probability("level", level)
        if self.region is not None:
            return self.region.interval(level)
        if not math.isfinite(self.standard_error):
            return -math.inf, math.inf
        half = two_sided(level) * self.standard_error + self.half
        return self.value - half, self.value + half

    def widened(self, effect: float) -> Estimate:
        """Return an estimate whose variance is so many times larger, with a normal interval.

        Several reports then share a draw, and steps are so many times larger too.
        """
        if effect == 1:
            return self
        root, error, floor = math.sqrt(effect), self.standard_error, self.detection_floor
        half = max(effect * self.half, half_step([self], (self.n * error) ** 2, effect))
        wider = replace(self, standard_error=error * root, region=None, half=half)
        return replace(wider, detection_floor=None if floor is None else floor * root)

    def under(self, share: float, level: float = 0.95) -> tuple[float, float]:
        """Return the interval at a ``level`` if up to a ``share`` of the reports is forged.

        Devices that follow the protocol with values of their choice, or none of it, cannot be told
        from others. It covers what the estimate is of if all of them had answered truthfully. A
        forged report of a level claims at most (1 − q)/(p − q) too much, or p/(p − q) too little:
        so the truth may lie lower than the interval by the ``share`` times the former, and higher
        by the ``share`` times the latter, of the levels where that is most, as far as there are
        reports of them. A mean of numbers that can be missing is divided by the share that is
        present, which forged reports may have raised: by what is left of it, and infinite if
        nothing is. The bound of a mean from random thresholds or bits holds if coins are shared as
        chance does, of which there is an alarm.

        Raises ParameterError for a share outside [0, 1], or where no such bound is known.

        >>> forged = Estimate(0.5, 0.0, 1000, (1000,), reach=((2.5, 1.5),))
        >>> low, high = forged.under(0.01)
        >>> round(low, 3), round(high, 3)
        (0.475, 0.515)
        """
        if self.reach is None:
            raise ParameterError("no bound is known of what forged reports do to this estimate")
        over, short = forged(share, self.reports_by_level, self.reach)
        low, high = self.interval(level)
        return low - over, high + short

    def one_more(self) -> tuple[float, float] | None:
        """Return how far one more report can lower, and raise, the value; None if not known.

        Whoever forges the report chooses what it says, its level and its public coins.

        >>> Estimate(0.5, 0.1, 99, (99,), scores=(-0.5, 2.5)).one_more()
        (0.01, 0.02)
        """
        if self.scores is None:
            return None
        least, most = self.scores
        return (self.value - least) / (self.n + 1), (most - self.value) / (self.n + 1)


def forged(
    share: float, reports_by_level: Sequence[int], reach: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Return by how much an estimate may be too high, and too low: see :meth:`Estimate.under`."""
    check_share("share", share)
    n = sum(reports_by_level)

    def moved(side: int) -> float:
        left, total = share * n, 0.0
        levels = zip(reach, reports_by_level, strict=True)
        for most, reports in sorted(((each[side], m) for each, m in levels), reverse=True):
            total += min(left, reports) * most
            left -= min(left, reports)
        return total / n if n else 0.0

    over, short = moved(0), moved(1)
    # The divisor of the value would be this much of what it is.
    rest = 1 - moved(2) if all(len(each) > 2 for each in reach) else 1.0
    return (over / rest, short / rest) if rest > 0 else (math.inf, math.inf)


def nothing(reports_by_level: tuple[int, ...]) -> Estimate:
    """Return the estimate of what the reports do not determine."""
    return Estimate(math.nan, math.inf, sum(reports_by_level), reports_by_level)


def two_sided(level: float) -> float:
    """Return how many standard errors a normal interval reaches to each side: 1.96 at 0.95."""
    # From the upper tail, which keeps its digits when the level is close to one.
    return -_NORMAL.inv_cdf((1 - level) / 2)


@dataclass(frozen=True)
class ShareNoise:
    """The variance of an estimated share, as it depends on the true share.

    The spread of the share over the levels that has the largest variance is taken, since levels may
    depend on values. ``base`` is ``n**2`` times the variance of ``n`` reports at a true share of
    zero; ``slopes`` are for each level its reports and what each report of the value adds to
    ``base``; ``step`` is the largest change of ``n`` times the estimate that one report makes.
    ``least`` is the variance if as few reports are expected to say something about the value as
    there can be, where ``base`` counts such reports: it is never less.
    """

    n: int
    base: float
    slopes: tuple[tuple[int, float], ...]
    step: float
    least: ShareNoise | None = None

    def variance(self, share: float) -> float:
        """Return the largest variance of the estimate at a true share."""
        left = min(max(share, 0.0), 1.0) * self.n
        total = self.base
        for reports, slope in sorted(self.slopes, key=lambda pair: -pair[1]):
            total += slope * min(left, reports)
            left -= min(left, reports)
        known = 0.0 if self.least is None else self.least.variance(share)
        return max(total / self.n**2, known)

    @property
    def half(self) -> float:
        """Half a step of the estimate if reports are few, or chance makes few answers; else 0.

        The estimate has only values that are a step apart: by half of one it may be nearer to the
        truth than a normal test supposes (D. R. Cox, "The Continuity Correction", Biometrika 57(1),
        1970).
        """
        few = self.n < SCORE_REPORTS or self.base < SCORE_CHANCES * self.step**2
        return self.step / (2 * max(self.n, 1)) if few else 0.0

    @cached_property
    def floor(self) -> float:
        """The smallest true share that is told from zero: an estimate's ``detection_floor``."""
        threshold = two_sided(1 - FLOOR_ERROR) * math.sqrt(self.variance(0.0))
        power = _NORMAL.inv_cdf(FLOOR_POWER)

        def misses(share: float) -> bool:
            return share - power * math.sqrt(self.variance(share)) < threshold

        # Above a share of one the variance is constant, so that this one is found.
        high = 1 + threshold + power * math.sqrt(self.variance(1.0))
        return turning(misses, threshold, high, 48)[1]


def half_step(estimates: Sequence[Estimate], variance: float, effect: float = 1.0) -> float:
    """Return :attr:`ShareNoise.half` of an average over all reports of several estimates.

    ``variance`` is that of their sum if all noise is drawn anew. So many reports as ``effect`` says
    share a draw, and are counted as one. It is 0 where reports have no scores.
    """
    scores = [each.scores or (0.0, 0.0) for each in estimates]
    n, step = sum(each.n for each in estimates), max((b - a for a, b in scores), default=0.0)
    return ShareNoise(int(n / effect), variance / effect, (), step).half


@dataclass(frozen=True)
class ShareRegion:
    """The shares in [0, 1] that a two-sided test of the estimate does not reject.

    The estimate is a sum over independent reports, so that its mean and variance at a hypothetical
    true share are known; the test is normal, with a continuity correction of half a step. An
    interval that may go ``beyond`` 0 and 1 says how far the estimate errs: differences are made of
    such.

    References
    ----------
    R. G. Newcombe, "Interval Estimation for the Difference between Independent Proportions",
    Statistics in Medicine 17 (1998), method 10: differences from score intervals.
    """

    value: float
    noise: ShareNoise
    beyond: bool = False

    def interval(self, level: float) -> tuple[float, float]:
        z, noise = two_sided(level), self.noise

        def reach(share: float) -> float:
            return z * math.sqrt(noise.variance(share)) + noise.step / (2 * noise.n)

        low, high = kept_interval(self.value, lambda share: abs(self.value - share) <= reach(share))
        if self.beyond:
            lowest, highest = self.value - reach(0.0), self.value + reach(1.0)
            low = lowest if lowest < 0 else low
            high = highest if highest > 1 else high
        return low, high


def share_estimate(
    value: float,
    error: float,
    by_level: tuple[int, ...],
    noise: ShareNoise,
    scores: tuple[float, float],
    reach: tuple[tuple[float, ...], ...] | None = None,
) -> Estimate:
    """Return the estimate of a share with this noise: its floor, and of few reports its region."""
    region = share_region(value, noise)
    return Estimate(
        value, error, noise.n, by_level, noise.floor, region=region, reach=reach, scores=scores
    )


def share_region(value: float, noise: ShareNoise, *, beyond: bool = False) -> ShareRegion | None:
    """Return the region of an estimated share; None where its normal interval is close enough."""
    return ShareRegion(value, noise, beyond) if noise.half else None


def kept_interval(
    value: float, keeps: Callable[[float], bool], ends: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float]:
    """Return the interval around ``value``, which is kept, of what a test keeps within [0, 1].

    ``ends`` are what 0 and 1 stand for in the result.
    """
    low, high = min(value, 0.0), max(value, 1.0)
    if not keeps(low):
        low = turning(lambda share: not keeps(share), low, value, 48)[1]
    if not keeps(high):
        high = turning(keeps, value, high, 48)[1]
    length = ends[1] - ends[0]
    return ends[0] + length * low, ends[0] + length * high
