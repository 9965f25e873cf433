"""Mechanisms on a grid: exact laws, exact unbiasedness, how good the rungs are."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.number import designs
from mechanisms.number.gridded import GridMechanism, HybridMechanism
from mechanisms.number.laws import Law, Shape, contributions, matrix, worst_variance
from mechanisms.registry import build
from papers.float_numbers import Duchi, Hybrid, Piecewise

NAMES = ("duchi", "piecewise", "hybrid", "square_wave")
LADDERS = {
    "one": (1_000_000,),
    "three": (500_000, 1_000_000, 2_000_000),
    "high": (2_000_000, 4_000_000, 8_000_000),
    "wide": (1, 1_500_000, 9_000_000),
}


def grid(name: str, ladder: tuple[int, ...], missing: bool, points: int = 9) -> Any:
    spec: dict[str, Any] = {"name": name, "missing": missing}
    if name != "duchi":
        spec["points"] = points
    return build(spec, ladder, "delay")


def worst(ladder: GridMechanism, level: int) -> float:
    """On [-1, 1], as the published formulas."""
    return 4 * float(worst_variance(ladder.shape, ladder.laws[level]))


def channel_of(chain: Any, level: int) -> Channel:
    laws = (chain.law(x, level) for x in range(chain.inputs))
    return Channel(tuple(tuple(law[output] for output in range(chain.size)) for law in laws))


def dot(row: tuple[Fraction, ...], other: tuple[Fraction, ...]) -> Fraction:
    return sum((one * two for one, two in zip(row, other, strict=True)), Fraction(0))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rungs", LADDERS)
@pytest.mark.parametrize("name", NAMES)
def test_exact(name: str, rungs: str, missing: bool) -> None:
    """The laws are those of the chain; certified within nominal; contributions are unbiased."""
    ladder = grid(name, LADDERS[rungs], missing)
    steps = ladder.shape.steps
    for level in range(ladder.levels):
        channel, law = channel_of(ladder.chain, level), ladder.laws[level]
        assert ladder.certified(level) == channel.certified <= ladder.nominal(level)
        (rung,) = ladder.exact(level)
        assert rung.p / rung.q == channel.ratio()
        exact = contributions(ladder.shape, law)
        assert matrix(ladder.shape, law) == pytest.approx(np.array(channel.rows, float), rel=1e-13)
        for x, row in enumerate(channel.rows):
            here = x <= steps
            y = (Fraction(x, steps) - Fraction(1, 2)) * here
            assert dot(row, exact.value) == y
            assert dot(row, exact.present) == here
            assert exact.square is None or dot(row, exact.square) == y**2


@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_the_published_design_has_the_published_variance(epsilon: int) -> None:
    """With the paper's window and share, the grid's law is that of the float mechanism."""
    share = 1 - Fraction(np.exp(-epsilon / 2))
    width = round(256 * np.exp(-epsilon / 2)) // 2 * 2 + 1
    shape = Shape(257, width, True, False)
    law = designs.law_of(shape, designs.strongest(shape, share, epsilon * 1_000_000))
    assert 4 * worst_variance(shape, law) == pytest.approx(Hybrid(epsilon).variance(1), rel=0.02)
    alone = designs.law_of(shape, designs.strongest(shape, Fraction(1), epsilon * 1_000_000))
    assert 4 * worst_variance(shape, alone) == pytest.approx(
        Piecewise(epsilon).variance(1), rel=0.02
    )


@pytest.mark.parametrize(
    ("epsilon", "part"), [(0.5, 1.0), (1, 0.996), (2, 0.943), (4, 0.712), (8, 0.338)]
)
def test_the_chosen_design_is_better(epsilon: float, part: float) -> None:
    """Worst-case variance over the published one, the rounding to the grid included."""
    ladder = grid("hybrid", (round(epsilon * 1e6),), False, 65)
    rounding = 1 / 64**2
    found = (worst(ladder, 0) + rounding) / Hybrid(epsilon).variance(0)
    assert found <= 1.0005
    assert found == pytest.approx(part, abs=0.012)


def test_the_best_of_all_odd_widths_and_shares() -> None:
    """The closed forms agree with the realised law, and no other width or share is better."""
    for missing in (False, True):
        variance, best, share = designs.least_variance_design(17, missing, 2_000_000, mixed=True)
        found = {}
        for width in range(1, 17, 2):
            for part in range(1, 21):
                shape = Shape(17, width, True, missing)
                grains = designs.strongest(shape, Fraction(part, 20), 2_000_000)
                found[width, part] = float(worst_variance(shape, designs.law_of(shape, grains)))
        grains = designs.strongest(best, share, 2_000_000)
        realised = float(worst_variance(best, designs.law_of(best, grains)))
        assert min(found.values()) >= (0.99 if missing else 0.9999) * realised
        if not missing:
            assert realised == pytest.approx(float(variance), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "part"), [(1, 0.989), (2, 0.949), (4, 0.782), (8, 0.40)])
def test_piecewise_is_nowhere_worse_than_the_published_one(epsilon: int, part: float) -> None:
    ladder = grid("piecewise", (epsilon * 1_000_000,), False, 65)
    for x in (0.0, 0.25, 0.5, 0.75, 1.0):
        found = 4 * ladder.variance(0, [(x + 1) / 2])
        assert found <= 1.001 * Piecewise(epsilon).variance(x)
    uniform = np.linspace(-1, 1, 129)
    published = np.mean([Piecewise(epsilon).variance(x) for x in uniform])
    found = 4 * np.mean([ladder.variance(0, [(x + 1) / 2]) for x in uniform])
    assert found / published == pytest.approx(part, abs=0.02)


def test_weaker_rungs_are_close_to_mechanisms_of_their_own() -> None:
    allowed = {"three": (1.08, 1.03, 1.0), "high": (1.7, 1.56, 0.35)}
    for rungs, parts in allowed.items():
        ladder = grid("hybrid", LADDERS[rungs], False, 65)
        for level, part in enumerate(parts):
            alone = Hybrid(ladder.nominal(level) / 1e6).variance(1)
            assert worst(ladder, level) <= part * alone


def test_far_below_a_rung_is_duchis() -> None:
    """Half the epsilon and less: all cells become the bit, whose law is then exactly his."""
    ladder = grid("hybrid", (500_000, 2_000_000), False, 65)
    assert worst(ladder, 0) == pytest.approx(Duchi(0.5).variance(0), rel=1e-9)
    assert ladder.laws[0].inside == 0


def test_at_small_epsilon_the_hybrid_has_no_cells() -> None:
    ladder = grid("hybrid", (500_000,), True, 65)
    assert ladder.shape.cells == 0
    assert ladder.chain.size == 3


def test_a_wrong_slope_is_caught() -> None:
    """The exact test of unbiasedness notices one grain of 2**64."""
    ladder = grid("hybrid", (2_000_000,), False)
    law = ladder.laws[0]
    wrong = Law(law.inside + Fraction(1, 2**64), *law[1:])
    exact = contributions(ladder.shape, wrong)
    row = ladder.chain.channel(0).rows[0]
    assert dot(row, exact.value) != Fraction(-1, 2)


def test_what_cannot_be_honoured_is_refused() -> None:
    for points in (2, 4, 64, 66, 513, 0, -3):
        with pytest.raises(ParameterError, match="points"):
            HybridMechanism(1.0, points)
    with pytest.raises(ParameterError, match="increase"):
        HybridMechanism((2.0, 1.0), 9)
    with pytest.raises(UnrelatedLevelsError):
        HybridMechanism((39.999999, 40.0), 65)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["piecewise", "hybrid", "square_wave"]),
    st.lists(st.integers(1, 40_000_000), min_size=1, max_size=4, unique=True).map(sorted),
    st.sampled_from([3, 5, 9]),
    st.booleans(),
)
def test_any_ladder(name: str, rungs: list[int], points: int, missing: bool) -> None:
    """Whatever the amounts: certified within nominal, exactly unbiased; or refused."""
    try:
        ladder = grid(name, tuple(rungs), missing, points)
    except (ParameterError, UnrelatedLevelsError):
        # 64 bits cannot tell apart what is almost the same.
        event("refused")
        return
    for level in range(ladder.levels):
        channel = ladder.chain.channel(level)
        assert channel.certified == ladder.certified(level) <= rungs[level]
        exact = contributions(ladder.shape, ladder.laws[level])
        for x, row in enumerate(channel.rows):
            y = (Fraction(x, points - 1) - Fraction(1, 2)) * (x < points)
            assert dot(row, exact.value) == y


@pytest.mark.parametrize("points", [3, 9, 65])
@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1, 1.5, 2, 3, 5])
def test_the_window_is_the_nearest_to_that_of_the_square_wave(points: int, epsilon: float) -> None:
    exp = math.exp(epsilon)
    half = (epsilon * exp - exp + 1) / (2 * exp * (exp - 1 - epsilon))
    shape = designs.square_wave_shape(points, False, round(epsilon * 1e6))
    assert abs((shape.width - 1) / 2 - half * (points - 1)) <= 0.5
