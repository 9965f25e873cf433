"""Shares of categories, from the counts of any "pure" protocol.

A report *supports* some categories: with probability p_c at level c the true one, with q_c each
other one. So it contributes (o − q_c)/(p_c − q_c) to a category, o being 1 if it supports it and
0 if not. The contributions of all levels are averaged with equal weights: the result is unbiased
for exactly these clients, whatever their levels have to do with their values. (Weights by inverse
variance would be biased as soon as clients with a certain value release more.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Floats, Ints
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError, check_at_least
from mechanisms.estimate import Estimate, ShareNoise, nothing, share_estimate


class Concerned(NamedTuple):
    """The reports that say something about a category at all, ``(levels, m)``.

    ``likely``, by level, is the probability that a report is one of them if the category is true,
    and ``least`` the smallest such probability, whatever is true.
    """

    reports: Ints
    likely: Floats
    least: Floats


def shares(
    ones: Ints, reports: Ints, pairs: Floats, concerned: Concerned | None = None
) -> list[Estimate]:
    """Estimate shares from the positive answers at each level.

    They need not be in [0, 1] nor sum to one. The variance, given the values, is the sum over
    reports of [K p(1−p) + (n−K) q(1−q)]/(p−q)², K the reports of the category at the level; K is
    estimated and kept within [0, n]. Below 200 reports, and where chance makes few answers, the
    interval inverts a test of the share (see :class:`~mechanisms.estimate.ShareRegion`).

    Parameters
    ----------
    ones : ndarray, shape (levels, m)
        Reports that answer "yes" to each of m questions, of so many ``reports`` at each level.
    pairs : ndarray, shape (levels, 2)
        Probability of "yes" for a client of whom it is true, and for one of whom it is not.
    concerned : Concerned, optional
        The reports that answer each question at all; by default all of them do. Those that do not
        add nothing, and the pair (p, q) is that of an equivalent protocol in which such a report
        would say yes with probability q = 1/2.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha. "Locally Differentially Private Protocols for Frequency
    Estimation", USENIX Security 2017, sections 3 and 4.

    Examples
    --------
    >>> [estimate] = shares(np.array([[700]]), np.array([1000]), np.array([[0.75, 0.25]]))
    >>> round(estimate.value, 3), round(estimate.standard_error, 4)
    (0.9, 0.0274)
    """
    by_level = tuple(int(n) for n in reports)
    n = sum(by_level)
    if n == 0:
        return [nothing(by_level)] * ones.shape[1]
    p, q = pairs.T
    gap = p - q
    answers = reports[:, None] if concerned is None else concerned.reports
    holders = (ones - answers * q[:, None]) / gap[:, None]
    values = holders.sum(axis=0) / n
    # Each level's true holders are estimated, but kept where they can be.
    within = np.clip(holders, 0, reports[:, None])
    slopes = (1 - p - q) / gap
    unit = q * (1 - q) / gap**2
    bases = np.broadcast_to(unit @ answers, values.shape)
    spread = np.maximum(bases + slopes @ within, 0.0)
    step = 1 / float(gap[reports > 0].min())
    least = None
    if concerned is not None:
        # How many answer is known, and how many of them are holders is not: their variance at a
        # given share must not depend on what is estimated, or it is least where the error is large.
        fewest = unit * concerned.least
        extra = slopes + unit * concerned.likely - fewest
        spread = np.maximum(spread, (fewest @ reports + extra @ within))
        weights = tuple(zip(by_level, extra.tolist(), strict=True))
        least = ShareNoise(n, float(fewest @ reports), weights, step)
    errors = np.sqrt(spread) / n
    weights = tuple(zip(by_level, slopes.tolist(), strict=True))
    reach = tuple(zip(((1 - q) / gap).tolist(), (p / gap).tolist(), strict=True))
    scores = answer_ends(pairs[reports > 0])
    by_base = {base: ShareNoise(n, base, weights, step, least) for base in set(bases.tolist())}
    noises = [by_base[base] for base in bases.tolist()]
    return [
        share_estimate(value, error, by_level, noise, scores, reach)
        for value, error, noise in zip(values.tolist(), errors.tolist(), noises, strict=True)
    ]


def answer_ends(pairs: Floats) -> tuple[float, float]:
    """Return the scores of a no and of a yes, each at the level where it is farthest off.

    ``pairs``, ``(levels, 2)``, are the probabilities of a yes where it is true and where it is not.
    """
    q, gap = pairs[:, 1], pairs[:, 0] - pairs[:, 1]
    return float((-q / gap).min()), float(((1 - q) / gap).max())


def norm_sub(values: ArrayLike, total: float = 1.0) -> Floats:
    """Return the closest non-negative values with a sum of ``total``, at least 0 (Norm-Sub).

    The same amount is taken from all, and what would become negative is zero. The result is
    consistent and biased: it stands beside the estimates and never replaces them, and intervals do
    not belong to it. The gain of values that nobody has is taken from all others in equal parts, so
    that frequent values are biased downward.

    References
    ----------
    T. Wang, M. Lopuhaä-Zwakenberg, Z. Li, B. Skoric, N. Li. "Locally Differentially Private
    Frequency Estimation with Consistency", NDSS 2020, section 4.

    Examples
    --------
    >>> norm_sub([0.7, 0.5, -0.2])
    array([0.6, 0.4, 0. ])
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise ParameterError("values must be one row of finite numbers")
    check_at_least("total", total, 0)
    if not given.size:
        return given.copy()
    falling = np.sort(given)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, given.size + 1)
    # The values that stay positive are the largest ones, as many as exceed what they must give.
    kept = int(np.flatnonzero(falling >= excess)[-1])
    nearest: Floats = np.maximum(given - excess[kept], 0.0)
    return nearest


def consistent_shares(values: ArrayLike, standard_errors: ArrayLike, total: float = 1.0) -> Floats:
    """Return non-negative shares with a sum of ``total`` to show in the place of estimates.

    The shares with the smaller predicted squared error, by Norm-Sub or by clipping below zero and
    multiplying by one factor: Norm-Sub is better where few values have most of the mass, the other
    where many values have a little. Stein's unbiased estimate of the risk of a function g of values
    v with independent normal errors σ is Σ (gᵢ − vᵢ)² − σᵢ² + 2 σᵢ² ∂gᵢ/∂vᵢ. Norm-Sub, where an
    error is not finite or nothing is positive.

    Parameters
    ----------
    values, standard_errors : array_like, shape (m,)
        Estimated shares and their standard errors.
    total : float
        What the shares sum to, at least 0.

    References
    ----------
    C. M. Stein, "Estimation of the Mean of a Multivariate Normal Distribution", Annals of
    Statistics 9(6), 1981, theorem 1. Both functions are of T. Wang et al. (see :func:`norm_sub`).

    Examples
    --------
    >>> consistent_shares([0.7, 0.5, -0.2], [0.001] * 3)
    array([0.6, 0.4, 0. ])
    >>> consistent_shares([0.3, 0.3, 0.2, 0.2, 0.2, -0.2], [0.2] * 6).round(3)
    array([0.25 , 0.25 , 0.167, 0.167, 0.167, 0.   ])
    """
    nearest = norm_sub(values, total)
    given = np.asarray(values, dtype=np.float64)
    variances = np.asarray(standard_errors, dtype=np.float64) ** 2
    clipped = np.maximum(given, 0.0)
    mass = clipped.sum()
    if not (mass > 0 and np.isfinite(variances).all()):
        return nearest
    scaled: Floats = clipped * (total / mass)

    def risk(shown: Floats, slopes: Floats) -> float:
        return float(((shown - given) ** 2 + 2 * variances * slopes).sum())

    kept = nearest > 0
    of_nearest = np.where(kept, 1 - 1 / max(int(kept.sum()), 1), 0.0)
    of_scaled = np.where(given > 0, total / mass * (1 - clipped / mass), 0.0)
    return scaled if risk(scaled, of_scaled) < risk(nearest, of_nearest) else nearest


def count_table(mechanism: Mechanism, counts: ArrayLike) -> Ints:
    """Return counts as ``(levels, count_length)`` ``int64``, after a check of their shape."""
    table = np.asarray(counts, dtype=np.int64)
    shape = (mechanism.levels, mechanism.count_length)
    if table.shape != shape:
        raise ParameterError(f"counts must have shape {shape}, got {table.shape}")
    if (table < 0).any():
        raise ParameterError("counts must not be negative")
    return table
