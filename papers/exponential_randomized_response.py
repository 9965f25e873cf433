"""Exponential randomized response (ERR), as published: not private.

Its proof supposes that the set of "true" candidates is the same for neighbours. It is not, and the
loss grows without bound in the number of items: about εn/2 along a staircase of scores.

References
----------
G. Munilla Garrido, F. Matthes, "Exponential Randomized Response: Boosting Utility in
Differentially Private Selection", Lemma 1, Algorithm 3, equations 3, 12, 13, 15 and 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, pairwise, product
from math import exp, expm1, fsum, inf, log, log1p
from typing import NamedTuple

from mechanisms.audit.cases import Case, law_release
from mechanisms.errors import ParameterError, check_at_least, check_share
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source, choose, uniform_below
from papers.selection import exponential_pmf, exponents


class WorstLoss(NamedTuple):
    """The largest loss of a finite domain, and two neighbours that have it."""

    loss: float
    scores: tuple[int, ...]
    others: tuple[int, ...]


@frozen
class ExponentialRandomizedResponse:
    """With probability p one of the items near the best at random, else the exponential mechanism.

    ``p`` lies in [0, 1]; ``epsilon``, at least 0, is the nominal amount, for what the mechanism
    costs see ``certified_epsilon``; ``sensitivity``, Δ, is positive.

    Privacy
    -------
    *Not ε-differentially private*, whatever p > 0 (Theorem 1 is false). Scores (2, 0) and (1, 0)
    are neighbours, with p = 0.5 and ε = 0.1 they lose 0.732; :meth:`loss` gives the loss of any
    pair and :meth:`worst_loss` that of a finite domain. With p = 1 it is infinite. Neither the
    bound on the disclosure risk (Theorem 2) nor monotonicity (Lemma 2) holds.

    Utility
    -------
    Expected error Σ (q* − q_r) P(r); for scores (v, …, v, 0) equations 15 and 16. Below that of
    the exponential mechanism if a single item is near the best (Theorem 3).

    Examples
    --------
    >>> published = ExponentialRandomizedResponse(p=0.5, epsilon=0.1)
    >>> [round(x, 4) for x in published.pmf([5, 4, 1])]
    [0.4305, 0.4217, 0.1478]
    >>> [round(x, 4) for x in published.algorithm_pmf([5, 4, 1])]
    [0.4218, 0.4119, 0.1663]
    >>> round(published.loss([2, 0], [1, 0]), 3)
    0.732
    """

    p: float
    epsilon: float
    sensitivity: float = 1

    def __post_init__(self) -> None:
        check_share("p", self.p)
        check_at_least("epsilon", self.epsilon, 0)

    @property
    def certified_epsilon(self) -> float:
        """An epsilon that covers any number of items: nothing, unless p is 0."""
        return self.epsilon if self.p == 0 else inf

    def candidates(self, scores: Sequence[float]) -> frozenset[int]:
        """Return the "true" candidates: from the best down, no step larger than Δ."""
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        near = {order[0]}
        for above, below in pairwise(order):
            if not scores[above] - scores[below] <= self.sensitivity:
                break
            near.add(below)
        return frozenset(near)

    def pmf(self, scores: Sequence[float]) -> list[float]:
        """Return the probabilities of the items by Lemma 1, ``(n,)``."""
        return self._mixture(scores, self.p, 1 - self.p)

    def algorithm_pmf(self, scores: Sequence[float]) -> list[float]:
        """Return those with which Algorithm 3 as written ends.

        Its first phase takes a candidate with probability 1 − (1 − p/t)^t, not p, which differs as
        soon as there are t >= 2. With p = 1 and t >= 2 they do not sum to one: with probability
        :meth:`endless` its second phase never ends.
        """
        size = len(self.candidates(scores))
        missed = exp(size * log1p(-self.p / size)) if self.p < size else 0.0
        taken = -expm1(size * log1p(-self.p / size)) if self.p < size else 1.0
        return self._mixture(scores, taken, missed if self.p < 1 else 0.0)

    def endless(self, scores: Sequence[float]) -> float:
        """Return the probability that Algorithm 3 as written never ends."""
        size = len(self.candidates(scores))
        return (1 - 1 / size) ** size if self.p == 1 else 0.0

    def select(self, scores: Sequence[float], source: Source) -> int:
        """Return the place of an item by Algorithm 3 as written, refused where it may never end."""
        if self.endless(scores):
            raise ParameterError("p must be below 1 where there are several candidates")
        left = sorted(self.candidates(scores))
        taken = int(self.p / len(left) * GRAINS)
        while left:
            place = left.pop(uniform_below(len(left), source))
            if source.bits(64) < taken:
                return place
        powers = exponents(scores, self.epsilon, self.sensitivity)
        weights = {place: int(exp(power) * GRAINS) for place, power in enumerate(powers)}
        return choose(weights, source)

    def _mixture(self, scores: Sequence[float], true: float, false: float) -> list[float]:
        near = self.candidates(scores)
        law = exponential_pmf(scores, self.epsilon, self.sensitivity)
        return [
            (true / len(near) if place in near else 0.0) + false * share
            for place, share in enumerate(law)
        ]

    def log_pmf(self, scores: Sequence[float]) -> list[float]:
        """Return the logarithms of :meth:`pmf`, which do not underflow."""
        near, powers = self.candidates(scores), exponents(scores, self.epsilon, self.sensitivity)
        total = log(fsum(exp(power) for power in powers))
        law = []
        for place, power in enumerate(powers):
            if place in near and self.p > 0:
                law.append(log(self.p / len(near) + (1 - self.p) * exp(power - total)))
            else:
                law.append(log1p(-self.p) + power - total if self.p < 1 else -inf)
        return law

    def loss(self, scores: Sequence[float], others: Sequence[float]) -> float:
        """Return the largest absolute log-likelihood ratio between two score vectors."""
        return _loss(self.log_pmf(scores), self.log_pmf(others))

    def worst_loss(self, items: int, largest: int) -> WorstLoss:
        """Return the certified loss on a finite domain, by enumeration.

        Scores are integers in [0, largest], and neighbours differ by at most 1 in each.
        """
        law = cache(self.log_pmf)
        found = (
            WorstLoss(_loss(law(scores), law(others)), scores, others)
            for scores, others in _neighbours(items, largest)
        )
        return max(found, key=lambda worst: worst.loss)


def _loss(law: Sequence[float], other: Sequence[float]) -> float:
    pairs = zip(law, other, strict=True)
    return max(0.0 if one == two else abs(one - two) for one, two in pairs)


def _neighbours(items: int, largest: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield neighbours; scores fall, since the order of items changes nothing."""
    for scores in combinations_with_replacement(range(largest, -1, -1), items):
        for others in product(*(range(max(0, q - 1), min(largest, q + 1) + 1) for q in scores)):
            yield scores, others


def staircase(items: int) -> tuple[list[int], list[int]]:
    """Return the neighbours along which the loss grows without bound, about as εn/2."""
    below = list(range(items - 2, -1, -1))
    return [items, *below], [items - 1, *below]


def disclosure_risk(laws: Sequence[Sequence[float]]) -> float:
    """Return the largest posterior belief in one of several worlds (Definitions 4 and 5).

    By equation 3 it is at most 1/(1 + (worlds − 1) e^−ε) for what is ε-differentially private. All
    worlds, of each of which ``laws`` has the probabilities of the items, are equally likely before.
    """
    risks: list[float] = [
        max(column) / fsum(column) for column in zip(*laws, strict=True) if any(column)
    ]
    return max(risks)


class WorstCaseErrors(NamedTuple):
    """Expected errors for scores (v, …, v, 0), which are the worst for the private mechanisms.

    Errors of the exponential mechanism (equation 12), of permute-and-flip (equation 13), and of
    exponential randomized response, which is not private (equations 15 and 16, where k−1 is a
    misprint for n−1).
    """

    exponential: float
    permute_and_flip: float
    randomized_response: float


def worst_case_errors(
    n: int, v: float, p: float, epsilon: float, sensitivity: float = 1
) -> WorstCaseErrors:
    """Return the expected errors for n − 1 scores of a finite v <= 0 and one of 0.

    To the last digits also where the probability of v vanishes or n is large.
    """
    check_at_least("n", n, 1)
    response = ExponentialRandomizedResponse(p, epsilon, sensitivity)
    exponent = exponents([v, 0.0], epsilon, sensitivity)[0]
    chance = exp(exponent)
    wrong = (n - 1) * chance / (1 + (n - 1) * chance)
    near = len(response.candidates([0.0, v])) == 2 and n > 1
    random = p * (n - 1) / n if near else 0.0
    return WorstCaseErrors(-v * wrong, -v * _missed(n, exponent), -v * ((1 - p) * wrong + random))


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


def claims() -> list[Case]:
    """Return the claims of Theorem 1 for neighbours with other near-best items."""
    small, large = (ExponentialRandomizedResponse(0.5, epsilon) for epsilon in (0.1, 1.0))
    cases = [("scores (2, 0) and (1, 0)", small, ([2, 0], [1, 0]))]
    cases += [(f"a staircase of {n}", large, staircase(n)) for n in (10, 100)]
    return [
        Case(
            f"ERR, p = 1/2, {what}",
            "ERR, Theorem 1",
            err.epsilon,
            err.loss(one, other),
            law_release(err.pmf(one), err.pmf(other)),
            "neighbours have other near-best items",
        )
        for what, err, (one, other) in cases
    ]
