"""Noisy sampling, RAPPOR's way to gradual release, as a mechanism (section 5.1, appendices E, F).

A permanent response to a bit is drawn once; each report is a fresh response to that response. K
reports together cost less than their sum, but they spend what they cost on finding out a
randomized bit. Equations 130 to 133 of the paper are misprinted, 65 and 134 (that is 68) are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bytes
from mechanisms.audit.cases import unit
from mechanisms.errors import ParameterError, check_at_least
from mechanisms.estimate import Estimate
from mechanisms.randomness import Source
from papers.gradual_release.comparison import noisy_sampling_epsilon


def noisy_sampling_variance(permanent: float, sample: float, samples: int, n: int) -> float:
    """Return the variance of a share of bits from K samples of each of n clients (equation 68).

    ``permanent`` and ``sample`` are the *probabilities* α and β, in [0, 1] and not 1/2, that the
    permanent response, and a sample, is right.
    """
    if 0.5 in (permanent, sample):
        raise ParameterError("permanent and sample must not be 1/2: such answers say nothing")
    check_at_least("samples", samples, 1)
    check_at_least("n", n, 1)
    once = sample * (1 - sample) / (1 - 2 * sample) ** 2 / samples
    return (once + permanent * (1 - permanent)) / (1 - 2 * permanent) ** 2 / n


@dataclass(frozen=True)
class NoisySampling:
    """A permanent binary response, reported through fresh responses to it.

    ``permanent`` and ``sample`` are epsilons, ``samples`` the number K of reports of one bit. All K
    reports together cost ``epsilon``; who sees the permanent response itself pays ``permanent``.
    The share of ones has variance [β(1−β)/(K(2β−1)²) + α(1−α)]/(n (2α−1)²), given the bits.
    Relaxing one response costs the same and never has a larger variance.

    >>> from mechanisms.testing import SeededSource
    >>> noisy = NoisySampling(permanent=1.0, sample=0.5, samples=10)
    >>> round(noisy.epsilon, 6)
    0.984326
    >>> noisy.randomize([0, 1, 1], SeededSource(1)).shape
    (3, 10)
    """

    permanent: float
    sample: float
    samples: int

    @property
    def epsilon(self) -> float:
        """The cost of all reports together (equation 65)."""
        return noisy_sampling_epsilon(self.permanent, self.sample, self.samples)

    @property
    def wrong(self) -> tuple[float, float]:
        """The probabilities that the permanent response, and a sample, is wrong."""
        return 1 / (1 + exp(min(self.permanent, 700))), 1 / (1 + exp(min(self.sample, 700)))

    def randomize(self, bits: ArrayLike, source: Source) -> Bytes:
        """Randomize ``(n,)`` bits: ``(n, samples)`` ``uint8`` of 0 and 1."""
        given, (first, second) = np.asarray(bits, dtype=np.uint8), self.wrong
        n = len(given)
        permanent = given ^ (unit(n, source) < first).astype(np.uint8)
        noise = (unit(n * self.samples, source) < second).reshape(n, self.samples)
        return permanent[:, None] ^ noise.astype(np.uint8)

    def estimate(self, reports: Bytes) -> Estimate:
        """Estimate the share of ones from ``(n, samples)`` reports."""
        (first, second), n = self.wrong, len(reports)
        permanent = (float(reports.mean()) - second) / (1 - 2 * second)
        share = (permanent - first) / (1 - 2 * first)
        variance = noisy_sampling_variance(1 - first, 1 - second, self.samples, n)
        return Estimate(share, variance**0.5, n, (n,))
