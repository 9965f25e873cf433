"""Predicted errors against simulation, for every mechanism of categories and of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mechanisms.number.mechanism import (
    answer_noise,
)
from mechanisms.registry import build

SEED = 20261124
RNG = np.random.default_rng(SEED)
NUMBERS = {
    "uniform": (np.arange(2000) + 0.5) / 2000,
    "skewed": RNG.beta(2, 8, 2000),
    "ends": np.where(RNG.random(2000) < 0.3, 0.0, 1.0),
}


def of_numbers(missing: bool) -> list[dict[str, Any]]:
    specs: list[dict[str, Any]] = [
        *({"name": name} for name in ("threshold", "duchi")),
        *({"name": name, "points": 65} for name in ("hybrid", "piecewise", "square_wave")),
        {"name": "sampled_bit", "bits": 10},
        *({"name": "sampled_bits", "bits": 10, "count": count} for count in (2, 4)),
        *({"name": "split_bits", "bits": bits} for bits in (4, 8)),
    ]
    return [{**spec, "missing": missing} for spec in specs]


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
