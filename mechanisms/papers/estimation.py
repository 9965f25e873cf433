"""Shares and means from ideal randomized responses, in closed form and floating point.

For tables, experiments and people. What a deployment estimates comes from the realised
probabilities (:mod:`mechanisms.estimators.frequency`, :mod:`mechanisms.number.numeric`); these are
the equations of
the ideal mechanisms, in forms that lose nothing from epsilon 1e-12 to 700. With E = e^ε a share
is λ + (m λ − 1)/(E − 1), where m λ − 1 is computed from counts without rounding.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, equations
6, 7, 67, 70 and appendix G. Equation 70 is misprinted; its correction is l + (h − l) π.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, fsum

from mechanisms.errors import ParameterError

#: Largest epsilon of the closed forms.
MAX_EPSILON = 700


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse an epsilon for which the closed forms do not hold."""
    if not 0 < epsilon <= MAX_EPSILON:
        raise ParameterError(f"{name} must lie in (0, {MAX_EPSILON}], not {epsilon}")


def bit_noise(epsilon: float) -> float:
    """Return f(ε) = e^ε/(e^ε − 1)², the variance that one binary response adds.

    Divided by N it is equation 67 for N reports.

    Examples
    --------
    >>> round(bit_noise(1.0), 6)
    0.920674
    """
    check_epsilon(epsilon)
    return exp(-epsilon) / expm1(-epsilon) ** 2


def response_shares(epsilon: float, counts: Sequence[int]) -> list[float]:
    """Return unbiased shares of categories from generalized randomized responses (equation 7).

    Parameters
    ----------
    epsilon : float in (0, 700]
    counts : sequence of int, at least 2, not all zero
        Reports of each category.

    Returns
    -------
    list of float
        They sum to 1 and may leave [0, 1].

    Examples
    --------
    >>> [round(share, 4) for share in response_shares(1.0, [310, 290, 300, 320, 280])]
    [0.2261, 0.1739, 0.2, 0.2521, 0.1479]
    """
    check_epsilon(epsilon)
    n, m = sum(counts), len(counts)
    if not (m >= 2 and n > 0 and min(counts) >= 0):
        raise ParameterError("counts must be of two categories or more, none negative, not all 0")
    gain = expm1(epsilon)
    return [count / n + (m * count - n) / n / gain for count in counts]


def response_share_variance(domain_size: int, epsilon: float, share: float, n: int) -> float:
    """Return the variance of an estimated share, given the values (appendix G, its diagonal).

    Parameters
    ----------
    domain_size : int, at least 2
    epsilon : float in (0, 700]
    share : float in [0, 1]
        The true share.
    n : int, positive
        Reports.

    Examples
    --------
    >>> round(response_share_variance(5, 0.5, 0.2, 1500), 6)
    0.007981
    """
    check_epsilon(epsilon)
    if not (domain_size >= 2 and 0 <= share <= 1 and n > 0):
        raise ParameterError(f"no variance for {domain_size} values, share {share}, n {n}")
    down = exp(-epsilon)
    holders = share * (domain_size - 1) * down
    others = (1 - share) * down * (1 + (domain_size - 2) * down)
    return (holders + others) / expm1(-epsilon) ** 2 / n


def response_mean(low: float, high: float, epsilon: float, share_high: float) -> float:
    """Return the mean of numbers that were rounded to an end of [low, high] and randomized.

    Parameters
    ----------
    low, high : float, low < high
    epsilon : float in (0, 700]
    share_high : float in [0, 1]
        Share of the reports that say ``high``.

    References
    ----------
    Equation 70, corrected: it multiplies the estimated share by h where (h − l) belongs.

    Examples
    --------
    >>> round(response_mean(2.0, 5.0, 1.0, 0.55), 6)
    3.824593
    """
    check_epsilon(epsilon)
    if not (low < high and 0 <= share_high <= 1):
        raise ParameterError(f"no mean on [{low}, {high}] from a share of {share_high}")
    share = share_high + (2 * share_high - 1) / expm1(epsilon)
    return low + (high - low) * share


def response_mean_variance(
    low: float, high: float, epsilon: float, values: Sequence[float]
) -> float:
    """Return the variance of :func:`response_mean`, given the values.

    The noise of the answers and of rounding each value to an end of the range:
    (h − l)² [f(ε) + mean of u (1 − u)]/n, with u = (x − l)/(h − l).

    Parameters
    ----------
    low, high : float, low < high
    epsilon : float in (0, 700]
    values : sequence of float, within [low, high]

    Examples
    --------
    >>> round(response_mean_variance(-1.0, 1.0, 1.0, [0.25] * 10), 6)
    0.462019
    """
    n, width = len(values), high - low
    if not (low < high and n and all(low <= value <= high for value in values)):
        raise ParameterError("values must lie between low and high, and there must be some")
    rounding = fsum((value - low) * (high - value) for value in values) / width**2 / n
    return width**2 * (bit_noise(epsilon) + rounding) / n


@dataclass(frozen=True)
class MixedCount:
    """How many bits are set, from binary responses at several epsilons.

    Attributes
    ----------
    count : float
        Equal weights: unbiased for exactly these clients, whatever their levels have to do with
        their values.
    count_noise : float
        Variance of ``count`` given the values.
    weighted_mean : float
        The share with weights by inverse variance; biased unless levels are independent of
        values.
    weighted_noise : float
        Variance of ``weighted_mean`` given the values.
    """

    count: float
    count_noise: float
    weighted_mean: float
    weighted_noise: float


def mixed_count(reports: Sequence[int], epsilons: Sequence[float]) -> MixedCount:
    """Estimate how many bits are set from each client's newest binary response.

    Only the newest report of a client may be given: the older ones are degradations of it and
    say nothing more.

    Parameters
    ----------
    reports : sequence of 0 and 1
    epsilons : sequence of float in (0, 700]
        Of each report.

    Examples
    --------
    >>> round(mixed_count([1, 0, 1, 1, 0], [0.5, 0.5, 1.0, 2.0, 2.0]).count, 4)
    3.582
    """
    if not (reports and len(reports) == len(epsilons) and set(reports) <= {0, 1}):
        raise ParameterError("every report must be 0 or 1 and have an epsilon")
    sizes = Counter(epsilons)
    ones = Counter(epsilon for report, epsilon in zip(reports, epsilons, strict=True) if report)
    noise = {epsilon: bit_noise(epsilon) for epsilon in sizes}
    set_bits = {
        epsilon: ones[epsilon] + (2 * ones[epsilon] - n) / expm1(epsilon)
        for epsilon, n in sizes.items()
    }
    least = min(noise.values())
    weights = {epsilon: least / noise[epsilon] for epsilon in sizes}
    total = fsum(weights[epsilon] * n for epsilon, n in sizes.items())
    return MixedCount(
        fsum(set_bits.values()),
        fsum(n * noise[epsilon] for epsilon, n in sizes.items()),
        fsum(weights[epsilon] * held for epsilon, held in set_bits.items()) / total,
        least / total,
    )
