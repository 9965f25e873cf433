"""Permute-and-flip's law: by permutations and by polynomials."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from mechanisms.errors import ParameterError
from mechanisms.top_item.permute_and_flip import exact_flips

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


def test_chances_that_are_none_are_refused() -> None:
    for chances in ([], [Fraction(1, 2)], [Fraction(1), Fraction(-1, 2)], [Fraction(2)]):
        with pytest.raises(ParameterError):
            exact_flips(chances)
