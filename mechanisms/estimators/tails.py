"""Bounds of tail probabilities that hold for any number of reports, not only for many.

All are Chernoff bounds, so that a false alarm is never more frequent than stated; they are given as
natural logarithms, 0 where nothing is unusual.

References
----------
H. Chernoff, "A Measure of Asymptotic Efficiency for Tests of a Hypothesis Based on the Sum of
Observations", Annals of Mathematical Statistics 23(4), 1952. R. Agrawal, "Finite-Sample
Concentration of the Multinomial in Relative Entropy", IEEE Transactions on Information Theory
66(10), 2020, theorem 1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from mechanisms.arrays import Floats
from mechanisms.halving import turning

#: An exponential factor of more is as good as infinite.
_STEEPEST = 500.0


def divergence(share: ArrayLike, law: ArrayLike) -> Floats:
    """Return the relative entropy of Bernoulli laws, in nats, element by element.

    >>> divergence([0.5, 0.0], [0.25, 0.5]).round(4).tolist()
    [0.1438, 0.6931]
    """
    seen, known = np.asarray(share, dtype=np.float64), np.asarray(law, dtype=np.float64)
    total: Floats = rel_entr(seen, known) + rel_entr(1 - seen, 1 - known)
    return np.maximum(total, 0.0)


def binomial_tail(hits: ArrayLike, trials: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Return the log bound of so many or more extreme hits, element by element.

    Each of the independent trials hits with some probability from ``low`` to ``high``: hits above
    the share ``high`` are compared with that one, and hits below ``low`` with the other.

    >>> binomial_tail([600, 500, 480], 1000, 0.45, 0.5).round(2).tolist()
    [-20.14, 0.0, 0.0]
    """
    n = np.asarray(trials, dtype=np.float64)
    share = np.asarray(hits, dtype=np.float64) / n
    nearest = np.clip(share, low, high)
    found: Floats = np.where(share == nearest, 0.0, -n * divergence(share, nearest))
    return found


def sum_tail(groups: Sequence[tuple[float, float]], total: float) -> float:
    """Return the log bound of a sum of independent yes-or-no trials being ``total`` or more.

    ``groups`` are numbers of trials, each with the probability of a yes.

    >>> round(sum_tail([(600, 0.5), (400, 0.5)], 600), 2)
    -20.14
    """
    trials = sum(n for n, _ in groups)
    mean = sum(n * p for n, p in groups)
    if total <= mean:
        return 0.0
    if total > trials:
        return -math.inf

    def tilted(slope: float) -> float:
        """Return the mean where a yes has become e**slope times as likely."""
        return sum(n * p / (p + (1 - p) * math.exp(-slope)) for n, p in groups if n and p)

    least = turning(lambda slope: tilted(slope) < total, 0.0, _STEEPEST)[0]
    gained = sum(n * math.log1p(p * math.expm1(least)) for n, p in groups)
    return min(gained - least * total, 0.0)


def multinomial_tail(evidence: float, outcomes: int) -> float:
    """Return the log bound of so much relative entropy, in nats times the number of trials.

    ``evidence`` is that of the observed shares of so many ``outcomes`` to their law.

    >>> round(multinomial_tail(130.0, 64), 2)
    -21.36
    """
    free = outcomes - 1
    return 0.0 if evidence <= free else free * (1 + math.log(evidence / free)) - evidence


def first_below(bound: Callable[[float], float], start: float, end: float, level: float) -> float:
    """Return where, on the way from ``start`` to ``end``, a falling bound reaches ``level``.

    It is ``end`` where the bound does not fall as low.
    """
    return turning(lambda at: bound(at) > level, start, end)[1]
