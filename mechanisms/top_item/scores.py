"""From scores to noise: exponents in floating point, acceptance thresholds in integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, ceil_fraction, exp_bounds
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, MAX_DECISION_EPSILON

#: Acceptance falls no lower than e to minus this, or to minus epsilon where that is more: its
#: thresholds then are so large that rounding them costs less than 3e-9 of epsilon.
FLOOR = 24


def exponents(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return ε (q_r − q*)/(2Δ) of each finite score, or with ``monotone`` ε (q_r − q*)/Δ.

    At most 0 and correctly rounded; ``epsilon`` is at least 0, Δ = ``sensitivity`` positive, and
    with ``monotone`` neighbours change all scores in the same direction.

    >>> exponents([5, 3, 1], 1.0)
    [0.0, -1.0, -2.0]
    """
    if not (len(scores) and all(math.isfinite(score) for score in scores)):
        raise ParameterError("scores must be finite, and at least one")
    if not 0 <= epsilon < math.inf:
        raise ParameterError(f"epsilon must be finite and at least 0, not {epsilon}")
    if not 0 < sensitivity < math.inf:
        raise ParameterError(f"sensitivity must be positive, not {sensitivity}")
    best = Fraction(max(scores))
    scale = Fraction(epsilon) / Fraction(sensitivity) / (1 if monotone else 2)
    known = {score: _float(scale * (Fraction(score) - best)) for score in set(scores)}
    return [known[score] for score in scores]


def _float(exponent: Fraction) -> float:
    return float(max(exponent, Fraction(-(10**300))))


def gaps(scores: Sequence[int]) -> list[int]:
    """Return how far each integer score is below the best."""
    if not len(scores):
        raise ParameterError("scores must be at least one")
    for score in scores:
        if isinstance(score, bool) or not isinstance(score, int):
            raise ParameterError("scores must be integers to be drawn from exactly")
    best = max(scores)
    return [best - score for score in scores]


@frozen
class Thresholds:
    """Integers t(g) over 2**64, the acceptance probability of an item whose score is g below.

    t(g) = ⌈2^64 e^{−η g/span}⌉ up to the gap where that reaches e^{−24} (or e^{−ε}, if less), and
    no less beyond it.

    Parameters
    ----------
    micro : int
        Micro-epsilon ε, in [1, 40,000,000].
    span : int
        At least 1: how far two items' scores can move against each other between neighbours, 2Δ,
        or Δ where all scores move in the same direction.

    Notes
    -----
    *The loss.* Let A(k) be the largest t(g)/t(g+k) over gaps g >= 0. Between neighbours let the
    best score move by μ and score r by δ_r; its gap moves by μ − δ_r. Whatever the scores:

    - The acceptance of r falls by a factor of at most A(max(0, μ − δ_r)).
    - The acceptance of another s rises by at most A(max(0, δ_s − μ)); call the largest of these
      factors, and 1, c. Permute-and-flip's P(r)/a_r = ∫₀¹ ∏(1 − t a_s) dt falls by at most c: with
      a'_s <= c a_s it is at least ∫_0^{1/c} ∏(1 − t c a_s) dt, which is 1/c of the integral for
      a_s. The exponential mechanism's sum of weights rises by at most c.
    - (μ − δ_r) + (δ_s − μ) = δ_s − δ_r <= span, and each alone is at most span, since δ_s <= Δ,
      δ_r >= −Δ and |μ| <= Δ (all in [0, Δ], or all in [−Δ, 0], where monotone).

    So the loss is at most the logarithm of the largest A(k) A(span − k). Without rounding that is
    η. With it t(g) < x + 1 for x = 2^64 e^{−ηg/span}, so that A(k) <= e^{ηk/span} (1 + 1/x_min),
    and η = ε − 2/x_min makes the whole at most e^ε.

    Examples
    --------
    >>> table = Thresholds(1_000_000, 2)
    >>> table(0) == 2**64, round(table(2) / 2**64, 6)
    (True, 0.367879)
    """

    micro: int
    span: int

    def __post_init__(self) -> None:
        if not 1 <= self.micro <= MAX_DECISION_EPSILON * MICRO:
            raise ParameterError(
                f"epsilon must lie in [0.000001, {MAX_DECISION_EPSILON}], not {self.micro / MICRO}"
            )
        if isinstance(self.span, bool) or not isinstance(self.span, int) or not self.span >= 1:
            raise ParameterError(f"span must be an integer of at least 1, not {self.span!r}")

    @cached_property
    def depth(self) -> Fraction:
        """The largest exponent of a threshold."""
        return max(Fraction(FLOOR), Fraction(self.micro, MICRO))

    @cached_property
    def rate(self) -> Fraction:
        """The exponent η that a gap as large as the span costs."""
        smallest = GRAINS / exp_bounds(self.depth)[1]
        return Fraction(self.micro, MICRO) - 2 / smallest

    @cached_property
    def deepest(self) -> int:
        """The gap beyond which thresholds stay as they are."""
        return int(self.depth * self.span / self.rate)

    def __call__(self, gap: int) -> int:
        """Return the threshold of a gap of at least 0."""
        exponent = self.rate * min(gap, self.deepest) / self.span
        return min(GRAINS, ceil_fraction(GRAINS / exp_bounds(exponent)[0]))

    def chances(self, distances: Sequence[int]) -> list[Fraction]:
        """Return the thresholds of gaps as exact probabilities."""
        known = {gap: Fraction(self(gap), GRAINS) for gap in set(distances)}
        return [known[gap] for gap in distances]

    def worst_ratio(self, largest: int) -> Fraction:
        """Return the exact bound on the likelihood ratio, from the integers themselves.

        The largest A(k) A(span − k) with gaps up to the ``largest`` that occurs; never above e^ε.
        The cost is ``largest**2``.
        """
        table = [self(gap) for gap in range(largest + 1)]
        steepest = [Fraction(1)]
        for step in range(1, self.span + 1):
            ratios = (
                Fraction(table[gap], table[min(gap + step, largest)]) for gap in range(largest)
            )
            steepest.append(max(ratios, default=Fraction(1)))
        return max(one * other for one, other in zip(steepest, reversed(steepest), strict=True))
