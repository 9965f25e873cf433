"""Propose-test-release by exact divergences, and the advice when to use what."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from statistical import check_counts

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro, to_micro
from mechanisms.levels import GRAINS
from mechanisms.testing import SeededSource
from papers.propose_test_release import ProposeTestRelease, hockey_stick

SEED = 26457513


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("epsilons", [(0.5, 0.5), (1.0, 0.2)])
@pytest.mark.parametrize(("delta", "monotone"), [(1e-6, False), (0.05, False), (0.05, True)])
def test_the_hockey_stick_stays_below_delta(
    n: int, epsilons: tuple[float, float], delta: float, monotone: bool
) -> None:
    test = ProposeTestRelease(*epsilons, delta, 1, monotone)
    largest, worst = (9, Fraction(0)) if n == 2 else (6, Fraction(0))
    laws = {}
    for scores in itertools.product(range(largest + 1), repeat=n):
        laws[scores] = test.exact_pmf(scores)
        assert sum(laws[scores]) == 1
    for scores in laws:
        for change in itertools.product((-1, 0, 1), repeat=n):
            if monotone and {-1, 1} <= set(change):
                continue
            others = tuple(q + d for q, d in zip(scores, change, strict=True))
            if others in laws:
                worst = max(worst, hockey_stick(laws[scores], laws[others], test.certified))
    assert worst <= Fraction(delta)


def test_without_the_delta_the_divergence_is_seen() -> None:
    """The same check, of a test that passes too easily where the best item changes."""
    test = ProposeTestRelease(0.05, 0.05, 0.5)
    one, two = test.exact_pmf((1, 0)), test.exact_pmf((0, 1))
    assert hockey_stick(one, two, test.certified) > Fraction(1e-6)


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 7.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 0.5])
def test_the_test_itself_costs_no_more_than_its_epsilon(epsilon: float, delta: float) -> None:
    test = ProposeTestRelease(epsilon, 0.5, delta)
    bound = exp_micro(to_micro(epsilon))[0]
    table = [test.passing(distance) for distance in range(400)]
    assert table[0] <= Fraction(delta) * GRAINS
    for one, two in itertools.pairwise(table):
        assert one <= two <= GRAINS
        assert two <= bound * one
        assert GRAINS - one <= bound * (GRAINS - two) or one == two


def test_the_sampler_draws_its_law() -> None:
    test, source = ProposeTestRelease(1.0, 1.0, 0.05), SeededSource(SEED)
    scores = (7, 1, 0)
    seen = Counter(test.select(scores, source) for _ in range(10_000))
    check_counts([seen[item] for item in range(3)], test.exact_pmf(scores), label=SEED)
    assert test.pmf(scores) == pytest.approx([float(p) for p in test.exact_pmf(scores)])


def test_distances() -> None:
    test = ProposeTestRelease(1.0, 1.0, 0.05)
    assert [test.distance((gap, 0)) for gap in range(8)] == [0, 0, 0, 1, 1, 2, 2, 3]
    assert test.distance((3,)) == 0
    wide = ProposeTestRelease(1.0, 1.0, 0.05, 2, True)
    assert [wide.distance((gap, 0)) for gap in range(8)] == [0, 0, 0, 1, 1, 2, 2, 3]


def test_parameters_outside_their_range_are_refused() -> None:
    for arguments in ((0.0, 1, 0.1), (math.nan, 1, 0.1), (1, 0.0, 0.1), (1, 1, 0.6), (1, 1, 0.0)):
        with pytest.raises(ParameterError):
            ProposeTestRelease(*arguments)
