"""Noisy sampling, RAPPOR's way to gradual release, as a mechanism (section 5.1, appendices E, F).

A permanent response to a bit is drawn once; each report is a fresh response to that response. K
reports together cost less than their sum, but they spend what they cost on finding out a
randomized bit. Equations 130 to 133 of the paper are misprinted, 65 and 134 (that is 68) are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bytes
from mechanisms.chains.bits import symmetric_bit
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.exact import MICRO, loss_micro, to_micro
from mechanisms.levels import GRAINS, MAX_DECISION_EPSILON
from mechanisms.planner.comparison import noisy_sampling_epsilon
from mechanisms.randomness import Source


def noisy_sampling_variance(permanent: float, sample: float, samples: int, n: int) -> float:
    """Return the variance of a share of bits from K samples of each of n clients (equation 68).

    ``permanent`` and ``sample`` are the *probabilities* α and β, in [0, 1] and not 1/2, that the
    permanent response, and a sample, is right.
    """
    for name, value in (("permanent", permanent), ("sample", sample)):
        if not (0 <= value <= 1 and value != 0.5):
            raise ParameterError(f"{name} must lie in [0, 1] and not be 1/2, is {value}")
    if not (samples >= 1 and n >= 1):
        raise ParameterError(f"samples and n must be at least 1, not {samples}, {n}")
    once = sample * (1 - sample) / (1 - 2 * sample) ** 2 / samples
    return (once + permanent * (1 - permanent)) / (1 - 2 * permanent) ** 2 / n


@dataclass(frozen=True)
class NoisySampling:
    """A permanent binary response, reported through fresh responses to it.

    ``permanent`` and ``sample`` are nominal epsilons in [1e-6, 40] (digits beyond the sixth are
    dropped), ``samples`` the number K of reports of one bit.

    Privacy
    -------
    A 0 and a 1 are neighbours. The certified loss is that of all K reports together, from the
    realised thresholds; who sees the permanent response itself pays ``permanent``.

    Utility
    -------
    The share of ones has variance [β(1−β)/(K(2β−1)²) + α(1−α)]/(n (2α−1)²), given the bits.
    Relaxing one response costs the same and never has a larger variance.

    Examples
    --------
    >>> from mechanisms.testing import SeededSource
    >>> noisy = NoisySampling(permanent=1.0, sample=0.5, samples=10)
    >>> noisy.certified, round(noisy.nominal, 6)
    (984326, 0.984326)
    >>> noisy.randomize([0, 1, 1], SeededSource(1)).shape
    (3, 10)
    """

    permanent: float
    sample: float
    samples: int

    def __post_init__(self) -> None:
        for name in ("permanent", "sample"):
            if not 1 / MICRO <= getattr(self, name) <= MAX_DECISION_EPSILON:
                raise ParameterError(
                    f"{name} must lie in [0.000001, {MAX_DECISION_EPSILON}], "
                    f"not {getattr(self, name)}"
                )
        if isinstance(self.samples, bool) or not self.samples >= 1:
            raise ParameterError(f"samples must be at least 1, not {self.samples}")

    @property
    def nominal(self) -> float:
        """The cost of the ideal mechanism (equation 65)."""
        return noisy_sampling_epsilon(self.permanent, self.sample, self.samples)

    @cached_property
    def flips(self) -> tuple[Fraction, Fraction]:
        """The realised probabilities that the permanent response, and a sample, is wrong."""
        first, second = (
            symmetric_bit([Fraction(to_micro(epsilon), MICRO)]).zero
            for epsilon in (self.permanent, self.sample)
        )
        return Fraction(first, GRAINS), Fraction(second, GRAINS)

    @cached_property
    def certified(self) -> int:
        """The worst-case loss of all reports together, in micro-epsilon, rounded up."""
        wrong, missed = self.flips
        likely, rare = (1 - missed) ** self.samples, missed**self.samples
        one = (1 - wrong) * likely + wrong * rare
        zero = wrong * likely + (1 - wrong) * rare
        return loss_micro(one / zero)

    def randomize(self, bits: ArrayLike, source: Source) -> Bytes:
        """Randomize ``(n,)`` bits: ``(n, samples)`` ``uint8`` of 0 and 1."""
        given = np.asarray(bits)
        if given.ndim != 1 or not np.isin(given, (0, 1)).all():
            raise ParameterError("bits must be one row of 0 and 1")
        wrong, missed = (np.uint64(int(flip * GRAINS)) for flip in self.flips)
        n = len(given)
        permanent = given.astype(np.uint8) ^ (source.words(n) < wrong).astype(np.uint8)
        noise = (source.words(n * self.samples) < missed).reshape(n, self.samples)
        return permanent[:, None] ^ noise.astype(np.uint8)

    def estimate(self, reports: ArrayLike) -> Estimate:
        """Estimate the share of ones from ``(n, samples)`` reports."""
        table = np.asarray(reports)
        if table.ndim != 2 or table.shape[1] != self.samples or not len(table):
            raise ParameterError(f"reports must have shape (n, {self.samples})")
        wrong, missed = (float(flip) for flip in self.flips)
        permanent = (table.mean(axis=1) - missed) / (1 - 2 * missed)
        share = (float(permanent.mean()) - wrong) / (1 - 2 * wrong)
        variance = noisy_sampling_variance(1 - wrong, 1 - missed, self.samples, len(table))
        return Estimate(share, variance**0.5, len(table), (len(table),))
