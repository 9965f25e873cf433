"""Means of numbers, by every mechanism: verified values, replicas, coverage, planted faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from statistical import check_at_least, check_normal, check_variance
from vectors import Vector, vectors

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import (
    bit_means,
    sampled_bit_variance,
    split_bits_variance,
    threshold_variance,
)
from mechanisms.number.answers import NumericEstimates
from mechanisms.registry import build

SEED = 20241102
RNG = np.random.default_rng(SEED)
UNIFORM = (np.arange(3000) + 0.5) / 3000
SKEWED = RNG.beta(2, 20, 3000)
ATOMS = np.where(RNG.random(3000) < 0.4, 0.3, 1.0)
SPECS: dict[str, dict[str, Any]] = {
    "threshold": {},
    "sampled_bit": {"bits": 10},
    "split_bits": {"bits": 4},
}


def number(name: str, ladder: list[int], missing: bool = False) -> Mechanism:
    return build({"name": name, "missing": missing, **SPECS[name]}, ladder, "delay")


def estimates(
    mechanism: Mechanism, values: Any, levels: Any, repeats: int, seed: int = SEED
) -> list[NumericEstimates]:
    counts = replicate(mechanism, values, levels, repeats, seed)
    return [mechanism.numeric(table, 0.0, 1.0, quantiles=()) for table in counts]


def formula(mechanism: Mechanism, values: NDArray[np.float64]) -> float:
    pairs = mechanism.probabilities(0)
    if mechanism.name == "threshold":
        return threshold_variance(*pairs[0], values, strata=64)
    if mechanism.name == "sampled_bit":
        return sampled_bit_variance(*pairs[0], values, SPECS["sampled_bit"]["bits"])
    return split_bits_variance(pairs, values)


@vectors("mean_70")
@pytest.mark.parametrize("name", ["threshold", "sampled_bit"])
def test_mean_from_a_share(vector: Vector, name: str) -> None:
    """The share that answers "above" is the same at every threshold, or bit."""
    mechanism = number(name, [round(vector.inputs["eps"] * 1e6)])
    above = round(20 * vector.inputs["lambda_h"])
    counts = [20 - above, above] * (mechanism.count_length // 2)
    vector.check(mechanism.numeric([counts], vector.inputs["l"], vector.inputs["h"]).mean.value)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["UNIFORM", "SKEWED", "ATOMS"])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("epsilon", [1, 4])
def test_replicas(name: str, data: str, epsilon: int) -> None:
    """Unbiased, of the stated variance, and covered."""
    values, repeats = globals()[data], 400
    mechanism = number(name, [epsilon * 1_000_000])
    found = [each.mean for each in estimates(mechanism, values, 0, repeats)]
    n = len(values)
    # Random numbers of reports in a stratum add to the leading order at most one part in 20.
    stated = formula(mechanism, values) / n
    means = np.array([e.value for e in found])
    label = f"{name} {data} {epsilon} seed {SEED}"
    check_normal(means.mean(), values.mean(), (1.05 * stated / repeats) ** 0.5, label=label)
    check_variance(means, 1.025 * stated, label=label)
    covered = sum(low <= values.mean() <= high for low, high in (e.interval() for e in found))
    check_at_least(covered, repeats, 0.94, label=label)
    plugged = np.mean([e.standard_error**2 for e in found])
    # Bit means do not tell the variance of the values, which is then not subtracted.
    slack = values.var() / n if name == "sampled_bit" else 0.0
    # The least variance of values that agrees with a noisy survival function is a little low.
    assert 0.95 * stated <= plugged <= 1.15 * (stated + slack)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_replicas_at_mixed_levels(name: str, missing: bool) -> None:
    """Clients with large values are at the strongest level, and miss values more often."""
    n, repeats = 2000, 400
    values = np.random.default_rng(SEED).beta(2, 5, n)
    levels = np.where(values > 0.3, 2, np.arange(n) % 2)
    if missing:
        values[(values > 0.3) & (np.arange(n) % 3 == 0)] = math.nan
    mechanism = number(name, [1_000_000, 2_000_000, 3_000_000], missing)
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
        gone, share = np.isnan(values).mean(), [each.missing for each in found]
        assert all(e is not None for e in share)
        check_normal(
            np.mean([e.value for e in share if e]),
            gone,
            (np.mean([e.standard_error**2 for e in share if e]) / repeats) ** 0.5 * 1.02,
            label=label,
        )
        covered = sum(e.interval()[0] <= gone <= e.interval()[1] for e in share if e)
        check_at_least(covered, repeats, 0.94, label=label)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 7, 39, 199])
@pytest.mark.parametrize("name", ["threshold", "sampled_bit"])
def test_small_samples_cover(name: str, n: int) -> None:
    repeats = 200
    for epsilon, missing in ((1, False), (6, False), (2, True)):
        values = np.random.default_rng(SEED).beta(1, 4, n)
        if missing:
            values[: n // 4] = math.nan
        mechanism = number(name, [epsilon * 1_000_000], missing)
        found = [e.mean for e in estimates(mechanism, values, 0, repeats)]
        covered = sum(
            low <= np.nanmean(values) <= high for low, high in (e.interval() for e in found)
        )
        label = f"{name} n {n} epsilon {epsilon} missing {missing} seed {SEED}"
        check_at_least(covered, repeats, 0.95, label=label)
        assert all(e.standard_error > 0 for e in found)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", ["sampled_bit", "split_bits"])
def test_bit_means(name: str, missing: bool) -> None:
    n, repeats = 4000, 150
    values = np.random.default_rng(SEED).beta(2, 3, n)
    if missing:
        values[::5] = math.nan
    mechanism = number(name, [2_000_000], missing)
    bits = SPECS[name]["bits"]
    found = estimates(mechanism, values, 0, repeats)
    truth = bit_means(values[~np.isnan(values)], bits)
    assert all(each.bit_means is not None and len(each.bit_means) == bits for each in found)
    for i in range(4):
        at = [each.bit_means[i] for each in found if each.bit_means]
        label = f"{name} bit {i} missing {missing} seed {SEED}"
        covered = sum(low <= truth[i] <= high for low, high in (e.interval() for e in at))
        check_at_least(covered, repeats, 0.93, label=label)
    # The rarest bits are seldom sampled, if ever; that is said.
    last = [each.bit_means[-1] for each in found if each.bit_means]
    assert all(math.isinf(e.standard_error) for e in last if e.n == 0)


def test_bits_that_are_seldom_sampled_share_a_stratum() -> None:
    """With 100 reports and 10 bits the lower ones have none; the mean stays unbiased."""
    values, repeats = np.full(100, 0.777), 1000
    mechanism = number("sampled_bit", [4_000_000])
    counts = replicate(mechanism, values, 0, repeats, SEED)
    assert (counts.reshape(repeats, 10, 2).sum(axis=2) == 0).any(axis=1).mean() > 0.9
    means = [mechanism.numeric(table, 0.0, 1.0).mean.value for table in counts]
    error = (1.1 * sampled_bit_variance(*mechanism.probabilities(0)[0], values, 10) / 100) ** 0.5
    check_normal(np.mean(means), 0.777, error / repeats**0.5, label=f"seed {SEED}")


def test_faults_are_caught() -> None:
    """A debias left out, and the strata left out."""
    repeats = 300
    mechanism = number("threshold", [8_000_000])
    p, q = mechanism.probabilities(0)[0]
    counts = replicate(mechanism, SKEWED, 0, repeats, SEED)
    variance = formula(mechanism, SKEWED) / len(SKEWED)
    above = counts[:, 0, 1::2].sum(axis=1) / len(SKEWED)
    plain = (above - q) / (p - q)
    with pytest.raises(AssertionError):
        check_variance(plain, variance)
    weak = number("threshold", [1_000_000])
    above = replicate(weak, SKEWED, 0, repeats, SEED)[:, 0, 1::2].sum(axis=1) / len(SKEWED)
    with pytest.raises(AssertionError):
        check_normal(above.mean(), SKEWED.mean(), (formula(weak, SKEWED) / 3000 / repeats) ** 0.5)


def test_range_is_applied_to_everything() -> None:
    mechanism = number("threshold", [2_000_000], True)
    values = np.where(np.arange(2000) % 4 == 0, math.nan, 0.25)
    [table] = replicate(mechanism, values, 0, 1, SEED)
    unit, scaled = mechanism.numeric(table, 0, 1), mechanism.numeric(table, -30, 180)
    assert scaled.mean.value == pytest.approx(-30 + 210 * unit.mean.value)
    assert scaled.mean.standard_error == pytest.approx(210 * unit.mean.standard_error)
    assert scaled.missing == unit.missing
    assert scaled.cdf is not None
    assert unit.cdf is not None
    assert scaled.cdf.grid == pytest.approx(-30 + 210 * unit.cdf.grid)
    assert scaled.cdf.values == pytest.approx(unit.cdf.values)
    assert scaled.quantiles is not None
    assert unit.quantiles is not None
    for tau, estimate in scaled.quantiles.items():
        ends = unit.quantiles[tau].interval()
        assert estimate.interval() == pytest.approx([-30 + 210 * end for end in ends])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_no_reports_determine_nothing(name: str, missing: bool) -> None:
    mechanism = number(name, [1_000_000, 2_000_000], missing)
    result = mechanism.numeric(np.zeros((2, mechanism.count_length), dtype=int), 0, 1)
    assert math.isnan(result.mean.value)
    assert result.mean.interval() == (-math.inf, math.inf)
    assert result.cdf is None
    assert result.quantiles is None


@pytest.mark.parametrize("name", SPECS)
def test_a_mean_of_hardly_any_present_values_is_not_given(name: str) -> None:
    mechanism = number(name, [2_000_000], True)
    [table] = replicate(mechanism, np.full(300, math.nan), 0, 1, SEED)
    result = mechanism.numeric(table, 0, 1)
    assert math.isnan(result.mean.value)
    assert result.missing is not None
    low, high = result.missing.interval()
    assert low <= 1 <= high + 0.2


def test_what_does_not_fit_is_refused() -> None:
    mechanism = number("threshold", [1_000_000])
    counts = np.ones((1, 128), dtype=int)
    for low, high in ((1, 1), (2, 1), (math.nan, 1), (0, math.inf)):
        with pytest.raises(ParameterError, match="range"):
            mechanism.numeric(counts, low, high)
    for tau in (0, 1, math.nan):
        with pytest.raises(ParameterError, match="quantiles"):
            mechanism.numeric(counts, 0, 1, quantiles=[tau])
