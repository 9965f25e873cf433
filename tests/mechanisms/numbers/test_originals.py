"""The float originals have the variances of their formulas, and no certified epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statistical import check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.number.originals import (
    DuchiOriginal,
    HybridOriginal,
    LaplaceOriginal,
    PiecewiseOriginal,
    SquareWaveOriginal,
    SubtractiveDithering,
)

SEED = 20261123
ORIGINALS = (
    DuchiOriginal,
    HybridOriginal,
    LaplaceOriginal,
    PiecewiseOriginal,
    SquareWaveOriginal,
    SubtractiveDithering,
)


@pytest.mark.parametrize("original", ORIGINALS)
@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_variances(original: type, epsilon: float) -> None:
    """Means of a hundred estimates are normal enough for the chi-square law."""
    generator = np.random.default_rng(SEED)
    mechanism = original(epsilon)
    assert mechanism.certified_epsilon == math.inf
    for x in (-1.0, 0.0, 0.6):
        drawn = mechanism.simulate(np.full(100_000, x), generator).reshape(1000, 100).mean(axis=1)
        stated, label = mechanism.variance(x) / 100, f"{mechanism} {x} seed {SEED}"
        check_normal(drawn.mean(), x, (stated / 1000) ** 0.5, label=label)
        check_variance(drawn, stated, label=label)


def test_a_wrong_variance_is_caught() -> None:
    mechanism = LaplaceOriginal(1.0)
    values = np.zeros(100_000)
    drawn = mechanism.simulate(values, np.random.default_rng(SEED)).reshape(1000, 100).mean(axis=1)
    with pytest.raises(AssertionError):
        check_variance(drawn, LaplaceOriginal(0.8).variance(0) / 100)


def test_the_square_waves_width() -> None:
    assert SquareWaveOriginal(1.0).half_width == pytest.approx(0.256083, abs=1e-6)
    exact = (1e-3 * math.exp(1e-3) - math.expm1(1e-3)) / (
        2 * math.exp(1e-3) * (math.expm1(1e-3) - 1e-3)
    )
    assert SquareWaveOriginal(1e-3).half_width == pytest.approx(exact, rel=1e-6)
    assert SquareWaveOriginal(9.9e-4).half_width == pytest.approx(exact, rel=1e-4)
    assert SquareWaveOriginal(100.0).half_width < 1e-40


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_bad_epsilon(epsilon: float) -> None:
    for original in ORIGINALS:
        with pytest.raises(ParameterError, match="epsilon"):
            original(epsilon)
