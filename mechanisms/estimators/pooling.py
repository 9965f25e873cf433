"""One estimate of several windows, and the difference of two estimates.

Values are fixed and the randomization is random, so reports whose noise is drawn anew add up
however values repeat. A *permanent response* is drawn once: a device's reports of several windows
share its part of their noise, which an average over windows does not lower. How often a device
reports is not known, but windows of n₁, n₂, ... reports with k a device at most share at most
Σ k min(n_w, n_w') pairs over all w and w', which is exact if all windows have the same devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mechanisms.estimate import FLOOR_ERRORS, Estimate, half_step, two_sided

#: An interval in a gap is less than so many standard errors long; a normal one has 3.92.
_FLAT = 2.1


def pairs_per_report(reports: Iterable[int], most: int = 1) -> float:
    """Return how many reports share the noise of one, itself included, on average and at most.

    ``reports``: those of windows, or of groups of windows in which a device answers ``most`` times
    at most. Windows of the same devices give ``most`` times their number; 1.0 without reports.

    >>> pairs_per_report([1000] * 13), pairs_per_report([300, 100]), pairs_per_report([50], most=2)
    (13.0, 1.5, 2.0)
    """
    ordered = sorted(reports, reverse=True)
    total = sum(ordered)
    # A window is paired with each larger one in both orders, and with itself.
    return most * sum((2 * at + 1) * n for at, n in enumerate(ordered)) / total if total else 1.0


def pooled(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Return the average of estimates whose noise is independent, with a normal interval.

    It has the continuity correction of :func:`~mechanisms.estimate.half_step`. A single one keeps
    its own interval.

    ``weights`` are numbers of reports; those of a ratio are its estimated divisors, each the share
    of the reports that is present times their number, and may be negative by chance. Without a
    positive sum of weights nothing is known: NaN and infinite.
    """
    levels = zip(*(each.reports_by_level for each in estimates), strict=True)
    by_level = tuple(sum(each) for each in levels)
    total = math.fsum(weights)
    value, error = math.nan, math.inf
    if total > 0:
        parts = [*zip(estimates, weights, strict=True)]
        value = math.fsum(each.value * weight for each, weight in parts) / total
        error = math.hypot(*(each.standard_error * weight for each, weight in parts)) / total
    n = sum(by_level)
    region = estimates[0].region if len(estimates) == 1 else None
    half = half_step(estimates, (n * error) ** 2)
    known = [each.scores for each in estimates if each.scores is not None]
    scores = max(known, key=lambda each: each[1] - each[0], default=None)
    return Estimate(value, error, n, by_level, region=region, scores=scores, half=half)


@dataclass(frozen=True)
class PooledDifference:
    """How much one estimate exceeds another: value, standard error, ends of an interval of 95 %."""

    value: float
    standard_error: float
    low: float
    high: float

    @property
    def smallest_found(self) -> float:
        """The smallest true difference that would be told from zero with a probability of 80 %.

        That is 2.80 / 1.96 of the interval's longer side, which is 2.80 standard errors where the
        error is normal; intervals of quantiles are longer than their standard errors say.

        >>> round(PooledDifference(-10.0, 3.0, -34.2, 18.0).smallest_found, 1)
        40.0
        """
        longer = max(self.high - self.value, self.value - self.low)
        return FLOOR_ERRORS / two_sided(0.95) * longer

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0 <= self.high


def difference(one: Estimate, other: Estimate) -> PooledDifference:
    """Return ``one`` less ``other``, with an interval made of the ends of both (MOVER).

    For normal intervals that is the usual one. It is too wide if the errors of both are positively
    correlated. If an interval is hardly longer than its standard error to each side, the truth is
    as likely to be at its ends as near the estimate, as of a quantile in a gap between values: then
    the interval reaches from the lowest to the highest difference of the ends.

    References
    ----------
    G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures: a general
    approach", Statistics in Medicine 27 (2008): recovery of variances from separate intervals.

    >>> one, other = Estimate(0.5, 0.03, 900, (900,)), Estimate(0.4, 0.04, 700, (700,))
    >>> found = difference(one, other)
    >>> round(found.standard_error, 4), round(found.low, 3), round(found.high, 3)
    (0.05, 0.002, 0.198)
    >>> round(found.smallest_found, 3), found.significant
    (0.14, True)
    """
    (low, high), (other_low, other_high) = one.interval(), other.interval()
    below = one.value - low, other_high - other.value
    above = high - one.value, other.value - other_low
    flat = high - low < _FLAT * one.standard_error
    flat |= other_high - other_low < _FLAT * other.standard_error
    down, up = (sum(each) if flat else math.hypot(*each) for each in (below, above))
    error, value = math.hypot(one.standard_error, other.standard_error), one.value - other.value
    return PooledDifference(value, error, value - down, value + up)


def part_and_whole(
    part: Estimate, whole: Estimate, share: float, effects: tuple[float, float] = (1.0, 1.0)
) -> PooledDifference:
    """Return by how much a part of the reports differs from all of them: a normal interval.

    That is ``1 - share`` times the difference of the part and the rest, whose noise is independent.
    The interval has the continuity corrections of both.

    Parameters
    ----------
    part, whole : Estimate
        Standard errors are of noise that is drawn anew in every report.
    share : float in [0, 1]
        The part's share of the weight of the whole.
    effects : (float, float)
        By what the variance of the part, and of the rest, is larger than that.

    >>> whole, part = Estimate(0.3, 0.02, 400, (400,)), Estimate(0.4, 0.04, 100, (100,))
    >>> found = part_and_whole(part, whole, 0.25)
    >>> round(found.value, 3), round(found.standard_error, 4)
    (0.1, 0.0346)
    """
    of_part, of_whole = part.standard_error**2, whole.standard_error**2
    # The share of the rest, squared, times its variance.
    of_rest = max(of_whole - share**2 * of_part, 0.0)
    variance = (1 - share) ** 2 * effects[0] * of_part + effects[1] * of_rest
    wider = part.widened(effects[0]), whole.widened(effects[1])
    half = math.hypot((1 - share) * wider[0].half, wider[1].half)
    apart = Estimate(part.value - whole.value, math.sqrt(variance), whole.n, (), half=half)
    return PooledDifference(apart.value, apart.standard_error, *apart.interval())
