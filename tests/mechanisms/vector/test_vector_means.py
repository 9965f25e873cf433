"""Means of coordinates and of numbers from several answers: replicas, coverage, planted faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from statistical import check_at_least, check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.estimate import two_sided
from mechanisms.estimators.variance import bit_means
from mechanisms.number.answers import NumericEstimates
from mechanisms.number.laws import worst_variance
from mechanisms.registry import build
from mechanisms.vector.optimum import sampled_vector_variance
from mechanisms.vector.sampled_hybrid import SampledHybrid, optimal_sampled_hybrid
from mechanisms.vector.sampled_vector import SampledVector

pytestmark = pytest.mark.slow

SEED = 20241107
N, REPEATS = 1500, 150
RNG = np.random.default_rng(SEED)
#: Uniform, skewed and two-point coordinates, unlike for the same client.
VECTORS = np.stack(
    [
        RNG.permutation((np.arange(N) + 0.5) / N),
        RNG.beta(2, 20, N),
        (RNG.random(N) < 0.4) * 0.7 + 0.3,
    ],
    axis=1,
)


def ladder(bits: int, sampled: int, amounts: list[int]) -> SampledVector:
    spec = {"name": "sampled_vector", "dimensions": 3, "sampled": sampled, "bits": bits}
    built = build(spec, amounts, "position")
    assert isinstance(built, SampledVector)
    return built


def check_coordinate(
    results: list[NumericEstimates], truth: float, variance: float | None, label: object
) -> None:
    """Unbiased, as precise as stated, and covered as often as stated."""
    values = np.array([result.mean.value for result in results])
    errors = np.array([result.mean.standard_error for result in results])
    check_normal(values.mean(), truth, values.std() / math.sqrt(len(values)), label=label)
    covered = sum(low <= truth <= high for low, high in (r.mean.interval(0.95) for r in results))
    check_at_least(covered, len(results), 0.93, label=label)
    if variance is not None:
        check_variance(values, variance, label=label)
        assert np.sqrt((errors**2).mean()) >= 0.97 * math.sqrt(variance)
        assert np.sqrt((errors**2).mean()) <= 1.12 * math.sqrt(variance)


def spread(bits: int, column: NDArray[np.float64]) -> float:
    if bits:
        means = bit_means(column, bits)
        weights = np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)
        return float(weights @ (means * (1 - means)))
    return float((2 * np.arange(1, N + 1) - N - 1) @ np.sort(column)) / N**2


@pytest.mark.parametrize(("bits", "sampled", "epsilon"), [(0, 1, 1.0), (0, 2, 4.0), (8, 2, 4.0)])
def test_means_of_coordinates(bits: int, sampled: int, epsilon: float) -> None:
    mechanism = ladder(bits, sampled, [int(epsilon * 1e6)])
    counts = replicate(mechanism, VECTORS, 0, REPEATS, SEED)
    results = [mechanism.coordinate_estimates(table, quantiles=()) for table in counts]
    for i, column in enumerate(VECTORS.T):
        leading = sampled_vector_variance(3, sampled, epsilon, spread(bits, column))
        variance = None if bits else (leading - column.var()) / N
        check_coordinate([r[i] for r in results], column.mean(), variance, f"seed {SEED}")
        if bits:
            # The errors state what stays unknown, the variance of the values, as if it were zero.
            values = np.array([r[i].mean.value for r in results])
            check_variance(values, (leading - column.var()) / N, label=f"seed {SEED}")
            assert all(len(r[i].bit_means or ()) == bits for r in results)
        else:
            assert all(r[i].cdf is not None for r in results)
    with pytest.raises(AssertionError, match="expected"):
        check_coordinate([r[0] for r in results], 1.05 * VECTORS[:, 0].mean(), None, "")


@pytest.mark.parametrize(("sampled", "epsilon"), [(1, 2.0), (2, 6.0), (3, 12.0)])
def test_means_of_coordinates_on_a_grid(sampled: int, epsilon: float) -> None:
    mechanism = SampledHybrid(epsilon, dimensions=3, sampled=sampled, metric="position")
    counts = replicate(mechanism, VECTORS, 0, REPEATS, SEED)
    results = [mechanism.coordinate_estimates(table, quantiles=()) for table in counts]
    grid = mechanism.grid
    worst = float(worst_variance(grid.shape, grid.laws[0])) + 1 / (4 * grid.shape.steps**2)
    for i, column in enumerate(VECTORS.T):
        check_coordinate([r[i] for r in results], column.mean(), None, f"seed {SEED}")
        values = np.array([r[i].mean.value for r in results])
        errors = np.array([r[i].mean.standard_error for r in results])
        assert 0.9 * values.std() < np.sqrt((errors**2).mean()) < 1.25 * values.std()
        most = (3 / sampled * (worst + column.var()) - column.var()) / N
        assert values.var() < 1.3 * most
    with pytest.raises(AssertionError, match="expected"):
        check_coordinate([r[0] for r in results], 1.05 * VECTORS[:, 0].mean(), None, "")


@pytest.mark.parametrize(("dimensions", "sampled"), [(2, 1), (4, 3), (20, 1)])
def test_the_interval_of_few_answers_also_covers_the_choice_of_the_clients(
    dimensions: int, sampled: int
) -> None:
    """A share of values that vary as reports do, or 0 and 1, is drawn without replacement."""
    mechanism = SampledHybrid(float(sampled), dimensions, sampled, 9, "position")
    table = np.zeros((1, mechanism.count_length // dimensions), dtype=np.int64)
    table[0, -2:] = 50, 70
    region: Any = mechanism.means(np.tile(table, dimensions), -1.0, 3.0)[0].region
    (sums,) = region.levels
    for level, end in ((0.5, 0), (0.5, 1), (0.95, 0), (0.95, 1)):
        mean = (region.interval(level)[end] + 1.0) / 4.0
        noise = sums.variances(mean - 0.5).max() + sums.rounding
        unseen = (4 / 120 - 4 / 200) * max(mean, 1 - mean) ** 2
        at = 0.5 + region.value / 120
        part = max(region.scatter - noise, 0.0) / (at * (1 - at))
        spread = min(part * mean * (1 - mean) + unseen, mean * (1 - mean))
        variance = noise + (1 - sampled / dimensions) * spread
        reach = two_sided(level) * math.sqrt(120 * variance) + sums.step / 2
        assert abs(region.value - 120 * (mean - 0.5)) == pytest.approx(reach, rel=1e-6)


def test_intervals_of_199_answers_and_of_200_are_about_as_long() -> None:
    """Values that are all alike vary by nothing, and two hundred answers show that."""
    mechanism = SampledHybrid(8.0, dimensions=4, sampled=1, metric="position")
    widths = []
    for reports in (199, 200):
        tables = replicate(mechanism.grid, np.full(reports, 0.5), 0, 40, SEED)
        each = [mechanism.means(np.tile(table, 4))[0].interval() for table in tables]
        widths.append(np.mean([high - low for low, high in each]))
    assert 0.9 < widths[0] / widths[1] < 1.2


@pytest.mark.parametrize("values", ["alike", "two", "rare"])
@pytest.mark.parametrize("answers", [20, 150])
def test_few_answers_cover_the_mean_whatever_the_values(answers: int, values: str) -> None:
    """Rare values at the far end may not be among those of the clients that answer."""
    mechanism = SampledHybrid(8.0, dimensions=4, sampled=1, points=17, metric="position")
    column = {
        "alike": np.full(4 * answers, 0.5),
        "two": np.arange(4 * answers) % 2,
        "rare": np.arange(4 * answers) % 33 == 0,
    }[values]
    tables = replicate(mechanism, np.tile(column[:, None], 4).astype(float), 0, 200, SEED)
    intervals = [each.interval() for table in tables for each in mechanism.means(table)]
    covered = sum(low <= column.mean() <= high for low, high in intervals)
    check_at_least(covered, len(intervals), 0.93, label=f"{answers} of {values}")


@pytest.mark.parametrize("name", ["sampled_vector", "sampled_hybrid"])
def test_levels_may_depend_on_values(name: str) -> None:
    """Clients whose first coordinate is large release more: the means stay what they are."""
    amounts = [500_000, 2_000_000, 6_000_000]
    mechanism: SampledVector | SampledHybrid = ladder(0, 2, amounts)
    if name == "sampled_hybrid":
        mechanism = SampledHybrid([each / 1e6 for each in amounts], 3, 2, 17, "position")
    levels = np.searchsorted([0.3, 0.7], VECTORS[:, 0]).astype(np.int64)
    counts = replicate(mechanism, VECTORS, levels, REPEATS, SEED)
    results = [mechanism.coordinate_estimates(table, -2.0, 3.0, quantiles=()) for table in counts]
    for i, column in enumerate(VECTORS.T):
        own = [r[i] for r in results]
        check_coordinate(own, -2 + 5 * column.mean(), None, f"seed {SEED}")
        assert all(sum(r.mean.reports_by_level) == r.mean.n for r in own)
    assert sum(r[i].mean.n for r in results for i in range(3)) == REPEATS * N * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [[1, 2, 3]]}, "shape"),
        ({"low": 1.0}, "range"),
        ({"high": math.nan}, "range"),
        ({"quantiles": (1.0,)}, "quantiles"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    mechanism = ladder(0, 1, [1_000_000])
    given = {"counts": np.ones((1, mechanism.count_length), dtype=np.int64), **arguments}
    with pytest.raises(ParameterError, match=message):
        mechanism.coordinate_estimates(**given)


def test_the_default_number_of_coordinates_on_a_grid() -> None:
    assert [optimal_sampled_hybrid(2, e * 1_000_000) for e in (1, 30, 70)] == [1, 2, 2]
    assert optimal_sampled_hybrid(5, 1) == 1
    assert SampledHybrid(epsilon=200.0, dimensions=64).sampled is not None
