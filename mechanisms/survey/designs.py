"""What every survey design shares: its channel, its loss, its estimator and their variance.

A respondent answers with one of L numbers, and how probable each is depends on the true yes or no
alone. The share of yes is estimated from the mean of the answers. All variances are over both the
draw of n respondents from a population of N without replacement and the randomization; with N = n
(a census) only the randomization is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.exact import ceil_fraction, exp_bounds
from mechanisms.frozen import frozen
from mechanisms.survey.estimates import contribution, estimate_share
from mechanisms.survey.moments import Row, moments
from mechanisms.survey.rational import Number, log_ratio, rational


def sampling_variance(share: Fraction, n: int, population: int) -> Fraction:
    """Return the variance of the true share in a sample drawn without replacement.

    ``share (1 - share) / n * (N - n) / (N - 1)``; 0 for a census.
    """
    if not 1 <= n <= population:
        raise ParameterError(f"n must lie in [1, population = {population}], not {n}")
    if n == population:
        return Fraction(0)
    return share * (1 - share) / n * Fraction(population - n, population - 1)


def yes_share(value: Number) -> Fraction:
    """Return a share of yes exactly, after a check."""
    share = rational(value, "share")
    if not 0 <= share <= 1:
        raise ParameterError(f"share must lie in [0, 1], not {value}")
    return share


@frozen
class SurveyDesign(ABC):
    """How a yes and a no become answers; immutable, in exact fractions."""

    @property
    @abstractmethod
    def rows(self) -> tuple[Row, Row]:
        """The probabilities of the answers of a no, and of a yes."""

    @property
    @abstractmethod
    def answers(self) -> tuple[int, ...]:
        """The number that each answer is."""

    @property
    def channel(self) -> Channel:
        """The design as an exact channel: input 0 is no, input 1 is yes."""
        return Channel(self.rows)

    @property
    def epsilon(self) -> float:
        """The loss of one answer: the largest log-likelihood ratio, infinite where it is."""
        return max(abs(log_ratio(no, yes)) for no, yes in zip(*self.rows, strict=True))

    @property
    def certified(self) -> int:
        """The same in micro-epsilon, exact and rounded up.

        Raises
        ------
        ParameterError
            No epsilon covers the design.
        """
        return self.channel.certified

    def means(self) -> tuple[Fraction, Fraction]:
        """Return the mean answer of a no, and of a yes."""
        no, yes = (moments(row, self.answers)[0] for row in self.rows)
        return no, yes

    def noise(self, share: Number) -> Fraction:
        """Return the variance that the randomization of one respondent adds to the estimate.

        Parameters
        ----------
        share : number in [0, 1]
            The true share of yes.
        """
        true = yes_share(share)
        (no, spread_no), (yes, spread_yes) = (moments(row, self.answers) for row in self.rows)
        return ((1 - true) * spread_no + true * spread_yes) / (yes - no) ** 2

    def variance(self, share: Number, n: int, population: int) -> Fraction:
        """Return the exact variance of the estimated share.

        Parameters
        ----------
        share : number in [0, 1]
            The true share of yes in the population.
        n : int
            Respondents, in [1, population].
        population : int
            From which they are drawn without replacement.
        """
        return sampling_variance(yes_share(share), n, population) + self.noise(share) / n

    def sample_size(self, share: Number, variance: Number, population: int | None = None) -> int:
        """Return the smallest sample whose estimate has at most a given variance.

        Parameters
        ----------
        share : number in [0, 1]
            The true share of yes; for a design whose noise depends on it, or a sample that is no
            census, the worst one if it is not known.
        variance : number, positive
        population : int or None
            None for a census, in which the population is the sample.

        Raises
        ------
        ParameterError
            A parameter is outside its range, or not even everyone is enough.

        Examples
        --------
        >>> Warner.of(0.01).sample_size(0.1, 0.1)
        100000
        """
        target = rational(variance, "variance")
        if not target > 0:
            raise ParameterError(f"variance must be positive, not {variance}")
        noise = self.noise(share)
        if population is None or population == 1:
            least = max(1, ceil_fraction(noise / target))
        else:
            spread = yes_share(share) * (1 - yes_share(share)) / (population - 1)
            least = max(1, ceil_fraction((spread * population + noise) / (target + spread)))
        if population is not None and least > population:
            raise ParameterError(
                f"a population of {population} is too small for a variance of {float(target):g}"
            )
        return least

    def estimate(self, answers: Sequence[int]) -> Estimate:
        """Estimate the share of yes among the respondents from their answers.

        Parameters
        ----------
        answers : sequence of int
            Members of :attr:`answers`.

        Returns
        -------
        Estimate
            Unbiased; the error covers the randomization alone, the respondents being those who
            answered.

        Raises
        ------
        ParameterError
            An answer is not one of this design.
        """
        counts = [0] * len(self.answers)
        places = {answer: place for place, answer in enumerate(self.answers)}
        for answer in answers:
            if answer not in places:
                raise ParameterError("an answer is not one of this design")
            counts[places[answer]] += 1
        return estimate_share([contribution(self.rows, self.answers)], [counts])


def odds(epsilon: Number) -> Fraction:
    """Return e^epsilon to 49 digits, never more than it.

    Raises
    ------
    ParameterError
        Epsilon is not in (0, 1000].
    """
    exact = rational(epsilon, "epsilon")
    if not 0 < exact <= 1000:
        raise ParameterError(f"epsilon must lie in (0, 1000], not {epsilon}")
    return exp_bounds(exact)[0]


@frozen
class Warner(SurveyDesign):
    """Answer the sensitive question truly with probability p, and its contrary otherwise.

    Parameters
    ----------
    p : number
        In (0, 1) without 1/2, of the sensitive statement.

    Raises
    ------
    ParameterError
        The parameter is outside its range.

    Privacy
    -------
    Yes and no are neighbours; epsilon = |ln(p/(1−p))|, exact (Theorem 5.1). That somebody answered
    is not protected.

    Relaxation
    ----------
    Always: binary randomized response; see :func:`mechanisms.survey.ladders.warner_ladder`.

    Utility
    -------
    Variance v + p(1−p)/(n (2p−1)²) with v = π(1−π)/n · (N−n)/(N−1). With p = e^ε/(1+e^ε) the noise
    is 1/(4n sinh²(ε/2)), the least that any answer with the same epsilon can have.

    Use
    ---
    The default for one yes-or-no question. The others here trade some of its precision for a
    question that respondents may find easier to answer.

    References
    ----------
    S. L. Warner, "Randomized Response: A Survey Technique for Eliminating Evasive Answer Bias",
    JASA 60(309), 1965. "An Improved Christofides Mechanism for Local Differential Privacy
    Framework", section 3.1, equation 1.

    Examples
    --------
    >>> design = Warner(0.6)
    >>> float(design.variance(0.1, 100, 100)), round(design.epsilon, 6)
    (0.06, 0.405465)
    """

    p: Number

    def __post_init__(self) -> None:
        p = rational(self.p, "p")
        if not 0 < p < 1 or p == Fraction(1, 2):
            raise ParameterError(f"p must lie in (0, 1) and not be 1/2, not {self.p}")

    @classmethod
    def of(cls, epsilon: Number) -> Warner:
        """Return the design of a given epsilon in (0, 1000]."""
        likely = odds(epsilon)
        return cls(likely / (1 + likely))

    @property
    def rows(self) -> tuple[Row, Row]:
        """Of the answers no and yes."""
        p = rational(self.p, "p")
        return (p, 1 - p), (1 - p, p)

    @property
    def answers(self) -> tuple[int, ...]:
        """0 is no, 1 is yes."""
        return 0, 1


@frozen
class Simmons(SurveyDesign):
    """Answer the sensitive question with probability p, and an unrelated one otherwise.

    Parameters
    ----------
    p : number
        In (0, 1), of the sensitive question.
    y : number
        In (0, 1), the known share of yes to the unrelated one.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Yes and no are neighbours; with a = p+(1−p)y and b = (1−p)y epsilon is the larger of ln(a/b) and
    ln((1−b)/(1−a)), exact (Theorem 5.2), for an adversary who does not know the respondent's answer
    to the unrelated question. Of somebody whose answer to it is known, a contrary report reveals
    the sensitive one. The ladder has no such adversary: it draws that answer at random.

    Relaxation
    ----------
    Always, with y fixed; see :func:`mechanisms.survey.ladders.simmons_ladder`.

    Utility
    -------
    Variance v + [π a(1−a) + (1−π) b(1−b)]/(n p²), v as in :class:`Warner`. At a given epsilon least
    for y = 1/2, where it is Warner's (Theorem 5.3).

    Use
    ---
    Where respondents find a question with a harmless alternative easier to answer. A y other than
    1/2 only costs precision.

    References
    ----------
    B. G. Greenberg, A.-L. A. Abul-Ela, W. R. Simmons, D. G. Horvitz, "The Unrelated Question
    Randomized Response Model: Theoretical Framework", JASA 64(326), 1969. "An Improved Christofides
    Mechanism for Local Differential Privacy Framework", section 3.2, equations 2 and 4.

    Examples
    --------
    >>> design = Simmons(0.3, 0.5)
    >>> round(float(design.variance(0.1, 100, 100)), 6), round(design.epsilon, 6)
    (0.025278, 0.619039)
    """

    p: Number
    y: Number

    def __post_init__(self) -> None:
        for name, value in (("p", self.p), ("y", self.y)):
            if not 0 < rational(value, name) < 1:
                raise ParameterError(f"{name} must lie in (0, 1), not {value}")

    @classmethod
    def of(cls, epsilon: Number, y: Number = Fraction(1, 2)) -> Simmons:
        """Return the design of a given epsilon in (0, 1000] and unrelated question."""
        share = rational(y, "y")
        if not 0 < share < 1:
            raise ParameterError(f"y must lie in (0, 1), not {y}")
        asked = (odds(epsilon) - 1) * min(share, 1 - share)
        return cls(asked / (1 + asked), share)

    @property
    def rows(self) -> tuple[Row, Row]:
        """Of the answers no and yes."""
        p, y = rational(self.p, "p"), rational(self.y, "y")
        b = (1 - p) * y
        a = p + b
        return (1 - b, b), (1 - a, a)

    @property
    def answers(self) -> tuple[int, ...]:
        """0 is no, 1 is yes."""
        return 0, 1
