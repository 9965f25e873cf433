"""Shares of categories: exact laws where they can be enumerated, replicas where they cannot."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from scipy import stats
from vectors import Vector, vectors

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.estimators.frequency import consistent_shares, norm_sub, shares
from mechanisms.estimators.pooling import part_and_whole, pooled
from mechanisms.estimators.ratios import conversions, retention
from mechanisms.estimators.variance import share_variance
from mechanisms.ordinal.estimates import ordinal
from mechanisms.registry import build

pytestmark = pytest.mark.slow

LADDER = [500_000, 1_000_000, 2_000_000]


def category(name: str, size: int, ladder: list[int]) -> Mechanism:
    return build({"name": name, "domain_size": size}, ladder, "colour")


@vectors("freq_grr")
def test_shares_from_counts(vector: Vector) -> None:
    grr = category("grr", vector.inputs["m"], [round(vector.inputs["eps"] * 1e6)])
    vector.check([e.value for e in grr.frequencies([vector.inputs["counts"]])])


@vectors("debias_mixed")
def test_mixed_levels_have_equal_weights(vector: Vector) -> None:
    """And where levels do not depend on values, inverse variances would weigh them so."""
    epsilons = vector.inputs["eps_levels"]
    rungs = sorted(set(epsilons))
    # A bit of symmetric unary encoding has half of the mechanism's epsilon.
    sue = category("sue", 2, [round(2e6 * epsilon) for epsilon in rungs])
    counts = np.zeros((len(rungs), 3), dtype=np.int64)
    for report, epsilon in zip(vector.inputs["reports"], epsilons, strict=True):
        counts[rungs.index(epsilon)] += (report, 0, 1)
    n = len(epsilons)
    estimate = sue.frequencies(counts)[0]
    vector.check(n * estimate.value, vector.expected["count"])
    vector.check(n**2 * estimate.standard_error**2, vector.expected["count_noise_var"])
    alone = [sue.frequencies(counts * (np.arange(3) == k)[:, None])[0] for k in range(len(rungs))]
    weights = [1 / e.standard_error**2 for e in alone]
    weighted = sum(w * e.value for w, e in zip(weights, alone, strict=True)) / sum(weights)
    vector.check(weighted, vector.expected["mean_ivw"])
    vector.check(1 / sum(weights), vector.expected["mean_ivw_noise_var"])


@vectors("freq_grr_var")
def test_variance_of_categories(vector: Vector) -> None:
    size, true = vector.inputs["m"], vector.inputs["true_counts"]
    grr = category("grr", size, [round(vector.inputs["eps"] * 1e6)])
    p, q = grr.probabilities(0)[0]
    n = sum(true)
    vector.check([share_variance(p, q, count / n) / n for count in true])
    counts = np.round([n * q + (p - q) * count for count in true]).astype(int)
    counts[0] += n - counts.sum()
    found = [e.standard_error**2 for e in grr.frequencies([counts])]
    assert found == pytest.approx(vector.expected, rel=0.01)


@pytest.mark.parametrize("n", [1, 5, 20, 60, 199])
@pytest.mark.parametrize("epsilon", [0.5, 1, 4, 6])
@pytest.mark.parametrize(("name", "size"), [("sue", 4), ("oue", 4), ("grr", 10)])
def test_small_intervals_cover_exactly(name: str, size: int, epsilon: float, n: int) -> None:
    """The law of a count is that of two binomials: coverage needs no sampling."""
    pair = category(name, size, [round(epsilon * 1e6)]).pairs()
    low, high = np.array([interval(pair, [ones], [n]) for ones in range(n + 1)]).T
    for holders in range(0, n + 1, max(1, n // 10)):
        law = law_of_ones(pair[0], holders, n)
        covered = law[(low <= holders / n) & (holders / n <= high)].sum()
        assert covered >= 0.95, (holders, covered)


@pytest.mark.parametrize("epsilon", [5, 7, 9])
def test_intervals_cover_exactly_where_chance_makes_few_answers(epsilon: float) -> None:
    test_small_intervals_cover_exactly("grr", 10, epsilon, 900)


@pytest.mark.parametrize(("epsilon", "n"), [(2, 20), (4, 50), (6, 100), (8, 600)])
def test_intervals_of_shares_means_and_conversions_of_two_steps_cover_exactly(
    epsilon: int, n: int
) -> None:
    grr = category("grr", 2, [epsilon * 1_000_000])
    tables = np.array([[[n - ones, ones]] for ones in range(n + 1)])
    found = [ordinal(grr, table[:, ::-1]).cumulative[0] for table in tables]
    means = [ordinal(grr, table, [5, 7]).mean_bounds[0] for table in tables]
    steps = [conversions(table, grr.pairs())[0] for table in tables]
    halves = [(min(ones, n // 2), max(ones - n // 2, 0)) for ones in range(n + 1)]
    ranges = [pooled(shares_of_each(grr.pairs(), both, n // 2), [1, 1]) for both in halves]
    # Thirteen reports of each device that all say the same, in as many windows.
    same = [shares_of_each(grr.pairs(), (ones,) * 13, n) for ones in range(n + 1)]
    kinds = found, means, steps, ranges, [pooled(each, [1] * 13).widened(13) for each in same]
    low, high = np.array([[each.interval() for each in kind] for kind in kinds]).T
    for holders in (0, n // 10, n // 2, n):
        law, share = law_of_ones(grr.pairs()[0], holders, n), holders / n
        truth = np.array([share, 5 + 2 * share, share, share, share])
        assert (law @ ((low <= truth) & (truth <= high)) >= 0.95).all()


@pytest.mark.parametrize("epsilon", [2, 6, 8])
def test_intervals_of_a_small_part_of_all_and_of_retention_cover_exactly(epsilon: int) -> None:
    pairs, n, held = category("grr", 13, [epsilon * 1_000_000]).pairs(), 60, (6, 12)
    laws = [law_of_ones(pairs[0], holders, n) for holders in held]
    covered, shown = np.zeros(3), np.zeros(3)
    for ones in np.ndindex(n + 1, n + 1):
        chance = laws[0][ones[0]] * laws[1][ones[1]]
        if chance > 1e-7:
            both = shares_of_each(pairs, ones, n)
            parts = [pooled(both[:1] * w, [1] * w) for w in (1, 13)]
            wholes = [pooled(both * w, [1] * 2 * w) for w in (1, 13)]
            # One window, and thirteen in which all devices say the same again.
            found = part_and_whole(parts[0], wholes[0], 0.5)
            again = part_and_whole(parts[1], wholes[1], 0.5, (13, 13))
            ratio, apart = retention(both[:1], both[1:]), (held[0] - held[1]) / (2 * n)
            held_in = [each.low <= apart <= each.high for each in (found, again)]
            low, high = ratio.interval()
            is_shown = np.array([1, 1, math.isfinite(ratio.value)])
            shown += chance * is_shown
            covered += chance * is_shown * [*held_in, low <= 0.5 <= high]
    assert (covered / shown >= 0.94).all()


def shares_of_each(pairs: NDArray[np.float64], ones: tuple[int, ...], n: int) -> list[Estimate]:
    return [shares(np.array([[each]]), np.array([n]), pairs)[0] for each in ones]


@pytest.mark.parametrize("allocation", ["even", "weak", "strong"])
def test_small_intervals_cover_exactly_when_levels_depend_on_values(allocation: str) -> None:
    mechanism = category("grr", 8, [1_000_000, 3_000_000])
    pairs = np.array([mechanism.probabilities(level)[0] for level in range(2)])
    reports = [30, 50]
    for holders in (0, 4, 16, 30):
        at = {"even": (holders // 2, holders - holders // 2), "weak": (holders, 0)}
        split = at.get(allocation, (0, holders))
        laws = [law_of_ones(pairs[c], split[c], reports[c]) for c in range(2)]
        covered = 0.0
        for ones in np.ndindex(31, 51):
            chance = laws[0][ones[0]] * laws[1][ones[1]]
            if chance > 1e-7:
                low, high = interval(pairs, list(ones), reports)
                covered += chance * (low <= holders / 80 <= high)
        assert covered >= 0.95 - 1e-3, (holders, covered)


def interval(
    pairs: NDArray[np.float64], ones: list[int], reports: list[int]
) -> tuple[float, float]:
    [estimate] = shares(np.array(ones)[:, None], np.array(reports), pairs)
    return estimate.interval(0.95)


def law_of_ones(pair: NDArray[np.float64], holders: int, n: int) -> NDArray[np.float64]:
    p, q = pair
    mine = stats.binom.pmf(np.arange(holders + 1), holders, p)
    return np.convolve(mine, stats.binom.pmf(np.arange(n - holders + 1), n - holders, q))


@pytest.mark.parametrize(("name", "epsilon"), [("sue", 2), ("oue", 2), ("grr", 2)])
def test_detection_floor_is_found_with_the_stated_power(name: str, epsilon: int) -> None:
    n = 20_000
    mechanism = category(name, 20, [epsilon * 1_000_000])
    pair = np.array([mechanism.probabilities(0)[0]])
    [estimate] = shares(np.array([[100]]), np.array([n]), pair)
    floor = estimate.detection_floor
    assert floor is not None
    zero = (share_variance(*pair[0], 0.0) / n) ** 0.5
    found = (np.arange(n + 1) / n - pair[0, 1]) / (pair[0, 0] - pair[0, 1]) > 1.959964 * zero
    power = law_of_ones(pair[0], round(floor * n), n)[found].sum()
    assert power == pytest.approx(0.8, abs=0.02)
    false = law_of_ones(pair[0], 0, n)[found].sum()
    assert false == pytest.approx(0.025, abs=0.003)


def test_the_standard_error_is_positive_and_no_reports_determine_nothing() -> None:
    mechanism = category("grr", 4, LADDER)
    none = mechanism.frequencies(np.zeros((3, 4), dtype=int))
    assert [e.n for e in none] == [0] * 4
    assert none[0].interval() == (-math.inf, math.inf)
    assert math.isnan(none[0].value)
    assert math.isinf(none[0].standard_error)
    one = mechanism.frequencies([[0] * 4, [0, 0, 1, 0], [0] * 4])
    assert all(e.standard_error > 0 for e in one)
    assert one[0].reports_by_level == (0, 1, 0)


def test_what_does_not_fit_is_refused() -> None:
    mechanism = category("grr", 4, LADDER)
    with pytest.raises(ParameterError, match="shape"):
        mechanism.frequencies([[1, 2, 3, 4]])
    with pytest.raises(ParameterError, match="negative"):
        mechanism.frequencies([[1, 2, 3, -4]] * 3)


finite = st.floats(-10, 10, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=30), st.floats(0, 5))
def test_norm_sub_is_the_closest_point_of_the_simplex(values: list[float], total: float) -> None:
    given_, result = np.array(values), norm_sub(values, total)
    assert (result >= 0).all()
    assert result.sum() == pytest.approx(total, abs=1e-9)
    # The same is taken from all that stay positive, and more than it has from what does not.
    taken = given_ - result
    kept = result > 1e-12
    if kept.any():
        assert np.ptp(taken[kept]) <= 1e-9
        assert (given_[~kept] <= taken[kept].max() + 1e-9).all()


def test_what_is_shown_has_the_less_error_of_two_repairs() -> None:
    """74 categories and few reports: flat shares are for scaling, steep ones for Norm-Sub."""
    m, n, repeats = 74, 10_000, 200
    grr = category("grr", m, [1_000_000])
    [(p, q)] = grr.support_pairs()
    rng = np.random.default_rng(74)
    ratios = {}
    for power in (0.0, 2.0):
        weights = 1 / np.arange(1, m + 1) ** power
        truth = np.round(n * weights / weights.sum()).astype(int)
        # Squared errors of the shown shares, of Norm-Sub's, and of clipped and scaled ones.
        squares = np.zeros(3)
        for _ in range(repeats):
            kept = rng.binomial(truth, p - q)
            counts = kept + rng.multinomial(truth.sum() - kept.sum(), np.full(m, 1 / m))
            made = grr.frequencies(counts[None])
            values = np.array([each.value for each in made])
            shown = consistent_shares(values, [each.standard_error for each in made])
            assert shown.min() >= 0
            assert shown.sum() == pytest.approx(1)
            scaled = np.maximum(values, 0) / np.maximum(values, 0).sum()
            off = np.stack([shown, norm_sub(values), scaled]) - truth / truth.sum()
            squares += (off**2).sum(axis=1)
        ratios[power] = squares[0] / squares[1:]
    # Norm-Sub has twice the error of the other if all shares are equal, a fifth if few have most.
    assert ratios[0.0][0] < 0.6
    assert ratios[0.0][1] < 1.2
    assert ratios[2.0][0] < 1.05
    assert ratios[2.0][1] < 0.3


def test_what_is_shown_is_norm_sub_where_errors_are_unknown() -> None:
    values = [0.3, 0.3, 0.2, 0.2, 0.2, -0.2]
    np.testing.assert_array_equal(consistent_shares(values, [math.inf] * 6), norm_sub(values))
    np.testing.assert_array_equal(consistent_shares([-1.0, -2.0], [1.0, 1.0]), [1.0, 0.0])
    np.testing.assert_array_equal(consistent_shares(values, [0.2] * 6, 0.0), np.zeros(6))


def test_norm_sub_refuses_what_has_no_answer() -> None:
    with pytest.raises(ParameterError, match="total"):
        norm_sub([1.0], -1.0)
    with pytest.raises(ParameterError, match="total"):
        norm_sub([1.0], math.nan)
    with pytest.raises(ParameterError, match="finite"):
        norm_sub([1.0, math.nan])
    assert norm_sub([]).size == 0
