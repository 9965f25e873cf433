"""Ratios of estimates: conversions of a funnel, and retention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mechanisms.arrays import Floats, Ints
from mechanisms.estimate import Estimate, nothing, two_sided


@dataclass(frozen=True)
class Ratio:
    """The ratio of two estimates, by their variances and covariance.

    The interval is Fieller's: all r of which ``top - r bottom`` is within so many of its standard
    errors of 0. It is infinite where the bottom cannot be told from 0.

    References
    ----------
    E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.

    Examples
    --------
    >>> low, high = Ratio(0.3, 0.6, 0.0001, 0.0001).interval(0.95)
    >>> round(low, 4), round(high, 4)
    (0.464, 0.5371)
    """

    top: float
    bottom: float
    top_variance: float
    bottom_variance: float
    covariance: float = 0.0

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``."""
        square = two_sided(level) ** 2
        below = self.bottom**2 - square * self.bottom_variance
        if not below > 0:
            return -math.inf, math.inf
        middle = self.top * self.bottom - square * self.covariance
        above = self.top**2 - square * self.top_variance
        half = math.sqrt(max(middle**2 - below * above, 0.0))
        return (middle - half) / below, (middle + half) / below

    def estimate(self, reports_by_level: tuple[int, ...]) -> Estimate:
        """Return the ratio and its standard error; nothing unless the bottom is told from 0."""
        if not (self.bottom > 0 and math.isfinite(self.interval(0.95)[0])):
            return nothing(reports_by_level)
        ratio = self.top / self.bottom
        spread = self.top_variance - 2 * ratio * self.covariance + ratio**2 * self.bottom_variance
        error = math.sqrt(max(spread, 0.0)) / self.bottom
        return Estimate(ratio, error, sum(reports_by_level), reports_by_level, region=self)


def conversions(counts: Ints, pairs: Floats) -> list[Estimate]:
    """Estimate which share of those who reached a step reached the next one, or went beyond.

    ``counts`` are reports by level and furthest step, ``(levels, steps)``, of generalized
    randomized response with the probabilities ``pairs``, ``(levels, 2)``. One estimate a step but
    the first, which everybody has reached. Shares are those of
    :func:`~mechanisms.estimators.frequency.shares`; their noise is correlated, since a report has
    one answer.

    >>> found = conversions(np.array([[500, 300, 200]]), np.array([[0.8, 0.1]]))
    >>> [round(each.value, 3) for each in found]
    [0.429, 0.333]
    """
    by_level = tuple(int(n) for n in counts.sum(axis=1))
    n, steps = sum(by_level), counts.shape[1]
    if n == 0:
        return [nothing(by_level)] * (steps - 1)
    p, q = pairs.T
    gap = p - q
    holders = (counts - np.array(by_level)[:, None] * q[:, None]) / gap[:, None]
    shares = holders.sum(axis=0) / n
    present = np.clip(holders, 0, None)
    total = present.sum(axis=1, keepdims=True)
    present *= np.array(by_level)[:, None] / np.maximum(total, 1e-9)

    def variance(weights: Floats) -> float:
        """Return the variance of a weighted sum of the shares."""
        squares = (q * (weights**2).sum())[:, None] + np.outer(gap, weights**2)
        means = (q * weights.sum() / gap)[:, None] + weights
        return float((present * (squares / gap[:, None] ** 2 - means**2)).sum()) / n**2

    reached = [(np.arange(steps) >= step).astype(np.float64) for step in range(steps)]
    found = []
    for before, after in pairwise(reached):
        below, above = variance(before), variance(after)
        shared = (variance(before + after) - below - above) / 2
        values = float(after @ shares), float(before @ shares)
        found.append(Ratio(*values, above, below, shared).estimate(by_level))
    return found


def retention(now: Estimate, then: Estimate, panel: int = 1) -> Estimate:
    """Estimate which part of the devices that were new in one period came in a later one.

    ``now`` is the share of the age in the later period, ``then`` that of age 0 in the earlier one.
    Both have other devices if they answer in one of ``panel`` periods: then the number of devices
    that happen to have their turn varies too, and the interval covers all devices of the two
    periods. Reports of a device in two periods must have been drawn independently.

    >>> now, then = (Estimate(share, 0.003, 10000, (10000,)) for share in (0.05, 0.1))
    >>> found = retention(now, then)
    >>> round(found.value, 3), round(found.standard_error, 4)
    (0.5, 0.0335)
    """
    numbers = [each.n * each.value for each in (now, then)]
    turns = [(1 - 1 / panel) * max(number, 0.0) for number in numbers]
    spread = [
        (each.n * each.standard_error) ** 2 + turn
        for each, turn in zip((now, then), turns, strict=True)
    ]
    return Ratio(*numbers, *spread).estimate(now.reports_by_level)
