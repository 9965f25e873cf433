"""Estimates from ordinal reports: what is unbiased, what is refused, intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.ordinal.brr import BipartiteRandomizedResponse
from mechanisms.ordinal.estimates import groups_of, ordinal
from mechanisms.planner.targets import Assumed
from mechanisms.testing import SeededSource
from tests.statistical import check_at_least, check_binomial, check_normal

pytestmark = pytest.mark.slow

EPSILONS = (0.5, 1.0, 2.0)


def values_of(points: int, n: int, missing: bool) -> np.ndarray:
    """Skewed values; where they can be missing a tenth are."""
    rng = np.random.default_rng(17)
    values = np.minimum((rng.beta(2, 4, n) * points).astype(np.int64), points - 1)
    values[: n // 10 * missing] = points
    return values


def levels_of(values: np.ndarray) -> np.ndarray:
    """Levels that depend on the values, as equal weights allow."""
    rng = np.random.default_rng(18)
    return np.where(values < 4, rng.integers(0, 3, len(values)), rng.integers(1, 3, len(values)))


def simulated(
    ladder: BipartiteRandomizedResponse, values: np.ndarray, levels: np.ndarray, seed: int
) -> np.ndarray:
    drawn = ladder.chain.randomize(values, SeededSource(seed))[np.arange(len(values)), levels]
    table = np.zeros((ladder.levels, ladder.count_length), dtype=np.int64)
    np.add.at(table, (levels, drawn), 1)
    return table


def determined(estimates: tuple[Estimate, ...]) -> list[int]:
    return [i for i, one in enumerate(estimates) if math.isfinite(one.standard_error)]


@pytest.mark.parametrize("missing", [False, True])
def test_unbiased_where_it_says_so_and_covering(missing: bool) -> None:
    points, n, rounds = 9, 1500, 150
    ladder = BipartiteRandomizedResponse(EPSILONS, points + missing, 3, missing)
    values = values_of(points, n, missing)
    levels = levels_of(values)
    found = [ladder.estimates(simulated(ladder, values, levels, seed)) for seed in range(rounds)]
    groups = ((0, 1), (2,), (3,), (4,), (5,), (6,), (7, 8))
    assert found[0].groups == ((*groups, (9,)) if missing else groups)
    wanted = determined(found[0].cumulative)
    assert wanted == [1, 2, 3, 4, 5, 6]
    truths = [np.isin(values, group).mean() for group in found[0].groups]
    truths += [(values <= last).mean() for last in wanted]
    estimates = [[*one.group_shares, *(one.cumulative[i] for i in wanted)] for one in found]
    got = np.array([[one.value for one in row] for row in estimates])
    errors = np.array([[one.standard_error for one in row] for row in estimates])
    spread = np.sqrt((errors**2).mean(axis=0))
    label = f"seeds 0 to {rounds - 1}"
    check_normal(got.mean(axis=0), truths, spread / math.sqrt(rounds), label=label)
    naive = np.bincount(values, minlength=ladder.domain_size)[:7] / n
    with pytest.raises(AssertionError):
        check_normal(got.mean(axis=0)[:7], naive, spread[:7] / math.sqrt(rounds), label="planted")
    covered = np.abs(got - truths) <= 1.959964 * errors
    for column in covered.T:
        check_at_least(int(column.sum()), rounds, 0.93, label=label)
    # Errors are what they say, not merely large enough.
    assert got.std(axis=0, ddof=1) == pytest.approx(spread, rel=0.25)


def test_bounds_of_the_mean_hold_the_mean() -> None:
    points, n, rounds = 9, 1500, 200
    for missing in (False, True):
        ladder = BipartiteRandomizedResponse(EPSILONS, points + missing, 3, missing)
        values = values_of(points, n, missing)
        present = values[values < points]
        levels = levels_of(values)
        places = [float(x * x) for x in range(points)]
        group_low = np.array([0, 0, 4, 9, 16, 25, 36, 49, 49], dtype=float)
        group_high = np.array([1, 1, 4, 9, 16, 25, 36, 64, 64], dtype=float)
        ends = group_low[present].mean(), group_high[present].mean()
        assert ends[0] < (present**2).mean() < ends[1]
        got, errors = [], []
        for seed in range(rounds):
            found = ladder.estimates(simulated(ladder, values, levels, seed), places)
            got.append([bound.value for bound in found.mean_bounds])
            errors.append([bound.standard_error for bound in found.mean_bounds])
        covered = np.abs(np.array(got) - ends) <= 1.959964 * np.array(errors)
        for column in covered.T:
            check_at_least(int(column.sum()), rounds, 0.92, label=f"seeds 0 to {rounds - 1}")


def test_randomized_response_determines_everything() -> None:
    ladder = GeneralizedRandomizedResponse(EPSILONS, 5)
    counts = np.array([[40, 30, 20, 30, 20], [400, 300, 200, 300, 250], [60, 40, 30, 20, 10]])
    found = ordinal(ladder, counts)
    shares = ladder.frequencies(counts)
    assert found.groups == ((0,), (1,), (2,), (3,), (4,))
    for one, two in zip(found.group_shares, shares, strict=True):
        assert one.value == pytest.approx(two.value, rel=1e-9)
    mean = sum(value * share.value for value, share in enumerate(shares))
    assert [bound.value for bound in found.mean_bounds] == pytest.approx([mean, mean], rel=1e-9)
    assert len(determined(found.cumulative)) == 4


@pytest.mark.parametrize("missing", [False, True])
def test_the_worst_forged_reports_move_estimates_as_far_as_stated(missing: bool) -> None:
    """Every output in the place of what any value sends, of expected counts without noise."""
    ladder, n, part = BipartiteRandomizedResponse(EPSILONS, 6 + missing, 3, missing), 10**9, 0.01
    matrix = ladder.matrix(1)
    honest, outputs = matrix.mean(axis=0), np.eye(len(matrix))

    def estimates(law: np.ndarray) -> list[Estimate]:
        found = ladder.estimates(np.rint([0 * law, n * law, 0 * law]))
        return [*found.mean_bounds, *found.group_shares, *found.cumulative[1:-1]]

    pairs = np.ndindex(matrix.shape)
    moved = [estimates(honest + part * (outputs[y] - matrix[x])) for x, y in pairs]
    for place, truth in enumerate(estimates(honest)):
        lows, highs = zip(*(each[place].under(part, 1e-9) for each in moved), strict=True)
        # A divisor that forged reports change too is taken for what may be left of it.
        slack = 0.05 if missing and place < 2 else 1e-6
        assert truth.value - slack < max(lows) <= truth.value + 1e-6
        assert truth.value - 1e-6 <= min(highs) < truth.value + slack


@pytest.mark.parametrize("ladder", [(1,), (1000, 2000), (500_000, 12_000_000)])
def test_weights_reproduce_their_sums_at_any_epsilon(ladder: tuple[int, ...]) -> None:
    mechanism = BipartiteRandomizedResponse([micro / 1e6 for micro in ladder], 20, 5)
    matrices = [mechanism.matrix(level) for level in range(mechanism.levels)]
    groups = groups_of(matrices)
    assert [len(group) for group in groups] == [3, *[1] * 14, 3]
    found = ordinal(mechanism, np.full((len(ladder), 20), 1000))
    assert determined(found.group_shares) == list(range(16))
    assert sum(one.value for one in found.group_shares) == pytest.approx(1, abs=1e-4)


def test_the_most_likely_shares_stand_beside() -> None:
    ladder = BipartiteRandomizedResponse(EPSILONS, 9, 3)
    values = values_of(9, 40_000, False)
    table = simulated(ladder, values, np.full(len(values), 2), 5)
    found = ordinal(ladder, table)
    assert found.shares.values.sum() == pytest.approx(1)
    assert found.shares.rank == 7
    open_ends = [math.isinf(error) for error in found.shares.standard_errors]
    assert open_ends == [True, True, False, False, False, False, False, True, True]
    pooled = found.shares.values[:2].sum()
    assert pooled == pytest.approx(found.group_shares[0].value, abs=0.05)


def test_without_reports_nothing_is_determined() -> None:
    found = ordinal(BipartiteRandomizedResponse(EPSILONS, 9, 3), np.zeros((3, 9), dtype=int))
    for one in (*found.group_shares, *found.cumulative, *found.mean_bounds):
        assert math.isnan(one.value)
        assert one.interval(0.95) == (-math.inf, math.inf)


def test_few_reports_take_the_largest_variance() -> None:
    ladder = BipartiteRandomizedResponse(2.0, 6, 1)
    few = ordinal(ladder, np.array([[30, 0, 0, 0, 0, 0]])).group_shares[1]
    many = ordinal(ladder, np.array([[3000, 0, 0, 0, 0, 0]])).group_shares[1]
    assert few.standard_error > many.standard_error * 10


def test_the_smallest_epsilon_among_many_points_still_has_a_precision() -> None:
    ladder = BipartiteRandomizedResponse((1e-6, 1.5, 9.0), 300, 87, missing=True)
    assert ladder.precision(0, Assumed(), 1.0).variance(1) == pytest.approx(4.62e16, rel=0.01)


@pytest.mark.parametrize("numbers", [[0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 1.0, math.inf]])
def test_bad_numbers_are_refused(numbers: list[float]) -> None:
    with pytest.raises(ParameterError, match="numbers"):
        ordinal(GeneralizedRandomizedResponse(EPSILONS, 3), np.zeros((3, 3), dtype=int), numbers)


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
@pytest.mark.parametrize(
    "law",
    [(0.45, 0.2, 0.2, 0.1, 0.04, 0.01), (0.05, 0.35, 0.2, 0.15, 0.1, 0.08, 0.04, 0.03)],
    ids=["counts", "days"],
)
def test_intervals_of_counts_and_days_cover_what_they_say(
    epsilon: float, law: tuple[float, ...]
) -> None:
    """Shares of counts a week and of active days, and their means, of 10,000 devices."""
    mechanism, draw = GeneralizedRandomizedResponse(epsilon, len(law)), np.random.default_rng(27)
    held = np.rint(10_000 * np.array(law)).astype(np.int64)
    truths = [*(held / held.sum()), held @ np.arange(len(law)) / held.sum()]
    hits, runs = np.zeros(len(truths), dtype=np.int64), 400
    for _ in range(runs):
        counts = draw.multinomial(held, mechanism.matrix(0)).sum(axis=0)[None]
        found = ordinal(mechanism, counts)
        ends = [each.interval() for each in (*found.group_shares, found.mean_bounds[0])]
        hits += [low <= truth <= high for (low, high), truth in zip(ends, truths, strict=True)]
    for place, covered in enumerate(hits.tolist()):
        check_binomial(covered, runs, 0.95, label=(place, covered / runs))
