"""Variances of sampled bits and coordinates, and how many to sample.

Numbers lie in [-1, 1] here, as in the literature, where the noise of one answer is 4 f(ε) with
f(ε) = e^ε/(e^ε−1)² = 1/(4 sinh²(ε/2)); on [0, 1] every variance is a quarter. Epsilons are
positive, those of a whole report.
"""

from __future__ import annotations

from mechanisms.errors import ParameterError, check_at_least, check_int
from mechanisms.noise import odds

#: Half of the mean difference E|X−X'| of two values of [0, 1], uniformly distributed.
UNIFORM_SPREAD = 1 / 6


def answer_noise(epsilon: float) -> float:
    """Return the variance 1/(4 sinh²(ε/2)) of one debiased binary answer."""
    return odds(epsilon) * (1 + odds(epsilon))


def sampled_vector_variance(
    dimensions: int, sampled: int, epsilon: float, spread: float = UNIFORM_SPREAD
) -> float:
    """Return n times the variance of the mean of a coordinate in [0, 1], to leading order.

    It is (d/k)(f(ε/k) + spread) for k of d coordinates; the variance of the values is still to be
    subtracted. ``spread``, in [0, 1/4], is E|X−X'|/2 of the values for thresholds and
    Σ w_i π_i(1−π_i) for bits: 1/6 for uniform values and thresholds, 1/4 at the most.
    """
    check_int("sampled", sampled, 1, dimensions)
    if not 0 <= spread <= 0.25:
        raise ParameterError(f"spread must lie in [0, 1/4], not {spread}")
    return dimensions / sampled * (answer_noise(epsilon / sampled) + spread)


def optimal_sampled(dimensions: int, epsilon: float, spread: float = UNIFORM_SPREAD) -> int:
    """Return how many coordinates a report should be about, for the least variance.

    As :func:`sampled_vector_variance`, which is proportional to a (f(a) + spread), a = ε/k being
    the epsilon of an answer: least at a = 2.66 for uniform values and at 2.18 in the worst case.
    The 2.5 of Wang et al. (ICDE 2019) is for the Piecewise and Hybrid mechanisms.
    """
    check_at_least("dimensions", dimensions, 1)

    def variance(sampled: int) -> float:
        return sampled_vector_variance(dimensions, sampled, epsilon, spread)

    # The variance falls, then rises: it is convex in the epsilon of an answer.
    sampled = 1
    while sampled < dimensions and variance(sampled + 1) < variance(sampled):
        sampled += 1
    return sampled
