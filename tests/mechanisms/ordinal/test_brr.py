"""Bipartite randomized response: windows, exact rows, ranks, and losses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain
from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro
from mechanisms.ordinal.brr import (
    BipartiteRandomizedResponse,
    equidistant_windows,
    probabilities,
    strongest_draw,
)
from mechanisms.ordinal.sizes import equidistant_size
from mechanisms.registry import build
from papers.bipartite_randomized_response import channel_rank, equidistant_row

NAMES = ("domain_size", "subset_size", "missing")
LADDER = (500_000, 1_000_000, 2_000_000)
EPSILONS = (0.5, 1.0, 2.0)


def test_windows_of_equidistant_points_are_the_nearest() -> None:
    for points in range(2, 12):
        for size in range(1, points):
            nearest = tuple(
                tuple(sorted(sorted(range(points), key=lambda y: (abs(x - y), y))[:size]))
                for x in range(points)
            )
            assert equidistant_windows(points, size) == nearest


@pytest.mark.parametrize("epsilon", [1e-12, 0.5, 30.0, 700.0])
def test_rows_are_distributions_with_the_exact_ratio(epsilon: float) -> None:
    for points, size in ((2, 1), (9, 4), (100, 37)):
        high, low = probabilities(points, size, epsilon)
        assert size * high + (points - size) * low == pytest.approx(1, rel=1e-14)
        assert math.log(high) - math.log(low) == pytest.approx(epsilon, rel=1e-12, abs=1e-15)
    assert math.fsum(equidistant_row(50, epsilon, 20)) == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("micro", [1, 1000, 500_000, 5_000_000, 40_000_000])
@pytest.mark.parametrize(("points", "size"), [(2, 1), (5, 3), (6, 4), (33, 14), (64, 63)])
def test_integer_rows_never_exceed(points: int, size: int, micro: int, missing: bool) -> None:
    windows = equidistant_windows(points, size)
    draw = strongest_draw(windows, micro, missing)
    assert FiniteChain(draw).ratio(0) <= exp_micro(micro)[0]
    high, low = probabilities(points + missing * size, size, micro / 1e6)
    tolerance = 1e-12 if micro < 40_000_000 else 2
    for x, row in enumerate(draw.weights[:points]):
        for y in range(points):
            expected = high if y in windows[x] else low
            assert row[y] / 2**64 == pytest.approx(expected, rel=tolerance)
        if missing:
            assert row[-1] / 2**64 == pytest.approx(size * low, rel=tolerance)
    assert len(set(draw.weights)) == points - size + 1 + missing


@pytest.mark.parametrize("micro", [1, 200_000, 1_000_000, 12_000_000])
def test_ranks_of_the_realised_channels(micro: int) -> None:
    for points in (4, 9, 20):
        size = equidistant_size(points, Fraction(micro, 1_000_000))
        draw = strongest_draw(equidistant_windows(points, size), micro)
        scaled = np.array(
            [[(entry - min(row)) / (max(row) - min(row)) for entry in row] for row in draw.weights]
        )
        assert np.linalg.matrix_rank(scaled) == channel_rank(points, size)


@pytest.mark.parametrize("shape", [(1, 1, False), (2, 1, True), (5, 0, False), (5, 5, False)])
def test_bad_shapes_are_refused(shape: tuple[int, int, bool]) -> None:
    with pytest.raises(ParameterError, match="size"):
        build({"name": "brr", **dict(zip(NAMES, shape, strict=True))}, LADDER, "m")
    with pytest.raises(ParameterError, match="domain_size"):
        BipartiteRandomizedResponse(EPSILONS, 1025, 3)


def test_no_value_is_worse_off_than_with_randomized_response() -> None:
    for points in range(2, 41):
        loss = np.abs(np.subtract.outer(np.arange(points), np.arange(points)))
        for epsilon in (0.1, 1.0, 2.0, 5.0):
            rows = [equidistant_row(points, epsilon, x) for x in range(points)]
            high, low = probabilities(points, 1, epsilon)
            plain = np.where(np.eye(points, dtype=bool), high, low)
            assert ((loss * rows).sum(axis=1) <= (loss * plain).sum(axis=1) * (1 + 1e-12)).all()
