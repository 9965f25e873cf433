"""RAPPOR's filters: what bits that differ cost, and how many of them do.

References
----------
Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving Ordinal
Response", CCS 2014.
"""

from __future__ import annotations

from math import exp, expm1, log1p

from mechanisms.errors import check_at_least, check_probability


def differing_bits_epsilon(differing: int, f: float) -> float:
    """Return the epsilon of filters that differ in so many bits (at most 2 h), f in (0, 1)."""
    check_probability("f", f)
    return differing * log1p(2 * (1 - f) / f)


def expected_differing_bits(bits: int, hashes: int) -> float:
    """Return how many bits differ on average between the filters of two strings."""
    check_at_least("bits", bits, 1)
    if bits == 1:
        return 0.0
    exponent = hashes * log1p(-1 / bits)
    return 2 * bits * exp(exponent) * -expm1(exponent)
