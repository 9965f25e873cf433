"""Estimates and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.errors import ParameterError
from mechanisms.estimate import (
    FLOOR_ERRORS,
    Estimate,
    ShareNoise,
    ShareRegion,
    kept_interval,
    nothing,
    two_sided,
)
from mechanisms.estimators.frequency import shares
from mechanisms.items import Context
from mechanisms.number.gridded import DuchiOneBit
from mechanisms.number.random_threshold import RandomThreshold


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 1 - 1e-12])
def test_normal_interval(level: float) -> None:
    assert two_sided(level) == pytest.approx(stats.norm.isf((1 - level) / 2), rel=1e-6)
    low, high = Estimate(2.0, 0.5, 1000, (400, 600)).interval(level)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert (high - low) / 2 == pytest.approx(0.5 * two_sided(level))


@pytest.mark.parametrize("level", [0, 1, -1, 2, math.nan])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ParameterError, match="level"):
        Estimate(0.0, 1.0, 1, (1,)).interval(level)


def test_nothing_is_known_from_nothing() -> None:
    estimate = nothing((0, 0))
    assert (estimate.n, estimate.reports_by_level) == (0, (0, 0))
    assert estimate.interval() == (-math.inf, math.inf)


def test_a_region_takes_the_place_of_the_normal_interval() -> None:
    noise = ShareNoise(100, 25.0, ((100, 0.0),), 2.0)
    estimate = Estimate(0.5, 0.05, 100, (100,), region=ShareRegion(0.5, noise))
    half = 1.959964 * 0.05 + 0.01
    assert estimate.interval() == pytest.approx((0.5 - half, 0.5 + half))
    assert estimate == Estimate(0.5, 0.05, 100, (100,))


def test_the_worst_spread_over_levels_counts() -> None:
    noise = ShareNoise(100, 50.0, ((60, 1.0), (40, 3.0)), 1.0)
    assert noise.variance(0.0) == pytest.approx(50 / 1e4)
    assert noise.variance(0.3) == pytest.approx((50 + 30 * 3) / 1e4)
    assert noise.variance(0.7) == pytest.approx((50 + 40 * 3 + 30) / 1e4)
    assert noise.variance(2.0) == noise.variance(1.0)


def test_detection_floor_of_constant_noise_is_closed() -> None:
    noise = ShareNoise(100, 25.0, ((100, 0.0),), 1.0)
    assert noise.floor == pytest.approx(FLOOR_ERRORS * 0.05)
    assert pytest.approx(1.959964 + 0.841621) == FLOOR_ERRORS


def test_kept_interval_stays_where_shares_are() -> None:
    assert kept_interval(0.4, lambda share: abs(share - 0.4) <= 0.1) == pytest.approx((0.3, 0.5))
    assert kept_interval(0.4, lambda share: True) == (0.0, 1.0)
    low, high = kept_interval(-0.2, lambda share: share <= 0.1)
    assert (low, high) == pytest.approx((-0.2, 0.1))
    low, high = kept_interval(1.3, lambda share: share >= 1.1)
    assert (low, high) == pytest.approx((1.1, 1.3))


def test_what_forged_reports_do_is_exact_whichever_levels_they_are_of():
    """Against every way of spreading forged reports over two levels, on both sides."""
    pairs = np.array([[0.5, 0.3], [0.7, 0.1]])
    reports = np.array([30, 50])
    [estimate] = shares(np.array([[15], [30]]), reports, pairs)
    low, high = estimate.interval(0.95)
    for forged in (0, 8, 30, 55, 80):
        # A claimed yes of somebody whose answer is no counts so much instead of 0, and the reverse.
        over, under = (
            max(
                (k * gains[0] + (forged - k) * gains[1]) / 80
                for k in range(max(0, forged - 50), min(30, forged) + 1)
            )
            for gains in zip(*(((1 - q) / (p - q), 1 + q / (p - q)) for p, q in pairs), strict=True)
        )
        assert estimate.under(forged / 80) == pytest.approx((low - over, high + under))


def test_a_mean_of_numbers_that_can_be_missing_is_moved_by_no_more():
    """Every report that can be forged, of every truth, by the estimate's own derivative."""
    threshold = RandomThreshold((1.0,), missing=True)
    p, q = threshold.probabilities(0)[0]
    gap, n = p - q, 1_000_000
    for mean, present in ((0.0, 1.0), (0.3, 0.8), (1.0, 0.5)):
        moved = []
        for truth in ((0, 1), (1, 1), (0, 0)):
            for answer in range(3):
                yes = ((answer == 1) - q) / gap - truth[0]
                here = 1 - ((answer == 2) - q) / gap - truth[1]
                after = (mean * present + yes / n) / (present + here / n)
                moved.append(n * (after - mean) * present)
        over, under = threshold.reach_of_mean(0, mean)
        assert (over, under) == pytest.approx((max(moved), -min(moved)), rel=1e-4)


def test_a_mean_on_a_grid_is_moved_by_no_more():
    """One more forged report of each kind, among very many, by the estimator itself."""
    for missing in (False, True):
        duchi = DuchiOneBit((1.0,), missing=missing)
        n, share = 10**9, 0.3
        truths = np.array([1 - share, share] + [0.0] * missing)
        if missing:
            truths = np.array([0.5 * (1 - share), 0.5 * share, 0.5])
        p, q = duchi.probabilities(0)[0]
        expected = np.rint(n * (q + (p - q) * truths)).astype(np.int64)
        found = duchi.numeric([expected])
        present = 1.0 if found.missing is None else 1 - found.missing.value
        over, under = duchi.reach_of_mean(0, found.mean.value)
        moved = []
        for truth in range(2 + missing):
            honest = q + (p - q) * np.eye(2 + missing)[truth]
            for answer in range(2 + missing):
                forged = 10**6 * (np.eye(2 + missing)[answer] - honest)
                after = duchi.numeric([np.rint(expected + forged).astype(np.int64)])
                moved.append((after.mean.value - found.mean.value) * n / 10**6 * present)
        assert (over, under) == pytest.approx((max(moved), -min(moved)), rel=0.01)


@pytest.mark.parametrize("few", [0, 1])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.15])
def test_means_of_few_present_are_within_their_bound(share, few):
    """Forged reports also raise the share that is present, by which a mean is divided."""
    n = 10**9
    duchi = DuchiOneBit(2.0, True)
    p, q = duchi.probabilities(0)[0]
    truths = np.full(3, 0.16)
    truths[few], truths[2] = 0.04, 0.8
    expected = n * (q + (p - q) * truths)
    [honest, *_] = duchi.estimate(np.rint(expected).astype(np.int64)[None], Context())
    told = []
    for truth in (1 - few, 2):
        for answer in range(3):
            change = np.eye(3)[answer] - q - (p - q) * np.eye(3)[truth]
            counts = np.rint(expected + share * n * change).astype(np.int64)
            [after, *_] = duchi.estimate(counts[None], Context())
            low, high = after.estimate.under(share)
            told.append(min(honest.estimate.value - low, high - honest.estimate.value))
    assert min(told) >= 0


def test_no_bound_is_empty_where_all_that_are_present_may_be_forged():
    known = Estimate(0.5, 0.1, 10, (10,), reach=((2.0, 2.0, 4.0),))
    assert known.under(0.2) == pytest.approx((known.interval()[0] - 2.0, known.interval()[1] + 2.0))
    assert known.under(0.25) == (-math.inf, math.inf)


def test_no_bound_is_stated_where_none_is_known():
    with pytest.raises(ParameterError, match="bound"):
        Estimate(0.5, 0.1, 10, (10,)).under(0.01)
    known = Estimate(0.5, 0.1, 10, (10,), reach=((2.0, 2.0),))
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ParameterError, match="share"):
            known.under(share)
