"""Bipartite randomized response as published: losses, limits, sizes, and when it relaxes."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds, exp_micro
from mechanisms.ordinal.brr import (
    BipartiteRandomizedResponse,
    Windows,
    equidistant_windows,
    probabilities,
)
from mechanisms.ordinal.sizes import equidistant_size
from papers.bipartite_randomized_response import (
    Loss,
    Number,
    equidistant,
    keep_probability,
    local_sizes,
    loss_chain,
    printed_size,
    quality_losses,
    windows_of,
)
from papers.gradual_release.channels import degradable

#: Bipartite, randomized response, exponential at half the exponent, exponential; at epsilon 0.5,
#: 1, 2, 3.
TABLE = """
20 .3013/.3390/.3362/.3226 .2564/.3223/.3226/.2964 .1768/.2653/.2964/.2489 .1179/.1791/.2717/.2093
40 .2946/.3362/.3286/.3157 .2500/.3276/.3157/.2909 .1726/.2946/.2909/.2458 .1145/.2313/.2675/.2081
60 .2922/.3353/.3260/.3134 .2479/.3295/.3134/.2890 .1718/.3063/.2890/.2447 .1135/.2571/.2660/.2074
80 .2909/.3348/.3248/.3122 .2471/.3304/.3122/.2880 .1712/.3125/.2880/.2440 .1130/.2725/.2652/.2071
100 .2903/.3345/.3240/.3115 .2466/.3310/.3115/.2874 .1705/.3164/.2874/.2437 .1132/.2827/.2647/.2068
"""


def test_the_table() -> None:
    wanted = [
        [float(value) for value in cell.split("/")]
        for line in TABLE.split("\n")
        for cell in line.split()[1:]
    ]
    found = [
        quality_losses(points, epsilon)
        for points in (20, 40, 60, 80, 100)
        for epsilon in (0.5, 1, 2, 3)
    ]
    assert len(found) == len(wanted) == 20
    for row, cells in zip(found, wanted, strict=True):
        assert list(row[3:]) == pytest.approx(cells, abs=5e-5)
        assert row.bipartite < min(row[4:])


EPSILONS = (0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


def test_the_printed_form_errs_in_a_quarter_of_all_cases() -> None:
    wrong = Counter(
        epsilon
        for epsilon in EPSILONS
        for points in range(2, 201)
        if printed_size(points, epsilon) != equidistant_size(points, epsilon)
    )
    assert [wrong[epsilon] for epsilon in EPSILONS] == [50, 50, 50, 50, 50, 51, 51, 51, 49]
    assert sum(wrong.values()) == 452


def floats(windows: Windows, epsilon: float) -> np.ndarray:
    points = len(windows)
    high, low = probabilities(points, len(windows[0]), epsilon)
    return np.array([[high if y in window else low for y in range(points)] for window in windows])


def test_the_ladder_uses_that_noise() -> None:
    ladder = BipartiteRandomizedResponse((0.5, 2.0), 8, 3)
    step = ladder.chain.steps[0]
    keep = keep_probability(8, 3, 0.5, 2.0)
    assert (step.keep - step.other) / 2**64 == pytest.approx(keep, rel=1e-12)  # type: ignore[union-attr]


@pytest.mark.parametrize("epsilons", [(0.2, 0.5), (0.5, 0.6), (0.5, 2.0)])
@pytest.mark.parametrize("points", [4, 6])
def test_it_relaxes_to_randomized_response_where_few_windows_share_a_point(
    points: int, epsilons: tuple[float, float]
) -> None:
    for size in range(2, points):
        windows = equidistant_windows(points, size)
        shared = Counter(y for window in windows for y in window).values()
        most = max((count for count in shared if count < points), default=0)
        related = math.expm1(epsilons[0]) * most <= math.expm1(epsilons[1])
        strong = floats(equidistant_windows(points, 1), epsilons[1])
        assert degradable(floats(windows, epsilons[0]), strong) == related


def test_channels_of_different_inputs_are_refused() -> None:
    with pytest.raises(ParameterError, match="compare"):
        degradable(np.eye(2), np.eye(3))


POINTS = [(0, 0), (1, 0), (1, 3), (5, 5), (6, 5)]
PLACES = tuple(tuple(math.dist(x, y) for y in POINTS) for x in POINTS)
SETS = [{1, 2}, {1}, {2, 3}, {4}, {7}, {4, 5, 6}]
TASTES = tuple(tuple(1 - Fraction(len(x & y), len(x | y)) for y in SETS) for x in SETS)


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("loss", [PLACES, TASTES], ids=["places", "tastes"])
def test_any_loss_costs_at_most_its_epsilon_and_favours_the_nearest(loss: Loss, size: int) -> None:
    """Every channel, exactly: what Algorithm 2 favours, at every level, and no more."""
    epsilons = (0.5, 1.0, 2.0)
    chain = loss_chain(loss, epsilons, size)
    favoured = size or min(local_sizes(loss, epsilons[-1]))
    for level, epsilon in enumerate(epsilons):
        channel = chain.channel(level)
        assert channel.ratio() <= exp_micro(round(epsilon * 1e6))[1]
        for row, window in zip(channel.rows, windows_of(loss, favoured), strict=True):
            nearest = sorted(range(len(row)), key=lambda y: -row[y])[:favoured]
            assert sorted(nearest) == list(window)


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
