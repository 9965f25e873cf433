"""Bounds of tails against exact distributions: never below them, and never far above."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.estimators.tails import binomial_tail, first_below, multinomial_tail, sum_tail


@pytest.mark.parametrize("p", [0.003, 0.3, 0.97])
def test_binomial_tails_on_both_sides(p):
    n = 2000
    hits = np.unique(np.linspace(0, n, 200).astype(int))
    found = binomial_tail(hits, n, p, p)
    above, below = stats.binom.logsf(hits - 1, n, p), stats.binom.logcdf(hits, n, p)
    exact = np.where(hits > n * p, above, below)
    assert (found >= exact - 1e-9).all()
    # A Chernoff bound loses a factor of the order of the standard deviation.
    finite = np.isfinite(exact)
    assert (found[finite] <= exact[finite] + math.log(20 * math.sqrt(n))).all()


def test_what_lies_between_two_probabilities_is_not_unusual():
    assert binomial_tail([10, 30, 40, 90], 100, 0.3, 0.4)[1:3].tolist() == [0, 0]
    assert (binomial_tail([10, 90], 100, 0.3, 0.4) < -5).all()


def test_a_sum_of_groups():
    groups = [(30, 0.1), (50, 0.6), (20, 0.95)]
    law = np.array([1.0])
    for n, p in groups:
        law = np.convolve(law, stats.binom.pmf(np.arange(n + 1), n, p))
    exact = law[::-1].cumsum()[::-1]
    for total in range(101):
        bound = sum_tail(groups, total)
        assert bound >= math.log(exact[total]) - 1e-6
        if total > 52:
            assert bound <= math.log(exact[total]) + math.log(60)
    assert sum_tail(groups, 101) == -math.inf


def test_shares_of_many_outcomes():
    """All ways in which 14 reports fall on 4 coins of different probability."""
    n, law = 14, np.array([0.1, 0.2, 0.3, 0.4])
    counts = np.array([c for c in itertools.product(range(n + 1), repeat=4) if sum(c) == n])
    chance = stats.multinomial.pmf(counts, n, law)
    ratio = np.where(counts > 0, counts / n / law, 1.0)
    evidence = (counts * np.log(ratio)).sum(axis=1)
    for limit in np.linspace(0.1, evidence.max(), 50):
        exact = chance[evidence >= limit].sum()
        assert multinomial_tail(float(limit), 4) >= math.log(exact) - 1e-9


def test_the_first_place_below_a_level():
    assert first_below(lambda x: -x, 0.0, 8.0, -3.0) == pytest.approx(3.0)
    assert first_below(lambda x: x, 0.0, -8.0, -3.0) == pytest.approx(-3.0)
    assert first_below(lambda x: -x, 0.0, 2.0, -3.0) == 2.0
