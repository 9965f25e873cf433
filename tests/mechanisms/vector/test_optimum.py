"""Variances of sampled bits and coordinates, and the numbers to sample."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from mechanisms.errors import ParameterError
from mechanisms.vector.optimum import answer_noise, optimal_sampled, sampled_vector_variance


@given(st.floats(1e-12, 700))
def test_the_noise_is_accurate(epsilon: float) -> None:
    with localcontext() as context:
        context.prec = 60
        power = Decimal(epsilon).exp()
        noise = power / (power - 1) ** 2
    assert math.isclose(answer_noise(epsilon), float(noise), rel_tol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 1 / 6, 0.25])
@pytest.mark.parametrize("dimensions", [1, 3, 40])
def test_the_number_of_sampled_coordinates_is_the_best(dimensions: int, spread: float) -> None:
    for epsilon in (0.01, 0.5, 2.0, 5.0, 12.0, 40.0, 200.0):
        best = min(
            range(1, dimensions + 1),
            key=lambda k: sampled_vector_variance(dimensions, k, epsilon, spread),
        )
        assert optimal_sampled(dimensions, epsilon, spread) == best


@pytest.mark.parametrize(("spread", "best"), [(1 / 6, 2.66), (0.25, 2.18)])
def test_the_best_epsilon_of_an_answer(spread: float, best: float) -> None:
    found = minimize_scalar(
        lambda epsilon: epsilon * (answer_noise(epsilon) + spread), bounds=(0.5, 8)
    )
    assert abs(found.x - best) < 0.005


@pytest.mark.parametrize(
    "call",
    [
        lambda: answer_noise(0.0),
        lambda: answer_noise(math.nan),
        lambda: sampled_vector_variance(3, 4, 1.0),
        lambda: sampled_vector_variance(3, 1, 1.0, 0.3),
        lambda: optimal_sampled(0, 1.0),
    ],
)
def test_bad_parameters_are_refused(call: object) -> None:
    with pytest.raises(ParameterError, match="must"):
        call()  # type: ignore[operator]
