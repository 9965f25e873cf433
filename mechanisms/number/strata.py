"""Strata: reports grouped by their public coin, each group standing for a known part of a mean.

The mean of values in [0, 1] is the integral of the survival function, and the weighted sum of the
bits of a binary expansion: a sum over coins (thresholds, or bits) of a weight times the share of
clients that answer "yes" to that coin. Every client answers one coin, drawn independently of his
value; the shares of the strata are added with their exact weights in place of the random numbers of
reports that they happened to get. That is post-stratification. For n clients with fixed values, h_b
the share of "yes" in stratum b of weight w_b and n_b reports, and f_b the noise of one debiased
answer,

    Var = sum_b w_b**2 (h_b (1 - h_b) + f_b) / n_b  -  S**2 / n,

S**2 being the variance of the values among the clients (J. Neyman's result for randomised
allocation, with the strata as treatments). Survival is only assumed to fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mechanisms.arrays import Floats, Ints, NDArray, np
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate, kept_interval, two_sided
from mechanisms.estimators.isotonic import falling_fit, rising_squares

#: Reports without which a stratum has no variance of its own.
LEAST_REPORTS = 2
#: Confidence of an interval that reaches one standard error to each side.
_ONE_ERROR = 0.6826894921370859
#: Points between two middles at which the test of a quantile is carried out.
GRID = 64
#: A share is taken for the quantile's own where the fit is within so much of it.
_NEAR = 0.15
#: Likelihood ratios; the widths of the regions below them show a gap between values.
_RATIOS = (5.0, 40.0)
#: The second region of a gap is less than so many times as wide as the first.
_GROWTH = 1.6
#: Values are crowded in five strata of 64 that have so large a share of them: more than an
#: exponential distribution with a mean of 5 % of the range has there, or a normal one with 3 %.
_CROWDED = 0.875
#: Strata without which crowded values cannot be told from a wide distribution with one hump.
_ENOUGH = 16
#: Critical value in a gap, by the chi-square quantile.
_EDGE = 1.7
#: Levels, and the critical value of a monotone function at a point by the chi-square quantile.
_LIMIT = ((0.8, 0.9, 0.95, 0.99), (0.601, 0.593, 0.591, 0.572))


@dataclass(frozen=True, eq=False)
class Strata:
    """Debiased means of each stratum, with the estimated covariance of their errors.

    The last axes of length 2 are (yes, present): "yes" is one for a client who is present and
    answers yes to his coin. ``weights``, ``(B,)``, sum to one; ``means``, ``(B, 2)``, are unbiased
    shares of the clients; ``sampled``, ``(B, 2, 2)``, estimates their covariance from the scatter
    of the answers; ``floors``, ``(T, B, 2, 2)``, is the covariance from the randomization alone if
    the truth of all clients were the same, one entry a truth: what the variance is at least;
    ``step`` is the largest change that one answer makes in the weighted sum of ``means``.
    """

    weights: Floats
    reports: Ints
    means: Floats
    sampled: Floats
    floors: Floats
    step: float

    def variances(self, contrast: Floats) -> Floats:
        """Return, by stratum, the estimated variance of ``contrast . means``.

        ``contrast`` has shape ``(B, 2)``; the result, ``(2, B)``, has the estimate from the
        scatter and the floor.
        """
        both: Floats = np.empty((2, len(contrast)))
        both[0] = np.einsum("bi,bij,bj->b", contrast, self.sampled, contrast)
        both[1] = np.einsum("bi,tbij,bj->tb", contrast, self.floors, contrast).min(axis=0)
        return both

    def one_more(self, scores: tuple[float, float], draws: int) -> tuple[float, float]:
        """Return how far a report of so many answers can lower, and raise, the mean of yes.

        ``scores`` are those of a no and of a yes; answers may be about any strata, since who forges
        a report chooses its coins. An answer moves less, the more there are in its stratum.
        """
        answers = np.arange(draws + 1)
        parts = self.weights[:, None] * answers / (self.reports[:, None] + answers)
        means = self.means[:, :1]
        down, up = (np.diff(parts * gap, axis=1) for gap in (means - scores[0], scores[1] - means))
        return float(np.sort(down, None)[-draws:].sum()), float(np.sort(up, None)[-draws:].sum())

    def hypothetical(self, yes: float | Floats, present: float) -> Floats:
        """Return the covariance, ``(B, 2, 2)``, of ``means`` if ``yes`` of those here said so.

        ``yes`` is one share for all strata, or has shape ``(B,)``.
        """
        # The truths are no, yes and, where there is one, missing.
        yes = np.broadcast_to(yes, len(self.weights))
        shares = np.stack([present * (1 - yes), present * yes, np.full_like(yes, 1 - present)])
        shares = shares[: len(self.floors)]
        truths = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])[: len(self.floors)]
        centred = truths - (shares.T @ truths)[:, None]
        spread = np.einsum("tb,bti,btj->bij", shares, centred, centred)
        noise: Floats = np.einsum("tb,tbij->bij", shares, self.floors)
        noise += spread / self.reports[:, None, None]
        return noise


@dataclass(frozen=True, eq=False)
class MeanRegion:
    """The means in [0, 1] of the values present that a two-sided test does not reject.

    Under a hypothetical mean, the weighted sum of (yes − mean × present) has mean zero, and a
    variance that is largest if every stratum has the same share; the test is normal with a
    continuity correction of half a step. ``present`` is the estimated share of the clients whose
    value is present; ``low`` and ``high`` are what 0 and 1 stand for.
    """

    strata: Strata
    present: float
    low: float
    high: float

    def interval(self, level: float) -> tuple[float, float]:
        z, strata = two_sided(level), self.strata
        yes, here = (float(total) for total in strata.weights @ strata.means)

        def keeps(mean: float) -> bool:
            within = min(max(mean, 0.0), 1.0)
            covariance = strata.hypothetical(within, min(self.present, 1.0))
            contrast = np.array([1.0, -within])
            variance = float(strata.weights**2 @ (covariance @ contrast @ contrast))
            distance = abs(yes - mean * here) - strata.step / 2
            return distance <= z * math.sqrt(variance)

        return kept_interval(yes / here, keeps, (self.low, self.high))


def stratify(table: Ints, weights: Floats, pairs: Floats) -> Strata:
    """Debias counts of answers by coin.

    ``table``, ``(levels, coins, S)``, counts at least one answer; S is 2 (no, yes) or 3 (no, yes,
    missing). ``weights``, ``(coins,)``, are the probabilities of the coins, which are also their
    weights in the mean; ``pairs``, ``(levels, 2)``, the probabilities that an answer is kept, and
    that it becomes a given other one.

    Neighbouring strata are merged until each has two reports. A merged stratum is unbiased for
    its part as long as the merging does not look at the numbers of reports; with the number of
    strata chosen from n alone so that each expects 20 reports, one that gets fewer than two has
    probability below 5e-8, which bounds the bias.
    """
    starts = _merge(table.sum(axis=(0, 2)))
    table = np.add.reduceat(table, starts, axis=1)
    weights = np.add.reduceat(weights, starts)
    reports = table.sum(axis=(0, 2))
    answers = _debiased(pairs, table.shape[2])
    means = np.einsum("cbs,csi->bi", table, answers) / reports[:, None]
    noise = _noise(pairs, answers)
    floors = np.einsum("cb,ctij->tbij", table.sum(axis=2), noise) / (reports**2)[:, None, None]
    if (reports < LEAST_REPORTS).any():
        # One report in all: its scatter is unknown, that of a fair coin is the largest.
        sampled = floors.max(axis=0) + np.eye(2) / 4
    else:
        centred = answers[:, None] - means[None, :, None]
        scatter = np.einsum("cbs,cbsi,cbsj->bij", table, centred, centred)
        sampled = scatter / (reports * (reports - 1))[:, None, None]
    gap = (pairs[:, 0] - pairs[:, 1])[table.any(axis=(1, 2))].min()
    step = float((weights / reports).max() / gap)
    return Strata(weights, reports, means, sampled, floors, step)


def most_strata(answers: Ints, joins: Sequence[Ints], least: int) -> int:
    """Return how many strata may be told apart so that each has ``least`` answers of every level.

    ``answers``, ``(levels, strata)``, are counted by coin, ``joins`` those of
    :attr:`mechanisms.base.Mechanism.joins`. Bins of thresholds that are joined are equally
    likely, so that the choice leaves estimates unbiased.
    """
    if least <= 1:
        return len(joins[-1])
    enough = (s for s in joins if (np.add.reduceat(answers, s, axis=1) >= least).all())
    return max(map(len, enough), default=1)


def _merge(reports: Ints) -> NDArray[np.intp]:
    starts, inside = [0], 0
    for coin, number in enumerate(reports):
        if inside >= LEAST_REPORTS:
            starts.append(coin)
            inside = 0
        inside += int(number)
    if inside < LEAST_REPORTS and len(starts) > 1:
        starts.pop()
    return np.array(starts)


def _debiased(pairs: Floats, symbols: int) -> Floats:
    """Return what each answer contributes to (yes, present), shape ``(levels, S, 2)``."""
    if symbols not in (2, 3):
        raise ParameterError(f"an answer has 2 or 3 symbols, not {symbols}")
    p, q = pairs.T[:, :, None]
    indicators = (np.eye(symbols)[None] - q[..., None]) / (p - q)[..., None]
    present = 1 - indicators[..., 2] if symbols == 3 else np.ones(indicators.shape[:2])
    return np.stack((indicators[..., 1], present), axis=-1)


def _noise(pairs: Floats, answers: Floats) -> Floats:
    """Return the covariance of one answer's contribution by truth, ``(levels, S, 2, 2)``."""
    symbols = answers.shape[1]
    p, q = pairs.T[:, :, None, None]
    channel = q + (p - q) * np.eye(symbols)
    mean = np.einsum("cts,csi->cti", channel, answers)
    centred = answers[:, None] - mean[:, :, None]
    noise: Floats = np.einsum("cts,ctsi,ctsj->ctij", channel, centred, centred)
    return noise


class Cdf(NamedTuple):
    """A distribution function, averaged over each stratum.

    ``grid`` has the middles of the strata in the metric's unit; ``values`` rise from 0 to 1. The
    average is not the function at the middle if many values are alike: that lies anywhere between
    its values at the stratum's ends. ``standard_errors`` are those of each stratum alone, before
    the isotonic regression, which can only help: a band made of them is wide, not narrow.
    """

    grid: Floats
    values: Floats
    standard_errors: Floats


@dataclass(frozen=True, eq=False)
class Survival:
    """The survival function of the values present; ``strata`` are in order of their thresholds."""

    strata: Strata
    present: float
    low: float
    high: float

    @property
    def middles(self) -> Floats:
        """The middles of the strata, shape ``(B,)``."""
        return np.cumsum(self.strata.weights) - self.strata.weights / 2

    @cached_property
    def falling(self) -> Floats:
        """Return the isotonic estimate of survival in each stratum, shape ``(B,)``."""
        reports = self.strata.reports.astype(np.float64)
        fit = falling_fit(self.strata.means[:, 0] / self.present, reports)
        falling: Floats = np.clip(fit, 0.0, 1.0)
        return falling

    def least_variance(self) -> float:
        """Return the smallest variance of values in [0, 1] that agrees with the estimate."""
        survival, width = self.falling, self.strata.weights
        before = np.concatenate(([1.0], survival[:-1]))
        after = np.concatenate((survival[1:], [0.0]))
        drop = before - after
        early = np.divide(survival - after, drop, out=np.zeros_like(drop), where=drop > 0)
        square = 2 * width * survival * self.middles
        square -= drop * early * (1 - early) * width**2
        return float(max(square.sum() - (width @ survival) ** 2, 0.0))

    def cdf(self) -> Cdf:
        shares = self.strata.means[:, 0] / self.present
        contrast = np.stack((np.ones_like(shares), -shares), axis=1)
        errors = np.sqrt(self.strata.variances(contrast).max(axis=0)) / self.present
        return Cdf(self.low + (self.high - self.low) * self.middles, 1 - self.falling, errors)

    def quantile(self, tau: float, reports_by_level: tuple[int, ...]) -> Estimate:
        """Estimate the value below which a share ``tau`` of the values present lies."""
        knots = np.concatenate(([0.0], self.middles, [1.0]))
        shares = np.concatenate(([0.0], 1 - self.falling, [1.0]))
        # The middle of the flat, if the estimated distribution is flat at tau.
        last = np.interp(tau, shares, knots)
        first = np.interp(-tau, -shares[::-1], knots[::-1])
        at = float(first + last) / 2
        region = QuantileRegion(self, tau, at)
        n, width = sum(reports_by_level), self.high - self.low
        if region.in_gap:
            # The truth is no likelier to be near the middle of a gap than at its ends.
            low, high = region.interval(0.95)
        else:
            low, high = (width * end for end in region.kept(_ONE_ERROR))
        error = (high - low) / 2
        return Estimate(self.low + width * at, error, n, reports_by_level, region=region)


@dataclass(frozen=True, eq=False)
class QuantileRegion:
    """The values that a likelihood ratio test does not reject as the quantile ``tau``.

    At the middle of a stratum the test compares the isotonic fit with the one that is ``tau``
    there, no larger to the left and no smaller to the right. The signed root of the ratio is made
    increasing and interpolated between middles, with the estimate ``at``, in [0, 1], as a point of
    its own. The critical value is that of a monotone function at a point where the fit rises by
    little of a standard error from stratum to stratum, and the chi-square quantile, less what
    interpolation takes from the variance, where it rises by one. Both are too small at the edge of
    a gap, where values are rare on one side alone. There the limit at 95 % is 1.3, 1.6 and 1.8
    times the chi-square quantile, for a gap of 8, 16 and 32 strata; 1.7 times it is used.

    The quantile is that of the distribution evened out over each stratum, as :class:`Cdf` is: of
    values of which many are alike, the quantile itself may lie anywhere in its stratum. The ends
    are moved outward by as much as a density that falls or rises may differ from it.

    References
    ----------
    M. Banerjee, J. A. Wellner, "Likelihood Ratio Tests for Monotone Functions", Annals of
    Statistics 29 (2001), whose limit the critical value is.
    """

    survival: Survival
    tau: float
    at: float

    def interval(self, level: float) -> tuple[float, float]:
        low, high = self.kept(level)
        return self._outward(low, -1), self._outward(high, 1)

    def kept(self, level: float) -> tuple[float, float]:
        """Return the ends at a confidence ``level`` before they are moved, in [0, 1]."""
        middles, critical = self.survival.middles, self._critical(level)
        pieces = max(len(middles) - 1, 0) * GRID
        grid = np.interp(np.arange(pieces + 1) / GRID, np.arange(len(middles)), middles)
        signed = np.interp(grid, *self._nodes)
        if self.in_gap:
            critical = np.maximum(critical, _EDGE * two_sided(level) ** 2)
        # The estimate, which is kept, may lie between two points or beyond all of them.
        after = int(np.searchsorted(grid, self.at))
        kept = np.flatnonzero(np.insert(signed**2 <= critical, after, True))
        # The interval ends at the first points that are not kept, or at the ends of the range.
        points = np.concatenate(([0.0], np.insert(grid, after, self.at), [1.0]))
        return float(points[kept[0]]), float(points[kept[-1] + 2])

    def _outward(self, end: float, side: int) -> float:
        """Return an end in the metric's unit, moved to its ``side`` by what evening out hides.

        Values lie further to a side where their density is higher than the line between two middles
        says: by half a stratum at most. The more strata there are, the straighter the distribution
        is in each: beyond eight of them it is less by the square of 8 over their number, which in
        simulations is enough for densities that fall by a factor of 20 within the range. In a gap,
        and where reports show that the density changes from stratum to stratum, it is always half a
        stratum: most of the values may lie in a few strata, and anywhere in them.

        In five of 64 strata, three of 32 or two of 16 that have 7/8 of the values, less half a
        standard error, these may lie anywhere. So may they in two of 32 or 64 that have 7/8 of what
        six around them have, if that is more than two standard errors. If the function is A, B and
        C on average in three strata in a row, it can reach a share between A and B in the second
        one from its end on by at most (B − share)/(C − share) of its width: otherwise it would rise
        by more than it does. The end is moved there, C being raised by two standard errors. Two of
        eight strata or fewer have 7/8 of many wide distributions, and show nothing.

        No theory gives five, 7/8 and half an error. In simulations of values within two to five
        strata, or all alike, they brought coverage from as little as 0 to 80 % and more, and made
        intervals of wide distributions hardly longer.
        """
        survival = self.survival
        knots = np.concatenate(([0.0], survival.middles, [1.0]))
        rises = np.diff(np.concatenate(([0.0], 1 - survival.falling, [1.0])))
        slopes = np.pad(rises / np.diff(knots), 1, "edge")
        steep, flat = (slopes[:-2], slopes[2:])[::-side]
        width = float(survival.strata.weights.max())
        part = np.clip((steep - flat) / np.maximum(steep, 1e-300), 0.0, 1.0)
        edges = side * (knots[1:] if side > 0 else knots[:-1])
        inner = np.minimum(edges, side * end)
        # Two standard errors of a difference of two rises, each of two strata.
        noise = 4 / math.sqrt(float(self._precisions(self.tau).min()))
        known = self.in_gap | ((steep - flat) * width > noise)
        moved = inner + part * np.where(known, width / 2, min(width / 2, 32 * width**3))
        if (count := len(survival.middles)) >= _ENOUGH:
            near, two = np.ones(max(2, count // 16 + 1)), np.ones(2)
            crowded = np.convolve(rises, near) + noise / 8 > _CROWDED
            pairs, around = np.convolve(rises, two), np.convolve(rises, np.ones(6))[2:-2]
            alike = (pairs > noise / 2) & (pairs > _CROWDED * around) & (count > _ENOUGH)
            anywhere = np.convolve(crowded, near, "valid") + np.convolve(alike, two, "valid") > 0
            rest = (edges - inner) * slopes[1:-1]
            most = edges + width * (0.5 - rest / (rest + steep * width + noise / 2))
            moved = np.where(anywhere, np.maximum(moved, most), moved)
        # An end lies beyond those of all lower levels.
        between = (knots[1:] >= min(end, self.at)) & (knots[:-1] <= max(end, self.at))
        end = side * float(moved[between].max())
        return survival.low + (survival.high - survival.low) * min(max(end, 0.0), 1.0)

    @cached_property
    def _nodes(self) -> tuple[Floats, Floats]:
        """The middles and the estimate, in order, and the signed root at each."""
        middles = self.survival.middles
        at = np.searchsorted(middles, self.at)
        return np.insert(middles, at, self.at), np.insert(self._roots, at, 0.0)

    @cached_property
    def in_gap(self) -> bool:
        """Whether the estimate seems to lie in a gap between values, with an edge on either side.

        The region of an eightfold likelihood ratio is twice as wide if values are as dense
        everywhere, and hardly wider if they become dense at its ends. An end of the range that is
        within the smaller region may be an edge, too: at 0 most values may be alike.
        """
        places, roots = self._nodes
        reached = np.sqrt(_RATIOS)
        near, far = np.interp(reached, roots, places) - np.interp(-reached, roots, places)
        ends = np.array((-roots[0], roots[-1]))
        return bool(far < _GROWTH * near and ((ends > reached[1]) | (ends < reached[0])).all())

    @cached_property
    def _weighted(self) -> tuple[Floats, Floats]:
        """The shares below each stratum's thresholds, unbiased, and their inverse variances."""
        fit = 1 - self.survival.falling
        shares = np.where(np.abs(fit - self.tau) <= _NEAR, self.tau, fit)
        below = self.survival.strata.means @ [-1.0, 1.0] / self.survival.present
        return below, self._precisions(shares)

    def _precisions(self, shares: float | Floats) -> Floats:
        """Return the inverse variances of the shares below thresholds, if these are true."""
        covariance = self.survival.strata.hypothetical(1 - shares, min(self.survival.present, 1.0))
        found: Floats = self.survival.present**2 / (covariance @ [-1.0, 1.0] @ [-1.0, 1.0])
        return found

    @cached_property
    def _roots(self) -> Floats:
        """The signed roots of the likelihood ratio at the middles, shape ``(B,)``, increasing."""
        shares, weights = self._weighted
        left = rising_squares(shares, weights, self.tau)[:-1]
        right = rising_squares(-shares[::-1], weights[::-1], -self.tau)[-2::-1]
        free = rising_squares(shares, weights, math.inf)[-1]
        # A test of the share tau has the noise of that one: a share near 0 or 1 has far less.
        own = np.minimum(weights, self._precisions(self.tau))
        ratios = own * (shares - self.tau) ** 2 + left + right - free
        roots: Floats = np.sign(self.survival.middles - self.at) * np.sqrt(np.maximum(ratios, 0.0))
        return -falling_fit(-roots, np.ones_like(roots))

    def _critical(self, level: float) -> Floats:
        """Return the critical value at each point of the grid between the first and last middle."""
        shares, weights = self._weighted
        chi_square = two_sided(level) ** 2
        limit = chi_square * float(np.interp(level, *_LIMIT))
        count = len(shares)
        pieces = max(count - 1, 0) * GRID
        if not pieces:
            return np.full(pieces + 1, limit)
        fit = -falling_fit(-shares, weights)
        steps = np.diff(fit) * np.sqrt((weights[:-1] + weights[1:]) / 2)
        # The mode "same" would return five values for fewer than five steps.
        five = np.ones(5)
        around = (np.convolve(steps, five) / np.convolve(np.ones_like(steps), five))[2:-2]
        part = np.clip((around - 0.2) / 0.8, 0.0, 1.0)
        gap = np.minimum(np.arange(pieces + 1) // GRID, count - 2)
        u = np.arange(pieces + 1) / GRID - gap
        critical: Floats = limit + part[gap] * (chi_square * ((1 - u) ** 2 + u**2) - limit)
        return critical
