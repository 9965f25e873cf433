"""Relaxation: the noise for the same windows, the criterion for others, matrices of floats."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain
from mechanisms.channel import Channel
from mechanisms.degradation import degradation
from mechanisms.errors import ParameterError, UnrelatedRungsError
from mechanisms.ordinal.brr import (
    Windows,
    brr_ladder,
    equidistant_windows,
    probabilities,
    strongest_draw,
    windows_of,
)
from mechanisms.ordinal.losses import jaccard
from mechanisms.ordinal.relaxing import (
    degradable,
    degradation_error,
    keep_probability,
    most_windows,
    relaxes_to_single,
    resized_chain,
)
from mechanisms.ordinal.search import equidistant_size
from tests.adapters.ordinal import ADAPTERS
from tests.vectors import Vector, vectors


def floats(windows: Windows, epsilon: float) -> np.ndarray:
    points = len(windows)
    high, low = probabilities(points, len(windows[0]), epsilon)
    return np.array([[high if y in window else low for y in range(points)] for window in windows])


@vectors("relax_bipartite")
def test_published_noise(vector: Vector) -> None:
    vector.check(ADAPTERS["relax_bipartite"](vector.inputs))


@vectors("degradable")
def test_published_relations(vector: Vector) -> None:
    vector.check(ADAPTERS["degradable"](vector.inputs))


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
    ladder = brr_ladder(8, 3, False, (500_000, 2_000_000), "m")
    step = ladder.chain.steps[0]
    keep = keep_probability(8, 3, 0.5, 2.0)
    assert (step.keep - step.other) / 2**64 == pytest.approx(keep, rel=1e-12)  # type: ignore[union-attr]


def test_the_criterion_is_that_of_the_linear_program() -> None:
    cases = related = 0
    sets = [{1}, {1, 2}, {2, 3}, {3, 4, 5}, {1, 5}, {2}]
    families = [
        *(equidistant_windows(points, size) for points in (4, 5, 8) for size in (2, 3)),
        windows_of(jaccard(sets), 3),
    ]
    for windows in families:
        single = equidistant_windows(len(windows), 1)
        for weak, strong in ((0.1, 0.2), (0.3, 0.9), (0.5, 1.0), (0.5, 3.0), (1.0, 2.0), (2, 2.2)):
            expected = degradable(floats(windows, weak), floats(single, strong))
            assert relaxes_to_single(windows, weak, strong) == expected
            cases, related = cases + 1, related + expected
    assert 5 < related < cases - 5


def test_the_criterion_holds_at_its_boundary() -> None:
    windows = equidistant_windows(6, 3)
    count = most_windows(windows)
    strong = math.log1p(math.expm1(0.4) * count)
    assert relaxes_to_single(windows, 0.4, strong * (1 + 1e-12))
    assert not relaxes_to_single(windows, 0.4, strong * (1 - 1e-12))
    assert relaxes_to_single(equidistant_windows(6, 1), 0.4, 0.4)
    assert not relaxes_to_single(windows, 0.4, 0.4)


def test_sizes_of_their_own_often_are_unrelated() -> None:
    sizes = [equidistant_size(5, epsilon) for epsilon in (0.5, 1.0, 1.5)]
    assert sizes == [2, 1, 1]
    pair, single = equidistant_windows(5, 2), equidistant_windows(5, 1)
    chain = resized_chain((pair, single, single), (500_000, 1_500_000, 1_600_000))
    assert chain.matrix(0) == pytest.approx(floats(pair, 0.5), rel=1e-12)
    assert chain.matrix(1) == pytest.approx(floats(single, 1.5), rel=1e-12)
    assert chain.matrix(2) == pytest.approx(floats(single, 1.6), rel=1e-12)
    with pytest.raises(UnrelatedRungsError, match=r"rung 1.*favour the same at all"):
        resized_chain((pair, single), (500_000, 1_000_000))


def test_smaller_windows_below_larger_ones() -> None:
    windows = (equidistant_windows(4, 1), equidistant_windows(4, 3))
    with pytest.raises(UnrelatedRungsError, match="rung 1"):
        resized_chain(windows, (500_000, 1_000_000))
    with pytest.raises(ParameterError, match="as many windows"):
        resized_chain(windows, (500_000,))


def test_the_same_windows_are_always_related() -> None:
    windows = [equidistant_windows(4, 3)] * 2
    chain = resized_chain(windows, (500_000, 1_000_000))
    assert chain.matrix(0) == pytest.approx(floats(windows[0], 0.5), rel=1e-12)


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
            except UnrelatedRungsError:
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
