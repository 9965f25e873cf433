"""Survey designs: their channels, their losses, their estimators and the variance of those.

A respondent answers with one of L numbers, and how probable each is depends on the true yes or no
alone. An answer o contributes (o − m0)/(m1 − m0), m0 and m1 the mean answers of a no and of a yes:
its expectation is the respondent's true 0 or 1. All in exact fractions. Variances are over both
the draw of n respondents from a population of N without replacement and the randomization; with
N = n (a census) only the randomization is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, check_positive, check_probability, check_share
from mechanisms.exact import ceil_fraction, exp_bounds, log_ratio
from mechanisms.frozen import NamedTuple, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mechanisms.estimate import Estimate

Number = Fraction | float | int
#: Probabilities of the answers of a design.
Row = tuple[Fraction, ...]
#: Decks have at most so many kinds of cards.
MAX_CARDS = 1024


class Contribution(NamedTuple):
    """The unbiased contributions of a level's answers; their variances for a no, and for a yes."""

    scores: tuple[float, ...]
    no: float
    yes: float


@frozen
class SurveyDesign:
    """How a yes and a no become answers.

    ``no`` and ``yes`` are the probabilities of the answers of each, whose means differ; ``numbers``
    are the answers.

    >>> design = warner(0.6)
    >>> float(design.variance(0.1, 100, 100)), round(design.epsilon, 6)
    (0.06, 0.405465)
    """

    no: Row
    yes: Row
    numbers: tuple[int, ...]

    def __post_init__(self) -> None:
        low, high = self.means()
        if low == high:
            raise ParameterError(
                f"the mean answer does not depend on the truth: it is {float(low)} whatever the "
                "share"
            )

    @property
    def channel(self) -> Channel:
        """The design as an exact channel: input 0 is no, input 1 is yes."""
        return Channel((self.no, self.yes))

    @property
    def epsilon(self) -> float:
        """The loss of one answer: the largest log-likelihood ratio, infinite where it is."""
        return max(abs(log_ratio(no, yes)) for no, yes in zip(self.no, self.yes, strict=True))

    @property
    def certified(self) -> int:
        """The same in micro-epsilon, exact, rounded up; ``ParameterError`` if infinite."""
        return self.channel.certified

    def means(self) -> tuple[Fraction, Fraction]:
        return _moments(self.no, self.numbers)[0], _moments(self.yes, self.numbers)[0]

    def noise(self, share: Number) -> Fraction:
        """Return the variance that one respondent's randomization adds, at a true share of yes."""
        true = yes_share(share)
        no, yes = self._spreads()
        return (1 - true) * no + true * yes

    def variance(self, share: Number, n: int, population: int) -> Fraction:
        """Return the exact variance with ``n`` of a ``population``, drawn without replacement."""
        return sampling_variance(yes_share(share), n, population) + self.noise(share) / n

    @property
    def contribution(self) -> Contribution:
        """Contributions of the answers to the share of yes."""
        low, high = self.means()
        scores = tuple(float((number - low) / (high - low)) for number in self.numbers)
        no, yes = self._spreads()
        return Contribution(scores, float(no), float(yes))

    def estimate(self, answers: Sequence[int]) -> Estimate:
        """Estimate the share of yes from answers of respondents; see :func:`estimate_share`."""
        counts = dict.fromkeys(self.numbers, 0)
        for answer in answers:
            if answer not in counts:
                raise ParameterError("an answer is not one of this design")
            counts[answer] += 1
        return estimate_share([self.contribution], [list(counts.values())])

    def _spreads(self) -> tuple[Fraction, Fraction]:
        low, high = self.means()
        no, yes = (_moments(row, self.numbers)[1] for row in (self.no, self.yes))
        return no / (high - low) ** 2, yes / (high - low) ** 2


def warner(p: Number) -> SurveyDesign:
    """Return Warner's design, in which p, in (0, 1) without 1/2, is the chance of the truth."""
    likely = _chance(p, "p")
    if likely == Fraction(1, 2):
        raise ParameterError(f"p must not be 1/2, not {p}")
    return SurveyDesign((likely, 1 - likely), (1 - likely, likely), (0, 1))


def warner_of(epsilon: Number) -> SurveyDesign:
    """Return Warner's design of a given epsilon in (0, 1000]."""
    likely = odds(epsilon)
    return warner(likely / (1 + likely))


def simmons(p: Number, y: Number) -> SurveyDesign:
    """Return Simmons' design: p is the chance of the sensitive question, y the yes of the other."""
    asked = _chance(p, "p")
    b = (1 - asked) * _chance(y, "y")
    a = asked + b
    return SurveyDesign((1 - b, b), (1 - a, a), (0, 1))


def simmons_of(epsilon: Number, y: Number = Fraction(1, 2)) -> SurveyDesign:
    """Return the design of a given epsilon in (0, 1000] and unrelated question."""
    share = _chance(y, "y")
    asked = (odds(epsilon) - 1) * min(share, 1 - share)
    return simmons(asked / (1 + asked), share)


def christofides(cards: Sequence[Number]) -> SurveyDesign:
    """Return Christofides' design.

    ``cards`` are the weights of the cards 1 to L, 2 <= L <= 1024, none negative: probabilities, or
    how many of each a deck has from which every respondent draws with replacement. Their mean is
    not (L+1)/2, with which the mean answer would say nothing about the share.

    >>> design = christofides((0.4, 0.01, 0.59))
    >>> round(float(design.variance(0.1, 100, 100)), 6), round(design.epsilon, 6)
    (0.06606, 0.388658)
    """
    if not 2 <= len(cards) <= MAX_CARDS:
        raise ParameterError(f"cards must be 2 to {MAX_CARDS} weights, not {len(cards)}")
    weights = [rational(weight, "cards") for weight in cards]
    if not all(weight >= 0 for weight in weights) or not any(weights):
        raise ParameterError(f"cards must not be negative, and not all 0: {cards}")
    row = tuple(weight / sum(weights) for weight in weights)
    try:
        return SurveyDesign(row, row[::-1], tuple(range(1, len(cards) + 1)))
    except ParameterError as error:
        raise ParameterError(f"cards must not have their mean in the middle: {error}") from None


def christofides_of(epsilon: Number, middle: Number) -> SurveyDesign:
    """Return the design of p_1, p_2 = ``middle`` in [0, 1), and p_3 = e^epsilon p_1."""
    share, likely = rational(middle, "middle"), odds(epsilon)
    if not 0 <= share < 1:
        raise ParameterError(f"middle must lie in [0, 1), not {middle}")
    low = (1 - share) / (1 + likely)
    return christofides((low, share, likely * low))


def cards_of(epsilon: Number, middle: Number, total: int = 1_000_000) -> tuple[int, int, int]:
    """Return three integer weights, of sum ``total``, that reach an epsilon from below.

    Epsilon lies in (0, 1000]; ``middle``, in [0, 1), is about the share of middle cards. The larger
    the total, the closer; a ``ParameterError`` where it is too small.
    """
    few = ceil_fraction(total * christofides_of(epsilon, middle).no[0])
    many = int(few * odds(epsilon))
    if not few < many <= total - few:
        raise ParameterError(f"total must be larger for an epsilon of {float(epsilon):g}")
    return few, total - few - many, many


def estimate_share(parts: Sequence[Contribution], counts: Sequence[Sequence[int]]) -> Estimate:
    """Estimate the share of yes among the respondents, all levels with equal weights a report.

    ``parts`` are one a level; ``counts``, ``(levels, L)``, are respondents by level and answer. The
    standard error covers the randomization alone, the respondents being those who answered, and
    below 200 respondents the interval inverts a test.
    """
    from mechanisms.estimate import ShareNoise, nothing, share_estimate

    by_level = tuple(sum(row) for row in counts)
    n = sum(by_level)
    if n == 0:
        return nothing(by_level)
    total = base = spread = step = least = most = 0.0
    slopes = []
    for part, seen, reports in zip(parts, counts, by_level, strict=True):
        yes = sum(score * count for score, count in zip(part.scores, seen, strict=True))
        slope = part.yes - part.no
        total += yes
        base += reports * part.no
        # Each level's true yeses are estimated, but kept where they can be.
        spread += slope * min(max(yes, 0.0), reports)
        slopes.append((reports, slope))
        if reports:
            least, most = min(least, *part.scores), max(most, *part.scores)
            step = max(step, max(part.scores) - min(part.scores))
    noise = ShareNoise(n, base, tuple(slopes), step)
    error = math.sqrt(max(base + spread, 0.0)) / n
    return share_estimate(total / n, error, by_level, noise, (float(least), float(most)))


def sampling_variance(share: Fraction, n: int, population: int) -> Fraction:
    """Return ``share (1 - share) / n * (N - n) / (N - 1)``, that of a draw without replacement."""
    if not 1 <= n <= population:
        raise ParameterError(f"n must lie in [1, population = {population}], not {n}")
    if n == population:
        return Fraction(0)
    return share * (1 - share) / n * Fraction(population - n, population - 1)


def yes_share(value: Number) -> Fraction:
    share = rational(value, "share")
    check_share("share", share)
    return share


def odds(epsilon: Number) -> Fraction:
    """Return e^epsilon to 49 digits, never more than it, after a check."""
    exact = rational(epsilon, "epsilon")
    check_positive(epsilon)
    return exp_bounds(exact)[0]


def rational(value: Number, name: str) -> Fraction:
    """Return a finite number exactly; a float is taken as the decimal number that it prints as."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ParameterError(f"{name} must be a finite number, not {value}")
        return Fraction(repr(float(value)))
    return Fraction(value)


def _chance(value: Number, name: str) -> Fraction:
    check_probability(name, value)
    return rational(value, name)


def _moments(row: Row, numbers: Sequence[int]) -> tuple[Fraction, Fraction]:
    mean = sum((p * k for p, k in zip(row, numbers, strict=True)), Fraction(0))
    square = sum((p * (k - mean) ** 2 for p, k in zip(row, numbers, strict=True)), Fraction(0))
    return mean, square
