"""Means of numbers, by every mechanism: replicas, coverage, predictions, planted faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from replicas import replicate
from scipy import stats
from statistical import check_at_least, check_normal, check_variance
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.estimate import SCORE_REPORTS
from mechanisms.estimators.variance import bit_means, split_bits_variance
from mechanisms.number import gridmeans
from mechanisms.number.answers import NumericEstimates
from mechanisms.number.laws import contributions, matrix
from mechanisms.registry import build
from mechanisms.testing import SeededSource
from papers.float_numbers import sampled_bit_variance, threshold_variance

pytestmark = pytest.mark.slow

SEED = 20241102
RNG = np.random.default_rng(SEED)
UNIFORM = (np.arange(2000) + 0.5) / 2000
DATA = {
    "uniform": UNIFORM,
    "skewed": RNG.beta(2, 20, 2000),
    "ends": np.where(RNG.random(2000) < 0.4, 0.0, 1.0),
}
SKEWED = DATA["skewed"]
SPECS: dict[str, dict[str, Any]] = {
    "threshold": {},
    "sampled_bit": {"bits": 10},
    "split_bits": {"bits": 4},
    "sampled_bits": {"bits": 10, "count": 2},
    "duchi": {},
    "piecewise": {"points": 33},
    "hybrid": {"points": 33},
    "square_wave": {"points": 33},
}
GRIDS = ("piecewise", "hybrid", "square_wave", "duchi")
every_mechanism = pytest.mark.parametrize("name", SPECS)
with_and_without = pytest.mark.parametrize("missing", [False, True])


def number(name: str, *epsilons: float, missing: bool = False, **parameters: int) -> Any:
    spec = {"name": name, "missing": missing, **SPECS[name], **parameters}
    return build(spec, [round(epsilon * 1e6) for epsilon in epsilons], "delay")


def estimates(mechanism: Any, values: Any, levels: Any, repeats: int) -> list[NumericEstimates]:
    counts = replicate(mechanism, values, levels, repeats, SEED)
    return [mechanism.numeric(table, 0.0, 1.0, quantiles=()) for table in counts]


def covering(found: list[Any], truth: float) -> int:
    return sum(low <= truth <= high for low, high in (each.interval() for each in found))


@vectors("mean_70")
@pytest.mark.parametrize("name", ["threshold", "sampled_bit"])
def test_mean_from_a_share(vector: Vector, name: str) -> None:
    """The share that answers "above" is the same at every threshold, or bit."""
    mechanism = number(name, vector.inputs["eps"])
    above = round(20 * vector.inputs["lambda_h"])
    counts = [20 - above, above] * (mechanism.count_length // 2)
    vector.check(mechanism.numeric([counts], vector.inputs["l"], vector.inputs["h"]).mean.value)


@pytest.mark.parametrize("epsilon", [1, 5])
@with_and_without
@every_mechanism
def test_replicas(name: str, missing: bool, epsilon: int) -> None:
    """Unbiased, of the predicted variance, covered, and so said by the standard error."""
    repeats = 40 if name == "square_wave" else 80
    data = sorted(DATA)[(list(SPECS).index(name) + epsilon) % 3]
    values, mechanism = DATA[data], number(name, epsilon, missing=missing)
    n, truth = len(values), values.mean()
    found = [each.mean for each in estimates(mechanism, values, 0, repeats)]
    stated = mechanism.variance(0, values, n) / n
    means = np.array([each.value for each in found])
    label = f"{name} {data} at {epsilon}, missing {missing}, seed {SEED}"
    # A ratio's variance, and bias, are those of its leading order and terms of the order of 1/n.
    slack = 3 * stated if missing else 0.0
    error = (1.05 * stated / repeats) ** 0.5
    check_normal(max(abs(means.mean() - truth) - slack, 0.0), 0.0, error, label=label)
    check_variance(means, 1.01 * stated, label=label)
    if name == "square_wave":
        return
    check_at_least(covering(found, truth), repeats, 0.93, label=label)
    plugged = np.mean([each.standard_error**2 for each in found])
    # Answers of one bit do not tell the variance of the values, which is then not subtracted.
    assert 0.95 * stated <= plugged <= 1.15 * (stated + values.var() / n)


def test_few_reports_of_which_hardly_any_is_far_from_the_truth_are_covered() -> None:
    """At epsilon 8 one answer of 120 is anywhere: normal intervals held in 92 % of windows."""
    mechanism, windows = number("hybrid", 8), 20_000
    law = matrix(mechanism.shape, mechanism.laws[0])[mechanism.resolution // 2]
    scores = np.array(contributions(mechanism.shape, mechanism.laws[0]).value, dtype=float)
    counts = np.random.default_rng(SEED).multinomial(30, law / law.sum(), windows)
    low, high = mechanism.numeric(counts[:1], 0.0, 1.0, quantiles=()).mean.interval()
    covered = np.abs(counts @ scores / 30) <= (high - low) / 2
    check_at_least(int(covered.sum()), windows, 0.95, label=f"seed {SEED}")


def test_rare_answers_make_intervals_no_longer_than_they_need(monkeypatch: Any) -> None:
    mechanism, lengths = number("hybrid", 8), []
    for normal in (True, False):
        if normal:
            monkeypatch.setattr(gridmeans, "_MOST_TAIL", 1.0)
        else:
            monkeypatch.undo()
        for n in (10, 30, 199):
            counts = np.zeros((1, mechanism.count_length), dtype=int)
            counts[0, mechanism.count_length // 2] = n
            low, high = mechanism.numeric(counts, 0.0, 1.0, quantiles=()).mean.interval()
            lengths.append(high - low)
    assert np.divide(lengths[3:], lengths[:3]) == pytest.approx([1.25, 1.2, 1.03], abs=0.01)


@with_and_without
@every_mechanism
def test_replicas_at_mixed_levels(name: str, missing: bool) -> None:
    """Clients with large values are at the strongest level, and miss values more often."""
    n, repeats = 1000, 80
    values = np.random.default_rng(SEED).beta(2, 5, n)
    levels = np.where(values > 0.3, 2, np.arange(n) % 2)
    if missing:
        values[(values > 0.3) & (np.arange(n) % 3 == 0)] = math.nan
    found = estimates(number(name, 1, 2, 4, missing=missing), values, levels, repeats)
    truth, label = np.nanmean(values), f"{name} missing {missing} seed {SEED}"
    means = np.array([each.mean.value for each in found])
    variance = np.mean([each.mean.standard_error**2 for each in found])
    slack = 3 * variance if missing else 0.0
    error = 1.05 * (variance / repeats) ** 0.5
    check_normal(abs(means.mean() - truth) - slack, 0.0, error, label=label)
    check_at_least(covering([each.mean for each in found], truth), repeats, 0.93, label=label)
    shares = [each.missing for each in found if each.missing is not None]
    assert len(shares) == repeats * missing
    if missing:
        gone = np.isnan(values).mean()
        error = 1.02 * (np.mean([each.standard_error**2 for each in shares]) / repeats) ** 0.5
        check_normal(np.mean([each.value for each in shares]), gone, error, label=label)
        check_at_least(covering(shares, gone), repeats, 0.94, label=label)


@pytest.mark.parametrize(("epsilon", "missing"), [(1, False), (6, False), (2, True)])
@pytest.mark.parametrize("name", ["threshold", "sampled_bit", "duchi", "hybrid"])
def test_small_samples_cover(name: str, epsilon: float, missing: bool) -> None:
    repeats = 50
    for n in (1, 7, SCORE_REPORTS - 1):
        values = np.random.default_rng(SEED).beta(1, 4, n)
        if missing:
            values[: n // 4] = math.nan
        mechanism = number(name, epsilon, missing=missing)
        found = [each.mean for each in estimates(mechanism, values, 0, repeats)]
        label = f"{name} n {n} epsilon {epsilon} missing {missing} seed {SEED}"
        check_at_least(covering(found, np.nanmean(values)), repeats, 0.95, label=label)
        assert all(each.standard_error > 0 for each in found)


@pytest.mark.parametrize("epsilon", [6, 8])
@pytest.mark.parametrize("name", ["duchi", "sampled_bit"])
def test_means_are_covered_if_few_answers_differ(name: str, epsilon: float) -> None:
    """All values are alike, so that answers are binomial, and every number of them is looked at."""
    n, parameters = 2 * SCORE_REPORTS, {} if name == "duchi" else {"bits": 1}
    mechanism = number(name, epsilon, **parameters)
    yes = np.arange(n + 1)
    found = [mechanism.numeric([[n - each, each]], 0, 1, ()).mean for each in yes.tolist()]
    ends = np.array([each.interval() for each in found])
    means = np.arange(0.0, 0.3, 0.00025)[:, None]
    law = stats.binom.pmf(yes, n, (means - found[0].value) / (found[-1].value - found[0].value))
    covering = (law * ((ends[:, 0] <= means) & (means <= ends[:, 1]))).sum(axis=1)
    assert covering.min() >= 0.915
    assert covering.mean() >= 0.95


def test_reports_that_share_a_draw_have_the_whole_step_of_an_answer() -> None:
    """It is 1/(p - q), and four times that if four reports share a draw."""
    found = number("sampled_bit", 0.5, bits=1).numeric([[30, 30]], 0, 1, ()).mean
    step = (math.exp(0.5) + 1) / (math.exp(0.5) - 1)
    assert found.widened(4).half == pytest.approx(4 * step / (2 * 60), rel=1e-5)
    # One of two answers of a report moves the mean by half as much.
    twice = number("sampled_bits", 8).numeric([[15, 0] * 10], 0, 1, ()).mean
    assert twice.half == pytest.approx(0.5 / (2 * twice.n))


@pytest.mark.parametrize("name", ["threshold", "sampled_bit", "split_bits"])
def test_predictions_are_the_closed_forms(name: str) -> None:
    mechanism = number(name, 2)
    pairs = mechanism.probabilities(0)
    stated = {
        "threshold": lambda: threshold_variance(*pairs[0], SKEWED, strata=64),
        "sampled_bit": lambda: sampled_bit_variance(*pairs[0], SKEWED, 10),
        "split_bits": lambda: split_bits_variance(pairs, SKEWED),
    }[name]()
    assert mechanism.variance(0, SKEWED, 10**9) == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 6])
@with_and_without
@every_mechanism
def test_no_data_are_worse_than_the_worst(name: str, missing: bool, epsilon: float) -> None:
    fine = {"points": 65} if "points" in SPECS[name] else {}
    mechanism = number(name, epsilon, missing=missing, **fine)
    worst, generator = mechanism.variance(0), np.random.default_rng(SEED)
    pictures = [*DATA.values(), generator.beta(0.2, 0.3, 500), generator.beta(9, 9, 500)]
    pictures += [np.full(1, u) for u in (0.0, 0.1, 0.25, 0.5, 0.503, 0.8, 1.0)]
    pictures += [np.clip(UNIFORM + shift, 0, 1) for shift in (-0.3, 0.2)]
    found = max(mechanism.variance(0, picture) for picture in pictures)
    # Rounding to a grid adds a little where the numbers are apart, too.
    assert 0.9 * worst <= found <= 1.003 * worst
    if name in ("threshold", *GRIDS):
        # And as the chooser computes it, without numpy.
        true = mechanism.variance(0, n=10**9)
        assert mechanism.worst_variance(0) == pytest.approx(true, rel=0.01)


@every_mechanism
def test_means_are_estimated_on_the_mechanism_itself(name: str) -> None:
    mechanism, n = number(name, 2), 20_000
    generator = np.random.default_rng(SEED)
    ids = generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)
    values = generator.beta(2, 5, size=n)
    reports = mechanism.report(values, SeededSource(SEED), ids)
    mean = mechanism.numeric(mechanism.tally(reports, ids), -10.0, 30.0).mean
    assert mean.n == n
    if name != "square_wave":
        error = mean.standard_error
        check_normal(mean.value, 40 * values.mean() - 10, error, label=f"seed {SEED}")


@with_and_without
@pytest.mark.parametrize("name", ["sampled_bit", "split_bits"])
def test_bit_means(name: str, missing: bool) -> None:
    n, repeats, bits = 2000, 80, SPECS[name]["bits"]
    values = np.random.default_rng(SEED).beta(2, 3, n)
    if missing:
        values[::5] = math.nan
    found = estimates(number(name, 2, missing=missing), values, 0, repeats)
    truth = bit_means(values[~np.isnan(values)], bits)
    columns = list(zip(*(each.bit_means or () for each in found), strict=True))
    assert len(columns) == bits
    for i in range(4):
        label = f"{name} bit {i} missing {missing} seed {SEED}"
        check_at_least(covering(columns[i], truth[i]), repeats, 0.93, label=label)
    # The rarest bits are seldom sampled, if ever; that is said.
    assert all(math.isinf(each.standard_error) for each in columns[-1] if each.n == 0)


def test_bits_that_are_seldom_sampled_share_a_stratum() -> None:
    """With 100 reports and 10 bits the lower ones have none; the mean stays unbiased."""
    values, repeats = np.full(100, 0.777), 500
    mechanism = number("sampled_bit", 4)
    counts = replicate(mechanism, values, 0, repeats, SEED)
    assert (counts.reshape(repeats, 10, 2).sum(axis=2) == 0).any(axis=1).mean() > 0.9
    means = [mechanism.numeric(table, 0.0, 1.0, ()).mean.value for table in counts]
    error = (1.1 * sampled_bit_variance(*mechanism.probabilities(0)[0], values, 10) / 100) ** 0.5
    check_normal(np.mean(means), 0.777, error / repeats**0.5, label=f"seed {SEED}")


@pytest.mark.parametrize("name", ["piecewise", "hybrid"])
def test_numbers_between_inputs(name: str) -> None:
    """A number between two inputs of a coarse grid is rounded so that the mean is kept."""
    mechanism = number(name, 8, points=5)
    values = np.full(4000, 0.3)
    means = np.array([each.mean.value for each in estimates(mechanism, values, 0, 100)])
    stated = mechanism.variance(0, values) / len(values)
    check_normal(means.mean(), 0.3, (stated / 100) ** 0.5, label=f"seed {SEED}")
    check_variance(means, stated, label=f"seed {SEED}")


def test_faults_are_caught() -> None:
    """A debias left out, the strata left out, and a level read as another one."""
    repeats, n = 300, len(SKEWED)

    def stated(mechanism: Any) -> float:
        return float(mechanism.variance(0, SKEWED, n)) / n

    def above(mechanism: Any) -> Any:
        return replicate(mechanism, SKEWED, 0, repeats, SEED)[:, 0, 1::2].sum(axis=1) / n

    strong, weak = number("threshold", 8), number("threshold", 1)
    p, q = strong.probabilities(0)[0]
    plain = (above(strong) - q) / (p - q)
    with pytest.raises(AssertionError):
        check_variance(plain, stated(strong))
    shares, error = above(weak), (stated(weak) / repeats) ** 0.5
    with pytest.raises(AssertionError):
        check_normal(shares.mean(), SKEWED.mean(), error)
    hybrid = number("hybrid", 1, 1.5)
    counts = replicate(hybrid, SKEWED, 0, repeats, SEED)[:, 0]
    right, wrong = (
        counts @ np.array(contributions(hybrid.shape, law).value, dtype=float) / n + 0.5
        for law in hybrid.laws
    )
    error = (stated(hybrid) / repeats) ** 0.5
    check_normal(right.mean(), SKEWED.mean(), error)
    with pytest.raises(AssertionError):
        check_normal(wrong.mean(), SKEWED.mean(), error)


@pytest.mark.parametrize("name", ["threshold", "square_wave"])
def test_range_is_applied_to_everything(name: str) -> None:
    mechanism = number(name, 2, missing=True)
    values = np.where(np.arange(2000) % 4 == 0, math.nan, 0.25)
    [table] = replicate(mechanism, values, 0, 1, SEED)
    unit, scaled = mechanism.numeric(table, 0, 1), mechanism.numeric(table, -30, 180)
    assert scaled.mean.value == pytest.approx(-30 + 210 * unit.mean.value)
    assert scaled.mean.standard_error == pytest.approx(210 * unit.mean.standard_error)
    assert scaled.missing == unit.missing
    assert scaled.cdf.grid == pytest.approx(-30 + 210 * unit.cdf.grid)
    assert scaled.cdf.values == pytest.approx(unit.cdf.values)
    for tau, estimate in scaled.quantiles.items():
        assert estimate.value == pytest.approx(-30 + 210 * unit.quantiles[tau].value)
        ends = unit.quantiles[tau].interval()
        assert estimate.interval() == pytest.approx([-30 + 210 * end for end in ends])


@with_and_without
def test_square_wave_finds_the_shape(missing: bool) -> None:
    """Smoothed, and so biased: said to be, without intervals, and close where it is smooth."""
    values = np.random.default_rng(SEED).beta(5, 3, 60_000)
    truth = np.quantile(values, (0.25, 0.5, 0.75))
    if missing:
        values[::5] = math.nan
    mechanism = number("square_wave", 1, 2, missing=missing, points=65)
    [table] = replicate(mechanism, values, np.arange(60_000) % 2, 1, SEED)
    found = mechanism.numeric(table, 0, 1, quantiles=(0.25, 0.5, 0.75))
    assert found.smoothed
    assert np.isinf(found.cdf.standard_errors).all()
    assert (np.diff(found.cdf.values) >= 0).all()
    quantiles = list(found.quantiles.values())
    assert [each.value for each in quantiles] == pytest.approx(truth, abs=0.05)
    assert all(each.interval() == (-math.inf, math.inf) for each in quantiles)


@with_and_without
@every_mechanism
def test_no_reports_and_hardly_any_present(name: str, missing: bool) -> None:
    mechanism = number(name, 1, 2, missing=missing)
    result = mechanism.numeric(np.zeros((2, mechanism.count_length), dtype=int), 0, 1)
    assert math.isnan(result.mean.value)
    assert result.mean.interval() == (-math.inf, math.inf)
    if name not in GRIDS:
        assert result.cdf is result.quantiles is None
    if missing:
        if name in GRIDS:
            row = matrix(mechanism.shape, mechanism.laws[0])[-1]
            table = np.stack((np.rint(10_000 * row), 0 * row)).astype(int)
        else:
            [table] = replicate(mechanism, np.full(300, math.nan), 1, 1, SEED)
        result = mechanism.numeric(table, 0, 1)
        assert math.isnan(result.mean.value)
        low, high = result.missing.interval()
        assert low <= 1 <= high + 0.2


def test_what_does_not_fit_is_refused() -> None:
    mechanism = number("threshold", 1)
    counts = np.ones((1, 128), dtype=int)
    for low, high in ((1, 1), (2, 1), (math.nan, 1), (0, math.inf)):
        with pytest.raises(ParameterError, match="range"):
            mechanism.numeric(counts, low, high)
    for tau in (0, 1, math.nan):
        with pytest.raises(ParameterError, match="quantiles"):
            mechanism.numeric(counts, 0, 1, quantiles=[tau])
