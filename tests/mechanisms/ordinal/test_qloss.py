"""Quality losses: the tables, other ways to compute them, the limits of the theorems."""

from __future__ import annotations

import math

import pytest

from mechanisms.errors import ParameterError
from mechanisms.ordinal.brr import equidistant_row, equidistant_windows, probabilities
from mechanisms.ordinal.losses import equidistant, jaccard
from mechanisms.ordinal.qloss import (
    bipartite_loss,
    exponential_loss,
    exponential_rows,
    loss_ratios,
    quality_loss,
    quality_loss_table,
    quality_losses,
)
from tests.adapters.ordinal import ADAPTERS
from tests.vectors import Vector, vectors

#: Bipartite, randomized response, exponential at half the exponent, exponential; at epsilon 0.5,
#: 1, 2, 3.
TABLE = """
20 .3013/.3390/.3362/.3226 .2564/.3223/.3226/.2964 .1768/.2653/.2964/.2489 .1179/.1791/.2717/.2093
40 .2946/.3362/.3286/.3157 .2500/.3276/.3157/.2909 .1726/.2946/.2909/.2458 .1145/.2313/.2675/.2081
60 .2922/.3353/.3260/.3134 .2479/.3295/.3134/.2890 .1718/.3063/.2890/.2447 .1135/.2571/.2660/.2074
80 .2909/.3348/.3248/.3122 .2471/.3304/.3122/.2880 .1712/.3125/.2880/.2440 .1130/.2725/.2652/.2071
100 .2903/.3345/.3240/.3115 .2466/.3310/.3115/.2874 .1705/.3164/.2874/.2437 .1132/.2827/.2647/.2068
"""


@vectors("qloss")
def test_published_losses(vector: Vector) -> None:
    vector.check(ADAPTERS["qloss"](vector.inputs))


@vectors("thm2")
def test_theorem_two(vector: Vector) -> None:
    vector.check(ADAPTERS["thm2"](vector.inputs))


@vectors("thm3")
def test_theorem_three(vector: Vector) -> None:
    vector.check(ADAPTERS["thm3"](vector.inputs))


def test_the_table() -> None:
    wanted = [
        [float(value) for value in cell.split("/")]
        for line in TABLE.split("\n")
        for cell in line.split()[1:]
    ]
    found = quality_loss_table((20, 40, 60, 80, 100), (0.5, 1, 2, 3))
    assert len(found) == len(wanted) == 20
    for row, cells in zip(found, wanted, strict=True):
        assert list(row[3:]) == pytest.approx(cells, abs=5e-5)
        assert row.bipartite < min(row[4:])


@pytest.mark.parametrize("epsilon", [1e-9, 0.5, 3.0, 60.0])
@pytest.mark.parametrize("points", [2, 7, 30])
def test_losses_are_those_of_the_channels(points: int, epsilon: float) -> None:
    loss, found = equidistant(points), quality_losses(points, epsilon)
    bipartite = [equidistant_row(points, epsilon, x) for x in range(points)]
    assert found.bipartite == pytest.approx(quality_loss(bipartite, loss), rel=1e-12)
    for rows, value in (
        (exponential_rows(points, epsilon), found.exponential),
        (exponential_rows(points, epsilon / 2), found.exponential_half),
    ):
        assert value == pytest.approx(quality_loss(rows, loss), rel=1e-11)


@pytest.mark.parametrize("points", [2, 5, 40])
def test_the_exponential_mechanism_realises_its_exponent(points: int) -> None:
    for epsilon in (0.5, 4.0):
        columns = zip(*exponential_rows(points, epsilon), strict=True)
        assert max(math.log(max(c) / min(c)) for c in columns) == pytest.approx(epsilon, rel=1e-12)


def test_the_limits_are_approached() -> None:
    points = 20_001
    for epsilon in (1.0, 2.0):
        limits, found = loss_ratios(epsilon), quality_losses(points, epsilon)
        assert found.bipartite / found.randomized == pytest.approx(limits.overall, abs=3e-4)
        assert abs(limits.overall - limits.overall_printed) > 0.01
        high, low = probabilities(points, found.size, epsilon)
        plain_low = probabilities(points, 1, epsilon)[1]
        ratios = []
        for x in range(0, points, 50):
            first, size = min(max(x - found.size // 2, 0), points - found.size), found.size
            left, right = x - first, first + size - 1 - x
            inside = (left * (left + 1) + right * (right + 1)) / 2
            whole = (x * (x + 1) + (points - 1 - x) * (points - x)) / 2
            ratios.append((inside * high + (whole - inside) * low) / (whole * plain_low))
        assert max(ratios) == pytest.approx(limits.largest, abs=1e-3)
        assert min(ratios) == pytest.approx(limits.smallest, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 50.0, 700.0])
def test_limits_are_ordered_and_finite(epsilon: float) -> None:
    limits = loss_ratios(epsilon)
    assert 0 < limits.smallest <= limits.overall <= limits.largest < 1
    h = math.exp(epsilon / 2)
    gap = (h - 1) / (h + 1) / (math.sqrt(h * h + 2 * h + 2) + h + 1)
    assert limits.largest - limits.smallest == pytest.approx(gap, rel=1e-9, abs=1e-15)


def test_any_size_of_window() -> None:
    for size in range(1, 9):
        high, low = probabilities(9, size, 0.7)
        rows = [
            [high if y in window else low for y in range(9)]
            for window in equidistant_windows(9, size)
        ]
        expected = quality_loss(rows, equidistant(9))
        assert bipartite_loss(9, size, 0.7) == pytest.approx(expected, rel=1e-13)


def test_losses_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="zero"):
        quality_loss([[1.0]], [[0]])
    with pytest.raises(ParameterError, match="2 inputs"):
        quality_loss([[1.0]], jaccard([{1}, {2}]))
    with pytest.raises(ParameterError, match="epsilon"):
        quality_losses(5, math.nan)
    with pytest.raises(ParameterError, match="points"):
        exponential_loss(1, 1.0)
