"""Lower bounds of a loss from guesses: exact, with stated confidence."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, log1p

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Floats
from mechanisms.errors import ParameterError


def lower_limit(successes: ArrayLike, trials: ArrayLike, confidence: float) -> Floats:
    """Return the one-sided Clopper–Pearson limit of a probability, from successes in trials.

    It exceeds the true probability with probability at most ``1 - confidence``, exactly.

    References
    ----------
    C. J. Clopper, E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case
    of the Binomial", Biometrika 26(4), 1934.

    Examples
    --------
    >>> round(float(lower_limit(90, 100, 0.95)), 4)
    0.8363
    """
    from scipy.special import betaincinv

    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must lie in (0, 1), not {confidence}")
    right, tried = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    some = right > 0
    found = betaincinv(np.where(some, right, 1.0), tried - right + 1, 1 - confidence)
    return np.where(some, found, 0.0)


def loss_bound(right: int, guesses: int, confidence: float) -> float:
    """Return the epsilon that so many right guesses of a fair secret bit prove.

    Whatever is seen, an ε-private release leaves the likelier value of a fair bit a probability of
    at most e^ε/(1+e^ε). So the right ones among any guesses that are chosen by what is seen alone
    are stochastically below a binomial variable of that probability, and its Clopper–Pearson limit
    bounds ε. Never negative; 0 without a guess.

    >>> round(loss_bound(7_400, 10_000, 0.95), 3)
    1.008
    >>> loss_bound(0, 0, 0.95)
    0.0
    """
    from scipy.special import betaincinv

    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must lie in (0, 1), not {confidence}")
    if not right > 0:
        return 0.0
    # The limit of the wrong ones keeps its digits where nearly all guesses are right.
    wrong = float(betaincinv(guesses - right + 1, right, confidence))
    return max(0.0, log1p(-wrong) - log(wrong)) if wrong < 1 else 0.0


@dataclass(frozen=True)
class Guesses:
    """Guesses of fair secret bits, each of which chose between two inputs, by what a view looks at.

    They are of chains that were not used to find the rule. ``share`` is that of the chance of a
    false bound that all guesses of an attack have together; see :class:`Attack`.
    """

    right: int
    guesses: int
    view: str
    share: float = 1.0

    def bound(self, confidence: float) -> float:
        """Return the epsilon that they prove, at a confidence of the whole attack."""
        return loss_bound(self.right, self.guesses, 1 - self.share * (1 - confidence))


@dataclass(frozen=True)
class Attack:
    """The outcome of an attack: guesses for each pair of inputs, and the epsilon that they prove.

    The shares of the guesses add up to 1, so that by Bonferroni's inequality the largest of their
    bounds has the confidence of the attack. ``chains`` is how many were drawn in all.
    """

    pairs: tuple[Guesses, ...]
    chains: int
    confidence: float

    @property
    def best(self) -> Guesses:
        """The guesses that prove most."""
        return max(self.pairs, key=lambda pair: pair.bound(self.confidence))

    @property
    def epsilon(self) -> float:
        """The proved lower bound; above the true loss with probability 1 - confidence at most."""
        return self.bound(self.confidence)

    def bound(self, confidence: float) -> float:
        return max(pair.bound(confidence) for pair in self.pairs)

    def exceeds(self, epsilon: float, false_alarm: float) -> bool:
        """Whether the loss is proved to be above ``epsilon``, but for a rate of false alarms."""
        return epsilon < inf and self.bound(1 - false_alarm) > epsilon
