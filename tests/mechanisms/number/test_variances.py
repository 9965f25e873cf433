"""Predicted errors against simulation, for every mechanism of categories and of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replicas import replicate
from statistical import check_variance

from mechanisms.number.mechanism import (
    answer_noise,
)
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


OF_CATEGORIES: list[dict[str, Any]] = [
    *({"name": name, "domain_size": 9} for name in ("grr", "oue", "sue")),
    {"name": "local_hashing", "domain_size": 9, "buckets": 5},
    {"name": "subset", "domain_size": 9, "subset_size": 2},
    {"name": "hadamard", "domain_size": 9, "blocks": 2},
]


def of_numbers(missing: bool) -> list[dict[str, Any]]:
    specs: list[dict[str, Any]] = [
        *({"name": name} for name in ("threshold", "duchi")),
        *({"name": name, "points": 65} for name in ("hybrid", "piecewise", "square_wave")),
        {"name": "sampled_bit", "bits": 10},
        *({"name": "sampled_bits", "bits": 10, "count": count} for count in (2, 4)),
        *({"name": "split_bits", "bits": bits} for bits in (4, 8)),
    ]
    return [{**spec, "missing": missing} for spec in specs]


def label_of(spec: Any) -> str:
    return "-".join(str(value) for value in spec.values())


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epsilon", [1, 2, 5])
@pytest.mark.parametrize("number", range(10))
def test_means(number: int, epsilon: int, missing: bool) -> None:
    spec = of_numbers(missing)[number]
    mechanism = build(spec, [epsilon * 1_000_000], "m")
    # Smoothing takes long; its mean is that of any mechanism on a grid.
    repeats = 30 if spec["name"] == "square_wave" else 90
    data = sorted(NUMBERS)[(number + epsilon) % 3]
    values = NUMBERS[data]
    counts = replicate(mechanism, values, 0, repeats, SEED)
    found = [mechanism.numeric(table, 0.0, 1.0, quantiles=()).mean.value for table in counts]
    stated = mechanism.variance(0, values, len(values)) / len(values)
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
    mechanism = build(of_numbers(missing)[number], [round(epsilon * 1e6)], "m")
    worst = mechanism.variance(0)
    pictures = [*NUMBERS.values(), RNG.beta(0.2, 0.3, 500), RNG.beta(9, 9, 500)]
    pictures += [np.full(1, u) for u in (0.0, 0.1, 0.25, 0.5, 0.503, 0.8, 1.0)]
    pictures += [np.clip(NUMBERS["uniform"] + shift, 0, 1) for shift in (-0.3, 0.2)]
    found = [mechanism.variance(0, picture) for picture in pictures]
    # Rounding to a grid adds a little where the numbers are apart, too.
    assert max(found) <= 1.003 * worst
    assert max(found) >= 0.9 * worst


def test_a_prediction_for_another_level_is_caught() -> None:
    mechanism = build({"name": "threshold", "missing": True}, [1_000_000, 1_500_000], "m")
    values = NUMBERS["skewed"]
    counts = replicate(mechanism, values, 0, 200, SEED)
    found = np.array([mechanism.numeric(table, 0.0, 1.0, ()).mean.value for table in counts])
    check_variance(found, 1.01 * mechanism.variance(0, values, 2000) / 2000)
    with pytest.raises(AssertionError):
        check_variance(found, mechanism.variance(1, values, 2000) / 2000)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 2, 6])
@pytest.mark.parametrize("number", range(5))
def test_the_worst_case_without_numpy(number: int, epsilon: float, missing: bool) -> None:
    mechanism = build(of_numbers(missing)[number], [round(epsilon * 1e6)], "m")
    found, true = mechanism.worst_variance(0), mechanism.variance(0, n=10**9)
    assert found == pytest.approx(true, rel=0.01)


def test_noise_of_two_answers() -> None:
    for mean in (0.0, 0.3, 1.0):
        assert answer_noise((0.8, 0.2), 2, mean) == pytest.approx(0.16 / 0.36)
