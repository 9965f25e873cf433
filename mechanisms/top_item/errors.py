"""Expected errors of selection in closed form, for scores (v, …, v, 0) with v <= 0.

The worst scores for the exponential mechanism and permute-and-flip have this form.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, log, log1p

from mechanisms.errors import ParameterError
from mechanisms.papers.exponential_randomized_response import ExponentialRandomizedResponse
from mechanisms.top_item.scores import exponents


@dataclass(frozen=True)
class WorstCaseErrors:
    """Expected errors for scores (v, …, v, 0).

    Parameters
    ----------
    exponential : float
        Of the exponential mechanism, equation 12.
    permute_and_flip : float
        Of permute-and-flip, equation 13.
    randomized_response : float
        Of exponential randomized response, which is not private, equations 15 and 16 (where k−1
        is a misprint for n−1).
    """

    exponential: float
    permute_and_flip: float
    randomized_response: float


def worst_case_errors(
    n: int, v: float, p: float, epsilon: float, sensitivity: float = 1
) -> WorstCaseErrors:
    """Return the expected errors for n − 1 scores of v and one of 0.

    Parameters
    ----------
    n : int
        At least 1.
    v : float
        At most 0.
    p : float
        In [0, 1], of exponential randomized response alone.
    epsilon : float
        Finite, at least 0.
    sensitivity : float
        Positive, Δ.

    Returns
    -------
    WorstCaseErrors
        To the last digits also where the probability of v vanishes or n is large.

    References
    ----------
    "Exponential Randomized Response", equations 12, 13, 15 and 16.

    Examples
    --------
    >>> errors = worst_case_errors(5, -3.0, 0.5, 1.0)
    >>> round(errors.exponential, 6), round(errors.permute_and_flip, 6)
    (1.414813, 1.071898)
    >>> round(errors.randomized_response, 6)
    0.707406
    """
    response = ExponentialRandomizedResponse(p, epsilon, sensitivity)
    if not n >= 1:
        raise ParameterError(f"n must be at least 1, not {n}")
    if not -inf < v <= 0:
        raise ParameterError(f"v must be finite and at most 0, not {v}")
    exponent = exponents([v, 0.0], epsilon, sensitivity)[0]
    chance = exp(exponent)
    wrong = (n - 1) * chance / (1 + (n - 1) * chance)
    near = len(response.candidates([0.0, v])) == 2 and n > 1
    random = p * (n - 1) / n if near else 0.0
    return WorstCaseErrors(
        exponential=-v * wrong,
        permute_and_flip=-v * _missed(n, exponent),
        randomized_response=-v * ((1 - p) * wrong + random),
    )


def _missed(n: int, exponent: float) -> float:
    """Return 1 − (1 − (1 − x)^n)/(n x) with x = e^exponent, without cancellation."""
    if exponent == 0:
        return (n - 1) / n
    chance = exp(exponent)
    if n * chance > 1:
        kept = log(-expm1(exponent)) if exponent > -1 else log1p(-chance)
        return 1 + expm1(n * kept) / (n * chance)
    # The binomial series; each term is at most a third of the one before.
    term, total, degree = (n - 1) / 2 * chance, 0.0, 2
    while abs(term) > 1e-18 * total:
        total += term
        term *= -(n - degree) / (degree + 1) * chance
        degree += 1
    return total
