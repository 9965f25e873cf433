"""The published variances: stability, simulations, the crossover."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from statistical import check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.exact import exp_bounds
from papers.float_numbers import (
    HYBRID_FROM,
    Duchi,
    Hybrid,
    Laplace,
    Piecewise,
    SubtractiveDithering,
    sampled_bit_variance,
    threshold_variance,
)
from papers.gradual_release.comparison import bit_noise

SEED = 20261123


def test_the_crossover_of_threshold_and_hybrid() -> None:
    """4f + 1/3 meets the published Hybrid's constant at epsilon 1.901."""

    def excess(epsilon: float) -> float:
        return SubtractiveDithering(epsilon).variance(0) - Hybrid(epsilon).variance(1.0)

    assert brentq(excess, 1, 4, xtol=1e-12) == pytest.approx(1.901, abs=5e-4)


def test_the_hybrid_begins_where_both_parts_are_equal() -> None:
    assert pytest.approx(0.61, abs=1e-3) == HYBRID_FROM
    assert Piecewise(HYBRID_FROM).variance(0) == pytest.approx(Duchi(HYBRID_FROM).variance(0))
    for epsilon in (0.7, 2, 9):
        values = [Hybrid(epsilon).variance(x) for x in (-1, -0.3, 0, 0.8)]
        assert values == pytest.approx([values[0]] * 4, rel=1e-13)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.01, 0.3, 3, 20, 40, 100, 700])
def test_stable(epsilon: float) -> None:
    exp, half = exp_bounds(Fraction(epsilon))[0], exp_bounds(Fraction(epsilon) / 2)[0]
    x = Fraction(3, 4)
    noise = exp / (exp - 1) ** 2
    piecewise = x**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)
    duchi = ((exp + 1) / (exp - 1)) ** 2 - x**2
    hybrid = (1 - 1 / half) * piecewise + duchi / half if epsilon > HYBRID_FROM else duchi
    got = [bit_noise(epsilon)]
    got += [kind(epsilon).variance(0.75) for kind in (Piecewise, Duchi, Hybrid)]
    for one, true in zip(got, (noise, piecewise, duchi, hybrid), strict=True):
        assert one == pytest.approx(float(true), rel=1e-13, abs=0)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, 701])
def test_bad_epsilon(epsilon: float) -> None:
    for variance in ORIGINALS:
        with pytest.raises(ParameterError, match="epsilon"):
            variance(epsilon)


ORIGINALS = (Duchi, Hybrid, Laplace, Piecewise, SubtractiveDithering)


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


def one_bit(p: float, q: float, value: float) -> float:
    """The variance of one-bit response to a number in [0, 1], not stratified."""
    return share_variance(p, q, value) + value * (1 - value)


def test_threshold_is_never_worse_than_one_bit_and_uniform_data_are_worst() -> None:
    rng = np.random.default_rng(3)
    pair = (0.75, 0.25)
    uniform = threshold_variance(*pair, (np.arange(1000) + 0.5) / 1000)
    assert uniform == pytest.approx(share_variance(*pair, 0.5) + 1 / 12, abs=1e-4)
    for values in (rng.beta(2, 20, 500), rng.beta(0.2, 0.3, 500), np.repeat([0.0, 0.3, 1.0], 9)):
        stratified = threshold_variance(*pair, values)
        assert stratified <= uniform + 1e-3
        assert stratified <= np.mean([one_bit(*pair, x) for x in values]) + 1e-12


def test_many_strata_are_the_limit() -> None:
    pair, values = (0.75, 0.25), np.random.default_rng(6).beta(2, 5, 400)
    limit = threshold_variance(*pair, values)
    by_strata = [threshold_variance(*pair, values, strata=2**k) for k in range(11)]
    assert by_strata == sorted(by_strata, reverse=True)
    assert by_strata[0] == pytest.approx(one_bit(*pair, values.mean()) - values.var())
    assert by_strata[-1] == pytest.approx(limit, rel=1e-5)


def test_sampled_bits_are_between() -> None:
    pair, values = (0.9, 0.1), np.random.default_rng(4).beta(2, 5, 500)
    plain = np.mean([one_bit(*pair, x) for x in values])
    assert share_variance(*pair, 0.5) < sampled_bit_variance(*pair, values, 8) <= plain + 1e-12
