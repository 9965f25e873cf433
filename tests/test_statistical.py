"""The statistical helper itself: it lets what is right pass, and catches a fault of 5 %."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from statistical import check_binomial, check_counts, check_normal, check_variance

SEED = 20240607
TRIALS = 200_000
LAW = np.array([0.5, 0.3, 0.15, 0.05])
#: The largest probability is 5 % too small.
FAULTY = np.array([0.475, 0.325, 0.15, 0.05])


def test_right_counts_pass_and_a_fault_of_five_percent_is_caught() -> None:
    generator = np.random.default_rng(SEED)
    check_counts(generator.multinomial(TRIALS, LAW), LAW, label=f"seed {SEED}")
    with pytest.raises(AssertionError, match="outcome 0"):
        check_counts(generator.multinomial(TRIALS, FAULTY), LAW)


def test_right_proportions_pass_and_a_fault_of_five_percent_is_caught() -> None:
    generator = np.random.default_rng(SEED)
    check_binomial(int(generator.binomial(TRIALS, 0.25)), TRIALS, Fraction(1, 4))
    with pytest.raises(AssertionError, match="seed 7"):
        check_binomial(int(generator.binomial(TRIALS, 0.2375)), TRIALS, 0.25, label="seed 7")


def test_normal_means_and_variances() -> None:
    generator = np.random.default_rng(SEED)
    draws = generator.normal(2.0, 3.0, size=20_000)
    error = 3.0 / draws.size**0.5
    check_normal(draws.mean(), 2.0, error)
    check_variance(draws, 9.0)
    with pytest.raises(AssertionError):
        check_normal(1.05 * draws.mean() + 0.1, 2.0, error)
    with pytest.raises(AssertionError):
        check_variance(1.05 * draws, 9.0)
    with pytest.raises(AssertionError):
        check_normal(np.nan, 2.0, error)


def test_a_binomial_check_fails_no_more_often_than_it_says() -> None:
    """Exactly: the probability of all counts that fail, for small numbers and a large rate."""
    rate, trials, probability = 1e-3, 50, 0.3
    failing = 0.0
    for successes in range(trials + 1):
        try:
            check_binomial(successes, trials, probability, false_failure_rate=rate)
        except AssertionError:
            failing += stats.binom.pmf(successes, trials, probability)
    assert 0 < failing <= rate


def test_what_cannot_happen_must_not() -> None:
    check_counts([10, 0], [1.0, 0.0])
    with pytest.raises(AssertionError):
        check_counts([10, 1], [1.0, 0.0])


@pytest.mark.parametrize("rate", [0.0, 0.1, float("nan")])
def test_a_rate_that_hides_faults_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="false_failure_rate"):
        check_counts([1, 1], [0.5, 0.5], false_failure_rate=rate)
