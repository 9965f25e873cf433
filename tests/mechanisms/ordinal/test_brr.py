"""Bipartite randomized response: exact rows, certified amounts, chains, missing values."""

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
    channel_rank,
    equidistant_row,
    equidistant_windows,
    probabilities,
    strongest_draw,
)
from mechanisms.ordinal.sizes import equidistant, equidistant_size
from mechanisms.papers.gradual_release.channels import degradation
from mechanisms.registry import build
from mechanisms.testing import SeededSource
from tests.statistical import check_counts

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


def test_missing_is_protected_as_every_value_is() -> None:
    ladder = BipartiteRandomizedResponse(EPSILONS, 6, 2, True)
    channel = ladder.chain.channel(2)
    columns = list(zip(*channel.rows, strict=True))
    assert max(columns[-1]) == columns[-1][-1]
    assert float(max(columns[-1]) / min(columns[-1])) == pytest.approx(math.exp(2), rel=1e-12)
    assert ladder.certified(2) == 2_000_000


@pytest.mark.parametrize("micro", [1, 200_000, 1_000_000, 12_000_000])
def test_ranks_of_the_realised_channels(micro: int) -> None:
    for points in (4, 9, 20):
        size = equidistant_size(points, Fraction(micro, 1_000_000))
        draw = strongest_draw(equidistant_windows(points, size), micro)
        scaled = np.array(
            [[(entry - min(row)) / (max(row) - min(row)) for entry in row] for row in draw.weights]
        )
        assert np.linalg.matrix_rank(scaled) == channel_rank(points, size)


def test_ladders_keep_the_windows_and_honour_every_rung() -> None:
    ladder = BipartiteRandomizedResponse(EPSILONS, 9, 3)
    assert [ladder.certified(level) for level in range(3)] == list(LADDER)
    for level in range(3):
        channel = ladder.chain.channel(level)
        assert channel.rows[0] == channel.rows[1]
        rung = ladder.exact(level)[0]
        assert rung.p / rung.q == channel.ratio()
        high, low = probabilities(9, 3, LADDER[level] / 1e6)
        assert float(rung.p) == pytest.approx(high, rel=1e-12)
        assert float(rung.q) == pytest.approx(low, rel=1e-12)


def test_rungs_are_degradations_by_the_general_criterion() -> None:
    ladder = BipartiteRandomizedResponse((0.5, 1.0), 4, 3)
    weak, strong = ladder.chain.channel(0), ladder.chain.channel(1)
    step = degradation(weak, strong)
    assert strong.then(step) == weak


@pytest.mark.parametrize("shape", [(1, 1, False), (2, 1, True), (5, 0, False), (5, 5, False)])
def test_bad_shapes_are_refused(shape: tuple[int, int, bool]) -> None:
    with pytest.raises(ParameterError, match="size"):
        build({"name": "brr", **dict(zip(NAMES, shape, strict=True))}, LADDER, "m")
    with pytest.raises(ParameterError, match="domain_size"):
        BipartiteRandomizedResponse(EPSILONS, 1025, 3)


def test_reports_follow_the_rows() -> None:
    brr, seed, n = BipartiteRandomizedResponse(1.0, 12), 8, 400_000
    for value in (0, 6):
        reports = brr.report(np.full(n, value), SeededSource(seed))
        row = equidistant_row(12, 1.0, value)
        check_counts(brr.tally(reports)[0], row, label=f"seed {seed}")
        off = [row[0] * 0.95, *row[1:-1], row[-1] + row[0] * 0.05]
        with pytest.raises(AssertionError):
            check_counts(brr.tally(reports)[0], off, label=f"planted, seed {seed}")


def test_no_value_is_worse_off_than_with_randomized_response() -> None:
    for points in range(2, 41):
        loss = np.abs(np.subtract.outer(np.arange(points), np.arange(points)))
        for epsilon in (0.1, 1.0, 2.0, 5.0):
            rows = [equidistant_row(points, epsilon, x) for x in range(points)]
            high, low = probabilities(points, 1, epsilon)
            plain = np.where(np.eye(points, dtype=bool), high, low)
            assert ((loss * rows).sum(axis=1) <= (loss * plain).sum(axis=1) * (1 + 1e-12)).all()


def test_the_printed_size_makes_a_value_worse_off() -> None:
    losses = []
    for size in (2, 1):
        high, low = probabilities(5, size, 1.0)
        near = sum(abs(y - 2) for y in equidistant_windows(5, size)[2])
        losses.append((near * high + (6 - near) * low) / 4)
    scaled = [loss * 4 for loss in losses]
    assert scaled == pytest.approx([0.9149, 0.8931], abs=5e-5)


def test_exact_expected_loss_formula() -> None:
    brr = BipartiteRandomizedResponse(1.0, 9)
    channel = brr.chain.channel(0)
    size, favoured = brr.subset_size, equidistant_windows(9, brr.subset_size)
    near = sum(abs(x - y) for x, window in enumerate(favoured) for y in window)
    whole = sum(map(sum, equidistant(9)))
    gap = Fraction(math.expm1(1.0))
    stated = (gap * near + whole) / (9 * (size * (gap + 1) + 9 - size))
    exact = sum(abs(x - y) * channel.rows[x][y] for x in range(9) for y in range(9)) / Fraction(9)
    assert float(exact) == pytest.approx(float(stated), rel=1e-12)
