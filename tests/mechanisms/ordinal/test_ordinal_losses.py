"""Losses, and the nodes of a continuous range."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.errors import ParameterError
from mechanisms.ordinal.losses import (
    Nodes,
    equidistant,
    equidistant_nodes,
    euclidean,
    jaccard,
    loss_matrix,
)
from mechanisms.testing import SeededSource
from tests.statistical import check_binomial


def test_losses_agree_where_they_overlap() -> None:
    assert equidistant(4) == euclidean([(1.0,), (2.0,), (3.0,), (4.0,)])
    assert equidistant_nodes(0.0, 3.0, 4).loss == equidistant(4)


def test_jaccard_of_empty_and_disjoint_sets() -> None:
    assert jaccard([set(), {1}, {1, 2}, {3}])[0] == (0, 1, 1, 1)
    assert jaccard([set(), {1}, {1, 2}, {3}])[1] == (1, 0, Fraction(1, 2), 1)
    assert jaccard([set(), frozenset()]) == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    "rows", [[], [[0, 1]], [[0, -1], [1, 0]], [[0, math.nan], [1, 0]], [[1, 1], [1, 0]]]
)
def test_bad_losses_are_refused(rows: list[list[float]]) -> None:
    with pytest.raises(ParameterError):
        loss_matrix(rows)


def test_points_of_different_dimension_are_refused() -> None:
    with pytest.raises(ParameterError, match="coordinates"):
        euclidean([(0, 1), (0,)])


def test_the_nearest_node_is_the_nearest() -> None:
    nodes = Nodes((-1.5, 0.0, 0.25, 4.0))
    for value in [*np.linspace(-3, 6, 901), -1.5, 0.0, 0.25, 4.0, math.inf, -math.inf]:
        clipped = min(max(value, -1.5), 4.0)
        distances = [abs(place - clipped) for place in nodes.places]
        assert nodes.nearest(value) == distances.index(min(distances))
    assert nodes.nearest(0.125) == 1


@pytest.mark.parametrize(("value", "below", "share"), [(0.5, 1, 0.5), (3.7, 2, 0.4), (-9.0, 0, 0)])
def test_stochastic_nodes_keep_the_mean(value: float, below: int, share: float) -> None:
    nodes, seed, n = Nodes((-2.0, 0.0, 1.0, 7.75)), 3, 20_000
    source = SeededSource(seed)
    drawn = [nodes.stochastic(value, source) for _ in range(n)]
    assert set(drawn) <= {below, below + 1}
    check_binomial(drawn.count(below + 1), n, share, label=f"seed {seed}")
    if share:
        with pytest.raises(AssertionError):
            check_binomial(drawn.count(below + 1), n, share * 1.1, label=f"planted, seed {seed}")


def test_a_node_is_always_itself() -> None:
    nodes, source = equidistant_nodes(0.1, 0.7, 7), SeededSource(1)
    for number, place in enumerate(nodes.places):
        assert {nodes.stochastic(place, source) for _ in range(20)} == {number}
        assert nodes.nearest(place) == number


@pytest.mark.parametrize("places", [(), (1.0,), (1.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_bad_nodes_are_refused(places: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError):
        Nodes(places)


@pytest.mark.parametrize("shape", [(0.0, 1.0, 1), (1.0, 0.0, 3), (0.0, math.nan, 3)])
def test_bad_ranges_are_refused(shape: tuple[float, float, int]) -> None:
    with pytest.raises(ParameterError):
        equidistant_nodes(*shape)


def test_no_message_has_a_value() -> None:
    with pytest.raises(ParameterError, match="a value must be a number"):
        equidistant_nodes(0.0, 1.0, 3).nearest(math.nan)
