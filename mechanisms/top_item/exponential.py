"""The exponential mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import exp, fsum

from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.sampling import choose
from mechanisms.top_item.mechanism import SelectionMechanism
from mechanisms.top_item.scores import exponents, gaps


@frozen
class ExponentialMechanism(SelectionMechanism):
    """Select an item with probability proportional to e^(ε q/2Δ).

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount; digits beyond the sixth are dropped.
    sensitivity : int
        At least 1, Δ: neighbours change each score by at most this.
    monotone : bool
        Whether neighbours change all scores in the same direction; then e^(ε q/Δ).

    Raises
    ------
    ParameterError
        A parameter is outside its range.

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
    Never where :class:`.PermuteAndFlip` can be had: its expected error is never larger, and up to
    twice smaller.

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
        """Return the ideal probabilities of the items, ``(n,)``, of any real scores."""
        return exponential_pmf(scores, self.epsilon, self.sensitivity, monotone=self.monotone)

    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the exact probabilities with which :meth:`select` draws, of integer scores."""
        weights = [self.thresholds(gap) for gap in gaps(scores)]
        return tuple(Fraction(weight, sum(weights)) for weight in weights)

    def select(self, scores: Sequence[int], source: Source) -> int:
        """Return the place of an item, drawn in integers, of integer scores."""
        weights = {place: self.thresholds(gap) for place, gap in enumerate(gaps(scores))}
        return choose(weights, source)


def exponential_pmf(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return the exponential mechanism's probabilities; see :func:`.exponents`."""
    weights = [exp(x) for x in exponents(scores, epsilon, sensitivity, monotone=monotone)]
    total = fsum(weights)
    return [weight / total for weight in weights]
