"""The published mechanisms for a number over floating point: for comparison only.

Their papers prove a loss of epsilon for real numbers. What a program draws are floats, of which
some are reached from one value and not from another (Mironov, "On Significance of the Least
Significant Bits for Differential Privacy", CCS 2012), so that no epsilon is certified: it is
infinite. Nothing here can be named in a plan, and all of it draws from a seeded generator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.number.formulas import (
    HYBRID_FROM,
    LARGEST,
    dithering_variance,
    duchi_variance,
    hybrid_variance,
    laplace_variance,
    piecewise_variance,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class FloatMechanism(ABC):
    """A published mechanism for a number in [-1, 1].

    Parameters
    ----------
    epsilon : float
        In (0, 1400], what the paper calls it.

    Raises
    ------
    ParameterError
        The epsilon is outside its range.

    Privacy
    -------
    None is certified: a program draws floats, of which some may be reached from one value and not
    from another, whatever the nominal epsilon.

    Relaxation
    ----------
    None.

    Utility
    -------
    The closed forms of the papers, given by ``variance``.

    Use
    ---
    For comparison only; those on a grid come close to their variance, and are exact.

    References
    ----------
    I. Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS 2012.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= LARGEST:
            raise ParameterError(f"epsilon must lie in (0, {LARGEST}], not {self.epsilon}")

    @property
    def certified_epsilon(self) -> float:
        """Infinite: its floats tell values apart."""
        return math.inf

    @abstractmethod
    def variance(self, x: float) -> float:
        """Return the variance of one estimate of ``x``, in closed form."""

    @abstractmethod
    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return ``(n,)`` unbiased estimates of ``(n,)`` values in [-1, 1]."""


@dataclass(frozen=True)
class DuchiOriginal(FloatMechanism):
    """One bit, scaled to ±C; see :func:`~mechanisms.number.formulas.duchi_variance`."""

    def variance(self, x: float) -> float:
        """Return C² − x²."""
        return duchi_variance(x, self.epsilon)

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return +C with probability 1/2 + x/(2C), −C otherwise."""
        import numpy as np

        size = 1 / math.tanh(self.epsilon / 2)
        up = generator.random(len(values)) < 0.5 + values / (2 * size)
        signs: NDArray[np.float64] = np.where(up, size, -size)
        return signs


@dataclass(frozen=True)
class PiecewiseOriginal(FloatMechanism):
    """Wang et al., ICDE 2019, Algorithm 2."""

    def variance(self, x: float) -> float:
        """Return the variance of the Piecewise Mechanism."""
        return piecewise_variance(x, self.epsilon)

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return a uniform number of the window of x, or rarely one outside of it."""
        import numpy as np

        # e^(-ε/2): the largest output is (1 + d)/(1 − d), the window 2d/(1 − d) wide.
        down = math.exp(-self.epsilon / 2)
        largest, wide = (1 + down) / (1 - down), 2 * down / (1 - down)
        left = (values - down) / (1 - down)
        inside = generator.random(len(values)) < 1 / (1 + down)
        place = generator.random(len(values))
        outside = -largest + place * (2 * largest - wide)
        outside += np.where(outside >= left, wide, 0.0)
        drawn: NDArray[np.float64] = np.where(inside, left + place * wide, outside)
        return drawn


@dataclass(frozen=True)
class HybridOriginal(FloatMechanism):
    """Wang et al., ICDE 2019, section III-C."""

    def variance(self, x: float) -> float:
        """Return the variance of the Hybrid Mechanism."""
        return hybrid_variance(x, self.epsilon)

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return a piecewise estimate with probability 1 − e^(−ε/2), one bit otherwise."""
        import numpy as np

        share = -math.expm1(-self.epsilon / 2) if self.epsilon > HYBRID_FROM else 0.0
        piecewise = PiecewiseOriginal(self.epsilon).simulate(values, generator)
        bit = DuchiOriginal(self.epsilon).simulate(values, generator)
        drawn: NDArray[np.float64] = np.where(generator.random(len(values)) < share, piecewise, bit)
        return drawn


@dataclass(frozen=True)
class LaplaceOriginal(FloatMechanism):
    """Laplace noise of scale 2/ε (Dwork, McSherry, Nissim, Smith, TCC 2006)."""

    def variance(self, x: float) -> float:
        """Return 8/ε²."""
        return laplace_variance(self.epsilon)

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the values with noise."""
        return values + generator.laplace(scale=2 / self.epsilon, size=len(values))


@dataclass(frozen=True)
class SubtractiveDithering(FloatMechanism):
    """One randomized bit about x + u, u public and uniform, and u subtracted again."""

    def variance(self, x: float) -> float:
        """Return 4f(ε) + 1/3."""
        return dithering_variance(self.epsilon)

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the debiased bit less the dither."""
        import numpy as np

        dither = generator.uniform(-1, 1, len(values))
        size = 1 / math.tanh(self.epsilon / 2)
        kept = generator.random(len(values)) < 1 / (1 + math.exp(-self.epsilon))
        bit: NDArray[np.float64] = np.where((values + dither > 0) == kept, size, -size)
        return bit - dither


@dataclass(frozen=True)
class SquareWaveOriginal(FloatMechanism):
    """Li et al., SIGMOD 2020, section 5, on [-1, 1]; the published one is on [0, 1]."""

    @property
    def half_width(self) -> float:
        """Half of the window, b, on [0, 1]."""
        down = math.exp(-self.epsilon)
        if self.epsilon < 1e-3:
            # Two differences of the order of ε² would be divided.
            return 0.5 - self.epsilon / 3
        return down * (self.epsilon - 1 + down) / (2 * (1 - down * (1 + self.epsilon)))

    def variance(self, x: float) -> float:
        """Return the variance of a report that is scaled so that its mean is ``x``."""
        low, slope, centre = self._line
        half, u = self.half_width, (x + 1) / 2
        second = low * ((1 + half) ** 3 + half**3) / 3
        second += slope * (u * u + half * half / 3)
        return 4 * (second - (centre + slope * u) ** 2) / slope**2

    def simulate(
        self, values: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return reports that are scaled so that their mean is the value."""
        import numpy as np

        low, slope, centre = self._line
        half, units = self.half_width, (values + 1) / 2
        anywhere = generator.uniform(-half, 1 + half, len(values))
        near = units + generator.uniform(-half, half, len(values))
        # The window has the probability of the level everywhere, and this much more.
        reports = np.where(generator.random(len(values)) < low * (1 + 2 * half), anywhere, near)
        scaled: NDArray[np.float64] = 2 * (reports - centre) / slope - 1
        return scaled

    @property
    def _line(self) -> tuple[float, float, float]:
        """The density everywhere, and slope and value at 0 of a report's mean, on [0, 1]."""
        half, down = self.half_width, math.exp(-self.epsilon)
        low = down / (2 * half + down)
        slope = 2 * half * -math.expm1(-self.epsilon) / (2 * half + down)
        return low, slope, low * (1 + 2 * half) / 2
