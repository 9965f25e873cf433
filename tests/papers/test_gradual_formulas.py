"""The closed forms of relaxation, against the papers' values and against 60 digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mechanisms.category.hadamard import response_variance
from mechanisms.category.local_hashing import hashing_variance
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.estimators.variance import bit_means, share_variance
from mechanisms.looks import drift_of, spent
from mechanisms.ordinal.sizes import end_size, middle_floor
from mechanisms.planner.targets import Assumed, of_share
from papers.bipartite_randomized_response import equidistant, loss_ratios
from papers.exponential_randomized_response import worst_case_errors
from papers.extremal_mechanisms import optimal_channel
from papers.gradual_release.comparison import bit_noise
from papers.gradual_release.formulas import (
    bit_degradation,
    chain_log_ratio,
    degradation_probabilities,
    mixed_count,
    relaxation,
    response_mean,
    response_share_variance,
    response_shares,
)
from papers.gradual_release.noisy_sampling import NoisySampling, noisy_sampling_variance
from papers.improved_christofides import worse_interval
from papers.loloha import BinaryLoloha
from papers.selection import hockey_stick


def test_the_ratio_of_a_chain_is_known_where_its_probability_underflows() -> None:
    assert chain_log_ratio(5, [100.0, 300.0, 700.0], [0, 1, 2], 3, 2) == -700
    assert chain_log_ratio(5, [100.0, 300.0, 700.0], [0, 1, 2], 3, 4) == 0


def precise(m: int, one: float, two: float) -> dict[str, Decimal]:
    """The printed equations, with so many digits that nothing they lose is seen."""
    with localcontext(Context(prec=700)):
        low, high = Decimal(one).exp(), Decimal(two).exp()
        c1, c2 = 1 / (low + m - 1), 1 / (high + m - 1)
        other = (high - low) / ((low + m - 1) * (high - 1))
        same = 1 - (m - 1) * other
        return {
            "p_aa": c2 * high * same / (c1 * low),
            "p_ba": c2 * high * other / c1,
            "p_bb": c2 * same / c1,
            "p_ac": c2 * other / (c1 * low),
            "p_bc": c2 * other / c1,
            "same": same,
            "other": other,
        }


EPSILONS = st.floats(1e-12, 1e-6) | st.floats(1e-6, 1) | st.floats(1, 40) | st.floats(40, 700)


def worst_error(got: dict[str, float], expected: dict[str, Decimal]) -> float:
    return max(
        abs(float((Decimal(value) - expected[name]) / expected[name]))
        for name, value in got.items()
        if expected[name] > Decimal("1e-290")
    )


@given(st.one_of(st.integers(2, 1000), st.integers(2, 10**6)), EPSILONS, EPSILONS)
def test_nothing_is_lost_from_tiny_to_huge(m: int, first: float, second: float) -> None:
    one, two = sorted((first, second))
    if one == two:
        return
    got = relaxation(m, one, two)._asdict() | degradation_probabilities(m, one, two)._asdict()
    # A sum one + two in an exponent is itself rounded: up to 1400 * 2**-53.
    assert worst_error(got, precise(m, one, two)) <= 2e-15 + (one + two) * 3e-16


def test_equal_levels_change_nothing() -> None:
    assert relaxation(7, 2.5, 2.5) == (1, 0, 1, 0, 0)
    assert degradation_probabilities(7, 2.5, 2.5).same == 1


DIGITS = Context(prec=400)


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


def test_epsilons_whose_powers_overflow() -> None:
    assert response_shares(1e4, [3, 1]) == [0.75, 0.25]
    assert response_mean(0, 1, 1e4, 0.75) == 0.75
    assert loss_ratios(1e4) == (0, 0, 0, 0)
    assert response_variance(1e4, 4) == hashing_variance(1e4, 5) == 0.25
    assert NoisySampling(1e4, 1e4, 2).wrong == pytest.approx((0, 0))
    assert hockey_stick([0.5, 0.5], [0.0, 1.0], 1e4) == 0.5
    assert BinaryLoloha(1e4, 2.0).instantaneous == 2
    assert optimal_channel(equidistant(3), 1e4)[1] == pytest.approx(0)


def test_answers_that_say_next_to_nothing_have_an_infinite_variance() -> None:
    assert share_variance(0.5, 0.5, 0.1) == bit_noise(1e-300) == math.inf
    assert response_variance(1e-300, 4) == hashing_variance(1e-300, 5) == math.inf
    assert response_share_variance(3, 1e-300, 0.5, 10) == math.inf
    assert spent(0.0) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: relaxation(2, 800.0, 60.0),
        lambda: response_share_variance(3, 1.0, 0.5, 0),
        lambda: response_share_variance(3, 0.0, 0.5, 10),
        lambda: response_shares(0.0, [1, 3]),
        lambda: response_mean(0, 1, 0.0, 0.5),
        lambda: response_variance(0.0, 4),
        lambda: hashing_variance(1.0, 1),
        lambda: noisy_sampling_variance(0.5, 0.9, 2, 10),
        lambda: BinaryLoloha(1.0, 1.0),
        lambda: of_share("it", (1.0, 1.0), Assumed()).floor(0),
        lambda: bit_means(np.array([]), 4),
        lambda: worst_case_errors(0, -1.0, 0.5, 1.0),
        lambda: worse_interval(1.0, 0.1, 0),
        lambda: bit_means(np.array([0.5]), 54),
        lambda: drift_of(1.0),
        lambda: end_size(1, 1.0),
        lambda: middle_floor(3, 1e4),
    ],
)
def test_what_has_no_answer_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        call()


def test_without_reports_counts_are_zero_and_shares_not_a_number() -> None:
    assert str(response_shares(1.0, [0, 0])) == "[nan, nan]"
    assert repr(tuple(vars(mixed_count([], [])).values())) == "(0.0, 0.0, nan, nan)"


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


@pytest.mark.parametrize(
    ("weak", "strong", "expected"),
    [
        ((0.3, 0.1), (0.9, 0.3), (0.0, 1 / 3)),
        ((0.7, 0.2), (0.7, 0.2), (0.0, 1.0)),
        ((0.2, 0.7), (0.7, 0.2), None),
        ((0.3, 0.7), (0.7, 0.3), (1.0, 0.0)),
        ((0.4, 0.4), (0.6, 0.6), (0.4, 0.4)),
        ((0.4, 0.5), (0.6, 0.6), None),
        ((0.5, 0.5), (1.0, 0.0), (0.5, 0.5)),
    ],
)
def test_bits_at_the_edge_of_being_related(
    weak: tuple[float, float], strong: tuple[float, float], expected: tuple[float, float] | None
) -> None:
    """Rounding of the decimals does not decide; a difference that can be seen does."""
    if expected is None:
        with pytest.raises(UnrelatedLevelsError):
            bit_degradation(weak, strong)
        return
    assert bit_degradation(weak, strong) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(UnrelatedLevelsError):
        bit_degradation((1.0, 1e-9), (1 - 1e-9, 1e-9))
