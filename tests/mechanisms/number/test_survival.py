"""Distributions and quantiles from random thresholds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from scipy import optimize, stats
from statistical import check_at_least

from mechanisms.estimators.isotonic import rising_squares
from mechanisms.estimators.pooling import difference
from mechanisms.number.strata import GRID, QuantileRegion, Survival, stratify
from mechanisms.registry import build
from pipelines.aggregation.comparison import Ends

pytestmark = pytest.mark.slow

SEED = 20241103
REPEATS = 100
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


def evened_out(values: NDArray[np.float64], tau: float, strata: int) -> float:
    """Return the quantile of the distribution whose function is averaged over each stratum."""
    above = np.clip(values * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
    middles = (np.arange(strata) + 0.5) / strata
    return float(np.interp(tau, [0.0, *(1 - above), 1.0], [0.0, *middles, 1.0]))


def rising(shape: str, n: int) -> NDArray[np.float64]:
    """Return values whose distribution function rises everywhere."""
    middles = (np.arange(n) + 0.5) / n
    return np.asarray({"uniform": stats.uniform(), "beta": stats.beta(2, 6)}[shape].ppf(middles))


def intervals(
    values: NDArray[np.float64], ladder: list[int], tau: float, repeats: int = REPEATS
) -> NDArray[np.float64]:
    """Return the intervals of a quantile, ``(repeats, 2)``; levels take turns."""
    missing = bool(np.isnan(values).any())
    mechanism = build({"name": "threshold", "missing": missing}, ladder, "delay")
    tables = replicate(mechanism, values, np.arange(len(values)) % len(ladder), repeats, SEED)
    found = (mechanism.numeric(each, 0, 1, (tau,)).quantiles[tau] for each in tables)
    return np.array([each.interval() for each in found])


def check_covered(ends: NDArray[np.float64], truth: float, label: str) -> None:
    covered = int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
    check_at_least(covered, len(ends), 0.94, label=f"{label} seed {SEED}")


@pytest.mark.parametrize(
    ("tau", "shape", "ladder"),
    [
        (0.1, "uniform", [1_000_000]),
        (0.5, "beta", [1_000_000]),
        (0.9, "beta", [2_000_000]),
        (0.5, "uniform", [2_000_000]),
        (0.1, "beta", [500_000, 2_000_000]),
        (0.9, "uniform", [500_000, 2_000_000]),
    ],
)
def test_quantiles_are_covered(tau: float, shape: str, ladder: list[int]) -> None:
    values = rising(shape, 2000)
    ends = intervals(values, ladder, tau)
    check_covered(ends, quantile(values, tau), f"{shape} {ladder} tau {tau}")


@pytest.mark.parametrize(("n", "shape"), [(60, (2, 8)), (240, (1, 20)), (8000, (1, 150))])
@pytest.mark.parametrize("tau", [0.1, 0.9])
def test_quantiles_are_covered_where_density_falls(
    n: int, shape: tuple[int, int], tau: float
) -> None:
    """Strata are wide, or most of the values lie in one of 64, near one end of the range."""
    values = stats.beta(*shape).ppf((np.arange(n) + 0.5) / n)
    values = values if tau > 0.5 else 1 - values
    ends = intervals(values, [6_000_000], tau)
    check_covered(ends, quantile(values, tau), f"{n} {shape} {tau}")


@pytest.mark.parametrize(
    ("values", "tau", "most"),
    [
        ([1, 1, 19, 19, 19], 0.5, 2.1),
        ([0, 1, 2, 3, 4], 0.9, 1.7),
        ([6, 6, 24, 24, 24], 0.9, 1.9),
        ([4, 15, 29], 0.75, 2.0),
    ],
)
def test_quantiles_within_three_64ths_are_covered(
    values: list[int], tau: float, most: float
) -> None:
    """Values are in tenths of a 64th, from the middle of the range on, and ``most`` is in 64ths."""
    given = np.resize(values, 8000) / 640 + 0.5
    ends = intervals(given, [6_000_000], tau)
    check_covered(ends, quantile(given, tau), f"crowded {tau}")
    assert 64 * np.ptp(ends, axis=1).mean() < most


@pytest.mark.parametrize(("n", "micro"), [(400, 4_000_000), (600, 2_000_000)])
@pytest.mark.parametrize("tau", [0.1, 0.75, 0.9])
def test_quantiles_of_few_values_that_are_all_alike_are_covered(
    n: int, micro: int, tau: float
) -> None:
    ends = intervals(np.full(n, 0.5), [micro], tau)
    check_covered(ends, 0.5, f"alike {n} {tau}")


@pytest.mark.parametrize(
    ("n", "micro", "most"),
    [(150, 4_000_000, 0.13), (500, 1_000_000, 0.102), (900, 1_000_000, 0.09)],
)
def test_values_that_only_seem_crowded_have_short_intervals(
    n: int, micro: int, most: float
) -> None:
    """Few strata, or few reports in each, hardly tell an exponential distribution from one value.

    The longest are 1.15 times as long as if no values were ever taken to be crowded.
    """
    values = stats.expon(scale=0.1).ppf((np.arange(n) + 0.5) / n)
    ends = intervals(np.minimum(values, 1), [micro], 0.25)
    check_covered(ends, quantile(values, 0.25), f"exponential {n}")
    assert np.ptp(ends, axis=1).mean() < most


@pytest.mark.parametrize("tau", [0.1, 0.25, 0.75])
def test_quantiles_are_covered_where_half_of_the_values_is_alike(tau: float) -> None:
    given = np.resize([0.02, 0.98], 8000)
    check_covered(intervals(given, [6_000_000], tau), quantile(given, tau), f"two points {tau}")


@pytest.mark.parametrize("tau", [0.25, 0.75])
def test_quantiles_of_few_reports_are_covered_where_values_have_two_humps(tau: float) -> None:
    """Shares are near 0 or 1 one stratum further, and have far less noise there."""
    middles = (np.arange(50) + 0.5) / 50
    values = np.concatenate([stats.beta(20, 60).ppf(middles), stats.beta(60, 20).ppf(middles)])
    check_covered(intervals(values, [8_000_000], tau), quantile(values, tau), f"humps {tau}")


@pytest.mark.parametrize(
    ("far", "first", "last", "gap"),
    [(1.5, 6.4, 6.4, True), (1.7, 6.4, 6.4, False), (1.5, 6.2, 6.4, False), (1.5, 6.4, 6.2, False)],
)
def test_gap_is_between_two_steep_edges(far: float, first: float, last: float, gap: bool) -> None:
    """A likelihood ratio of 5 is one from the estimate, and one of 40, if there is one, far."""
    region = QuantileRegion(Survival(*[None] * 4), 0.5, 0.0)  # type: ignore[arg-type]
    region.__dict__["_nodes"] = np.array([[-far, -1, 1, far], [-first, -(5**0.5), 5**0.5, last]])
    assert region.in_gap == gap


def test_a_quantile_is_in_the_middle_of_a_flat() -> None:
    table = np.array([[[5, 15], [10, 10], [10, 10], [15, 5]]])
    strata = stratify(table, np.full(4, 0.25), np.array([[0.75, 0.25]]))
    assert Survival(strata, 1.0, 0.0, 1.0).quantile(0.5, (80,)).value == 0.5


def test_medians_and_their_differences_are_covered_at_the_edges_of_a_gap() -> None:
    """Half of the values are near 0.3, half near 0.7: the median may be on either side."""
    mechanism = build({"name": "threshold", "missing": False}, [500_000], "delay")
    (kept, changed), random = np.array(mechanism.pairs()[0]), np.random.default_rng(SEED)
    above = 1 - np.interp((np.arange(64) + 0.5) / 64, [0.28, 0.32, 0.68, 0.72], [0, 0.5, 0.5, 1])
    yes = changed + (kept - changed) * above
    tables = random.multinomial(20_000, np.stack([1 - yes, yes], axis=1).ravel() / 64, (800, 1))
    found = [mechanism.numeric(each, 0, 1, (0.5,)).quantiles[0.5] for each in tables]
    # Tables of results have the interval of 95 % alone.
    found = [replace(each, region=Ends(*each.interval())) for each in found]
    for edge in (0.32, 0.68):
        check_covered(np.array([each.interval() for each in found]), edge, f"gap {edge}")
    apart = [difference(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
    check_covered(np.array([(each.low, each.high) for each in apart]), 0.36, "difference")


@pytest.mark.parametrize("rest", [0.5, 1.0])
def test_a_quantile_at_the_edge_between_zeros_and_a_gap_is_covered(rest: float) -> None:
    """Nine values in ten are 0, the others lie above ``rest``: the .9 quantile is 0, or above."""
    mechanism = build({"name": "threshold", "missing": False}, [4_000_000], "delay")
    (kept, changed), random = np.array(mechanism.pairs()[0]), np.random.default_rng(SEED)
    middles = (np.arange(64) + 0.5) / 64
    yes = changed + (kept - changed) * 0.1 * np.interp(middles, [0, rest, 1.001], [1, 1, 0])
    tables = random.multinomial(20_000, np.stack([1 - yes, yes], axis=1).ravel() / 64, (400, 1))
    found = [mechanism.numeric(each, quantiles=(0.9,)).quantiles[0.9] for each in tables]
    covered = sum(each.interval()[0] <= 0.0 for each in found)
    check_at_least(covered, len(found), 0.88, label=f"the rest above {rest}")


def test_quantiles_of_values_that_can_be_missing_are_covered() -> None:
    values = np.random.default_rng(SEED).permutation(rising("beta", 2000))
    values[::3] = math.nan
    for tau in (0.1, 0.5, 0.9):
        check_covered(intervals(values, [2_000_000], tau, 60), quantile(values, tau), f"tau {tau}")


def test_a_smaller_critical_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above fails if intervals are half as wide."""
    values = rising("uniform", 2000)
    original = QuantileRegion._critical
    monkeypatch.setattr(
        QuantileRegion, "_critical", lambda region, level: original(region, level) / 4
    )
    ends = intervals(values, [2_000_000], 0.5)
    with pytest.raises(AssertionError):
        check_covered(ends, quantile(values, 0.5), "planted")


@pytest.mark.parametrize(
    ("shape", "n", "half"),
    [
        ("uniform", 2000, 0.085),
        ("beta", 2000, 0.045),
        ("uniform", 20_000, 0.04),
        ("beta", 20_000, 0.02),
    ],
)
def test_medians_at_epsilon_2_are_as_precise_as_published(shape: str, n: int, half: float) -> None:
    ends = intervals(rising(shape, n), [2_000_000], 0.5, 120)
    assert np.median(ends[:, 1] - ends[:, 0]) / 2 == pytest.approx(half, rel=0.08)


@pytest.mark.parametrize("strata", [2, 3, 4, 5, 6, 9])
def test_critical_values_of_mirrored_shares_are_mirrored(strata: int) -> None:
    def critical(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        region = QuantileRegion(Survival(*[None] * 4), 0.5, 0.5)  # type: ignore[arg-type]
        region.__dict__["_weighted"] = shares, np.full(strata, 40.0)
        return region._critical(0.95)[np.arange((strata - 1) * GRID + 1) % GRID > 0]

    shares = np.linspace(0.1, 0.9, strata) ** 3
    assert critical(shares) == pytest.approx(critical(1 - shares[::-1])[::-1])
    assert strata == 2 or np.ptp(critical(shares)) > 0.1


@pytest.mark.parametrize("data", ["ten", "atoms", "two", "constant"])
def test_quantiles_of_ties_are_covered_as_evened_out_over_a_stratum(data: str) -> None:
    values = np.repeat((np.arange(10) + 0.5) / 10, 400) if data == "ten" else DATA[data]
    truth = evened_out(values, 0.5, 64)
    check_covered(intervals(values, [2_000_000], 0.5), truth, data)


def test_interval_grows_with_its_level_and_holds_the_value() -> None:
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    for n in (3, 30, 50, 90, 700):
        for table in replicate(mechanism, rising("beta", n), 0, 5, SEED):
            found = mechanism.numeric(table, 0, 1).quantiles or {}
            for each in found.values():
                ends = [each.interval(level) for level in (0.5, 0.68, 0.8, 0.9, 0.95, 0.99, 0.999)]
                lows, highs = zip(*ends, strict=True)
                assert list(lows) == sorted(lows, reverse=True)
                assert list(highs) == sorted(highs)
                assert 0 <= lows[0] <= each.value <= highs[0] <= 1


@pytest.mark.parametrize("most", [0.3, math.inf])
def test_squares_of_rising_fits(most: float) -> None:
    random = np.random.default_rng(SEED)
    values, weights = random.normal(0.4, 0.5, 30), random.uniform(0.5, 3, 30)
    squares = rising_squares(values, weights, most)
    for size in range(31):
        fit = np.empty(0)
        if size:
            fit = optimize.isotonic_regression(values[:size], weights=weights[:size]).x
        best = weights[:size] @ (values[:size] - np.minimum(fit, most)) ** 2
        assert squares[size] == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("data", ["uniform", "skewed"])
def test_distribution_function(data: str) -> None:
    values = DATA[data]
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    counts = replicate(mechanism, values, 0, REPEATS, SEED)
    covered = 0
    for table in counts:
        cdf = mechanism.numeric(table, 0, 1, quantiles=()).cdf
        assert len(cdf.grid) == 64
        assert (np.diff(cdf.values, prepend=0, append=1) >= 0).all()
        truth = (values <= cdf.grid[:, None]).mean(axis=1)
        covered += int((np.abs(cdf.values - truth) <= 1.96 * cdf.standard_errors).sum())
    assert covered / (64 * REPEATS) > 0.95


def test_median_is_close_and_its_error_is_right() -> None:
    values, repeats = DATA["skewed"], 200
    mechanism = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    truth = quantile(values, 0.5)
    errors, stated = [], []
    for table in replicate(mechanism, values, 0, repeats, SEED):
        quantiles = mechanism.numeric(table, 0, 1, (0.5,)).quantiles
        errors.append(quantiles[0.5].value - truth)
        stated.append(quantiles[0.5].standard_error)
    assert np.mean(stated) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.15)


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
    assert mechanism.numeric(table, -5, 5).quantiles[0.5].interval() == (-5, 5)


def test_strata_are_merged_until_each_has_two_reports() -> None:
    table = np.zeros((1, 8, 2), dtype=np.int64)
    table[0, :, 1] = [0, 1, 0, 3, 2, 1, 0, 0]
    strata = stratify(table, np.full(8, 1 / 8), np.array([[0.75, 0.25]]))
    assert strata.reports.tolist() == [4, 3]
    assert strata.weights.tolist() == [0.5, 0.5]
    lone = stratify(table[:, 1:2], np.ones(1), np.array([[0.75, 0.25]]))
    assert lone.reports.tolist() == [1]
    assert (np.diagonal(lone.sampled[0]) > 0).all()
