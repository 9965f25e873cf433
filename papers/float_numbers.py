"""The published mechanisms for a number over floating point: for comparison only.

Their papers prove a loss of epsilon for real numbers. Programs draw floats, of which some are
reached from one value and not from another (Mironov, "On Significance of the Least Significant Bits
for Differential Privacy", CCS 2012), so that no epsilon is certified: it is infinite. Nothing here
can be named in a plan, and all of it draws from a seeded generator.

Numbers lie in [-1, 1], as in the papers; variances are of one report, in closed forms that are
stable from epsilon 1e-9 to 700.

References
----------
N. Wang, X. Xiao, Y. Yang, J. Zhao, S. C. Hui, H. Shin, J. Shin, G. Yu, "Collecting and Analyzing
Multidimensional Data with Local Differential Privacy", ICDE 2019. J. C. Duchi, M. I. Jordan,
M. J. Wainwright, "Minimax Optimal Procedures for Locally Private Estimation", JASA 113(521), 2018.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bools, Floats
from mechanisms.audit.cases import Case, Views
from mechanisms.audit.guessing import score_key
from mechanisms.errors import ParameterError, check_positive
from mechanisms.estimators.variance import bit_means, share_variance
from mechanisms.randomness import Source
from papers.gradual_release.comparison import MAX_EPSILON, bit_noise

_ROOT = 405 * sqrt(241)
#: Up to here the hybrid mechanism is Duchi's (Wang et al., equation 9 and Theorem 1).
HYBRID_FROM = log((-5 + 2 * (6353 - _ROOT) ** (1 / 3) + 2 * (6353 + _ROOT) ** (1 / 3)) / 27)


@dataclass(frozen=True)
class FloatMechanism(ABC):
    """A published mechanism for a number in [-1, 1], at an ``epsilon`` in (0, 700].

    No epsilon is certified, see the module.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_positive(self.epsilon, MAX_EPSILON)

    @property
    def certified_epsilon(self) -> float:
        """Infinite: its floats tell values apart."""
        return math.inf

    @abstractmethod
    def variance(self, x: float) -> float:
        """Return the variance of one estimate of ``x``, in closed form."""

    @abstractmethod
    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        """Return ``(n,)`` unbiased estimates of ``(n,)`` values in [-1, 1]."""


@dataclass(frozen=True)
class Duchi(FloatMechanism):
    """One bit, scaled to ±C with C = (e^ε + 1)/(e^ε − 1)."""

    def variance(self, x: float) -> float:
        """Return C² − x², which also is that of one sampled bit."""
        return 4 * bit_noise(self.epsilon) + (1 - x) * (1 + x)

    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        """Return +C with probability 1/2 + x/(2C), −C otherwise."""
        size = 1 / math.tanh(self.epsilon / 2)
        up = generator.random(len(values)) < 0.5 + values / (2 * size)
        return np.where(up, size, -size)


@dataclass(frozen=True)
class Piecewise(FloatMechanism):
    """Wang et al., ICDE 2019, Algorithm 2."""

    def variance(self, x: float) -> float:
        """Return x²/(h − 1) + (h + 3)/(3 (h − 1)²) with h = e^(ε/2) (Lemma 1)."""
        inverse = exp(-self.epsilon / 2) / -expm1(-self.epsilon / 2)
        return x * x * inverse + inverse * (1 + 4 * inverse) / 3

    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        """Return a uniform number of the window of x, or rarely one outside of it."""
        # e^(-ε/2): the largest output is (1 + d)/(1 − d), the window 2d/(1 − d) wide.
        down = exp(-self.epsilon / 2)
        largest, wide = (1 + down) / (1 - down), 2 * down / (1 - down)
        left = (values - down) / (1 - down)
        inside = generator.random(len(values)) < 1 / (1 + down)
        place = generator.random(len(values))
        outside = -largest + place * (2 * largest - wide)
        outside += np.where(outside >= left, wide, 0.0)
        return np.where(inside, left + place * wide, outside)


@dataclass(frozen=True)
class Hybrid(FloatMechanism):
    """Wang et al., ICDE 2019, section III-C: piecewise with probability 1 − e^(−ε/2), else Duchi's.

    Up to epsilon 0.61 it is always Duchi's.
    """

    @property
    def bit_share(self) -> float:
        """How often it answers by Duchi's bit."""
        return exp(-self.epsilon / 2) if self.epsilon > HYBRID_FROM else 1.0

    def variance(self, x: float) -> float:
        """Return the variance, above epsilon 0.61 the same for all x."""
        piecewise, bit = Piecewise(self.epsilon), Duchi(self.epsilon)
        return (1 - self.bit_share) * piecewise.variance(x) + self.bit_share * bit.variance(x)

    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        piecewise = Piecewise(self.epsilon).simulate(values, generator)
        bit = Duchi(self.epsilon).simulate(values, generator)
        chosen = generator.random(len(values)) < self.bit_share
        return np.where(chosen, bit, piecewise)


@dataclass(frozen=True)
class Laplace(FloatMechanism):
    """Laplace noise of scale 2/ε (Dwork, McSherry, Nissim, Smith, TCC 2006)."""

    def variance(self, x: float) -> float:
        return 8 / self.epsilon / self.epsilon

    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        return values + generator.laplace(scale=2 / self.epsilon, size=len(values))


@dataclass(frozen=True)
class SubtractiveDithering(FloatMechanism):
    """One randomized bit about x + u, u public and uniform, and u subtracted again."""

    def variance(self, x: float) -> float:
        """Return 4f(ε) + 1/3, f being the variance of a debiased bit."""
        return 4 * bit_noise(self.epsilon) + 1 / 3

    def simulate(self, values: Floats, generator: np.random.Generator) -> Floats:
        dither = generator.uniform(-1, 1, len(values))
        size = 1 / math.tanh(self.epsilon / 2)
        kept = generator.random(len(values)) < 1 / (1 + exp(-self.epsilon))
        bit: Floats = np.where((values + dither > 0) == kept, size, -size)
        return bit - dither


def threshold_variance(p: float, q: float, values: ArrayLike, strata: int | None = None) -> float:
    """Return the variance of the stratified mean of random thresholds, to leading order.

    By default with as many equal strata as one likes. Then the variance is the noise of the answer,
    plus half of E|X − X'|, less Var(X), at most noise plus 1/12.
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    if strata is None:
        ranks = 2 * np.arange(1, x.size + 1) - x.size - 1
        between = float(ranks @ x) / x.size**2
    else:
        above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
        between = float((above * (1 - above)).mean())
    return share_variance(p, q, float(x.mean())) + between - float(x.var())


def sampled_bit_variance(p: float, q: float, values: ArrayLike, bits: int) -> float:
    """Return the variance of the mean of sampled bits, stratified by bit, to leading order.

    The noise of the answer, plus the sum of w π (1 − π) over the bits, w being their weights and
    π their means, less Var(X).
    """
    x = np.asarray(values, dtype=np.float64)
    means = bit_means(x, bits)
    weights = np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)
    between = float(weights @ (means * (1 - means)))
    return share_variance(p, q, float(x.mean())) + between - float(x.var())


def random_threshold_variance(xs: Sequence[float], epsilon: float) -> float:
    """Return n times the variance of the stratified mean of random thresholds, to leading order.

    4f(ε) + E|X − X′| − Var(X), with X and X′ drawn from ``xs`` in [-1, 1] independently: at most
    4f(ε) + 1/3.
    """
    if not (len(xs) and all(-1 <= x <= 1 for x in xs)):
        raise ParameterError("xs must be numbers in [-1, 1], and at least one")
    units = [(x + 1) / 2 for x in xs]
    return 4 * (bit_noise(epsilon) + threshold_variance(1.0, 0.0, units))


def claims() -> list[Case]:
    """Return the claim of Laplace noise in floating point; its last digits break it."""
    laplace = Laplace(1.0)

    def release(secrets: Bools, source: Source) -> Views:
        generator = np.random.default_rng(source.words(4))
        drawn = laplace.simulate(secrets.astype(np.float64), generator) * 2.0**53
        # Near zero 1 + noise is a multiple of 2**-53, and noise alone need not be.
        return {"the last digits": score_key((np.rint(drawn) == drawn).astype(np.float64))}

    return [
        Case(
            "Laplace noise, of numbers 0 and 1, as floats",
            "Dwork et al. 2006; Mironov 2012",
            laplace.epsilon,
            laplace.certified_epsilon,
            release,
            "some floats come from one value alone",
        )
    ]
