"""Contributions of one report to an estimate, by the standard library alone."""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1

from mechanisms.errors import ParameterError
from mechanisms.frozen import NamedTuple


class Noise(NamedTuple):
    """The unbiased contribution of one report to a share, or to a mean of numbers in [0, 1].

    ``no`` and ``yes`` are its variances where the true answer is 0 and 1, ``step`` is the largest
    difference between two contributions; ``over`` and ``under`` are by how much a contribution can
    exceed, and fall short of, a true answer.
    """

    no: float
    yes: float
    step: float
    over: float
    under: float

    @classmethod
    def of(cls, p: Fraction, q: Fraction) -> Noise:
        """Return that of a yes which has probability p where it is true, and q where it is not."""
        gap = p - q
        exact = (q * (1 - q) / gap**2, p * (1 - p) / gap**2, 1 / gap, (1 - q) / gap, p / gap)
        return cls(*map(float, exact))

    def total(self, categories: int) -> float:
        """Return n times the variance of the shares of so many categories, added up.

        A category of share f has ``f yes + (1 - f) no``, and shares add up to one (T. Wang et al.,
        "Locally Differentially Private Protocols for Frequency Estimation", USENIX Security 2017,
        equation 4 with the population fixed).
        """
        return self.yes + (categories - 1) * self.no


def odds(epsilon: float) -> float:
    """Return 1/(e^ε − 1), which neither overflows nor cancels, of a positive epsilon.

    >>> odds(800.0) < 1e-300 < odds(1e-300)
    True
    """
    if not epsilon > 0:
        raise ParameterError(f"epsilon must be positive, not {epsilon}")
    return exp(-epsilon) / -expm1(-epsilon)
