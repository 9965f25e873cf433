"""Closed forms of shares and means, against the papers' values and against 400 digits."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.papers.estimation import (
    bit_noise,
    mixed_count,
    response_mean,
    response_mean_variance,
    response_share_variance,
    response_shares,
)

EPSILONS = st.one_of(
    st.floats(1e-12, 1e-6), st.floats(1e-6, 1), st.floats(1, 40), st.floats(40, 700)
)
#: So many digits that e**700 and 1e-24 in one sum lose nothing that is looked at.
DIGITS = Context(prec=400)


@vectors("var_rr")
def test_noise_of_a_bit(vector: Vector) -> None:
    vector.check(bit_noise(vector.inputs["eps"]) / vector.inputs["N"])


@vectors("freq_grr")
def test_shares(vector: Vector) -> None:
    vector.check(response_shares(vector.inputs["eps"], vector.inputs["counts"]))


@vectors("freq_grr_var")
def test_variances_of_shares(vector: Vector) -> None:
    m, epsilon, counts = (vector.inputs[name] for name in ("m", "eps", "true_counts"))
    n = sum(counts)
    vector.check([response_share_variance(m, epsilon, count / n, n) for count in counts])


@vectors("mean_70")
def test_means(vector: Vector) -> None:
    vector.check(response_mean(*(vector.inputs[name] for name in ("l", "h", "eps", "lambda_h"))))


@vectors("debias_mixed")
def test_counts_from_mixed_levels(vector: Vector) -> None:
    found = mixed_count(vector.inputs["reports"], vector.inputs["eps_levels"])
    vector.check(found.count, vector.expected["count"])
    vector.check(found.count_noise, vector.expected["count_noise_var"])
    vector.check(found.weighted_mean, vector.expected["mean_ivw"])
    vector.check(found.weighted_noise, vector.expected["mean_ivw_noise_var"])


def close(got: float, expected: Decimal, scale: Decimal | float = 0) -> bool:
    """Within 1e-14 of the result, or of the larger terms that cancel in it."""
    return abs(Decimal(got) - expected) <= Decimal("1e-14") * max(abs(expected), Decimal(scale))


@given(EPSILONS, st.lists(st.integers(0, 10**7), min_size=2, max_size=40).filter(any))
@example(1e-12, [500, 500])
@example(700.0, [1, 0])
def test_shares_lose_nothing(epsilon: float, counts: list[int]) -> None:
    n, m = sum(counts), len(counts)
    got = response_shares(epsilon, counts)
    with localcontext(DIGITS):
        power = Decimal(epsilon).exp()
        p, q = power / (power + m - 1), 1 / (power + m - 1)
        for count, share in zip(counts, got, strict=True):
            assert close(share, (Decimal(count) / n - q) / (p - q), 1)
            true = Decimal(count) / n
            noise = (true * p * (1 - p) + (1 - true) * q * (1 - q)) / (p - q) ** 2 / n
            assert close(response_share_variance(m, epsilon, count / n, n), noise)
        assert close(bit_noise(epsilon), power / (power - 1) ** 2)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1), EPSILONS), min_size=1, max_size=30))
@example([(1, 1e-12), (0, 1e-12)])
@example([(1, 700.0), (0, 1e-12)])
def test_mixed_counts_lose_nothing(pairs: list[tuple[int, float]]) -> None:
    got = mixed_count([report for report, _ in pairs], [epsilon for _, epsilon in pairs])
    with localcontext(DIGITS):
        powers = [Decimal(epsilon).exp() for _, epsilon in pairs]
        bits = [(o * (e + 1) - 1) / (e - 1) for (o, _), e in zip(pairs, powers, strict=True)]
        noise = [e / (e - 1) ** 2 for e in powers]
        total = sum(1 / f for f in noise)
        weighted = sum(b / f for b, f in zip(bits, noise, strict=True)) / total
        assert close(got.count, Decimal(sum(bits)), max(abs(bit) for bit in bits))
        assert close(got.count_noise, Decimal(sum(noise)))
        size = max(abs(b / f) for b, f in zip(bits, noise, strict=True)) / total
        assert close(got.weighted_mean, weighted, size * len(pairs))
        assert close(got.weighted_noise, 1 / total)


def test_a_level_whose_halves_cancel_is_exact() -> None:
    assert mixed_count([1, 0], [1e-12, 1e-12]).count == 1


def test_a_mean_is_unbiased_and_of_its_variance_by_enumeration() -> None:
    """Three values, every rounding and every answer; the printed equation is off."""
    low, high, epsilon, values = 2.0, 5.0, 1.0, [2.0, 3.2, 4.7]
    right = 1 / (1 + math.exp(-epsilon))
    mean = square = printed = 0.0
    for answers in itertools.product((0, 1), repeat=3):
        chance = 1.0
        for answer, value in zip(answers, values, strict=True):
            up = (value - low) / (high - low)
            says_high = up * right + (1 - up) * (1 - right)
            chance *= says_high if answer else 1 - says_high
        share = sum(answers) / 3
        estimate = response_mean(low, high, epsilon, share)
        mean, square = mean + chance * estimate, square + chance * estimate**2
        printed += chance * (low + high * (estimate - low) / (high - low))
    assert mean == pytest.approx(sum(values) / 3, abs=1e-12)
    variance = response_mean_variance(low, high, epsilon, values)
    assert square - mean**2 == pytest.approx(variance, rel=1e-12)
    assert abs(printed - sum(values) / 3) > 0.5


def test_the_variance_of_shares_is_exact_by_enumeration() -> None:
    epsilon, values = 0.7, [0, 2, 2]
    p, q = (x / (math.exp(epsilon) + 2) for x in (math.exp(epsilon), 1))
    moments = [[0.0, 0.0] for _ in range(3)]
    for answers in itertools.product(range(3), repeat=3):
        chance = math.prod(p if a == x else q for a, x in zip(answers, values, strict=True))
        shares = response_shares(epsilon, [answers.count(j) for j in range(3)])
        for moment, share in zip(moments, shares, strict=True):
            moment[0] += chance * share
            moment[1] += chance * share**2
    for j, (mean, square) in enumerate(moments):
        true = values.count(j) / 3
        assert mean == pytest.approx(true, abs=1e-12)
        expected = response_share_variance(3, epsilon, true, 3)
        assert square - mean**2 == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 701.0])
def test_epsilons_outside_their_range_are_refused(epsilon: float) -> None:
    for call in (
        lambda: bit_noise(epsilon),
        lambda: response_shares(epsilon, [1, 2]),
        lambda: response_share_variance(3, epsilon, 0.5, 10),
        lambda: response_mean(0.0, 1.0, epsilon, 0.5),
        lambda: mixed_count([1], [epsilon]),
    ):
        with pytest.raises(ParameterError, match="epsilon"):
            call()


def test_other_parameters_outside_their_range_are_refused() -> None:
    for counts in ([], [3], [0, 0], [5, -1]):
        with pytest.raises(ParameterError, match="counts"):
            response_shares(1.0, counts)
    with pytest.raises(ParameterError):
        response_mean(1.0, 1.0, 1.0, 0.5)
    with pytest.raises(ParameterError):
        response_mean_variance(0.0, 1.0, 1.0, [2.0])
    with pytest.raises(ParameterError):
        response_share_variance(3, 1.0, math.nan, 10)
    for reports, epsilons in (([], []), ([2], [1.0]), ([1], [1.0, 1.0])):
        with pytest.raises(ParameterError, match="report"):
            mixed_count(reports, epsilons)
