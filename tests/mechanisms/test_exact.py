"""Amounts are exact: exponentials enclosed, losses rounded upward and no further."""

from __future__ import annotations

import math
from decimal import Context
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import ParameterError
from mechanisms.exact import ceil_fraction, exp_bounds, exp_micro, loss_micro, to_micro

#: Far more digits than the code under test uses.
PRECISE = Context(prec=150)


def precise_exp(exponent: Fraction) -> Fraction:
    quotient = PRECISE.divide(
        PRECISE.create_decimal(exponent.numerator), PRECISE.create_decimal(exponent.denominator)
    )
    return Fraction(PRECISE.exp(quotient))


@given(st.fractions(min_value=0, max_value=1000, max_denominator=10**30))
def test_exponentials_are_enclosed(exponent: Fraction) -> None:
    lower, upper = exp_bounds(exponent)
    exact = precise_exp(exponent)
    slack = Fraction(1, 10**100) * exact
    assert 1 <= lower <= exact + slack
    assert exact - slack <= upper
    assert upper - lower <= exact * Fraction(1, 10**49)


@given(st.integers(min_value=1, max_value=10**9))
def test_the_loss_of_an_exponential_is_its_exponent(micro: int) -> None:
    lower, upper = exp_micro(micro)
    assert loss_micro(lower) == micro
    if micro < 10**9:
        assert loss_micro(upper) == micro + 1


@given(st.integers(min_value=0, max_value=2**600), st.integers(min_value=1, max_value=2**600))
def test_losses_are_rounded_up_by_less_than_a_micro(excess: int, denominator: int) -> None:
    ratio = 1 + Fraction(excess, denominator)
    loss = loss_micro(ratio)
    assert exp_micro(loss)[0] >= ratio
    assert loss == 0 or exp_micro(loss - 1)[0] < ratio


def test_losses_of_huge_fractions() -> None:
    """Eight levels of 33 bits make fractions of 17,000 bits."""
    ratio = Fraction(2**17_000 + 1, 2**17_000 - 1)
    assert loss_micro(ratio) == 1
    assert loss_micro(Fraction(3**40, 2**20)) == math.ceil(
        (40 * math.log(3) - 20 * math.log(2)) * 1e6
    )


@pytest.mark.parametrize(
    "ratio", [math.inf, math.nan, Fraction(1, 2), Fraction(-1), Fraction(3**1000)]
)
def test_a_ratio_that_no_epsilon_covers_is_refused(ratio: Fraction) -> None:
    with pytest.raises(ParameterError, match="likelihood ratio"):
        loss_micro(ratio)


@pytest.mark.parametrize("exponent", [Fraction(-1, 10**9), Fraction(1001)])
def test_an_exponent_outside_its_interval_is_refused(exponent: Fraction) -> None:
    with pytest.raises(ParameterError, match="exponent"):
        exp_bounds(exponent)


@pytest.mark.parametrize(
    ("epsilon", "micro"),
    [(0.1, 100_000), (1, 1_000_000), (1e-6, 1), (2.9999999, 2_999_999), (Fraction(1, 3), 333_333)],
)
def test_epsilons_are_rounded_down_to_micro_epsilon(epsilon: float, micro: int) -> None:
    assert to_micro(epsilon) == micro


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 9e-7, 1000.1, math.inf, math.nan])
def test_an_epsilon_outside_its_interval_is_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        to_micro(epsilon)


@given(st.fractions())
def test_ceilings(value: Fraction) -> None:
    assert ceil_fraction(value) == math.ceil(value)
