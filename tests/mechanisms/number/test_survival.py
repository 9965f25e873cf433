"""Distributions and quantiles from random thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from statistical import check_at_least

from mechanisms.number.strata import Survival, stratify
from mechanisms.registry import build

SEED = 20241103
TAUS = (0.1, 0.25, 0.5, 0.75, 0.9)
RNG = np.random.default_rng(SEED)
DATA = {
    "uniform": (np.arange(4000) + 0.5) / 4000,
    "skewed": RNG.beta(2, 20, 4000),
    "atoms": np.where(RNG.random(4000) < 0.4, 0.3, RNG.beta(5, 1, 4000)),
    "two": np.repeat([0.0, 1.0], [2800, 1200]),
    "constant": np.full(4000, 0.5),
}


def quantile(values: NDArray[np.float64], tau: float) -> float:
    """Return the least value at which the distribution function reaches ``tau``."""
    kept = np.sort(values[~np.isnan(values)])
    return float(kept[math.ceil(tau * len(kept)) - 1])


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    ("ladder", "missing"), [([1_000_000], False), ([500_000, 4_000_000], True)]
)
def test_quantiles_are_covered_whatever_the_distribution(
    data: str, ladder: list[int], missing: bool
) -> None:
    values, repeats = DATA[data].copy(), 200
    if missing:
        values[::6] = math.nan
    levels = np.where(values > 0.4, len(ladder) - 1, 0)
    mechanism = build({"name": "threshold", "missing": missing}, ladder, "delay")
    counts = replicate(mechanism, values, levels, repeats, SEED)
    found = [mechanism.numeric(table, 0, 1).quantiles for table in counts]
    for tau in TAUS:
        truth = quantile(values, tau)
        ends = [each[tau].interval() for each in found if each is not None]
        covered = sum(low <= truth <= high for low, high in ends)
        label = f"{data} tau {tau} seed {SEED}"
        check_at_least(covered, repeats, 0.95, label=label)


@pytest.mark.parametrize("data", ["uniform", "skewed"])
def test_distribution_function(data: str) -> None:
    values, repeats = DATA[data], 200
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    counts = replicate(mechanism, values, 0, repeats, SEED)
    covered, total = 0, 0
    for table in counts:
        cdf = mechanism.numeric(table, 0, 1).cdf
        assert cdf is not None
        assert len(cdf.grid) == 64
        assert (np.diff(cdf.values) >= 0).all()
        assert (cdf.values >= 0).all()
        assert (cdf.values <= 1).all()
        truth = (values <= cdf.grid[:, None]).mean(axis=1)
        covered += int((np.abs(cdf.values - truth) <= 1.96 * cdf.standard_errors).sum())
        total += 64
    assert covered / total > 0.95


def test_median_is_close_and_its_error_is_not_understated() -> None:
    values, repeats = DATA["skewed"], 300
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    truth = quantile(values, 0.5)
    errors, stated = [], []
    for table in replicate(mechanism, values, 0, repeats, SEED):
        quantiles = mechanism.numeric(table, 0, 1).quantiles
        assert quantiles is not None
        errors.append(quantiles[0.5].value - truth)
        stated.append(quantiles[0.5].standard_error)
    assert np.sqrt(np.mean(np.square(errors))) < np.mean(stated) < 0.1


@pytest.mark.parametrize("data", ["uniform", "skewed", "two"])
def test_least_variance_is_below_the_variance_and_close_to_it(data: str) -> None:
    values = np.tile(DATA[data], 25)
    mechanism = build({"name": "threshold", "missing": False}, [12_000_000], "delay")
    [table] = replicate(mechanism, values, 0, 1, SEED)
    pairs = np.array(mechanism.probabilities(0))
    strata = stratify(table.reshape(1, 64, 2), np.full(64, 1 / 64), pairs)
    least = Survival(strata, 1.0, 0.0, 1.0).least_variance()
    assert values.var() - 0.01 < least < values.var() + 0.002


def test_few_reports_tell_nothing_of_quantiles() -> None:
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    [table] = replicate(mechanism, np.full(30, 0.9), 0, 1, SEED)
    result = mechanism.numeric(table, -5, 5)
    assert result.quantiles is not None
    assert result.quantiles[0.5].interval() == (-5, 5)


def test_strata_are_merged_until_each_has_two_reports() -> None:
    table = np.zeros((1, 8, 2), dtype=np.int64)
    table[0, :, 1] = [0, 1, 0, 3, 2, 1, 0, 0]
    strata = stratify(table, np.full(8, 1 / 8), np.array([[0.75, 0.25]]))
    assert strata.reports.tolist() == [4, 3]
    assert strata.weights.tolist() == [0.5, 0.5]
    lone = stratify(table[:, 1:2], np.ones(1), np.array([[0.75, 0.25]]))
    assert lone.reports.tolist() == [1]
    assert (np.diagonal(lone.sampled[0]) > 0).all()
