"""A number against a random public threshold: is it above?"""

from __future__ import annotations

from mechanisms.arrays import np
from mechanisms.base import Epsilon
from mechanisms.frozen import frozen
from mechanisms.number import grid
from mechanisms.number.mechanism import AnswerMechanism
from mechanisms.number.questions import ThresholdQuestion, strata_for


@frozen
class RandomThreshold(AnswerMechanism):
    """Say, by randomized response, whether a number is above a random public threshold.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q. The threshold is a hash of the chain id, which is drawn before the value is looked at.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing); the
    threshold stays the same along the chain.

    Utility
    -------
    On [-1, 1], n times the variance of the stratified mean is 4f(ε) + E|X−X′| − Var(X) to
    leading order, f(ε) = e^ε/(e^ε−1)²: at most 4f(ε) + 1/3, and on no data more than one-bit
    response. The answers by threshold are also the distribution function.

    Use
    ---
    For means up to epsilon 1.9, and for quantiles with intervals; above that the Hybrid Mechanism
    has the better mean. It needs a coin that both sides compute.

    References
    ----------
    Randomized response: S. L. Warner, JASA 60(309), 1965. Strata as treatments: J. Neyman, "On the
    Application of Probability Theory to Agricultural Experiments" (1923), Statistical Science 5(4),
    1990, section 9.

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> chains = np.arange(6, dtype=np.uint64).reshape(3, 2)
    >>> RandomThreshold(1.0).report(np.array([0.1, 0.5, 0.9]), SeededSource(1), chains).shape
    (3, 1)
    """

    epsilon: Epsilon
    missing: bool = False
    metric: str = ""

    name = "threshold"
    gives = "mean, quantiles and distribution"

    question = ThresholdQuestion(grid.BINS)

    def _worst(self, level: int, n: int) -> float:
        # The worst values of a given mean are uniform up to a point, the rest being at the other
        # end.
        strata = len(strata_for(self.question, n))
        middles = (np.arange(strata) + 0.5) / strata
        shifts = np.arange(-10, 11) / 10 if self.missing else np.zeros(1)
        return max(self._variance(level, np.clip(middles - shift, 0.0, 1.0), n) for shift in shifts)

    def worst_variance(self, level: int) -> float:
        """Return that of the worst data and many reports, by the standard library alone."""
        # Uniform up to a point, the rest at 0 or at 1: F(x) = x + s has ∫ F(1 − F) − Var(X) of it.
        return max(
            self._noise_of(level, mean) + rest
            for mean, rest in (_uniform_and_atom(step / 20) for step in range(-20, 21))
        )


def _uniform_and_atom(shift: float) -> tuple[float, float]:
    """Return mean and E|X − X′|/2 − Var(X) of numbers with the distribution function x + shift."""
    length = 1 - abs(shift)
    mean, square = length**2 / 2, length**3 / 3
    apart = length**2 / 2 - length**3 / 3
    return (mean if shift >= 0 else 1 - mean), apart - (square - mean**2)
