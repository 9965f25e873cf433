"""Selection of one of several items by their scores: exponential mechanism, permute-and-flip.

Permute-and-flip looks at items in random order and takes item r with probability a_r as soon as it
is its turn. If each has an independent uniform arrival time t, r is taken with probability
P(r) = a_r ∫₀¹ ∏_{s≠r} (1 − t a_s) dt, which sums to one if some a_s is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from math import exp, fsum, inf, isfinite

from mechanisms.arrays import Floats, Ints
from mechanisms.audit.cases import Case, law_release
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, ceil_fraction, exp_bounds, to_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, MAX_DECISION_EPSILON
from mechanisms.randomness import Source
from mechanisms.sampling import choose
from mechanisms.top_item.permute_and_flip import exact_flips, flip

#: Acceptance falls no lower than e to minus this, or to minus epsilon where that is more: its
#: thresholds then are so large that rounding them costs less than 3e-9 of epsilon.
FLOOR = 24
#: Of the Gauss-Legendre rule on a panel, and by how much the integrand's logarithm may fall on it.
NODES, FALL = 24, 2.0
#: What is left of the integrand where the integration ends, as a logarithm.
END = 48.0


def float_flips(exponents: Sequence[float]) -> list[float]:
    """Return the law for acceptance probabilities e^x, x at most 0 and one of them 0, as floats.

    Each to about 1e-13 relatively, for any number of items, ties and gaps: the integrand is
    positive, so that nothing cancels, and is integrated by a Gauss rule on panels on which it falls
    by no more than a factor of e².
    """
    import numpy as np

    values, places, counts = np.unique(
        np.asarray(exponents, dtype=np.float64), return_inverse=True, return_counts=True
    )
    if not (values.size and values[-1] == 0):
        raise ParameterError("exponents must be at most 0, one of them 0")
    chances = np.exp(values)
    integrals = np.zeros(len(values))
    for times, weights in _panels(chances, counts):
        logs = np.log1p(-np.outer(times, chances))
        # Of all items; each then gives its own factor back.
        integrals += weights @ np.exp((logs @ counts)[:, None] - logs)
    law: list[float] = (chances * integrals)[places.ravel()].tolist()
    return law


def _panels(chances: Floats, counts: Ints) -> Iterator[tuple[Floats, Floats]]:
    """Yield nodes and weights that cover [0, 1] as far as the integrand counts."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # The largest factor is left out of one integral and cannot end it.
    rest = counts.copy()
    rest[-1] -= 1
    start = 0.0
    while start < 1 and -(rest @ np.log1p(-start * chances)) <= END:
        slope = float((counts * chances / (1 - start * chances)).sum())
        end = min(1.0, start + FALL / slope)
        # Close to 1 a panel that leaves next to nothing takes it too.
        if 1 - end < 1e-3 * (1 - start):
            end = 1.0
        yield start + (end - start) * nodes, (end - start) * weights
        start = end


def exponents(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return ε (q_r − q*)/(2Δ) of each finite score, or with ``monotone`` ε (q_r − q*)/Δ.

    At most 0 and correctly rounded; ``epsilon`` is at least 0, Δ = ``sensitivity`` positive, and
    with ``monotone`` neighbours change all scores in the same direction.
    """
    if not (len(scores) and all(isfinite(score) for score in scores)):
        raise ParameterError("scores must be finite, and at least one")
    if not 0 <= epsilon < inf:
        raise ParameterError(f"epsilon must be finite and at least 0, not {epsilon}")
    if not 0 < sensitivity < inf:
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
    no less beyond it. ``micro`` is micro-epsilon ε, in [1, 40,000,000], ``span``, at least 1, how
    far two items' scores can move against each other between neighbours: 2Δ, or Δ where all scores
    move in the same direction.

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


@frozen
class SelectionMechanism(ABC):
    """A private selection of one of several items by their scores.

    ``epsilon``, in [1e-6, 40], is the nominal amount; digits beyond the sixth are dropped.
    Neighbours change each score by at most ``sensitivity``, an integer Δ of at least 1, and where
    ``monotone`` all scores in the same direction, as counts of records do.
    """

    epsilon: float
    sensitivity: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.sensitivity, int) and not isinstance(self.sensitivity, bool)
        if not (whole and self.sensitivity >= 1):
            raise ParameterError(
                f"sensitivity must be an integer of at least 1, not {self.sensitivity!r}"
            )
        self.thresholds  # noqa: B018 - checks epsilon

    @cached_property
    def thresholds(self) -> Thresholds:
        """The integer thresholds from which it is drawn."""
        span = self.sensitivity * (1 if self.monotone else 2)
        return Thresholds(to_micro(self.epsilon), span)

    @property
    def certified(self) -> int:
        """The loss in micro-epsilon that the realised thresholds are proved not to exceed."""
        return self.thresholds.micro

    @abstractmethod
    def pmf(self, scores: Sequence[float]) -> list[float]:
        """Return the ideal probabilities of the items, ``(n,)``, of any real scores."""

    @abstractmethod
    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the exact probabilities with which :meth:`select` draws, of integer scores."""

    @abstractmethod
    def select(self, scores: Sequence[int], source: Source) -> int:
        """Return the place of an item, drawn in integers, of integer scores."""

    def expected_error(self, scores: Sequence[float]) -> float:
        """Return by how much the selected score is below the best on average."""
        return expected_error(scores, self.pmf(scores))


@frozen
class ExponentialMechanism(SelectionMechanism):
    """Select an item with probability proportional to e^(ε q/2Δ), or where monotone e^(ε q/Δ).

    Privacy
    -------
    Neighbours are score vectors that differ by at most Δ in every entry. The loss of
    :meth:`select` is at most ε by its integer weights (:class:`.Thresholds`); of :meth:`pmf` in
    floating point nothing is certified. The number of items is not protected.

    Relaxation
    ----------
    As any symbol: the selected item degraded by ρI + (1−ρ)uniform.

    Utility
    -------
    Expected error Σ (q* − q_r) P(r); at most (2Δ/ε) ln n, and for scores (v, …, v, 0) equation 12.

    Use
    ---
    Never where :class:`.PermuteAndFlipSelection` can be had: its expected error is never larger,
    and up to twice smaller.

    References
    ----------
    F. McSherry, K. Talwar, "Mechanism Design via Differential Privacy", FOCS 2007. "Exponential
    Randomized Response", Definition 3, equation 12.

    Examples
    --------
    >>> mechanism = ExponentialMechanism(epsilon=1.0)
    >>> [round(p, 4) for p in mechanism.pmf([5, 3, 1])]
    [0.6652, 0.2447, 0.09]
    """

    def pmf(self, scores: Sequence[float]) -> list[float]:
        return exponential_pmf(scores, self.epsilon, self.sensitivity, monotone=self.monotone)

    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        weights = [self.thresholds(gap) for gap in gaps(scores)]
        total = sum(weights)
        return tuple(Fraction(weight, total) for weight in weights)

    def select(self, scores: Sequence[int], source: Source) -> int:
        weights = {place: self.thresholds(gap) for place, gap in enumerate(gaps(scores))}
        return choose(weights, source)


@frozen
class PermuteAndFlipSelection(SelectionMechanism):
    """Look at the items in random order and take one with probability e^(ε (q − q*)/2Δ).

    Where monotone, with e^(ε (q − q*)/Δ).

    Privacy
    -------
    Neighbours are score vectors that differ by at most Δ in every entry. The loss of
    :meth:`select` is at most ε by its integer thresholds (:class:`.Thresholds`, with the proof);
    of :meth:`pmf` in floating point nothing is certified. The number of items is not protected.

    Relaxation
    ----------
    As any symbol: the selected item degraded by ρI + (1−ρ)uniform, as
    :class:`mechanisms.top_item.permute_and_flip.PermuteAndFlip` does.

    Utility
    -------
    Expected error Σ (q* − q_r) P(r) with P(r) = p_r ∫₀¹ ∏_{s≠r} (1 − t p_s) dt; for scores
    (v, …, v, 0) equation 13. Never more than the exponential mechanism's, and down to half of it.

    Use
    ---
    The default for selecting from a collection that one person changes little. Where one person's
    values are the whole collection, generalized randomized response on the best item is better.

    References
    ----------
    R. McKenna, D. Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private
    Selection", NeurIPS 2020. "Exponential Randomized Response", equation 13.

    Examples
    --------
    >>> mechanism = PermuteAndFlipSelection(epsilon=1.0)
    >>> [round(p, 4) for p in mechanism.pmf([5, 3, 1])]
    [0.765, 0.1756, 0.0594]
    """

    def pmf(self, scores: Sequence[float]) -> list[float]:
        return permute_and_flip_pmf(scores, self.epsilon, self.sensitivity, monotone=self.monotone)

    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        return exact_flips(self.thresholds.chances(gaps(scores)))

    def select(self, scores: Sequence[int], source: Source) -> int:
        return flip([self.thresholds(gap) for gap in gaps(scores)], source)


def expected_error(scores: Sequence[float], law: Sequence[float]) -> float:
    """Return the mean distance from the best score under a law."""
    best = max(scores)
    return fsum((best - score) * p for score, p in zip(scores, law, strict=True))


def exponential_pmf(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return the exponential mechanism's probabilities; see :func:`.exponents`."""
    weights = [exp(x) for x in exponents(scores, epsilon, sensitivity, monotone=monotone)]
    total = fsum(weights)
    return [weight / total for weight in weights]


def permute_and_flip_pmf(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return permute-and-flip's probabilities; see :func:`.exponents` and :func:`.float_flips`."""
    return float_flips(exponents(scores, epsilon, sensitivity, monotone=monotone))


def claims() -> list[Case]:
    """Return the claims of both mechanisms, which hold, for neighbours that change both scores."""
    return [
        Case(
            f"{name}, scores (0, 6) and (1, 5)",
            source,
            1.0,
            1.0,
            law_release(mechanism.pmf([0, 6]), mechanism.pmf([1, 5])),
            "",
        )
        for name, source, mechanism in (
            ("exponential mechanism", "McSherry, Talwar 2007", ExponentialMechanism(1.0)),
            ("permute-and-flip", "McKenna, Sheldon 2020", PermuteAndFlipSelection(1.0)),
        )
    ]
