"""The paper's closed forms in floating point: for tables, experiments and people.

Draws, certificates and estimates come from integers; these are the same quantities of the ideal
mechanisms, in forms that lose nothing from epsilon 1e-12 to 700. Written naively they lose to 2e-7
at epsilon 1e-9 and overflow at 710.

References
----------
M. Pan, arXiv:2401.13952: relaxation by equations 50 and 54, estimation by 6, 7, 67, 70 and
appendix G. Equation 70 is misprinted; its correction is l + (h − l) π.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, fsum, nan
from typing import NamedTuple

from mechanisms.errors import ParameterError, UnrelatedLevelsError, check_at_least, check_positive
from mechanisms.noise import odds
from papers.gradual_release.comparison import bit_noise

#: Probabilities given as floats may miss what they stand for by so much.
_ROUNDING = Fraction(1, 10**12)


class RelaxationProbabilities(NamedTuple):
    """The law of the stronger report of generalized randomized response given the weaker one.

    The first letter says what the weaker report was, the second what the stronger one is:
    ``a`` the true value, ``b`` the weaker report where it was not the true value, ``c`` any
    other single value.
    """

    p_aa: float
    p_ba: float
    p_bb: float
    p_ac: float
    p_bc: float


class DegradationProbabilities(NamedTuple):
    """The law of the weaker report given the stronger one: the same, or each other value."""

    same: float
    other: float


def relaxation(domain_size: int, epsilon1: float, epsilon2: float) -> RelaxationProbabilities:
    """Return how generalized randomized response is relaxed, 0 < epsilon1 <= epsilon2 <= 700."""
    if epsilon1 == epsilon2:
        return RelaxationProbabilities(1.0, 0.0, 1.0, 0.0, 0.0)
    down, both = exp(-epsilon2), exp(-(epsilon1 + epsilon2))
    whole = -expm1(-epsilon2) * (1 + (domain_size - 1) * down)
    p_aa = _kept(domain_size, epsilon1, epsilon2) / whole
    p_ba = -expm1(epsilon1 - epsilon2) / whole
    p_bb = exp(epsilon1 - epsilon2) * p_aa
    return RelaxationProbabilities(p_aa, p_ba, p_bb, both * p_ba, down * p_ba)


def degradation_probabilities(
    domain_size: int, epsilon1: float, epsilon2: float
) -> DegradationProbabilities:
    """Return the T of C1 = C2 T between two levels of generalized randomized response.

    Two values also describe every bit of optimized unary encoding, which is flipped with the
    probability ``other``; of symmetric unary encoding at half the epsilons.
    """
    if epsilon1 == epsilon2:
        return DegradationProbabilities(1.0, 0.0)
    whole = -expm1(-epsilon2) * (1 + (domain_size - 1) * exp(-epsilon1))
    same = _kept(domain_size, epsilon1, epsilon2) / whole
    other = exp(-epsilon1) * -expm1(epsilon1 - epsilon2) / whole
    return DegradationProbabilities(same, other)


def chain_probability(
    domain_size: int, epsilons: Sequence[float], outputs: Sequence[int], value: int
) -> float:
    """Return the probability of a chain of generalized randomized responses, weakest first."""
    hit = 1 if outputs[-1] == value else exp(-epsilons[-1])
    probability = hit / (1 + (domain_size - 1) * exp(-epsilons[-1]))
    for level in range(len(epsilons) - 1):
        step = degradation_probabilities(domain_size, epsilons[level], epsilons[level + 1])
        probability *= step.same if outputs[level] == outputs[level + 1] else step.other
    return probability


def chain_log_ratio(
    domain_size: int, epsilons: Sequence[float], outputs: Sequence[int], one: int, other: int
) -> float:
    """Return ln of how much likelier a chain is for one value than for another (Lemma 3.1).

    The last report alone decides; the ratio is finite even where both probabilities underflow.
    """
    check_positive(epsilons[-1], 700)
    return epsilons[-1] * ((outputs[-1] == one) - (outputs[-1] == other))


def bit_degradation(weak: tuple[float, float], strong: tuple[float, float]) -> tuple[float, float]:
    """Return the T of C1 = C2 T between any two channels of one bit.

    Channels are (p1, p0) and (P1, P0), the probabilities that a 1, and a 0, is reported as 1; T is
    that a 0, and a 1, of the stronger report becomes a 1 of the weaker one. With k = (p1 − p0)/(P1
    − P0) and s = p0 − P0 k there is one if and only if s and s + k are probabilities, else
    ``UnrelatedLevelsError`` is raised. A T that misses that by less than 1e-12 is taken to be
    rounded.
    """
    p1, p0, s1, s0 = (Fraction(probability) for probability in (*weak, *strong))
    keep = (p1 - p0) / (s1 - s0) if s1 != s0 else Fraction(0)
    zero = p0 - s0 * keep
    one = zero + keep
    related = s1 != s0 or abs(p1 - p0) <= _ROUNDING
    if not (related and all(-_ROUNDING <= t <= 1 + _ROUNDING for t in (zero, one))):
        raise UnrelatedLevelsError(
            f"no relaxation from {weak} to {strong}: the weaker bit is no degradation of the "
            "stronger one"
        )
    none, sure = Fraction(0), Fraction(1)
    return float(min(max(zero, none), sure)), float(min(max(one, none), sure))


def response_shares(epsilon: float, counts: Sequence[int]) -> list[float]:
    """Return unbiased shares of categories from counts of generalized responses (equation 7).

    They sum to 1 and may leave [0, 1]. Without reports they are NaN.
    """
    n, m = sum(counts) or nan, len(counts)
    # λ + (m λ − 1)/(e^ε − 1), where m λ − 1 is computed from counts without rounding.
    return [count / n + (m * count - n) / n * odds(epsilon) for count in counts]


def response_share_variance(domain_size: int, epsilon: float, share: float, n: int) -> float:
    """Return the variance of an estimated share, given the values (appendix G, its diagonal)."""
    check_at_least("n", n, 1)
    odd, others = odds(epsilon), domain_size - 1
    return (share * others * (1 + odd) + (1 - share) * (1 + others * odd)) * odd / n


def response_mean(low: float, high: float, epsilon: float, share_high: float) -> float:
    """Return the mean of numbers that were rounded to an end of [low, high] and randomized.

    ``share_high`` of the reports say ``high``. Equation 70, corrected: it multiplies the estimated
    share by h where (h − l) belongs.
    """
    share = share_high + (2 * share_high - 1) * odds(epsilon)
    return low + (high - low) * share


@dataclass(frozen=True)
class MixedCount:
    """How many bits are set, from binary responses at several epsilons; noises are variances.

    ``count`` has equal weights: unbiased for exactly these clients, whatever their levels have to
    do with their values. ``weighted_mean``, the share with weights by inverse variance, is biased
    unless levels are independent of values.
    """

    count: float
    count_noise: float
    weighted_mean: float
    weighted_noise: float


def mixed_count(reports: Sequence[int], epsilons: Sequence[float]) -> MixedCount:
    """Estimate how many bits are set from each client's newest binary response, at its epsilon.

    Older reports of a client are degradations of the newest and say nothing more. Without reports
    the mean and its noise are NaN.
    """
    sizes = Counter(epsilons)
    ones = Counter(epsilon for report, epsilon in zip(reports, epsilons, strict=True) if report)
    noise = {epsilon: bit_noise(epsilon) for epsilon in sizes}
    set_bits = {
        epsilon: ones[epsilon] + (2 * ones[epsilon] - n) * odds(epsilon)
        for epsilon, n in sizes.items()
    }
    least = min(noise.values(), default=nan)
    weights = {epsilon: least / noise[epsilon] for epsilon in sizes}
    total = fsum(weights[epsilon] * n for epsilon, n in sizes.items()) or nan
    return MixedCount(
        fsum(set_bits.values()),
        fsum(n * noise[epsilon] for epsilon, n in sizes.items()),
        fsum(weights[epsilon] * held for epsilon, held in set_bits.items()) / total,
        least / total,
    )


def _kept(domain_size: int, epsilon1: float, epsilon2: float) -> float:
    check_at_least("domain_size", domain_size, 2)
    if not 0 <= epsilon1 < epsilon2:
        raise ParameterError(f"epsilons must rise from 0 or more, not {epsilon1}, {epsilon2}")
    both = -expm1(-(epsilon1 + epsilon2))
    return both + (domain_size - 2) * exp(-epsilon2) * -expm1(-epsilon1)
