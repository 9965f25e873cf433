"""Bipartite randomized response as published: losses, limits, sizes, and when it relaxes."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain
from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.ordinal.brr import (
    BipartiteRandomizedResponse,
    Windows,
    equidistant_row,
    equidistant_windows,
    probabilities,
    strongest_draw,
)
from mechanisms.ordinal.sizes import Loss, equidistant, equidistant_size
from mechanisms.papers.bipartite_randomized_response import (
    degradable,
    degradation_error,
    exponential_loss,
    exponential_rows,
    keep_probability,
    loss_ratios,
    printed_size,
    quality_losses,
)
from mechanisms.papers.gradual_release.channels import degradation

#: Bipartite, randomized response, exponential at half the exponent, exponential; at epsilon 0.5,
#: 1, 2, 3.
TABLE = """
20 .3013/.3390/.3362/.3226 .2564/.3223/.3226/.2964 .1768/.2653/.2964/.2489 .1179/.1791/.2717/.2093
40 .2946/.3362/.3286/.3157 .2500/.3276/.3157/.2909 .1726/.2946/.2909/.2458 .1145/.2313/.2675/.2081
60 .2922/.3353/.3260/.3134 .2479/.3295/.3134/.2890 .1718/.3063/.2890/.2447 .1135/.2571/.2660/.2074
80 .2909/.3348/.3248/.3122 .2471/.3304/.3122/.2880 .1712/.3125/.2880/.2440 .1130/.2725/.2652/.2071
100 .2903/.3345/.3240/.3115 .2466/.3310/.3115/.2874 .1705/.3164/.2874/.2437 .1132/.2827/.2647/.2068
"""


def quality_loss(rows: list[list[float]], loss: Loss) -> float:
    """The mean loss of a report, over the largest loss."""
    return float((np.array(rows) * np.array(loss)).sum()) / len(loss) / max(map(max, loss))


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


def test_losses_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        quality_losses(5, math.nan)
    with pytest.raises(ParameterError, match="points"):
        exponential_loss(1, 1.0)


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


@pytest.mark.parametrize(("weak", "strong"), [(1e-12, 1e-6), (0.5, 2.0), (1.0, 1.0), (30.0, 700.0)])
def test_the_noise_makes_the_weaker_channel(weak: float, strong: float) -> None:
    for points, size in ((2, 1), (8, 3), (20, 7)):
        keep = keep_probability(points, size, weak, strong)
        high, low = probabilities(points, size, strong)
        wanted = probabilities(points, size, weak)
        mixed = [keep * entry + (1 - keep) / points for entry in (high, low)]
        assert mixed == pytest.approx(wanted, rel=1e-12, abs=1e-15)
        gap = keep * (high - low)
        expected = -math.expm1(-weak) * wanted[0]
        # The difference is lost where both probabilities are the same in sixteen digits.
        assert gap == pytest.approx(expected, rel=1e-9 if strong > 1e-3 else 1)


def test_the_ladder_uses_that_noise() -> None:
    ladder = BipartiteRandomizedResponse((0.5, 2.0), 8, 3)
    step = ladder.chain.steps[0]
    keep = keep_probability(8, 3, 0.5, 2.0)
    assert (step.keep - step.other) / 2**64 == pytest.approx(keep, rel=1e-12)  # type: ignore[union-attr]


def test_floats_are_compared_as_exact_channels_are() -> None:
    def exact(windows: Windows, micro: int) -> Channel:
        return FiniteChain(strongest_draw(windows, micro)).channel(0)

    for weak, strong in (((4, 2), (4, 1)), ((4, 3), (4, 1)), ((4, 2), (4, 3)), ((4, 3), (4, 2))):
        for epsilons in ((0.2, 0.5), (0.5, 2.0)):
            windows = equidistant_windows(*weak), equidistant_windows(*strong)
            channels = [exact(w, int(e * 1e6)) for w, e in zip(windows, epsilons, strict=True)]
            noise = Channel(
                tuple(
                    tuple(entry * (1 - Fraction(1, 2**40)) + Fraction(1, 2**42) for entry in row)
                    for row in channels[0].rows
                )
            )
            try:
                degradation(noise, channels[1])
                related = True
            except UnrelatedLevelsError:
                related = False
            matrices = [floats(w, e) for w, e in zip(windows, epsilons, strict=True)]
            assert degradable(*matrices) == related
            assert (degradation_error(*matrices) < 1e-12) == related


@pytest.mark.parametrize(
    "shape", [(8, 3, 2.0, 0.5), (8, 0, 0.5, 2.0), (8, 8, 0.5, 2.0), (8, 3, 0.0, 2.0)]
)
def test_bad_shapes_are_refused(shape: tuple[int, int, float, float]) -> None:
    with pytest.raises(ParameterError):
        keep_probability(*shape)


def test_channels_of_different_inputs_are_refused() -> None:
    with pytest.raises(ParameterError, match="compare"):
        degradable(np.eye(2), np.eye(3))
