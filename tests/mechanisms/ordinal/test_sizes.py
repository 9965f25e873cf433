"""The closed forms against the search of the paper, and exact comparisons."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from mechanisms.errors import ParameterError
from mechanisms.ordinal.sizes import equidistant_size, exp_less
from papers.bipartite_randomized_response import equidistant, local_size

EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


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


def test_a_single_point_is_refused() -> None:
    with pytest.raises(ParameterError, match="points"):
        equidistant_size(1, 1.0)
