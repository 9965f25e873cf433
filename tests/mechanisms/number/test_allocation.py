"""Epsilon split over bits: the known optimum, never too much, monotone, fast at both ends."""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.number.split_bits import SplitBits, exact_weights, split_epsilon


def noise(epsilon: float) -> float:
    return exp(-epsilon) / expm1(-epsilon) ** 2


def slope(epsilon: float) -> float:
    """The noise's derivative, positive."""
    return noise(epsilon) * (1 + exp(-epsilon)) / -expm1(-epsilon)


def variance(weights: tuple[Fraction, ...], shares: tuple[Fraction, ...]) -> float:
    return 4 * sum(float(w) ** 2 * noise(float(e)) for w, e in zip(weights, shares, strict=True))


@given(st.integers(1, 500_000_000), st.integers(1, 32))
def test_shares_are_the_optimum_and_never_too_much(micro: int, bits: int) -> None:
    epsilon, weights = Fraction(micro, 10**6), exact_weights(bits)
    shares = split_epsilon(epsilon, weights)
    assert epsilon - Fraction(bits, 10**23) <= sum(shares) <= epsilon
    assert all(share > 0 for share in shares)
    # The slope w² |f'| is the same for all bits.
    slopes = [float(w) ** 2 * slope(float(e)) for w, e in zip(weights, shares, strict=True)]
    assert max(slopes) == pytest.approx(min(slopes), rel=1e-9)


def test_moving_epsilon_between_bits_is_worse() -> None:
    weights = exact_weights(4)
    shares = split_epsilon(Fraction(1), weights)
    for one in range(4):
        for other in range(4):
            moved = list(shares)
            moved[one] += Fraction(1, 100)
            moved[other] -= Fraction(1, 100)
            if one != other:
                assert variance(weights, tuple(moved)) > variance(weights, shares)


@given(st.integers(1, 10_000_000), st.integers(1, 1000), st.integers(2, 17))
def test_more_epsilon_is_more_for_every_bit(micro: int, more: int, bits: int) -> None:
    less = split_epsilon(Fraction(micro, 10**6), exact_weights(bits))
    greater = split_epsilon(Fraction(micro + more, 10**6), exact_weights(bits))
    assert all(a < b for a, b in zip(less, greater, strict=True))


@pytest.mark.parametrize(("epsilon", "weight"), [(0, 1), (-1, 1), (1, 0)])
def test_what_cannot_be_split_is_refused(epsilon: int, weight: int) -> None:
    with pytest.raises(ParameterError, match="positive"):
        split_epsilon(Fraction(epsilon), (Fraction(weight), Fraction(1)))


@vectors("split_alloc")
def test_shares_of_a_mechanism(vector: Vector) -> None:
    """A presence bit weighs as much as the first."""
    epsilon, bits = vector.inputs["eps"], vector.inputs["l"]
    vector.check(list(SplitBits(epsilon, bits).shares), vector.expected["eps_bits"])
    shares = SplitBits(epsilon, bits, missing=True).shares
    assert shares[-1] == shares[0]
    assert sum(shares) == pytest.approx(epsilon)
