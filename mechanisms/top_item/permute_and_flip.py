"""Permute-and-flip."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below
from mechanisms.top_item.flipping import exact_flips, float_flips
from mechanisms.top_item.mechanism import SelectionMechanism
from mechanisms.top_item.scores import exponents, gaps


@frozen
class PermuteAndFlip(SelectionMechanism):
    """Look at the items in random order and take one with probability e^(ε (q − q*)/2Δ).

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount; digits beyond the sixth are dropped.
    sensitivity : int
        At least 1, Δ: neighbours change each score by at most this.
    monotone : bool
        Whether neighbours change all scores in the same direction; then e^(ε (q − q*)/Δ).

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Neighbours are score vectors that differ by at most Δ in every entry. The loss of
    :meth:`select` is at most ε by its integer thresholds (:class:`.Thresholds`, with the proof);
    of :meth:`pmf` in floating point nothing is certified. The number of items is not protected.

    Relaxation
    ----------
    As any symbol: the selected item degraded by ρI + (1−ρ)uniform; see
    :func:`mechanisms.top_item.flip_ladder.permute_and_flip_ladder`.

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
    >>> mechanism = PermuteAndFlip(epsilon=1.0)
    >>> [round(p, 4) for p in mechanism.pmf([5, 3, 1])]
    [0.765, 0.1756, 0.0594]
    """

    def pmf(self, scores: Sequence[float]) -> list[float]:
        """Return the ideal probabilities of the items, ``(n,)``, of any real scores."""
        return permute_and_flip_pmf(scores, self.epsilon, self.sensitivity, monotone=self.monotone)

    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the exact probabilities with which :meth:`select` draws, of integer scores."""
        return exact_flips(self.thresholds.chances(gaps(scores)))

    def select(self, scores: Sequence[int], source: Source) -> int:
        """Return the place of an item, drawn in integers, of integer scores."""
        return flip([self.thresholds(gap) for gap in gaps(scores)], source)


def flip(thresholds: Sequence[int], source: Source) -> int:
    """Return the place of the first item in random order whose coin comes up.

    Parameters
    ----------
    thresholds : sequence of int
        Acceptance probabilities over 2**64, one of them 2**64.
    source : Source
    """
    left = list(range(len(thresholds)))
    while True:
        place = left.pop(uniform_below(len(left), source))
        if source.bits(64) < thresholds[place]:
            return place


def permute_and_flip_pmf(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1, *, monotone: bool = False
) -> list[float]:
    """Return permute-and-flip's probabilities; see :func:`.exponents` and :func:`.float_flips`."""
    return float_flips(exponents(scores, epsilon, sensitivity, monotone=monotone))
