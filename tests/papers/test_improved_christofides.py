"""The deck without replacement: its variance is right, and it is not private."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from papers.improved_christofides import (
    ImprovedChristofides,
    deck_epsilon,
    deck_variance,
    interval_table,
    sample_size_table,
    worse_interval,
)


def hands(deck: tuple[int, ...], n: int) -> list[tuple[int, ...]]:
    """All equally likely ways in which n respondents draw cards, 1 to L."""
    cards = [number for number, count in enumerate(deck, start=1) for _ in range(count)]
    return list(itertools.permutations(cards, n))


@pytest.mark.parametrize("deck", [(2, 1, 3), (1, 0, 3), (1, 1, 2, 1), (1, 2)])
@pytest.mark.parametrize("truths", [(1, 0, 0), (1, 1, 0, 0), (0, 0, 0)])
def test_mean_and_variance_over_all_samples_and_hands(
    deck: tuple[int, ...], truths: tuple[int, ...]
) -> None:
    mechanism, share = ImprovedChristofides(deck), Fraction(sum(truths), len(truths))
    no, yes = mechanism.design.means()
    for n in range(1, min(3, len(truths), sum(deck)) + 1):
        every = []
        for sample in itertools.combinations(truths, n):
            for hand in hands(deck, n):
                answers = [
                    len(deck) + 1 - card if truth else card
                    for truth, card in zip(sample, hand, strict=True)
                ]
                every.append((Fraction(sum(answers), n) - no) / (yes - no))
        assert sum(every) / len(every) == share
        variance = sum((value - share) ** 2 for value in every) / len(every)
        assert variance == deck_variance(mechanism.design, mechanism.size, share, n, len(truths))


def brute_force(deck: tuple[int, ...], n: int) -> float:
    """The loss of the first respondent, over all values of the others and all reports."""
    every, worst = hands(deck, n), 0.0
    for others in itertools.product((0, 1), repeat=n - 1):
        seen = []
        for truth in (0, 1):
            counts: dict[tuple[int, ...], int] = {}
            for hand in every:
                reports = tuple(
                    len(deck) + 1 - card if value else card
                    for value, card in zip((truth, *others), hand, strict=True)
                )
                counts[reports] = counts.get(reports, 0) + 1
            seen.append(counts)
        for reports in seen[0].keys() | seen[1].keys():
            one, two = seen[0].get(reports, 0), seen[1].get(reports, 0)
            worst = max(worst, abs(math.log(one / two)) if one and two else math.inf)
    return worst


DECKS = [
    ((3, 1, 4), 3),
    ((3, 1, 4), 2),
    ((3, 1, 4), 4),
    ((2, 1, 3), 3),
    ((4, 0, 3), 2),
    ((1, 2, 2, 1), 2),
    ((2, 3, 1, 2), 2),
    ((2, 4), 2),
    ((1, 1, 3), 1),
    ((0, 3, 0), 2),
]


@pytest.mark.parametrize(("deck", "n"), DECKS)
def test_the_true_epsilon_is_what_an_informed_adversary_sees(deck: tuple[int, ...], n: int) -> None:
    assert deck_epsilon(deck, n) == pytest.approx(brute_force(deck, n), rel=1e-13)


def test_a_census_reveals_all_but_the_middle_cards() -> None:
    deck = (2, 1, 2)
    mechanism = ImprovedChristofides((2, 1, 3))
    certain = sum(hand[0] != 2 for hand in hands((2, 1, 3), 6))
    assert mechanism.revealed == Fraction(certain, math.factorial(6))
    assert deck_epsilon(deck, 5) == math.inf
    assert float(ImprovedChristofides((400, 10, 590)).revealed) == 0.99


def test_table_1() -> None:
    printed = ((0.100, 0.101, 0.101, 0.104), (0.224, 0.224, 0.225, 0.230))
    got = tuple(tuple(round(length, 3) for length in row) for row in interval_table())
    assert got == printed
    for n in (9_900, 10_500):
        lengths = [length for row in interval_table(n) for length in row]
        assert lengths == pytest.approx(printed[0] + printed[1], abs=6e-4)
    off = interval_table(5_000)
    assert round(off[0][0], 3) != 0.100
    assert math.isclose(worse_interval(1.0, 0, 400), 1 / 20)


def test_table_2() -> None:
    assert sample_size_table() == {
        "warner": (100_000, 4_000, 160, 40),
        # The paper prints 101,011 for the first.
        "christofides": (101_010, 4_040, 161, 40),
        "improved": (36_365, 1_456, 59, 16),
    }
