"""The improved Christofides mechanism: one deck for all, drawn without replacement.

It is published as locally differentially private. It is not: the cards that others drew say which
are left. :class:`ImprovedChristofides` carries both its published epsilon and the true one, which
is infinite for the deck of a census; no plan can choose it. The tables compare designs of the same
nominal epsilon, as the paper does.

References
----------
"An Improved Christofides Mechanism for Local Differential Privacy Framework", section 4 and
Theorems 4.1, 4.2, 5.6, 5.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from mechanisms.arrays import Bools
from mechanisms.audit.cases import Case, Views
from mechanisms.audit.guessing import fair_bits, key_of
from mechanisms.errors import ParameterError, check_at_least
from mechanisms.exact import ceil_fraction, log_ratio
from mechanisms.randomness import Source
from mechanisms.survey.design import (
    Number,
    SurveyDesign,
    christofides,
    christofides_of,
    rational,
    sampling_variance,
    warner_of,
    yes_share,
)

#: The columns of the paper's tables.
EPSILONS = (0.01, 0.05, 0.25, 0.5)


@dataclass(frozen=True)
class ImprovedChristofides:
    """Christofides' cards from a single deck that all respondents share; not private.

    ``deck`` is how many cards it has of each number 1 to L.

    Privacy
    -------
    *Not locally differentially private.* The published epsilon (Theorem 5.6,
    :attr:`nominal_epsilon`) holds only for an adversary who knows nothing of any other respondent.
    One who knows the values of the others and sees all reports knows their cards, and so which are
    left for the last: the true epsilon with n respondents is :meth:`certified_epsilon`, the largest
    ln(c_{L+1−k}/(c_k − (n−1))), infinite as soon as n − 1 reaches a count c_k. A deck of as many
    cards as respondents (the published use) reveals the value whenever its card is not the middle
    one: :meth:`revealed`.

    Utility
    -------
    Variance v + V/(n (L+1−2μ)²) · [M − n((1−2π)² + 4v)]/(M−1) with M cards, μ and V their mean and
    variance, v = π(1−π)/n · (N−n)/(N−1). In a census with M = n it is
    V/(L+1−2μ)² · 4π(1−π)/(n−1). It is below that of a full deck for each respondent unless
    |π − 1/2| < 1/(2√n) (Theorem 4.2, a census).

    Examples
    --------
    >>> census = ImprovedChristofides((40, 1, 59))
    >>> round(census.nominal_epsilon, 4), census.certified_epsilon(100), float(census.revealed)
    (0.3887, inf, 0.99)
    >>> round(ImprovedChristofides((4000, 100, 5900)).certified_epsilon(100), 4)
    0.4137
    """

    deck: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.deck)

    @property
    def design(self) -> SurveyDesign:
        """The same cards with replacement, for each respondent a full deck."""
        return christofides(self.deck)

    @property
    def nominal_epsilon(self) -> float:
        """The published epsilon, which is not the mechanism's."""
        return self.design.epsilon

    def certified_epsilon(self, n: int) -> float:
        """Return the true loss of one of n <= M respondents; infinite where a card can run out."""
        return deck_epsilon(self.deck, n)

    @property
    def revealed(self) -> Fraction:
        """The probability that, in a census of M respondents, the last card reveals a value."""
        middle = self.deck[len(self.deck) // 2] if len(self.deck) % 2 else 0
        return 1 - Fraction(middle, self.size)


def deck_epsilon(deck: Sequence[int], n: int) -> float:
    """Return the true loss of a deck of counts; see :class:`ImprovedChristofides`."""
    check_at_least("n", n, 1)
    losses = [0.0]
    for place, (count, mirrored) in enumerate(zip(deck, reversed(deck), strict=True)):
        if 2 * place + 1 != len(deck):
            left = Fraction(max(0, count - (n - 1)))
            losses.append(log_ratio(Fraction(mirrored), left))
    return max(losses)


def deck_variance(
    design: SurveyDesign, size: int, share: Number, n: int, population: int
) -> Fraction:
    """Return the variance of the estimated share from a deck without replacement (Theorem 4.1).

    The deck has ``size`` cards, M >= n, of the composition of ``design``; ``share`` is the true one
    of yes, and ``n`` respondents are drawn from a population without replacement.
    """
    true = yes_share(share)
    sampling = sampling_variance(true, n, population)
    if size == 1:
        return sampling
    drawn = size - n * ((1 - 2 * true) ** 2 + 4 * sampling)
    return sampling + design.noise(0) / n * drawn / (size - 1)


def sample_size(design: SurveyDesign, share: Number, variance: Number) -> int:
    """Return the smallest census of a full deck a respondent with variance at most as given."""
    return ceil_fraction(design.noise(share) / _positive(variance))


def census_size(design: SurveyDesign, share: Number, variance: Number) -> int:
    """Return the smallest n with variance at most as given, for M = N = n cards."""
    true = yes_share(share)
    return 1 + ceil_fraction(4 * true * (1 - true) * design.noise(0) / _positive(variance))


def _positive(variance: Number) -> Fraction:
    if not variance > 0:
        raise ParameterError(f"variance must be above 0, not {variance}: no n reaches that")
    return rational(variance, "variance")


def worse_interval(epsilon: Number, middle: Number, n: int) -> float:
    """Return the length of the interval of shares where the deck has more variance than Warner's.

    With a share ``middle`` of middle cards, of three, in a census of n: √(1 − R(n−1)/n), R the
    ratio of Warner's noise to that of Christofides' cards at the same nominal epsilon; the interval
    is centred at 1/2. Without middle cards it is 1/√n (Theorem 4.2).
    """
    check_at_least("n", n, 1)
    ratio = warner_of(epsilon).noise(0) / christofides_of(epsilon, middle).noise(0)
    return math.sqrt(1 - ratio * (n - 1) / n)


def interval_table(n: int = 10_000) -> tuple[tuple[float, ...], ...]:
    """Return Table 1: a row for each share of middle cards, a column for each of EPSILONS."""
    return tuple(
        tuple(worse_interval(epsilon, middle, n) for epsilon in EPSILONS) for middle in (0.01, 0.05)
    )


def sample_size_table() -> dict[str, tuple[int, ...]]:
    """Return Table 2: the smallest census of a given variance, a column for each of EPSILONS.

    The share and its variance are 0.1, and a hundredth of the cards are middle ones. Such a
    variance is a standard error of 0.32 of a share.
    """
    share = variance = 0.1
    cards = [christofides_of(epsilon, 0.01) for epsilon in EPSILONS]
    return {
        "warner": tuple(sample_size(warner_of(e), share, variance) for e in EPSILONS),
        "christofides": tuple(sample_size(design, share, variance) for design in cards),
        "improved": tuple(census_size(design, share, variance) for design in cards),
    }


def claims() -> list[Case]:
    """Return the claim of Theorem 5.6, of a census of 100."""
    deck = ImprovedChristofides((40, 1, 59))
    return [
        Case(
            "Improved Christofides, census of 100",
            "Improved Christofides, Theorem 5.6",
            deck.nominal_epsilon,
            deck_epsilon(deck.deck, deck.size),
            partial(_census, deck),
            "other answers reveal the last card",
            10,
        )
    ]


def _census(deck: ImprovedChristofides, secrets: Bools, source: Source) -> Views:
    """Return the cards of a census; the attacker knows all truths but one, and sees all answers."""
    numbers = np.repeat(np.arange(1, len(deck.deck) + 1), deck.deck)
    mirror = len(deck.deck) + 1
    words = source.words(len(secrets) * deck.size).reshape(-1, deck.size)
    cards = numbers[np.argsort(words, axis=1)]
    truths = fair_bits(cards.size, source).reshape(cards.shape)
    truths[:, 0] = secrets
    answers = np.where(truths, cards, mirror - cards)
    others = np.where(truths[:, 1:], answers[:, 1:], mirror - answers[:, 1:])
    left = numbers.sum() - others.sum(axis=1)
    return {"the last card and its answer": key_of(np.stack([left, answers[:, 0]], axis=1))}
