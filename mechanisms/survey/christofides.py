"""Christofides' cards, each respondent drawing from a full deck of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mechanisms.errors import ParameterError
from mechanisms.exact import ceil_fraction
from mechanisms.frozen import frozen
from mechanisms.survey.designs import SurveyDesign, odds
from mechanisms.survey.moments import Row, moments
from mechanisms.survey.rational import Number, log_ratio, rational

#: Decks have at most so many kinds of cards.
MAX_CARDS = 1024


@frozen
class Christofides(SurveyDesign):
    """Draw a card from 1 to L; a no answers its number k, a yes answers L + 1 − k.

    Parameters
    ----------
    cards : tuple of number
        The weights of the cards 1 to L, 2 <= L <= 1024, none negative: probabilities, or how many
        of each a deck has from which every respondent draws with replacement.

    Raises
    ------
    ParameterError
        A weight is negative or there are too few or too many, or the mean card is (L+1)/2, so that
        the mean answer says nothing about the share.

    Privacy
    -------
    Yes and no are neighbours; epsilon is the largest |ln(p_k / p_{L+1−k})|, exact (Theorem 5.4).

    Relaxation
    ----------
    Always; see :func:`mechanisms.survey.ladders.christofides_ladder`.

    Utility
    -------
    Variance v + V/(n (L+1−2μ)²) with μ and V mean and variance of a card and
    v = π(1−π)/n · (N−n)/(N−1) (Theorem 3.1). At a given epsilon least without middle cards, where
    for L = 3 it is Warner's (Theorem 5.5), and growing with their share.

    Use
    ---
    Where respondents answer with a number more readily than with yes or no. It costs precision
    against :class:`~mechanisms.survey.designs.Warner` as soon as there are middle cards.

    References
    ----------
    T. C. Christofides, "A Generalized Randomized Response Technique", Metrika 57, 2003.
    "An Improved Christofides Mechanism for Local Differential Privacy Framework", section 3.3.

    Examples
    --------
    >>> design = Christofides((0.4, 0.01, 0.59))
    >>> round(float(design.variance(0.1, 100, 100)), 6), round(design.epsilon, 6)
    (0.06606, 0.388658)
    >>> round(design.estimate([3, 1, 3, 2, 3]).value, 6)
    -0.552632
    """

    cards: tuple[Number, ...]

    def __post_init__(self) -> None:
        check_cards(self.cards)

    @classmethod
    def of(cls, epsilon: Number, middle: Number) -> Christofides:
        """Return the design with three cards of a given epsilon and share of middle cards.

        Parameters
        ----------
        epsilon : number
            In (0, 1000].
        middle : number
            In [0, 1), the probability p_2 of card 2; p_3/p_1 is e^epsilon.
        """
        share, likely = rational(middle, "middle"), odds(epsilon)
        if not 0 <= share < 1:
            raise ParameterError(f"middle must lie in [0, 1), not {middle}")
        low = (1 - share) / (1 + likely)
        return cls((low, share, likely * low))

    @property
    def probabilities(self) -> Row:
        """The probabilities of the cards."""
        weights = [rational(weight, "cards") for weight in self.cards]
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    @property
    def rows(self) -> tuple[Row, Row]:
        """Of the answers 1 to L."""
        return self.probabilities, self.probabilities[::-1]

    @property
    def answers(self) -> tuple[int, ...]:
        """1 to L."""
        return tuple(range(1, len(self.cards) + 1))


def cards_of(epsilon: Number, middle: Number, total: int = 1_000_000) -> tuple[int, int, int]:
    """Return three integer weights of cards that reach an epsilon from below.

    Parameters
    ----------
    epsilon : number
        In (0, 1000].
    middle : number
        In [0, 1), about the share of middle cards.
    total : int
        The sum of the weights; the larger, the closer.

    Raises
    ------
    ParameterError
        A parameter is outside its range, or the total too small for the epsilon.

    Examples
    --------
    >>> cards_of(0.4, 0.01)
    (397300, 9999, 592701)
    """
    low, _, _ = Christofides.of(epsilon, middle).probabilities
    few = ceil_fraction(total * low)
    many = int(few * odds(epsilon))
    if not few < many <= total - few:
        raise ParameterError(f"total must be larger for an epsilon of {float(epsilon):g}")
    return few, total - few - many, many


def cards_epsilon(cards: Sequence[Number]) -> float:
    """Return the loss of an answer (Theorem 5.4), the largest |ln(p_k / p_{L+1−k})|.

    Examples
    --------
    >>> round(cards_epsilon((0.1, 0.2, 0.3, 0.4)), 4)
    1.3863
    """
    weights = [rational(weight, "cards") for weight in cards]
    return max(log_ratio(one, other) for one, other in zip(weights, weights[::-1], strict=True))


def check_cards(cards: tuple[Number, ...]) -> None:
    """Refuse weights of cards from which no share can be estimated."""
    if not 2 <= len(cards) <= MAX_CARDS:
        raise ParameterError(f"cards must be 2 to {MAX_CARDS} weights, not {len(cards)}")
    weights = [rational(weight, "cards") for weight in cards]
    if not all(weight >= 0 for weight in weights) or not any(weights):
        raise ParameterError(f"cards must not be negative, and not all 0: {cards}")
    total = sum(weights)
    mean = moments([weight / total for weight in weights], range(1, len(cards) + 1))[0]
    if mean == Fraction(len(cards) + 1, 2):
        raise ParameterError(
            f"cards must not have their mean in the middle: the mean answer would be {float(mean)} "
            "whatever the share"
        )
