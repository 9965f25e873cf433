"""The searches against a literal Algorithm 2, the closed forms against the search."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds
from mechanisms.ordinal.sizes import (
    Number,
    equidistant,
    equidistant_size,
    exp_less,
    local_size,
    local_sizes,
    loss_matrix,
)

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


def algorithm_two(losses: tuple[Number, ...], epsilon: float) -> int:
    """Algorithm 1, literally: the sign of the derivative candidate by candidate."""
    ordered = sorted(map(Fraction, losses))
    bounds = exp_bounds(Fraction(epsilon))
    high = (bounds[0] + bounds[1]) / 2
    weights = [high] + [Fraction(1)] * (len(ordered) - 1)
    size = 1
    for i in range(1, len(ordered)):
        slope = sum((ordered[i] - ordered[j]) * weights[j] for j in range(len(ordered)))
        if not slope < 0:
            break
        weights[i] = high
        size = i + 1
    return size


@pytest.mark.parametrize("epsilon", [1e-12, 0.05, 0.7, 1.0, 2.5, 6.0])
def test_the_search_is_algorithm_two(epsilon: float) -> None:
    rng = random.Random(4)
    places = [(rng.random(), rng.random()) for _ in range(12)]
    losses = [
        equidistant(9),
        equidistant(16),
        tuple(tuple(math.dist(x, y) for y in places) for x in places),
        tuple(tuple(rng.randint(0, 4) * (x != y) for y in range(8)) for x in range(8)),
    ]
    for loss in losses:
        assert local_sizes(loss, epsilon) == tuple(algorithm_two(row, epsilon) for row in loss)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, *EPSILONS, 10.0, 40.0, 700.0])
def test_the_closed_form_is_the_search(epsilon: float) -> None:
    for points in [*range(2, 34), 57, 80, 101]:
        loss = equidistant(points)
        middle = [loss[points // 2], loss[(points - 1) // 2]]
        rows = loss if points < 20 else (loss[0], loss[1], loss[points // 4], *middle)
        assert equidistant_size(points, epsilon) == min(local_size(row, epsilon) for row in rows)


def test_the_size_has_the_limit_of_theorem_one() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        share = equidistant_size(1_000_001, epsilon) / 1_000_001
        assert share == pytest.approx(1 / (math.exp(epsilon / 2) + 1), abs=2e-6)


@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 1.0, 30.0, 700.0])
def test_comparisons_are_exact_beside_the_boundary(epsilon: float) -> None:
    with localcontext() as context:
        context.prec = 400
        value = Fraction(Decimal(epsilon).exp())
    for distance in (10, 20, 40):
        shift = Fraction(1, 10**distance)
        assert exp_less(epsilon, 1, value * (1 + shift))
        assert not exp_less(epsilon, 1, value * (1 - shift))
        assert exp_less(epsilon, 1 / (value * (1 + shift)), 1)
    assert not exp_less(epsilon, 0, 0)
    assert not exp_less(epsilon, 1, 0)
    assert exp_less(epsilon, 0, 1)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 701.0, math.nan, math.inf])
def test_bad_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        equidistant_size(5, epsilon)
    with pytest.raises(ParameterError, match="epsilon"):
        local_sizes([[0, 1], [1, 0]], epsilon)


def test_a_single_point_is_refused() -> None:
    with pytest.raises(ParameterError, match="points"):
        equidistant_size(1, 1.0)


@pytest.mark.parametrize(
    "rows", [[], [[0, 1]], [[0, -1], [1, 0]], [[0, math.nan], [1, 0]], [[1, 1], [1, 0]]]
)
def test_bad_losses_are_refused(rows: list[list[float]]) -> None:
    with pytest.raises(ParameterError):
        loss_matrix(rows)
