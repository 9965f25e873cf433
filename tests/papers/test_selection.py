"""The exponential mechanism, permute-and-flip and propose-test-release: loss and error, by laws."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

import pytest

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds
from mechanisms.top_item.permute_and_flip import exact_flips
from papers.selection import (
    expected_error,
    exponential_pmf,
    exponents,
    float_flips,
    hockey_stick,
    permute_and_flip_pmf,
    propose_test_release_pmf,
)

SEED = 17320508
Law = Callable[[Sequence[float], float, float], list[float]]
Scores = tuple[int, ...]


def neighbours(n: int, largest: int, step: int = 1) -> list[tuple[Scores, Scores]]:
    moves = list(itertools.product(range(-step, step + 1), repeat=n))
    return [
        (scores, tuple(q + d for q, d in zip(scores, change, strict=True)))
        for scores in itertools.product(range(largest + 1), repeat=n)
        for change in moves
    ]


@pytest.mark.parametrize("law", [exponential_pmf, permute_and_flip_pmf])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("n", "largest", "step"), [(2, 6, 1), (3, 2, 1), (2, 6, 2)])
def test_no_pair_of_neighbours_loses_more_than_epsilon(
    law: Law, epsilon: float, n: int, largest: int, step: int
) -> None:
    known = cache(lambda scores: law(scores, epsilon, step))
    worst = max(
        abs(math.log(p / q))
        for pair in neighbours(n, largest, step)
        for p, q in zip(*map(known, pair), strict=True)
    )
    assert worst <= epsilon * (1 + 1e-12)
    if law is permute_and_flip_pmf:
        assert worst == pytest.approx(epsilon, rel=1e-9)


def test_permute_and_flip_errs_least() -> None:
    for scores in ((5, 3, 1), (2, 2, 1, 0), (9, 8, 7, 6, 5), (1, 0, 0, 0, 0, 0, 0)):
        for epsilon in (0.1, 1.0, 5.0):
            flips = expected_error(scores, permute_and_flip_pmf(scores, epsilon))
            weights = expected_error(scores, exponential_pmf(scores, epsilon))
            assert weights / 2 <= flips <= weights


@pytest.mark.parametrize(("n", "largest"), [(2, 9), (3, 2)])
@pytest.mark.parametrize("epsilons", [(0.5, 0.5), (1.0, 0.2)])
@pytest.mark.parametrize("delta", [1e-6, 0.05])
def test_propose_test_release_keeps_its_delta(
    n: int, largest: int, epsilons: tuple[float, float], delta: float
) -> None:
    known = cache(lambda scores: propose_test_release_pmf(scores, *epsilons, delta))
    divergences = [
        hockey_stick(*map(known, pair), sum(epsilons)) for pair in neighbours(n, largest)
    ]
    assert max(divergences) <= delta + 1e-12


def test_without_the_delta_the_divergence_is_seen() -> None:
    """A test that passes too easily where the best item changes."""
    laws = (propose_test_release_pmf(each, 0.05, 0.05, 0.5) for each in ((1, 0), (0, 1)))
    assert hockey_stick(*laws, 0.1) > 0.1
    assert hockey_stick([0.9, 0.1], [1e-310, 1.0], 745.0) == 0


def test_scores_and_parameters_outside_their_range_are_refused() -> None:
    for q, epsilon, delta in (([], 1, 1), ([math.nan], 1, 1), ([1], math.inf, 1), ([1], 1, 0)):
        with pytest.raises(ParameterError):
            exponents(q, epsilon, delta)
    with pytest.raises(ParameterError, match="number of scores"):
        propose_test_release_pmf([1], 1.0, 1.0, 0.1)


def precise(exponents: list[float]) -> tuple[Fraction, ...]:
    """The law to 49 digits, from exponentials that are a thousand bits long."""
    fine = 1 << 1100
    chances = [Fraction(round(fine / exp_bounds(Fraction(-x))[0]), fine) for x in exponents]
    return exact_flips(chances)


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
    for powers in (
        [0.0, *(-40 * generator.random() for _ in range(5_000))],
        [*[0.0] * 1_000, *[-1.0] * 100_000, *[-745.0] * 100_000, *[-1e6] * 10],
    ):
        law = float_flips(powers)
        assert math.isclose(math.fsum(law), 1, rel_tol=1e-12)
        assert law[-1] <= law[0]


def test_exponents_that_are_none_are_refused() -> None:
    for wrong in ([], [-1.0], [0.0, 1.0]):
        with pytest.raises(ParameterError):
            float_flips(wrong)
