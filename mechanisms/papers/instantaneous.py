"""What RAPPOR's instantaneous responses to a string cost, one and many of them.

References
----------
Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving Ordinal
Response", CCS 2014, section 3.
"""

from __future__ import annotations

from math import exp, inf, log, log1p

from mechanisms.errors import ParameterError


def instantaneous_epsilon(hashes: int, f: float, p: float, q: float, samples: int) -> float:
    """Return what RAPPOR's instantaneous responses cost, of whole strings and exactly.

    Per bit the number of ones among the samples is all that counts, and its likelihood ratio is
    most extreme where all or none of them are ones. Two strings differ in at most 2h bits, h of
    them set in the one and h in the other (in filters of at least so many bits).

    Parameters
    ----------
    hashes : int, at least 1
        h.
    f : float in (0, 1)
        The permanent response replaces a bit by a fair coin with this probability.
    p, q : float in [0, 1]
        Probabilities that a sample is 1 if the permanent response is 0, and if it is 1.
    samples : int, at least 1

    Returns
    -------
    float
        At most 2 h ln((1 − f/2)/(f/2)), the cost of the permanent response.

    References
    ----------
    RAPPOR, section 3.2, whose ε1 is this for one sample.

    Examples
    --------
    >>> round(instantaneous_epsilon(2, 0.5, 0.5, 0.75, 1), 4)
    1.0743
    >>> round(instantaneous_epsilon(2, 0.5, 0.5, 0.75, 1000), 4)
    4.3944
    """
    if not (hashes >= 1 and samples >= 1):
        raise ParameterError(f"hashes and samples must be at least 1, not {hashes}, {samples}")
    if not (0 < f < 1 and 0 <= p <= 1 and 0 <= q <= 1):
        raise ParameterError(f"f must lie in (0, 1), p and q in [0, 1], not {f}, {p}, {q}")
    ones = _log_ratio(f, samples * _log(p), samples * _log(q))
    zeros = _log_ratio(f, samples * _log(1 - p), samples * _log(1 - q))
    return hashes * abs(ones - zeros)


def _log(probability: float) -> float:
    return log(probability) if probability else -inf


def _log_ratio(f: float, zero: float, one: float) -> float:
    """Ln of what a bit set makes of likelihoods, given as logs, of the permanent response."""
    if zero == one:
        return 0.0
    gap = exp(-abs(one - zero))
    up = log1p(-f / 2 * (1 - gap)) - log(f / 2 + (1 - f / 2) * gap)
    return up if one > zero else -up
