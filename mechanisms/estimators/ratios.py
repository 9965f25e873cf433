"""Ratios of estimates: conversions of a funnel, and retention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mechanisms.arrays import Floats, Ints
from mechanisms.estimate import Estimate, ShareNoise, half_step, nothing, two_sided


@dataclass(frozen=True)
class Ratio:
    """The ratio of two estimates, by their variances and covariance.

    The interval is Fieller's: all r of which ``top - r bottom`` is within so many of its standard
    errors of 0, and ``half`` more. It is infinite where the bottom cannot be told from 0.

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
    half: float = 0.0

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``."""
        square = two_sided(level) ** 2
        below = self.bottom**2 - square * self.bottom_variance
        if not below > 0:
            return -math.inf, math.inf
        sides = np.array([-1.0, 1.0])
        tops = self.top + sides * self.half
        middles = tops * self.bottom - square * self.covariance
        roots = np.sqrt(np.maximum(middles**2 - below * (tops**2 - square * self.top_variance), 0))
        low, high = ((middles + sides * roots) / below).tolist()
        return low, high

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

    noise = ShareNoise(n, float(by_level @ (q * (1 - q) / gap**2)), (), 1 / float(gap.min()))
    found = []
    for before, after in pairwise(np.triu(np.ones((steps, steps)))):
        below, above = variance(before), variance(after)
        shared = (variance(before + after) - below - above) / 2
        top, bottom = float(after @ shares), float(before @ shares)
        found.append(Ratio(top, bottom, above, below, shared, noise.half))
    return [each.estimate(by_level) for each in found]


def retention(
    now: Sequence[Estimate], then: Sequence[Estimate], panel: int = 1, covariance: float = 0.0
) -> Estimate:
    """Estimate which part of the devices that were new in some periods came so much later.

    ``now`` are shares of the age in the later periods, ``then`` those of age 0 in the earlier ones,
    each of other reports. A period that is on both sides has one report a device, whose answer
    decides both shares: ``covariance`` is that of the two sums of reports with these ages, added up
    by :func:`covariance_of_numbers`. Both sides have other devices if they answer in one of
    ``panel`` periods: then the number of devices that happen to have their turn varies too, and the
    interval covers all devices of the periods. Reports of a device in two periods must have been
    drawn independently.

    >>> now, then = ([Estimate(share, 0.003, 10000, (10000,))] for share in (0.05, 0.1))
    >>> found = retention(now, then)
    >>> round(found.value, 3), round(found.standard_error, 4)
    (0.5, 0.0335)
    """
    numbers = [sum(each.n * each.value for each in side) for side in (now, then)]
    noise = [sum((each.n * each.standard_error) ** 2 for each in side) for side in (now, then)]
    top, bottom = (v + (1 - 1 / panel) * max(m, 0.0) for v, m in zip(noise, numbers, strict=True))
    by_level = tuple(map(sum, zip(*(each.reports_by_level for each in now), strict=True)))
    half = sum(by_level) * half_step(now, top)
    return Ratio(numbers[0], numbers[1], top, bottom, covariance, half).estimate(by_level)


def covariance_of_numbers(share: float, reports_by_level: Sequence[int], pairs: Floats) -> float:
    """Return the covariance of the estimated numbers of reports with one value and with another.

    ``share`` is that of both among reports of generalized randomized response with the
    probabilities ``pairs``, ``(levels, 2)``; every level is taken to have the same. An answer is
    not two, so that the covariance is negative: the sum of -n [(q/(p-q))² + share q/(p-q)].

    >>> round(covariance_of_numbers(0.3, [100], np.array([[0.6, 0.2]])), 6)
    -40.0
    """
    odds = pairs[:, 1] / (pairs[:, 0] - pairs[:, 1])
    return -float(np.array(reports_by_level) @ (odds**2 + odds * min(max(share, 0.0), 1.0)))
