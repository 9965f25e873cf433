"""The distribution behind random-threshold reports: CDF, quantiles, least variance.

The share of clients above a random threshold is the survival function, averaged over the
stratum of the threshold. Survival only falls, which is all that is assumed: isotonic regression
gives the curve, and an average over strata to one side of a point bounds the curve at the point,
which gives intervals of quantiles that hold for every distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mechanisms.estimate import Estimate, two_sided
from mechanisms.estimators.isotonic import falling_fit
from mechanisms.number.strata import Strata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Confidence of an interval that reaches one standard error to each side.
_ONE_ERROR = 0.6826894921370859


class Cdf(NamedTuple):
    """A distribution function, averaged over each stratum.

    ``grid`` has the middles of the strata in the metric's unit; ``values`` rise from 0 to 1. Where
    many values are alike, the average is not the function at the middle: that lies anywhere
    between its values at the stratum's ends. ``standard_errors`` are those of each stratum alone,
    before the isotonic regression, which can only help: a band made of them is wide, not narrow.
    """

    grid: NDArray[np.float64]
    values: NDArray[np.float64]
    standard_errors: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Survival:
    """The survival function of the values present, in [0, 1].

    Attributes
    ----------
    strata : Strata
        In the order of their thresholds.
    present : float
        Estimated share of clients whose value is present, above 0.
    low, high : float
        What 0 and 1 stand for.
    """

    strata: Strata
    present: float
    low: float
    high: float

    @property
    def edges(self) -> NDArray[np.float64]:
        """Where the strata begin and end, shape ``(B + 1,)``, from 0 to 1."""
        import numpy as np

        edges: NDArray[np.float64] = np.concatenate(([0.0], np.cumsum(self.strata.weights)))
        edges[-1] = 1.0
        return edges

    def falling(self) -> NDArray[np.float64]:
        """Return the isotonic estimate of survival in each stratum, shape ``(B,)``."""
        import numpy as np

        fit = falling_fit(
            self.strata.means[:, 0] / self.present,
            self.strata.reports.astype(np.float64),
        )
        falling: NDArray[np.float64] = np.clip(fit, 0.0, 1.0)
        return falling

    def least_variance(self) -> float:
        """Return the smallest variance of values in [0, 1] that agrees with the estimate.

        Within a stratum, survival is taken as high as in the stratum before up to one point, and
        as low as in the next one from there on.
        """
        import numpy as np

        survival, width = self.falling(), self.strata.weights
        before = np.concatenate(([1.0], survival[:-1]))
        after = np.concatenate((survival[1:], [0.0]))
        drop = before - after
        early = np.divide(survival - after, drop, out=np.zeros_like(drop), where=drop > 0)
        edges = self.edges
        square = width * survival * (edges[:-1] + edges[1:])
        square -= drop * early * (1 - early) * width**2
        return float(max(square.sum() - (width @ survival) ** 2, 0.0))

    def cdf(self) -> Cdf:
        """Return the distribution function."""
        import numpy as np

        edges = self.edges
        middle = (edges[:-1] + edges[1:]) / 2
        shares = self.strata.means[:, 0] / self.present
        contrast = np.stack((np.ones_like(shares), -shares), axis=1)
        errors = np.sqrt(self.strata.variances(contrast).max(axis=0)) / self.present
        grid = self.low + (self.high - self.low) * middle
        return Cdf(grid, 1 - self.falling(), errors)

    def quantile(self, tau: float, reports_by_level: tuple[int, ...]) -> Estimate:
        """Estimate the value below which a share ``tau`` of the values present lies."""
        import numpy as np

        edges = self.edges
        knots = np.concatenate(([0.0], (edges[:-1] + edges[1:]) / 2, [1.0]))
        shares = np.concatenate(([0.0], 1 - self.falling(), [1.0]))
        # Where the estimated distribution is flat at tau, the middle of the flat.
        ends = []
        for side in ("left", "right"):
            after = int(np.searchsorted(shares, tau, side=side))
            rise = (tau - shares[after - 1]) / (shares[after] - shares[after - 1])
            ends.append(knots[after - 1] + rise * (knots[after] - knots[after - 1]))
        value = self.low + (self.high - self.low) * float(sum(ends)) / 2
        region = QuantileRegion(self, tau, value)
        below, above = region.interval(_ONE_ERROR)
        n = sum(reports_by_level)
        return Estimate(value, (above - below) / 2, n, reports_by_level, region=region)


@dataclass(frozen=True, eq=False)
class QuantileRegion:
    """The values that a two-sided test does not reject as the quantile ``tau``.

    A value is rejected when survival, averaged over 1, 2, 4, ... strata next to the stratum that
    holds the value, is too high above it or too low below it to be ``1 - tau`` at the value; the
    variance is that of this hypothesis, the error is divided by the number of such averages.
    Nothing but monotony is assumed, so that the interval covers more often than stated.
    """

    survival: Survival
    tau: float
    value: float

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``."""
        import numpy as np

        survival = self.survival
        count = len(survival.strata.weights)
        windows = max(1, (count - 1).bit_length())
        z = two_sided(1 - (1 - level) / windows)
        kept = np.ones(count, dtype=bool)
        for length in (1 << k for k in range(windows)):
            excess = self._excess(length)
            kept[: count - length] &= excess[1:] <= z
            kept[length:] &= excess[:-1] >= -z
        edges = survival.low + (survival.high - survival.low) * survival.edges
        inside = np.flatnonzero(kept)
        if not inside.size:
            return self.value, self.value
        first, last = float(edges[inside[0]]), float(edges[inside[-1] + 1])
        return min(first, self.value), max(last, self.value)

    def _excess(self, length: int) -> NDArray[np.float64]:
        """Return, in standard errors, how far mean survival is above ``1 - tau``, by window."""
        import numpy as np

        strata, at = self.survival.strata, 1 - self.tau

        def windows(values: NDArray[np.float64]) -> NDArray[np.float64]:
            sums = np.concatenate(([0.0], np.cumsum(values)))
            differences: NDArray[np.float64] = sums[length:] - sums[:-length]
            return differences

        weights = strata.weights
        covariance = strata.hypothetical(at, min(self.survival.present, 1.0))
        total = windows(weights)
        variance = windows(weights**2 * covariance[:, 0, 0]) / total**2
        variance -= 2 * at * windows(weights**2 * covariance[:, 0, 1]) / total
        variance += at**2 * float((weights**2 * covariance[:, 1, 1]).sum())
        distance = windows(weights * strata.means[:, 0]) / total
        distance -= at * float(weights @ strata.means[:, 1])
        excess: NDArray[np.float64] = distance / np.sqrt(variance)
        return excess
