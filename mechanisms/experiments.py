"""Compare the arms of an experiment by intervals that hold however often one looks.

Each device is in one of several arms, with equal probabilities, whatever its values. The *score* y
of a report of one level is what it adds to an estimate: bounded, and right on average over the
randomization. For an arm beside the first one, only devices of these two arms are looked at; s is
+2 in the arm and -2 in the first, and the *contribution* of a report is z = s (y - c) for some
fixed centre c. Whatever c is, its mean over assignment and randomization is the effect t of the arm
on that device: the value it would have in the arm less the one it would have in the first.

Covered is, at all times n = 1, 2, ... (reports counted) at once, the average effect T_n on the
devices that are counted, each as often as it is, with probability 1 - error. Assumed is

1. that each device's arm is drawn evenly and independently of everything else, and neither arm
   nor outputs decide whether and when its report is counted (:func:`sample_ratio` looks for that);
2. that devices randomize by the published probabilities, independently of each other;
3. that a report that is counted stays counted as it is. So the counts are those of a metric's
   last level alone: the newest level of a chain replaces the one before, and a lower level's
   counts shrink. Retractions, of pseudonyms revoked or forgotten, are not covered;
4. that a device has at most ``repeats`` reports in the window.

Nothing is assumed of the values: they may differ from device to device and drift with time. They
are fixed, and so is the order of arrival.

Proof, for one report a device. Given all reports before, E[1 + lz] = 1 + lt <= exp(lt) for each l
with 1 + lz > 0. So M_n(l, c) = prod (1 + l z_i) exp(-l sum t_i) is a nonnegative supermartingale
from 1, and so is a mixture M_n over l and c with fixed weights; by Ville's inequality it reaches
1/error with at most the probability ``error``. As sum t_i = n T_n, M_n is a function of T_n and of
how many reports there are of each score in each arm, whatever their order. The interval is of all
T where it is below 1/error: as a convex function of T it is so in an interval, or nowhere.

With up to k = ``repeats`` reports a device, let stream j have the j-th report of each device: of
each stream the proof holds by itself. All k mixtures stay below k/error at all times with
probability 1 - error; what is computed is the mixture of prod (1 + l z_i)^(1/k) exp(-l sum t_i/k)
over all reports, which by Hölder's inequality is at most the geometric mean of the streams'
mixtures, and so below k/error too.

References
----------
J. Ville, "Étude critique de la notion de collectif", 1939. S. R. Howard, A. Ramdas, J. McAuliffe,
J. Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics
49(2), 2021, section 4.2. I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables
by betting", JRSS B 86(1), 2024. I. Waudby-Smith, Z. S. Wu, A. Ramdas, "Nonparametric extensions of
randomized response for private confidence sets", ICML 2023, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mechanisms.arrays import ArrayLike, Floats, Ints, np
from mechanisms.errors import ParameterError, check_at_least, check_probability
from mechanisms.halving import turning

#: Counts of arms that are as unlikely as this are not what was planned.
SAMPLE_RATIO_ERROR = 0.01
#: Centres of contributions, with equal weights.
_CENTRES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: The inverse of the probability of an arm among two, added to a score +-2 times.
_INVERSE = 2.0
#: The weights of bets are largest for so many reports, and a half of that for 8 times as many.
_REPORTS, _OCTAVES = 30_000, 3.0
#: The smallest bet is for so many reports.
_MOST_REPORTS = 1e9
#: Capital that is bet at most, so that none is lost whatever is reported.
_STAKE = 0.75
#: A bet is best once the interval has about so many standard errors to each side.
_ERRORS = 3.2
#: How closely the mixture over the arms' true shares is centred on the planned ones.
_CONCENTRATION = 100.0


class Scores(NamedTuple):
    """The scores ``values`` of one level, and how probable each is: all ``(T,)``.

    ``no`` and ``yes`` are the probabilities where the truth is 0 and where it is 1.
    """

    values: Floats
    no: Floats
    yes: Floats

    def law(self, mean: float) -> Floats:
        """Return the probabilities where this share of the devices has 1, and all others 0.

        Laws of two scores are the same whatever truths have this mean.
        """
        return (1 - mean) * self.no + mean * self.yes

    def variance(self, mean: float) -> float:
        """Return the variance of the score of a device that is drawn from those."""
        return float(self.law(mean) @ self.values**2) - mean**2


def answer_scores(pair: tuple[float, float]) -> Scores:
    """Return the scores of the answers no and yes.

    A yes has the probability p where it is true, and q where it is not.

    >>> answer_scores((0.75, 0.25)).values
    array([-0.5,  1.5])
    """
    p, q = pair
    values: Floats = np.array([-q, 1 - q]) / (p - q)
    return Scores(values, np.array([1 - q, q]), np.array([1 - p, p]))


@dataclass(frozen=True, eq=False)
class Scored:
    """How many reports of one level have which score.

    ``kind`` and ``item`` are those of the estimate (:class:`mechanisms.items.Item`), ``values``,
    ``(T,)``, the scores, whose mean is a truth in [0, 1], and ``counts``, ``(T,)``, the reports
    that have each. 0 and 1 stand for ``low`` and ``high``, in ``unit``.
    """

    kind: str
    item: str
    values: Floats
    counts: Ints | Floats
    unit: str | None = "share"
    low: float = 0.0
    high: float = 1.0

    @property
    def reports(self) -> float:
        """The number of reports."""
        return float(self.counts.sum())

    @property
    def mean(self) -> float:
        """The average, in ``unit``; NaN of no report."""
        if not self.reports:
            return math.nan
        return self.low + (self.high - self.low) * float(self.counts @ self.values) / self.reports


def at_ends(values: Floats, reports: float, mean: float) -> Floats:
    """Return counts of the lowest and the highest score alone whose number and average are given.

    The logarithm of 1 + lz is concave. So the mixture of these counts is at most that of any others
    with the same average, and intervals made of them cover as much. With two scores they are
    the counts; with more the interval is wider.

    >>> at_ends(np.array([-0.5, 1.5]), 100, 0.25)
    array([62.5, 37.5])
    """
    counts, low, high = np.zeros(len(values)), int(values.argmin()), int(values.argmax())
    part = (mean - values[low]) / (values[high] - values[low])
    counts[low], counts[high] = reports * (1 - part), reports * part
    return counts


class Difference(NamedTuple):
    """How much more an arm has than the first one, in the unit of the scores.

    ``value`` is the difference of the arms' averages, NaN if one of them is empty; ``low`` and
    ``high`` are the interval; ``p_value``, at this and all other looks together, is for no effect
    on any device: it is at most x, at any look, with at most the probability x.
    """

    value: float
    low: float
    high: float
    p_value: float


def difference(first: Scored, arm: Scored, *, error: float = 0.05, repeats: int = 1) -> Difference:
    """Compare an arm with the first one; see the module for what is covered and assumed.

    Parameters
    ----------
    first, arm : Scored
        Of the same estimate, and of the same level.
    error : float
        In (0, 1): the probability that the interval is ever wrong. For each of several arms, or
        estimates, divide it by their number.
    repeats : int
        Reports that one device can have in the counts, at most.

    Examples
    --------
    >>> scores = answer_scores((0.75, 0.25)).values
    >>> counts = np.array([[7000, 3000], [6500, 3500]])
    >>> first, arm = (Scored("share", "yes", scores, each) for each in counts)
    >>> [round(each, 3) for each in difference(first, arm)]
    [0.1, 0.056, 0.144, 0.0]
    """
    check_probability("error", error)
    check_at_least("repeats", repeats, 1)
    if (first.kind, first.item) != (arm.kind, arm.item) or len(first.values) != len(arm.values):
        raise ParameterError("arms are compared by the same estimate of the same level")
    scale = arm.high - arm.low
    reports = first.reports + arm.reports
    (offsets,), (slopes,) = _mixture(first.counts[None], arm.counts[None], arm.values, repeats)
    wealth = _Wealth(offsets, slopes)
    low, high = _below(wealth, math.log(repeats / error))
    p_value = min(1.0, math.exp(min(math.log(repeats) - wealth.log(0.0), 0.0)))
    if not reports:
        return Difference(math.nan, -scale, scale, 1.0)
    return Difference(arm.mean - first.mean, scale * low, scale * high, p_value)


def evidence(
    first: ArrayLike, arm: ArrayLike, values: Floats, effect: ArrayLike = 0.0, repeats: int = 1
) -> Floats:
    """Return the logarithm of the mixture at several looks: the evidence against effects.

    Parameters
    ----------
    first, arm : array_like, shape (looks, T)
        Reports with each of the scores ``values``, ``(T,)``, at each look, by arm.
    effect : array_like, shape (looks,) or ()
        The average effect that is tested, scores being of truths in [0, 1].

    Returns
    -------
    ndarray, shape (looks,)
        If the effect is the true one at all looks, it ever reaches ``log(repeats / error)`` with at
        most the probability ``error``.
    """
    counted = np.atleast_2d(first), np.atleast_2d(arm)
    offsets, slopes = _mixture(*counted, values, repeats)
    terms = offsets - slopes * np.broadcast_to(effect, len(offsets))[:, None]
    top = terms.max(axis=1)
    logs: Floats = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
    return logs


def _mixture(first: Any, arm: Any, values: Floats, repeats: int) -> tuple[Floats, Floats]:
    """Return the terms of the mixture, ``(looks, B)``: ``exp(offsets - slopes * effect)``."""
    bets = _bets(tuple(values.tolist()))
    grown = first @ bets.of_first.T + arm @ bets.of_arm.T
    reports = (first.sum(axis=1) + arm.sum(axis=1))[:, None]
    return grown / repeats + bets.weights, bets.sizes * (reports / repeats)


class _Wealth(NamedTuple):
    """The logarithm of the mixture at one look, as a function of the effect: convex."""

    offsets: Floats
    slopes: Floats

    def terms(self, effect: float) -> tuple[float, Floats]:
        terms = self.offsets - self.slopes * effect
        top = float(terms.max())
        return top, np.exp(terms - top)

    def log(self, effect: float) -> float:
        top, terms = self.terms(effect)
        return top + math.log(float(terms.sum()))

    def falls(self, effect: float) -> bool:
        return float(self.terms(effect)[1] @ self.slopes) > 0


class _Bets(NamedTuple):
    """Bets ``sizes``, ``(B,)``, with logarithms of ``weights``; log(1 + lz), ``(B, T)``, by arm."""

    sizes: Floats
    weights: Floats
    of_first: Floats
    of_arm: Floats


@lru_cache(maxsize=256)
def _bets(values: tuple[float, ...]) -> _Bets:
    """Return the mixture for scores: the same at every look, since it depends on them alone.

    Sizes fall by the square root of 2 from the largest that never loses all. Their weights are
    Cauchy's over the logarithm of the number of reports for which a size is best, which assumes the
    variance of a score to be that of two-valued ones. Neither has a part in the proof.
    """
    scores = np.array(values)
    contributions = _INVERSE * (scores - np.array(_CENTRES)[:, None])
    spread = _INVERSE**2 * (max(-scores.min() * scores.max(), 0.0) + 0.25)
    largest = _STAKE / float(np.abs(contributions).max())
    smallest = _ERRORS / math.sqrt(_MOST_REPORTS * spread)
    number = 1 + max(math.ceil(2 * math.log2(largest / smallest)), 0)
    sizes = largest * np.exp2(-np.arange(number) / 2)
    octaves = np.log2((_ERRORS / sizes) ** 2 / spread / _REPORTS)
    weights = 1 / (1 + (octaves / _OCTAVES) ** 2)
    signed = np.concatenate((sizes, -sizes))
    logs = np.log(np.concatenate((weights, weights)) / (2 * weights.sum() * len(_CENTRES)))
    grown = signed[None, :, None] * contributions[:, None, :]
    shape = (len(_CENTRES) * len(signed), len(scores))
    return _Bets(
        np.tile(signed, len(_CENTRES)),
        np.tile(logs, len(_CENTRES)),
        np.log1p(-grown).reshape(shape),
        np.log1p(grown).reshape(shape),
    )


def _below(wealth: _Wealth, most: float) -> tuple[float, float]:
    """Return the effects in [-1, 1] where the mixture is below; the least one if it nowhere is."""
    least = sum(turning(wealth.falls, -1.0, 1.0)) / 2
    if wealth.log(least) >= most:
        return least, least
    return _end(wealth, most, least, -1.0), _end(wealth, most, least, 1.0)


def _end(wealth: _Wealth, most: float, inside: float, outside: float) -> float:
    if wealth.log(outside) < most:
        return outside
    return turning(lambda effect: wealth.log(effect) < most, inside, outside)[1]


def sample_ratio(counts: ArrayLike, repeats: int = 1) -> float:
    """Return how likely arms are at most to ever have counts as unlike each other as these.

    An always-valid p-value that devices are spread evenly over the arms: it is at most x, at any
    look, with at most the probability x, if devices are assigned independently, and no more than
    ``repeats`` reports of one are counted. Below :data:`SAMPLE_RATIO_ERROR` something is wrong with
    the assignment, or reports of an arm are lost, and differences between arms say nothing.

    It is the inverse of the likelihood, averaged over arms' shares by a Dirichlet law around equal
    ones, over that of equal shares: a martingale in the number of reports. With several reports a
    device as in the module.

    Parameters
    ----------
    counts : array_like, shape (arms,)
        Reports by arm, of any levels.

    References
    ----------
    M. Lindon, A. Malek, "Anytime-Valid Inference for Multinomial Count Data", NeurIPS 2022.

    Examples
    --------
    >>> sample_ratio([10_000, 10_100]), round(sample_ratio([10_000, 10_600]), 4)
    (1.0, 0.0024)
    """
    given = [float(count) for count in np.asarray(counts).tolist()]
    if len(given) < 2 or not all(0 <= count < math.inf for count in given):
        raise ParameterError("counts must be of two arms or more, and at least 0")
    prior = _CONCENTRATION / len(given)
    powers = [count / repeats for count in given]
    log = math.lgamma(_CONCENTRATION) - math.lgamma(_CONCENTRATION + sum(powers))
    log += sum(math.lgamma(prior + power) - math.lgamma(prior) for power in powers)
    log += sum(powers) * math.log(len(given))
    return min(1.0, math.exp(min(math.log(repeats) - log, 0.0)))
