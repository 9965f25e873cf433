"""The tables of "An Improved Christofides Mechanism", recomputed.

Both compare designs of the same nominal epsilon; that of the deck without replacement is not its
true one (:mod:`mechanisms.papers.deck`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mechanisms.papers.deck import census_size
from mechanisms.survey.christofides import Christofides
from mechanisms.survey.designs import Warner
from mechanisms.survey.rational import Number

#: The columns of both tables.
EPSILONS = (0.01, 0.05, 0.25, 0.5)


def worse_interval(epsilon: Number, middle: Number, n: int) -> float:
    """Return the length of the interval of shares where the deck has more variance than Warner's.

    Parameters
    ----------
    epsilon : number
        Nominal, of both.
    middle : number
        The share p_2 of middle cards, of three.
    n : int
        Respondents of a census, at least 2.

    Returns
    -------
    float
        √(1 − R(n−1)/n), R the ratio of Warner's noise to that of Christofides' cards; the interval
        is centred at 1/2. With p_2 = 0 it is 1/√n (Theorem 4.2).

    Examples
    --------
    >>> round(worse_interval(0.01, 0.01, 10_000), 3)
    0.1
    """
    ratio = Warner.of(epsilon).noise(0) / Christofides.of(epsilon, middle).noise(0)
    return math.sqrt(1 - ratio * (n - 1) / n)


def interval_table(
    n: int = 10_000, middles: Sequence[Number] = (0.01, 0.05)
) -> tuple[tuple[float, ...], ...]:
    """Return Table 1: a row for each share of middle cards, a column for each of EPSILONS."""
    return tuple(
        tuple(worse_interval(epsilon, middle, n) for epsilon in EPSILONS) for middle in middles
    )


def sample_size_table(
    share: Number = 0.1, variance: Number = 0.1, middle: Number = 0.01
) -> dict[str, tuple[int, ...]]:
    """Return Table 2: the smallest census of a given variance, a column for each of EPSILONS.

    A variance of 0.1 is a standard error of 0.32 of a share.

    Examples
    --------
    >>> for design, sizes in sample_size_table().items():
    ...     print(design, *sizes)
    warner 100000 4000 160 40
    christofides 101010 4040 161 40
    improved 36365 1456 59 16
    """
    cards = [Christofides.of(epsilon, middle) for epsilon in EPSILONS]
    return {
        "warner": tuple(Warner.of(e).sample_size(share, variance) for e in EPSILONS),
        "christofides": tuple(design.sample_size(share, variance) for design in cards),
        "improved": tuple(census_size(design, share, variance) for design in cards),
    }
