"""Limits of probabilities and of losses: exact coverage, and agreement with another formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.audit.guessing import Attack, loss_bound, lower_limit
from mechanisms.errors import ParameterError


@pytest.mark.parametrize("confidence", [0.9, 0.95, 1 - 1e-6])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_the_limit_covers_whatever_the_probability(trials: int, confidence: float) -> None:
    """The chance that the limit is above the probability, added up over all outcomes."""
    outcomes = np.arange(trials + 1)
    limits = lower_limit(outcomes, trials, confidence)
    for probability in np.linspace(0.001, 0.999, 500):
        wrong = stats.binom.pmf(outcomes[limits > probability], trials, probability).sum()
        assert wrong <= (1 - confidence) * (1 + 1e-9)


@pytest.mark.parametrize(("right", "guesses"), [(1, 1), (90, 100), (5_000, 5_000), (7, 900)])
def test_the_limit_is_that_of_scipy(right: int, guesses: int) -> None:
    low = stats.binomtest(right, guesses, alternative="greater").proportion_ci(0.95).low
    assert lower_limit(right, guesses, 0.95) == pytest.approx(low, rel=1e-9)
    expected = max(0.0, math.log(low / (1 - low)))
    assert loss_bound(right, guesses, 0.95) == pytest.approx(expected, rel=1e-9)


def test_nothing_guessed_proves_nothing() -> None:
    assert loss_bound(0, 0, 0.95) == loss_bound(0, 10, 0.95) == loss_bound(5, 10, 0.95) == 0
    assert lower_limit(0, 0, 0.95) == 0


def test_a_large_loss_keeps_its_digits() -> None:
    """All of n right: the limit of the wrong share is 1 - (1 - confidence)^(1/n)."""
    n = 10**12
    assert loss_bound(n, n, 0.95) == pytest.approx(math.log(n / -math.log(0.05)), rel=1e-6)


def test_an_attack_exceeds_what_its_guesses_prove() -> None:
    attack = Attack(7_400, 10_000, "the bytes", 20_000, 0.95)
    assert attack.epsilon == loss_bound(7_400, 10_000, 0.95)
    assert attack.exceeds(0.9, 1e-6)
    assert not attack.exceeds(1.0, 1e-6)
    assert not attack.exceeds(math.inf, 1e-6)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan, -1.0])
def test_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ParameterError, match="confidence"):
        loss_bound(1, 2, confidence)
    with pytest.raises(ParameterError, match="confidence"):
        lower_limit(1, 2, confidence)
