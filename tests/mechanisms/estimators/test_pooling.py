"""Estimates put together: how much noise is shared, and differences of what is not normal."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numpy.typing import NDArray
from replicas import replicate
from scipy import stats
from statistical import check_at_least

from mechanisms.estimate import Estimate
from mechanisms.estimators.pooling import difference, pairs_per_report, part_and_whole, pooled
from mechanisms.registry import build

SEED = 314159
REPEATS = 100


@given(some.lists(some.integers(0, 9), max_size=6), some.integers(1, 3))
def test_pairs_are_those_of_every_two_windows(reports: list[int], most: int) -> None:
    pairs = sum(min(one, other) for one, other in itertools.product(reports, reports))
    expected = most * pairs / sum(reports) if sum(reports) else 1.0
    assert pairs_per_report(reports, most) == pytest.approx(expected)


@given(some.lists(some.sets(some.integers(0, 5)), min_size=1, max_size=5))
def test_no_devices_share_more_than_is_counted(windows: list[set[int]]) -> None:
    """Whichever devices report in which window: the sum of their squared numbers is bounded."""
    squares = sum(sum(device in each for each in windows) ** 2 for device in range(6))
    reports = [len(each) for each in windows]
    if sum(reports):
        assert squares / sum(reports) <= pairs_per_report(reports) + 1e-12


def test_ratios_are_pooled_by_their_divisors() -> None:
    """Windows in which few values are present count little, and one without any as none."""
    windows = [Estimate(10.0, 1.0, 100, (100,)), Estimate(20.0, 2.0, 100, (100,))]
    found = pooled(windows, [90.0, 10.0])
    assert (found.value, found.n, found.reports_by_level) == (11.0, 200, (200,))
    assert found.standard_error == pytest.approx(math.hypot(0.9, 0.2))
    nothing = pooled(windows, [5.0, -6.0])
    assert (math.isnan(nothing.value), nothing.standard_error) == (True, math.inf)


def test_all_reports_do_not_differ_from_themselves() -> None:
    whole = Estimate(0.3, 0.02, 400, (400,))
    found = part_and_whole(whole, whole, 1.0, (5.0, 1.0))
    assert (found.value, found.standard_error, found.significant) == (0.0, 0.0, False)


def quantiles(shape: stats.rv_frozen, tau: float, seed: int) -> list[Estimate]:
    """Return estimates of a quantile of 2,000 values, whose distribution rises everywhere."""
    values: NDArray[np.float64] = shape.ppf((np.arange(2000) + 0.5) / 2000)
    mechanism = build({"name": "threshold", "missing": False}, [2_000_000], "delay")
    tables = replicate(mechanism, values, np.zeros(2000, dtype=np.int64), REPEATS, seed)
    return [mechanism.numeric(each, 0, 1, (tau,)).quantiles[tau] for each in tables]


@pytest.mark.parametrize("tau", [0.25, 0.5, 0.9])
def test_differences_of_quantiles_are_covered_though_intervals_are_lopsided(tau: float) -> None:
    shapes = stats.beta(2, 6), stats.beta(3, 5)
    truth = float(shapes[0].ppf(tau) - shapes[1].ppf(tau))
    pairs = zip(*(quantiles(each, tau, SEED + at) for at, each in enumerate(shapes)), strict=True)
    found = [difference(*pair) for pair in pairs]
    covered = sum(each.low <= truth <= each.high for each in found)
    check_at_least(covered, REPEATS, 0.95, label=f"seed {SEED}")
    # Intervals of half the width are found too narrow.
    half = sum(abs(each.value - truth) <= (each.high - each.low) / 4 for each in found)
    with pytest.raises(AssertionError):
        check_at_least(half, REPEATS, 0.95, false_failure_rate=1e-3, label="halved")
