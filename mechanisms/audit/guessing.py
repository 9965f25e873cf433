"""Guess a fair secret bit from what a release shows, by a rule learnt from other releases.

Chains are cut in three. The first part estimates how likely each *cell*, each outcome of a view,
makes either value, and ranks the cells by how sure that is. The second chooses the view, and on how
many of its leading cells to guess: the best distinguishing event. Only the third part, which none
of this depends on, is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bools, Floats, Ints, Words
from mechanisms.errors import ParameterError, check_probability
from mechanisms.halving import turning
from mechanisms.randomness import Source

#: A tenth of the chains ranks the cells, and as many choose among views and events.
PART = 10
#: Numbers that take more values than this are cut into so many quantiles, fewer for few chains.
BINS = 512
#: Chains of a part that a quantile has at least, but for few chains.
_IN_A_BIN = 16
#: How sure a rank, and a choice, is to be: of many events, small ones look good by chance.
_RANKED, _SURE = 0.9, 0.999
#: The probability taken where nothing is that sure, for want of chains.
_LESS_SURE = 0.9
#: An event this part as good as the best is taken if it happens more often.
_NEARLY = 0.985
#: A view has to promise more by this factor than one before it.
_BETTER = 1.08


def lower_limit(successes: ArrayLike, trials: ArrayLike, confidence: float) -> Floats:
    """Return the one-sided Clopper–Pearson limit of a probability, from successes in trials.

    It exceeds the true probability with probability at most ``1 - confidence``, exactly.

    References
    ----------
    C. J. Clopper, E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case
    of the Binomial", Biometrika 26(4), 1934.

    Examples
    --------
    >>> round(float(lower_limit(90, 100, 0.95)), 4)
    0.8363
    """
    from scipy.special import betaincinv

    check_probability("confidence", confidence)
    right, tried = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    some = right > 0
    found = betaincinv(np.where(some, right, 1.0), tried - right + 1, 1 - confidence)
    return np.where(some, found, 0.0)


def loss_bound(right: int, guesses: int, confidence: float) -> float:
    """Return the epsilon that so many right guesses of a fair secret bit prove.

    Whatever is seen, an ε-private release leaves the likelier value of a fair bit a probability of
    at most e^ε/(1+e^ε). So the right ones among any guesses that are chosen by what is seen alone
    are stochastically below a binomial variable of that probability, and its Clopper–Pearson limit
    bounds ε. Never negative; 0 without a guess.

    >>> round(loss_bound(7_400, 10_000, 0.95), 3)
    1.008
    >>> loss_bound(0, 0, 0.95)
    0.0
    """
    from scipy.special import betaincinv

    check_probability("confidence", confidence)
    if not right > 0:
        return 0.0
    # The limit of the wrong ones keeps its digits where nearly all guesses are right.
    wrong = float(betaincinv(guesses - right + 1, right, confidence))
    return max(0.0, log1p(-wrong) - log(wrong)) if wrong < 1 else 0.0


@dataclass(frozen=True)
class Attack:
    """Right guesses of fair secret bits, each of which chose between two inputs.

    They are of chains that were not used to find the rule; ``view`` says what that looks at.
    ``chains`` is how many were drawn in all.
    """

    right: int
    guesses: int
    view: str
    chains: int
    confidence: float

    @property
    def epsilon(self) -> float:
        """The proved lower bound; above the true loss with probability 1 - confidence at most."""
        return loss_bound(self.right, self.guesses, self.confidence)

    def exceeds(self, epsilon: float, false_alarm: float) -> bool:
        """Whether the loss is proved to be above ``epsilon``, but for a rate of false alarms."""
        return epsilon < inf and loss_bound(self.right, self.guesses, 1 - false_alarm) > epsilon


def provable(epsilon: float, guesses: int, false_alarm: float) -> float:
    """Return the loss that so many guesses prove to be above ``epsilon``, 19 times out of 20.

    Every guess is right as often as that loss allows. An attack that can guess seldom needs more.

    >>> round(provable(1.0, 32_000, 1e-6 / 40), 2)
    1.09
    """

    def unproved(loss: float) -> bool:
        p = 1 / (1 + exp(-loss))
        right = int(guesses * p - 1.645 * sqrt(guesses * p * (1 - p)))
        return loss_bound(right, guesses, 1 - false_alarm) <= epsilon

    return turning(unproved, epsilon, 50.0)[1]


def fair_bits(n: int, source: Source) -> Bools:
    """Return ``(n,)`` independent fair bits."""
    return (source.words(n) >> np.uint64(63)).astype(bool)


@dataclass(frozen=True)
class Rule:
    """On which cells, sorted, to guess what."""

    cells: Words
    values: Bools

    def score(self, keys: Words, secrets: Bools) -> tuple[int, int]:
        """Return how many guesses are right, and how many there are."""
        if not len(self.cells):
            return 0, 0
        places = np.minimum(np.searchsorted(self.cells, keys), len(self.cells) - 1)
        known = self.cells[places] == keys
        return int((known & (self.values[places] == secrets)).sum()), int(known.sum())


def guess(views: Mapping[str, Words], secrets: Bools, confidence: float) -> Attack:
    """Attack releases of which each hides one of two inputs, by a fair secret bit of its own.

    ``views`` are ways to look at a release: any functions of what is seen, the most natural one
    first. A later one is taken only if it promises more by a good part. The bound holds whatever
    they are, since no secret of the counted part was looked at before the rule was fixed: given all
    that is seen, the guesses are independent, each right with probability at most e^ε/(1+e^ε).
    """
    n = len(secrets)
    part = n // PART
    if not (part and views):
        raise ParameterError(f"an attack needs a view and at least {PART} chains, not {n}")
    learning = {name: keys[: 2 * part] for name, keys in views.items()}
    name, rule = best_rule(learning, secrets[: 2 * part])
    right, guesses = rule.score(views[name][2 * part :], secrets[2 * part :])
    return Attack(right, guesses, name, n, confidence)


def best_rule(views: Mapping[str, Words], secrets: Bools) -> tuple[str, Rule]:
    """Return the view that promises most, and its rule: half of ``n`` ranks, half chooses."""
    half = len(secrets) // 2
    first, second = slice(half), slice(half, None)
    for sure in (_SURE, _LESS_SURE):
        found: list[tuple[float, str, Rule]] = []
        for name, keys in views.items():
            parts = (keys[first], secrets[first]), (keys[second], secrets[second])
            worth, rule = _learn(*parts, sure)
            if not found or worth > found[-1][0] * _BETTER:
                found.append((worth, name, rule))
        if found[-1][0] > 0:
            break
    return found[-1][1:]


Part = tuple["Words", "Bools"]


def _learn(ranking: Part, choosing: Part, confidence: float) -> tuple[float, Rule]:
    """Return a rule from two disjoint sets of chains, and the epsilon that it promises."""
    cells, places = np.unique(ranking[0], return_inverse=True)
    total = np.bincount(places, minlength=len(cells))
    ones = np.bincount(places[ranking[1]], minlength=len(cells))
    values = 2 * ones > total
    order = np.argsort(-lower_limit(np.maximum(ones, total - ones), total, _RANKED), kind="stable")
    rank = np.empty(len(cells), dtype=np.int64)
    rank[order] = np.arange(len(cells))

    keys, secrets = choosing
    found = np.minimum(np.searchsorted(cells, keys), len(cells) - 1)
    known = cells[found] == keys
    ranks, right = rank[found[known]], values[found[known]] == secrets[known]
    guesses = np.cumsum(np.bincount(ranks, minlength=len(cells)))
    hits = np.cumsum(np.bincount(ranks[right], minlength=len(cells)))
    sure = np.clip(lower_limit(hits, guesses, confidence), 0.5, 1 - 1e-12)
    worth = np.log(sure) - np.log1p(-sure)
    # Events that are nearly as good give way to the one that happens most often.
    last = int(np.flatnonzero(worth >= _NEARLY * worth.max())[-1])
    taken = np.sort(order[: last + 1])
    return float(worth.max()), Rule(cells[taken], values[taken])


def key_of(columns: Ints) -> Words:
    """Return a number for each row of ``(n, k)`` integers, the same for equal rows.

    Different rows share one by a collision of 64-bit hashes only, which would cost an attack
    power, never its validity.
    """
    from mechanisms.coins import mix64s

    key = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        key = mix64s(key ^ np.ascontiguousarray(column).view(np.uint64))
    return key


@dataclass(frozen=True)
class Quantiles:
    """Cells of a number: its millionths, or if it takes many values the quantile between edges."""

    edges: Ints | None

    @staticmethod
    def of(scores: Floats) -> Quantiles:
        """Learn cells from the numbers of a part of the chains."""
        fine = _millionths(scores)
        bins = min(BINS, max(8, len(scores) // _IN_A_BIN))
        if len(np.unique(fine)) <= bins:
            return Quantiles(None)
        ends = np.linspace(0, 1, bins + 1)[1:-1]
        return Quantiles(np.unique(np.quantile(fine, ends, method="nearest")))

    def keys(self, scores: Floats) -> Words:
        """Return the cells of ``(n,)`` numbers."""
        fine = _millionths(scores)
        if self.edges is not None:
            fine = np.searchsorted(self.edges, fine).astype(np.int64)
        return fine.view(np.uint64)


def _millionths(scores: Floats) -> Ints:
    return np.rint(scores * 1e6).astype(np.int64)


def score_key(scores: Floats) -> Words:
    """Return the cells of ``(n,)`` numbers; they are learnt from the part that ranks cells."""
    return Quantiles.of(scores[: max(1, len(scores) // PART)]).keys(scores)
