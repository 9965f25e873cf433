"""Variances of the published mechanisms for a number, in closed form and floating point.

All are of one report about a number x in [-1, 1], as the papers have it: divide by n for the
mean of n reports, and by 4 for numbers in [0, 1]. They hold for the published mechanisms over
the real numbers; what is shipped is finite, and its variances are those of its realised
probabilities (:mod:`mechanisms.number.contributions`).

Every formula is stable from epsilon 1e-9 to 1400.

References
----------
N. Wang, X. Xiao, Y. Yang, J. Zhao, S. C. Hui, H. Shin, J. Shin, G. Yu, "Collecting and Analyzing
Multidimensional Data with Local Differential Privacy", ICDE 2019. J. C. Duchi, M. I. Jordan,
M. J. Wainwright, "Minimax Optimal Procedures for Locally Private Estimation", JASA 113(521), 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, fsum, log, sqrt

from mechanisms.errors import ParameterError

_ROOT = 405 * sqrt(241)
#: Up to here the hybrid mechanism is Duchi's (Wang et al., equation 9 and Theorem 1).
HYBRID_FROM = log((-5 + 2 * (6353 - _ROOT) ** (1 / 3) + 2 * (6353 + _ROOT) ** (1 / 3)) / 27)
#: The largest epsilon of the formulas.
LARGEST = 1400


def answer_noise(epsilon: float) -> float:
    """Return f(ε) = e^ε/(e^ε − 1)², the variance of a debiased binary randomized response.

    Parameters
    ----------
    epsilon : float
        In (0, 1400].

    Examples
    --------
    >>> round(answer_noise(1.0), 6)
    0.920674
    """
    _check_epsilon(epsilon)
    return exp(-epsilon) / expm1(-epsilon) ** 2


def duchi_variance(x: float, epsilon: float) -> float:
    """Return C² − x², C = (e^ε + 1)/(e^ε − 1): one-bit response, and one sampled bit.

    Examples
    --------
    >>> round(duchi_variance(0.3, 1.0), 6)
    4.592694
    """
    _check_value(x)
    return 4 * answer_noise(epsilon) + (1 - x) * (1 + x)


def piecewise_variance(x: float, epsilon: float) -> float:
    """Return the variance of the Piecewise Mechanism.

    x²/(h − 1) + (h + 3)/(3 (h − 1)²) with h = e^(ε/2).

    References
    ----------
    Wang et al., ICDE 2019, Lemma 1.

    Examples
    --------
    >>> round(piecewise_variance(0.3, 1.0), 6)
    3.820838
    """
    _check_value(x)
    _check_epsilon(epsilon)
    inverse = exp(-epsilon / 2) / -expm1(-epsilon / 2)
    return x * x * inverse + inverse * (1 + 4 * inverse) / 3


def hybrid_variance(x: float, epsilon: float) -> float:
    """Return the variance of the Hybrid Mechanism.

    Above epsilon 0.61 it answers by the Piecewise Mechanism with probability 1 − e^(−ε/2) and by
    Duchi's otherwise, which makes the variance the same for all x; below, always by Duchi's.

    References
    ----------
    Wang et al., ICDE 2019, section III-C.

    Examples
    --------
    >>> round(hybrid_variance(0.3, 1.0), 6), round(hybrid_variance(0.3, 0.5), 6)
    (4.288992, 16.580792)
    """
    if epsilon <= HYBRID_FROM:
        return duchi_variance(x, epsilon)
    share = -expm1(-epsilon / 2)
    return share * piecewise_variance(x, epsilon) + (1 - share) * duchi_variance(x, epsilon)


def laplace_variance(epsilon: float) -> float:
    """Return the variance of Laplace noise of scale 2/ε: 8/ε².

    Examples
    --------
    >>> laplace_variance(2.0)
    2.0
    """
    _check_epsilon(epsilon)
    return 8 / epsilon / epsilon


def dithering_variance(epsilon: float) -> float:
    """Return the variance of one bit with subtractive dithering, the same for all x: 4f(ε) + 1/3.

    Examples
    --------
    >>> round(dithering_variance(1.0), 6)
    4.016028
    """
    return 4 * answer_noise(epsilon) + 1 / 3


def random_threshold_variance(xs: Sequence[float], epsilon: float) -> float:
    """Return n times the variance of the stratified mean of random thresholds, to leading order.

    4f(ε) + E|X − X′| − Var(X), with X and X′ drawn from ``xs`` independently: at most
    4f(ε) + 1/3.

    Parameters
    ----------
    xs : sequence of float
        The clients' numbers, in [-1, 1].
    epsilon : float

    Examples
    --------
    >>> round(random_threshold_variance([-1.0, 0.0, 0.5, 1.0], 1.0), 6)
    3.948319
    """
    if not xs:
        raise ParameterError("there must be at least one number")
    for x in xs:
        _check_value(x)
    ordered, n = sorted(xs), len(xs)
    centre = fsum(ordered) / n
    away = [x - centre for x in ordered]
    apart = 2 * fsum((2 * rank + 1 - n) * x for rank, x in enumerate(away)) / n**2
    spread = fsum(x * x for x in away) / n - (fsum(away) / n) ** 2
    return 4 * answer_noise(epsilon) + apart - spread


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon <= LARGEST:
        raise ParameterError(f"epsilon must lie in (0, {LARGEST}], not {epsilon}")


def _check_value(x: float) -> None:
    if not -1 <= x <= 1:
        raise ParameterError("a number must lie in [-1, 1]")
