"""Predicted errors against simulation, for every mechanism that is ranked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replicas import replicate
from statistical import check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.number.numeric import numeric
from mechanisms.planner.choice import _number_specs
from mechanisms.planner.predictions import (
    answer_noise,
    mean_variance,
    worst_mean_variance,
)
from mechanisms.planner.simulation import QUANTILES, quantile_error
from mechanisms.registry import build

SEED = 20261124
RNG = np.random.default_rng(SEED)
#: Half are rare; two blocks of Hadamard response differ in how full they are.
CATEGORIES = RNG.permutation(np.repeat(np.arange(9), (700, 400, 200, 100, 60, 40, 0, 300, 200)))
NUMBERS = {
    "uniform": (np.arange(2000) + 0.5) / 2000,
    "skewed": RNG.beta(2, 8, 2000),
    "ends": np.where(RNG.random(2000) < 0.3, 0.0, 1.0),
}


def label_of(spec: Any) -> str:
    return "-".join(str(value) for value in spec.values())


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epsilon", [1, 2, 5])
@pytest.mark.parametrize("number", range(10))
def test_means(number: int, epsilon: int, missing: bool) -> None:
    spec = _number_specs(missing)[number]
    mechanism = build(spec, [epsilon * 1_000_000], "m")
    # Smoothing takes long; its mean is that of any mechanism on a grid.
    repeats = 30 if spec["name"] == "square_wave" else 90
    data = sorted(NUMBERS)[(number + epsilon) % 3]
    values = NUMBERS[data]
    counts = replicate(mechanism, values, 0, repeats, SEED)
    found = [numeric(mechanism, table, 0.0, 1.0, quantiles=()).mean.value for table in counts]
    stated = mean_variance(mechanism, 0, values, len(values)) / len(values)
    # A ratio's variance is larger than its leading order by terms of the order of 1/n.
    check_variance(
        np.array(found),
        1.01 * stated if missing else stated,
        label=f"{label_of(spec)} {data} at {epsilon}, seed {SEED}",
    )


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 8])
@pytest.mark.parametrize("number", range(10))
def test_no_data_are_worse_than_the_worst(number: int, epsilon: float, missing: bool) -> None:
    mechanism = build(_number_specs(missing)[number], [round(epsilon * 1e6)], "m")
    worst = mean_variance(mechanism, 0)
    pictures = [*NUMBERS.values(), RNG.beta(0.2, 0.3, 500), RNG.beta(9, 9, 500)]
    pictures += [np.full(1, u) for u in (0.0, 0.1, 0.25, 0.5, 0.503, 0.8, 1.0)]
    pictures += [np.clip(NUMBERS["uniform"] + shift, 0, 1) for shift in (-0.3, 0.2)]
    found = [mean_variance(mechanism, 0, picture) for picture in pictures]
    # Rounding to a grid adds a little where the numbers are apart, too.
    assert max(found) <= 1.003 * worst
    assert max(found) >= 0.9 * worst


@pytest.mark.parametrize("epsilon", [1, 2, 4])
@pytest.mark.parametrize("name", ["threshold", "square_wave"])
def test_quantiles(name: str, epsilon: int) -> None:
    """Simulated counts have the errors of counts of single reports."""
    spec = {"name": name, "missing": False} | ({"points": 33} if name == "square_wave" else {})
    mechanism = build(spec, [epsilon * 1_000_000], "m")
    values, repeats = NUMBERS["skewed"], 25
    counts = replicate(mechanism, values, 0, repeats, SEED)
    truth = np.quantile(values, QUANTILES)
    squares = []
    for table in counts:
        estimates = numeric(mechanism, table, 0.0, 1.0, QUANTILES).quantiles
        assert estimates is not None
        found = np.array([each.value for each in estimates.values()])
        squares.append(float(((found - truth) ** 2).mean()))
    stated = quantile_error(mechanism, 0, values, len(values), repeats, SEED) ** 2
    # Both are means of as many squares; atoms in place of the values move quantiles by 1/400.
    error = (2 * np.var(squares) / repeats) ** 0.5 + 0.0025 * stated**0.5
    check_normal(np.mean(squares), stated, error, label=f"{name} {epsilon} seed {SEED}")


@pytest.mark.parametrize("epsilon", [2, 4, 8])
def test_strings(epsilon: int) -> None:
    """The error of Bloom filters, over cohorts drawn at random."""
    spec = {"name": "rappor", "bits": 64, "hashes": 2, "cohorts": 4}
    mechanism = build(spec, [epsilon * 1_000_000], "m")
    names = [f"string {number}" for number in range(7)]
    values = [names[each].encode() for each in np.minimum(CATEGORIES, 6)]
    shares = np.bincount(np.minimum(CATEGORIES, 6), minlength=7) / len(values)
    counts = replicate(mechanism, values, 0, 40, SEED)
    squares = []
    for table in counts:
        found = mechanism.decode(table, names[:-1]).items
        errors = np.array([each.estimate.value for each in found]) - shares[:-1]
        squares.append(float((errors**2).mean()))
    stated = mechanism.share_error(0, shares[:-1], len(values)) ** 2
    error = float(np.std(squares)) / 40**0.5 + 0.02 * stated
    check_normal(np.mean(squares), stated, error, label=f"epsilon {epsilon} seed {SEED}")


def test_a_prediction_for_another_rung_is_caught() -> None:
    mechanism = build({"name": "threshold", "missing": True}, [1_000_000, 1_500_000], "m")
    values = NUMBERS["skewed"]
    counts = replicate(mechanism, values, 0, 200, SEED)
    found = np.array([numeric(mechanism, table, 0.0, 1.0, ()).mean.value for table in counts])
    check_variance(found, 1.01 * mean_variance(mechanism, 0, values, 2000) / 2000)
    with pytest.raises(AssertionError):
        check_variance(found, mean_variance(mechanism, 1, values, 2000) / 2000)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
@pytest.mark.parametrize("number", range(5))
def test_the_worst_case_without_numpy(number: int, epsilon: float, missing: bool) -> None:
    mechanism = build(_number_specs(missing)[number], [round(epsilon * 1e6)], "m")
    found, true = worst_mean_variance(mechanism, 0), mean_variance(mechanism, 0, n=10**9)
    assert found == pytest.approx(true, rel=0.01)


def test_noise_of_two_answers() -> None:
    for mean in (0.0, 0.3, 1.0):
        assert answer_noise((0.8, 0.2), 2, mean) == pytest.approx(0.16 / 0.36)


def test_what_has_no_such_answer_is_refused() -> None:
    grr = build({"name": "grr", "domain_size": 3}, [1_000_000], "m")
    with pytest.raises(ParameterError, match="none of a number"):
        mean_variance(grr, 0)
