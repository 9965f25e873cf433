"""Estimates of mechanisms on a grid: unbiased, of the predicted variance, covered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from replicas import replicate
from statistical import check_at_least, check_normal, check_variance

from mechanisms.estimate import SCORE_REPORTS
from mechanisms.number.answers import NumericEstimates
from mechanisms.number.gridded import HybridMechanism
from mechanisms.number.gridmeans import grid_variance
from mechanisms.number.laws import contributions, matrix
from mechanisms.registry import build
from mechanisms.testing import SeededSource

SEED = 20261122
RNG = np.random.default_rng(SEED)
DATA = {
    "uniform": (np.arange(2000) + 0.5) / 2000,
    "skewed": RNG.beta(2, 20, 2000),
    "ends": np.where(RNG.random(2000) < 0.4, 0.0, 1.0),
}
NAMES = ("duchi", "piecewise", "hybrid", "square_wave")


def grid(name: str, ladder: list[int], missing: bool = False, points: int = 33) -> Any:
    spec: dict[str, Any] = {"name": name, "missing": missing}
    if name != "duchi":
        spec["points"] = points
    return build(spec, ladder, "delay")


def estimates(mechanism: Any, values: Any, levels: Any, repeats: int) -> list[NumericEstimates]:
    counts = replicate(mechanism, values, levels, repeats, SEED)
    return [mechanism.numeric(table, 0.0, 1.0, quantiles=()) for table in counts]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", ["duchi", "piecewise", "hybrid"])
@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_replicas(name: str, data: str, epsilon: float) -> None:
    """Unbiased, of the predicted variance, and covered."""
    values, repeats = DATA[data], 100
    mechanism = grid(name, [round(epsilon * 1e6)])
    found = [each.mean for each in estimates(mechanism, values, 0, repeats)]
    stated = mechanism.variance(0, values) / len(values)
    means = np.array([each.value for each in found])
    label = f"{name} {data} {epsilon} seed {SEED}"
    check_normal(means.mean(), values.mean(), (stated / repeats) ** 0.5, label=label)
    check_variance(means, stated, label=label)
    covered = sum(low <= values.mean() <= high for low, high in (e.interval() for e in found))
    check_at_least(covered, repeats, 0.94, label=label)
    plugged = np.mean([each.standard_error**2 for each in found])
    # One bit says nothing about the spread of the values, which is then not subtracted.
    assert 0.97 * stated <= plugged <= 1.03 * (stated + values.var() / len(values))
    if epsilon == 4 and name != "duchi":
        assert plugged <= 1.2 * stated + 0.3 * values.var() / len(values)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_replicas_at_mixed_levels(name: str, missing: bool) -> None:
    """Clients with large values are at the strongest level, and miss values more often."""
    n, repeats = 1500, 100
    values = np.random.default_rng(SEED).beta(2, 5, n)
    levels = np.where(values > 0.3, 2, np.arange(n) % 2)
    if missing:
        values[(values > 0.3) & (np.arange(n) % 3 == 0)] = math.nan
    mechanism = grid(name, [1_000_000, 2_000_000, 4_000_000], missing)
    found = estimates(mechanism, values, levels, repeats)
    truth, label = np.nanmean(values), f"{name} missing {missing} seed {SEED}"
    means = np.array([each.mean.value for each in found])
    errors = np.array([each.mean.standard_error for each in found])
    error = (np.mean(errors**2) / repeats) ** 0.5
    # A ratio has a bias of its variance over its denominator.
    slack = 3 * np.mean(errors**2) if missing else 0.0
    check_normal(abs(means.mean() - truth) - slack, 0.0, 1.05 * error, label=label)
    covered = sum(low <= truth <= high for low, high in (e.mean.interval() for e in found))
    check_at_least(covered, repeats, 0.93, label=label)
    assert [each.missing is not None for each in found] == [missing] * repeats
    if missing:
        gone, shares = np.isnan(values).mean(), [each.missing for each in found if each.missing]
        check_normal(
            np.mean([each.value for each in shares]),
            gone,
            1.02 * (np.mean([each.standard_error**2 for each in shares]) / repeats) ** 0.5,
            label=label,
        )
        covered = sum(e.interval()[0] <= gone <= e.interval()[1] for e in shares)
        check_at_least(covered, repeats, 0.94, label=label)


@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
def test_predictions_with_missing_values(epsilon: float) -> None:
    values, repeats = DATA["skewed"].copy(), 200
    values[::4] = math.nan
    mechanism = grid("hybrid", [round(epsilon * 1e6)], True)
    means = np.array([each.mean.value for each in estimates(mechanism, values, 0, repeats)])
    present = values[~np.isnan(values)]
    stated = grid_variance(mechanism.shape, mechanism.laws[0], present, 0.25) / len(values)
    # The variance of a ratio, to leading order.
    check_variance(means, 1.01 * stated, label=f"epsilon {epsilon} seed {SEED}")


@pytest.mark.parametrize("n", [1, 7, 60, SCORE_REPORTS - 1])
@pytest.mark.parametrize("name", ["duchi", "piecewise", "hybrid"])
def test_small_samples_cover(name: str, n: int) -> None:
    repeats = 100
    for epsilon, missing in ((1, False), (6, False), (2, True)):
        values = np.random.default_rng(SEED).beta(1, 4, n)
        if missing:
            values[: n // 4] = math.nan
        mechanism = grid(name, [epsilon * 1_000_000], missing)
        found = [each.mean for each in estimates(mechanism, values, 0, repeats)]
        truth = np.nanmean(values)
        covered = sum(low <= truth <= high for low, high in (e.interval() for e in found))
        label = f"{name} n {n} epsilon {epsilon} missing {missing} seed {SEED}"
        check_at_least(covered, repeats, 0.95, label=label)
        assert all(each.standard_error > 0 for each in found)


def test_a_debias_left_out_is_caught() -> None:
    """Of the weaker rung read as if it were the stronger one."""
    values, repeats = DATA["skewed"], 200
    mechanism = grid("hybrid", [1_000_000, 1_500_000])
    counts = replicate(mechanism, values, 0, repeats, SEED)[:, 0]
    stated = mechanism.variance(0, values) / len(values)
    for level, passes in ((0, True), (1, False)):
        exact = contributions(mechanism.shape, mechanism.laws[level])
        means = counts @ np.array(exact.value, dtype=float) / len(values) + 0.5
        if passes:
            check_normal(means.mean(), values.mean(), (stated / repeats) ** 0.5)
            check_variance(means, stated)
        else:
            with pytest.raises(AssertionError):
                check_normal(means.mean(), values.mean(), (stated / repeats) ** 0.5)


def test_what_is_scaled() -> None:
    mechanism = grid("square_wave", [2_000_000], True)
    values = np.where(np.arange(4000) % 4 == 0, math.nan, 0.25)
    [table] = replicate(mechanism, values, 0, 1, SEED)
    unit, wide = mechanism.numeric(table, 0, 1), mechanism.numeric(table, -30, 180)
    assert wide.mean.value == pytest.approx(-30 + 210 * unit.mean.value)
    assert wide.mean.standard_error == pytest.approx(210 * unit.mean.standard_error)
    assert wide.missing == unit.missing
    assert unit.cdf is not None
    assert wide.cdf is not None
    assert wide.cdf.grid == pytest.approx(-30 + 210 * unit.cdf.grid)
    assert unit.quantiles is not None
    assert wide.quantiles is not None
    for tau, each in wide.quantiles.items():
        assert each.value == pytest.approx(-30 + 210 * unit.quantiles[tau].value)


@pytest.mark.parametrize("missing", [False, True])
def test_square_wave_finds_the_shape(missing: bool) -> None:
    """Smoothed, and so biased: said to be, without intervals, and close where it is smooth."""
    values = np.random.default_rng(SEED).beta(5, 3, 60_000)
    truth = np.quantile(values, (0.25, 0.5, 0.75))
    if missing:
        values[::5] = math.nan
    mechanism = grid("square_wave", [1_000_000, 2_000_000], missing, 65)
    [table] = replicate(mechanism, values, np.arange(60_000) % 2, 1, SEED)
    found = mechanism.numeric(table, 0, 1, quantiles=(0.25, 0.5, 0.75))
    assert found.smoothed
    assert found.quantiles is not None
    assert found.cdf is not None
    assert np.isinf(found.cdf.standard_errors).all()
    values_found = [each.value for each in found.quantiles.values()]
    assert values_found == pytest.approx(truth, abs=0.05)
    assert all(each.interval() == (-math.inf, math.inf) for each in found.quantiles.values())
    assert (np.diff(found.cdf.values) >= 0).all()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_reports_and_hardly_any_present(name: str, missing: bool) -> None:
    mechanism = grid(name, [1_000_000, 2_000_000], missing)
    result = mechanism.numeric(np.zeros((2, mechanism.count_length), dtype=int), 0, 1)
    assert math.isnan(result.mean.value)
    assert result.mean.interval() == (-math.inf, math.inf)
    if missing:
        row = matrix(mechanism.shape, mechanism.laws[0])[-1]
        table = np.stack((np.rint(10_000 * row), 0 * row)).astype(int)
        result = mechanism.numeric(table, 0, 1)
        assert math.isnan(result.mean.value)
        assert result.missing is not None
        low, high = result.missing.interval()
        assert low <= 1 <= high


@pytest.mark.parametrize("name", ["piecewise", "hybrid"])
def test_numbers_between_inputs(name: str) -> None:
    """A number between two inputs is rounded so that the mean is kept."""
    mechanism = grid(name, [8_000_000], points=5)
    values = np.full(4000, 0.3)
    found = [each.mean for each in estimates(mechanism, values, 0, 100)]
    stated = mechanism.variance(0, values) / len(values)
    means = np.array([each.value for each in found])
    check_normal(means.mean(), 0.3, (stated / 100) ** 0.5, label=f"seed {SEED}")
    check_variance(means, stated, label=f"seed {SEED}")
    covered = sum(low <= 0.3 <= high for low, high in (each.interval() for each in found))
    check_at_least(covered, 100, 0.94, label=f"seed {SEED}")


def test_a_mechanism_of_one_level_by_hand() -> None:
    hybrid = HybridMechanism(epsilon=4.0, points=33)
    reports = hybrid.report(np.full(5000, 0.7), SeededSource(SEED))
    found = hybrid.numeric(hybrid.tally(reports), -1.0, 1.0)
    assert found.mean.value == pytest.approx(0.4, abs=6 * found.mean.standard_error)
