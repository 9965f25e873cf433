"""Look at an experiment a few times that are planned, and err with a stated probability in all.

At look k the difference of two arms, over its standard error, is compared with boundary b_k. The
boundaries spend the error: the probability to cross one by the share t of the experiment is
``4 (1 - Phi(z / sqrt(t)))`` if the arms do not differ, z being the normal quantile of 1 - error/4:
almost nothing early, and all of the error at the end. So whoever looks five times needs 2.5 % more
users than who looks once. The interval of the difference plus and minus b_k standard errors holds
at all planned looks together.

Assumed are many reports, counts of a metric's last level alone, and that the difference of look k
varies, given that of look j before it, as means of more and more independent reports do: Cov(D_j,
D_k) = Var(D_k). That also holds if the same devices report the same in every window, if only the
variance has the arms' part (:func:`arm_variance`). *Information* is one over the variance.

References
----------
P. C. O'Brien, T. R. Fleming, "A multiple testing procedure for clinical trials", Biometrics 35,
1979. K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika
70, 1983, and "Group sequential procedures: calendar versus information time", Statistics in
Medicine 8, 1989: the share spent may be one of time while boundaries follow the information. C.
Jennison, B. W. Turnbull, "Interim analyses: the repeated confidence interval approach", JRSS B 51,
1989. P. Armitage, C. K. McPherson, B. C. Rowe, JRSS A 132, 1969: the recursion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from mechanisms.arrays import ArrayLike, Floats, np
from mechanisms.errors import ParameterError, check_probability

#: Points at which the law of what has not crossed yet is kept.
_NODES = 200
#: The largest boundary, or drift, that is looked for.
_MOST = 64.0
#: A look takes at least so much more information than the one before: less would add nothing.
_LEAST_GROWTH = 1.001


def spent(time: float, error: float = 0.05) -> float:
    """Return the part of the error that is spent by a share of the experiment.

    >>> [round(spent(time), 6) for time in (0.2, 0.6, 1.0)]
    [1e-06, 0.007616, 0.05]
    """
    return 2 * math.erfc(NormalDist().inv_cdf(1 - error / 4) / math.sqrt(2 * time)) if time else 0.0


def boundaries(
    times: Sequence[float], information: Sequence[float] | None = None, error: float = 0.05
) -> list[float]:
    """Return the boundary of each look, in standard errors.

    Parameters
    ----------
    times : sequence of float, shape (looks,)
        The planned share of the experiment at each look, rising, in (0, 1].
    information : sequence of float, shape (looks,), optional
        One over the variance of the difference at each look, in any unit; by default the times.
    error : float
        In (0, 1): the probability to cross at any look if the arms do not differ.

    Raises
    ------
    ParameterError
        If the times do not rise within (0, 1], or the error is out of range.

    Examples
    --------
    >>> [round(bound, 4) for bound in boundaries([1 / 3, 2 / 3, 1])]
    [3.7103, 2.5114, 1.993]
    """
    check_probability("error", error)
    if not times or not all(a < b for a, b in pairwise([0.0, *times])) or times[-1] > 1:
        raise ParameterError(f"times of looks must rise within (0, 1], got {list(times)}")
    walk, found, before = _START, list[float](), 0.0
    rising = _rising(times if information is None else information)
    for time, known in zip(times, rising, strict=True):
        after = spent(time, error)
        found.append(walk.bound(known, after - before))
        walk, before = walk.stays(known, found[-1]), after
    return found


def crossings(bounds: Sequence[float], information: Sequence[float], drift: float = 0.0) -> Floats:
    """Return the probability to cross first at each look: ``(looks,)``.

    ``drift``: the true difference in standard errors, for an information of 1.
    """
    walk, found = _START, []
    for bound, known in zip(bounds, _rising(information), strict=True):
        found.append(walk.crosses(known, bound, drift))
        walk = walk.stays(known, bound, drift)
    return np.array(found)


def drift_of(power: float, looks: int = 1, error: float = 0.05) -> float:
    """Return the true difference that is found with a probability, in standard errors of the end.

    Looks are evenly spaced. The number of users that the experiment takes is in proportion to the
    square.

    >>> round(drift_of(0.8), 4), round((drift_of(0.8, looks=5) / drift_of(0.8)) ** 2, 4)
    (2.8016, 1.0247)
    """
    from scipy.optimize import brentq

    if not error < power < 1:
        raise ParameterError(f"power must lie in (error, 1) = ({error}, 1), not {power}")
    times = [look / looks for look in range(1, looks + 1)]
    bounds = boundaries(times, error=error)
    return float(brentq(lambda drift: crossings(bounds, times, drift).sum() - power, 0, _MOST))


def arm_variance(
    reports: ArrayLike, spreads: ArrayLike, noises: ArrayLike, repeats: ArrayLike = 1
) -> float:
    """Return the variance of an arm's average over groups of windows of the same devices.

    A device's arm is drawn once, so that what sets it apart counts in each group in which it
    reports: standard errors of that part add up, and variances of the noise. It is ``((sum of
    sqrt(k n s))^2 + sum of n v) / (sum of n)^2``: right if all groups have the same devices with
    the same values, and too large otherwise.

    Parameters
    ----------
    reports : array_like, shape (groups,)
        The arm's reports n.
    spreads : array_like, shape (groups,)
        The variance s of what a device keeps: of its value, and of a permanent response.
    noises : array_like, shape (groups,)
        The variance v of the noise that each report draws anew.
    repeats : array_like, shape (groups,) or ()
        The most reports k of a device in a group.

    Examples
    --------
    >>> round(arm_variance([1000], [0.09], [0.18]) * 1000, 3)
    0.27
    >>> round(arm_variance([500, 500], [0.09, 0.09], [0.18, 0.18]) * 1000, 3)
    0.36
    """
    n = np.asarray(reports, dtype=np.float64)
    kept = np.sqrt(np.asarray(repeats) * n * np.asarray(spreads)).sum() ** 2
    return float((kept + n @ np.asarray(noises, dtype=np.float64)) / n.sum() ** 2)


def _rising(information: Sequence[float]) -> list[float]:
    """Return the information of looks, each a little larger than the one before at least."""
    found: list[float] = []
    for each in information:
        found.append(max(each, found[-1] * _LEAST_GROWTH) if found else each)
    return found


class _Walk(NamedTuple):
    """The law of the sum of a look, the difference times its information, of what did not cross.

    ``sums``, ``(nodes,)``, and their ``weights``; ``information`` of the look.
    """

    sums: Floats
    weights: Floats
    information: float

    def bound(self, information: float, chance: float) -> float:
        """Return the bound that is crossed at the next look, and not before, with that chance."""
        from scipy.optimize import brentq

        return float(brentq(lambda bound: self.crosses(information, bound) - chance, 0, _MOST))

    def crosses(self, information: float, bound: float, drift: float = 0.0) -> float:
        """Return the probability to cross at the next look, and not before."""
        from scipy.special import ndtr

        more = information - self.information
        means, edge = self.sums + drift * more, bound * math.sqrt(information)
        above, below = ((sign * means - edge) / math.sqrt(more) for sign in (1, -1))
        return float((ndtr(above) + ndtr(below)) @ self.weights)

    def stays(self, information: float, bound: float, drift: float = 0.0) -> _Walk:
        """Return the law at the next look of what does not cross there."""
        more, edge = information - self.information, bound * math.sqrt(information)
        # Beyond some standard errors of what is expected nothing is left to be kept.
        edge = min(edge, abs(drift) * information + 9 * math.sqrt(information))
        points, lengths = _nodes()
        apart = edge * points[:, None] - self.sums - drift * more
        law = np.exp(-(apart**2) / (2 * more)) @ self.weights
        return _Walk(
            edge * points, edge * lengths * law / math.sqrt(2 * math.pi * more), information
        )


@cache
def _nodes() -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(_NODES)


_START = _Walk(np.zeros(1), np.ones(1), 0.0)
