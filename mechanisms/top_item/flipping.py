"""Permute-and-flip's law from the acceptance probabilities of its items.

Items are looked at in random order, and item r is taken with probability a_r as soon as it is its
turn. If each has an independent uniform arrival time t, it is taken with probability
P(r) = a_r ∫₀¹ ∏_{s≠r} (1 − t a_s) dt, which sums to one if some a_s is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd

from mechanisms.arrays import Floats, Ints
from mechanisms.errors import ParameterError
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below

#: Of the Gauss-Legendre rule on a panel, and by how much the integrand's logarithm may fall on it.
NODES, FALL = 24, 2.0
#: What is left of the integrand where the integration ends, as a logarithm.
END = 48.0


def exact_flips(chances: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the law for acceptance probabilities given exactly, one of them 1.

    The polynomials under the integral are multiplied out. Equal chances are worked out once; the
    cost is n² products of large integers for each that differs.

    >>> exact_flips([Fraction(1), Fraction(1, 2)])
    (Fraction(3, 4), Fraction(1, 4))
    """
    _check(chances)
    scale = 1
    for chance in chances:
        scale *= chance.denominator // gcd(scale, chance.denominator)
    whole = [int(chance * scale) for chance in chances]
    law: dict[int, Fraction] = {}
    for place, share in enumerate(whole):
        if share not in law:
            law[share] = _integral(whole[:place] + whole[place + 1 :], scale) * share / scale
    return tuple(law[share] for share in whole)


def _integral(chances: Sequence[int], scale: int) -> Fraction:
    """Integrate ``∏ (1 - t a/scale)`` over t in [0, 1]."""
    powers = [1]
    for chance in chances:
        raised = [scale * power for power in powers] + [0]
        for degree, power in enumerate(powers, start=1):
            raised[degree] -= chance * power
        powers = raised
    terms = (Fraction(power, degree) for degree, power in enumerate(powers, start=1))
    total = sum(terms, Fraction(0))
    return total / Fraction(scale ** len(chances))


def float_flips(exponents: Sequence[float]) -> list[float]:
    """Return the law for acceptance probabilities e^x, x at most 0 and one of them 0, as floats.

    Each to about 1e-13 relatively, for any number of items, ties and gaps: the integrand is
    positive, so that nothing cancels, and is integrated by a Gauss rule on panels on which it falls
    by no more than a factor of e².

    >>> [round(p, 6) for p in float_flips([0.0, -1.0, -2.0])]
    [0.764988, 0.175642, 0.05937]
    """
    import numpy as np

    values, places, counts = np.unique(
        np.asarray(exponents, dtype=np.float64), return_inverse=True, return_counts=True
    )
    if not (values.size and values[-1] == 0):
        raise ParameterError("exponents must be at most 0, one of them 0")
    chances = np.exp(values)
    integrals = np.zeros(len(values))
    for times, weights in _panels(chances, counts):
        logs = np.log1p(-np.outer(times, chances))
        # Of all items; each then gives its own factor back.
        integrals += weights @ np.exp((logs @ counts)[:, None] - logs)
    law: list[float] = (chances * integrals)[places.ravel()].tolist()
    return law


def _panels(chances: Floats, counts: Ints) -> Iterator[tuple[Floats, Floats]]:
    """Yield nodes and weights that cover [0, 1] as far as the integrand counts."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # The largest factor is left out of one integral and cannot end it.
    rest = counts.copy()
    rest[-1] -= 1
    start = 0.0
    while start < 1 and -(rest @ np.log1p(-start * chances)) <= END:
        slope = float((counts * chances / (1 - start * chances)).sum())
        end = min(1.0, start + FALL / slope)
        # Close to 1 a panel that leaves next to nothing takes it too.
        if 1 - end < 1e-3 * (1 - start):
            end = 1.0
        yield start + (end - start) * nodes, (end - start) * weights
        start = end


def flip(thresholds: Sequence[int], source: Source) -> int:
    """Return the place of the first item in random order whose coin comes up.

    Thresholds are acceptance probabilities over 2**64, one of them 2**64.
    """
    left = list(range(len(thresholds)))
    while True:
        place = left.pop(uniform_below(len(left), source))
        if source.bits(64) < thresholds[place]:
            return place


def _check(chances: Sequence[Fraction]) -> None:
    if not chances or max(chances) != 1 or not min(chances) >= 0:
        raise ParameterError("chances must lie in [0, 1], one of them 1")
