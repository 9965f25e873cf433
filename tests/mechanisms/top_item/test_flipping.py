"""Permute-and-flip's law: by permutations, by polynomials and by quadrature."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds
from mechanisms.top_item.selection import exact_flips, float_flips

SEED = 14142135


def by_permutations(chances: list[Fraction]) -> tuple[Fraction, ...]:
    """The mechanism itself, over all orders of the items."""
    law = [Fraction(0)] * len(chances)
    orders = list(itertools.permutations(range(len(chances))))
    for order in orders:
        left = Fraction(1, len(orders))
        for place in order:
            law[place] += left * chances[place]
            left *= 1 - chances[place]
    return tuple(law)


def precise(exponents: list[float]) -> tuple[Fraction, ...]:
    """The law to 49 digits, from exponentials that are a thousand bits long."""
    fine = 1 << 1100
    chances = [Fraction(round(fine / exp_bounds(Fraction(-x))[0]), fine) for x in exponents]
    return exact_flips(chances)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_polynomial_is_the_enumeration_of_orders(n: int) -> None:
    generator = random.Random(SEED + n)
    for _ in range(10):
        chances = [Fraction(1), *(Fraction(generator.randrange(9), 8) for _ in range(n - 1))]
        chances = [min(chance, Fraction(1)) for chance in chances]
        generator.shuffle(chances)
        law = exact_flips(chances)
        assert law == by_permutations(chances)
        assert sum(law) == 1


EXPONENTS: dict[str, list[float]] = {
    "one": [0.0],
    "two": [0.0, -1e-9],
    "far": [0.0, -700.0],
    "all alike": [0.0] * 12,
    "ties": [*[0.0] * 3, *[-1.0] * 5],
    "close": [0.0, -1e-15, -1e-12, -1e-3],
    "mixed": [0.0, 0.0, -1e-8, -30.0, -300.0],
    "stairs": [-0.5 * k for k in range(20)],
    "many ties": [*[0.0] * 40, *[-5.0] * 30],
    "near": [-0.01 * k for k in range(25)],
}


@pytest.mark.parametrize("exponents", EXPONENTS.values(), ids=EXPONENTS.keys())
def test_floats_are_accurate_to_twelve_digits(exponents: list[float]) -> None:
    got = float_flips(exponents)
    for value, true in zip(got, precise(exponents), strict=True):
        assert abs(Fraction(value) - true) <= Fraction(1, 10**12) * true


def test_many_items_sum_to_one() -> None:
    generator = random.Random(SEED)
    for exponents in (
        [0.0, *(-40 * generator.random() for _ in range(5_000))],
        [*[0.0] * 1_000, *[-1.0] * 100_000, *[-745.0] * 100_000, *[-1e6] * 10],
    ):
        law = float_flips(exponents)
        assert math.isclose(math.fsum(law), 1, rel_tol=1e-12)
        assert law[-1] <= law[0]


def test_chances_that_are_none_are_refused() -> None:
    for chances in ([], [Fraction(1, 2)], [Fraction(1), Fraction(-1, 2)], [Fraction(2)]):
        with pytest.raises(ParameterError):
            exact_flips(chances)
    for exponents in ([], [-1.0], [0.0, 1.0]):
        with pytest.raises(ParameterError):
            float_flips(exponents)
