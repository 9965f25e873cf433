"""Estimates and their intervals."""

from __future__ import annotations

import math

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
    assert noise.detection_floor == pytest.approx(FLOOR_ERRORS * 0.05)
    assert pytest.approx(1.959964 + 0.841621) == FLOOR_ERRORS


def test_kept_interval_stays_where_shares_are() -> None:
    assert kept_interval(0.4, lambda share: abs(share - 0.4) <= 0.1) == pytest.approx((0.3, 0.5))
    assert kept_interval(0.4, lambda share: True) == (0.0, 1.0)
    low, high = kept_interval(-0.2, lambda share: share <= 0.1)
    assert (low, high) == pytest.approx((-0.2, 0.1))
    low, high = kept_interval(1.3, lambda share: share >= 1.1)
    assert (low, high) == pytest.approx((1.1, 1.3))
