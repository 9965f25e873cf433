"""Attacks on chains: none beats the bound, two of them reach it; all chains enumerated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from papers.gradual_release.attacks import (
    ATTACKS,
    highest_frequency,
    least_error,
    maximum_likelihood,
    weighted_highest_frequency,
)
from papers.gradual_release.formulas import chain_probability

LADDERS = [
    (2, [k / 10 for k in range(1, 9)]),
    (2, [1.0, 1.5, 2.0, 4.0]),
    (3, [0.1, 0.5, 1.0, 2.0]),
    (5, [0.5, 0.6, 2.5]),
]


def error_rate(name: str, size: int, epsilons: list[float]) -> float:
    """The error rate of an attack on a uniform value, from the probability of every chain."""
    chains = list(itertools.product(range(size), repeat=len(epsilons)))
    guesses = ATTACKS[name](np.array(chains), size, epsilons)
    right = sum(
        chain_probability(size, epsilons, chain, int(guess))
        for chain, guess in zip(chains, guesses, strict=True)
    )
    return 1 - right / size


@pytest.mark.parametrize(("size", "epsilons"), LADDERS)
def test_no_attack_beats_the_bound_and_two_reach_it(size: int, epsilons: list[float]) -> None:
    least = least_error(size, epsilons[-1])
    rates = {name: error_rate(name, size, epsilons) for name in ATTACKS}
    assert rates["LO"] == pytest.approx(least, rel=1e-10)
    assert rates["MLE"] == pytest.approx(least, rel=1e-10)
    assert all(rate >= least * (1 - 1e-10) for rate in rates.values())


def test_fresh_responses_break_the_bound() -> None:
    """The same attack finds a value that is redrawn at every level, instead of relaxed."""
    epsilons = [1.0, 1.5, 2.0]
    right = 0.0
    for chain in itertools.product((0, 1), repeat=3):
        likely = [
            math.prod(
                1 / (1 + math.exp(-epsilon if out == x else epsilon))
                for out, epsilon in zip(chain, epsilons, strict=True)
            )
            for x in (0, 1)
        ]
        [guess] = weighted_highest_frequency(np.array([chain]), 2, epsilons)
        right += likely[guess] / 2
    assert 1 - right < 0.8 * least_error(2, 2.0)


def test_guesses() -> None:
    chains: NDArray[np.int64] = np.array([[0, 0, 1], [1, 0, 2], [2, 2, 0]])
    assert highest_frequency(chains, 3, [0.1, 0.2, 0.9]).tolist() == [0, 2, 2]
    assert weighted_highest_frequency(chains, 3, [0.1, 0.2, 0.9]).tolist() == [1, 2, 0]
    assert maximum_likelihood(chains, 3, [0.1, 0.2, 0.9]).tolist() == [1, 2, 0]
