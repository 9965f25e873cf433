"""Guessing a value from its chain of reports, and how often every guess must fail (section 6).

No guess from reports that cost ε in total, about a value that is equally likely to be any of m, is
wrong less often than (m − 1)/(e^ε + m − 1). The last report, and the likelihood of the whole chain,
reach that bound; counting the reports, weighted or not, does worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp

import numpy as np

from mechanisms.arrays import Ints
from mechanisms.errors import check_at_least
from papers.gradual_release.formulas import relaxation


def least_error(domain_size: int, epsilon: float) -> float:
    """Return the error rate that no guess of a uniform value is below (Theorem 6.1).

    ``epsilon``, in (0, 700], is what all reports together cost.
    """
    check_at_least("epsilon", epsilon, 0)
    down = exp(-epsilon)
    return (domain_size - 1) * down / (1 + (domain_size - 1) * down)


def last_output(chains: Ints, domain_size: int, epsilons: Sequence[float]) -> Ints:
    """Guess the last report.

    Chains of generalized randomized response, ``(n, levels)`` integers in [0, domain_size), weakest
    report first, at rising epsilons: ``(n,)`` guesses. The other attacks take the same.
    """
    return chains[:, -1]


def maximum_likelihood(chains: Ints, domain_size: int, epsilons: Sequence[float]) -> Ints:
    """Guess the value for which the whole chain is likeliest, by the law of each relaxation."""
    values = np.arange(domain_size)
    # Only what differs between values matters: a hit counts epsilon more than a miss.
    scores = epsilons[0] * (chains[:, :1] == values)
    for level in range(1, len(epsilons)):
        before, after = chains[:, level - 1, None], chains[:, level, None]
        law = relaxation(domain_size, epsilons[level - 1], epsilons[level])
        kept = np.where(before == values, law.p_aa, law.p_bb)
        moved = np.where(before == values, law.p_ac, law.p_bc)
        moved = np.where(after == values, law.p_ba, moved)
        with np.errstate(divide="ignore"):
            scores = scores + np.log(np.where(after == before, kept, moved))
    guesses: Ints = scores.argmax(axis=1).astype(np.int64)
    return guesses


def highest_frequency(chains: Ints, domain_size: int, epsilons: Sequence[float]) -> Ints:
    """Guess the value that is reported most often; of equals, the last report if it is one."""
    return _heaviest(chains, domain_size, epsilons, [1.0] * len(epsilons))


def weighted_highest_frequency(chains: Ints, domain_size: int, epsilons: Sequence[float]) -> Ints:
    """Guess the value whose reports have the largest sum of epsilons; ties as above."""
    return _heaviest(chains, domain_size, epsilons, epsilons)


def _heaviest(
    chains: Ints, domain_size: int, epsilons: Sequence[float], weights: Sequence[float]
) -> Ints:
    values = np.arange(domain_size)
    sums = np.zeros((len(chains), domain_size))
    for level, weight in enumerate(weights):
        sums += weight * (chains[:, level, None] == values)
    # Sums of the same reports in another order differ by rounding; nothing smaller decides.
    sums += 1e-9 * sum(weights) * (chains[:, -1:] == values)
    guesses: Ints = sums.argmax(axis=1).astype(np.int64)
    return guesses


Attack = Callable[["Ints", int, Sequence[float]], "Ints"]
#: The attacks of the paper, by the names of its figures.
ATTACKS: dict[str, Attack] = {
    "LO": last_output,
    "MLE": maximum_likelihood,
    "HF": highest_frequency,
    "WHF": weighted_highest_frequency,
}
