"""Selection of one of several items by their scores: exponential mechanism, permute-and-flip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import exp, fsum

from mechanisms.errors import ParameterError
from mechanisms.exact import to_micro
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.sampling import choose
from mechanisms.top_item.flipping import exact_flips, flip, float_flips
from mechanisms.top_item.scores import Thresholds, exponents, gaps


@frozen
class SelectionMechanism(ABC):
    """A private selection of one of several items by their scores.

    Parameters
    ----------
    epsilon : float in [1e-6, 40]
        The nominal amount; digits beyond the sixth are dropped.
    sensitivity : int, at least 1
        Δ: neighbours change each score by at most this.
    monotone : bool
        Whether neighbours change all scores in the same direction, as counts of records do.
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
        return tuple(Fraction(weight, sum(weights)) for weight in weights)

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
