"""Relaxation beside noisy sampling at the same total cost, in closed forms.

Noisy sampling is RAPPOR's way to release more: one permanent response, and fresh responses to it.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, equations
65 and 68. Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR", CCS 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, log1p
from typing import NamedTuple

from mechanisms.errors import check_at_least, check_positive
from mechanisms.vector.optimum import answer_noise

#: The largest epsilon of the closed forms.
MAX_EPSILON = 700


def bit_noise(epsilon: float) -> float:
    """Return e^ε/(e^ε − 1)², the variance of one debiased binary response."""
    check_positive(epsilon, MAX_EPSILON)
    return answer_noise(epsilon)


def noisy_sampling_epsilon(permanent: float, sample: float, samples: int) -> float:
    """Return what ``samples`` noisy samples of one permanent response cost (equation 65).

    Epsilons of the permanent response and of one sample lie in (0, 700]; the result increases with
    ``samples`` towards ``permanent``, which it never reaches.
    """
    check_positive(permanent, MAX_EPSILON, "permanent")
    check_positive(sample, MAX_EPSILON, "sample")
    check_at_least("samples", samples, 1)
    low, high = sorted((permanent, samples * sample))
    return log1p(expm1(low) * -expm1(-high) / (1 + exp(low - high)))


class Comparison(NamedTuple):
    """Relaxation beside noisy sampling after so many samples, at equal total cost ``epsilon``.

    Both are variances of a share of n bits; that of relaxation is never larger, and equal after one
    sample.
    """

    samples: int
    epsilon: float
    noisy_sampling: float
    relaxation: float


def compare(permanent: float, sample: float, samples: Sequence[int], n: int) -> list[Comparison]:
    """Compare relaxation with noisy sampling at equal cost of n clients, by number of samples."""
    check_at_least("n", n, 1)
    rows = []
    for count in samples:
        epsilon = noisy_sampling_epsilon(permanent, sample, count)
        # Equation 68 in epsilons: 1/(1 − 2α)² is 1 + 4 f(ε), which loses nothing near one half.
        spread = 1 + 4 * bit_noise(permanent)
        noisy = bit_noise(sample) / count * spread + bit_noise(permanent)
        rows.append(Comparison(count, epsilon, noisy / n, bit_noise(epsilon) / n))
    return rows
