"""The mean of a coordinate on a grid, of whose clients the coins have chosen a share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mechanisms.estimate import Region, two_sided
from mechanisms.number.contributions import contributions
from mechanisms.number.gridded import GridLadder
from mechanisms.number.gridmeans import grid_estimates
from mechanisms.number.results import NumericEstimates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class SampledRegion:
    """What a region covers, made wider by what the choice of the clients adds.

    Parameters
    ----------
    chosen : Region
        Of the mean of the clients that were chosen.
    error : float
        Standard deviation, at most, between their mean and that of all.
    """

    chosen: Region
    error: float

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the interval at confidence ``level``, or more."""
        low, high = self.chosen.interval(level)
        half = two_sided(level) * self.error
        return low - half, high + half


def grid_means(
    ladder: GridLadder, table: NDArray[np.int64], low: float, high: float, share: float
) -> NumericEstimates:
    """Estimate the mean of a coordinate over all clients.

    Parameters
    ----------
    ladder : GridLadder
        Of the coordinate.
    table : ndarray, shape (levels, outputs), integers
        Answers about it.
    low, high : float
        The range.
    share : float in (0, 1]
        Share of the clients that answer.

    Notes
    -----
    Given the values, the variance is the scatter of the contributions less ``share`` times the
    spread of the values. :func:`~mechanisms.number.gridmeans.grid_estimates`, of the clients that
    answer, subtracts the whole spread: the two are weighted accordingly.
    """
    found = grid_estimates(ladder, table, low, high, ())
    mean = found.mean
    if not (share < 1 and math.isfinite(mean.standard_error)):
        return found
    variance = share * mean.standard_error**2 + (1 - share) * _scatter(ladder, table, low, high)
    error = math.sqrt(max(variance, mean.standard_error**2))
    region = mean.region
    if region is not None:
        # No values are spread more than half of them at each end.
        region = SampledRegion(region, (high - low) * math.sqrt((1 - share) / (4 * mean.n)))
    return replace(found, mean=replace(mean, standard_error=error, region=region))


def _scatter(ladder: GridLadder, table: NDArray[np.int64], low: float, high: float) -> float:
    """Return the squared standard error of the mean as if the clients were a sample of many."""
    import numpy as np

    n = int(table.sum())
    laws = (contributions(ladder.shape, law).value for law in ladder.laws)
    values = np.array([[float(value) for value in law] for law in laws])
    centred = values - (table * values).sum() / n
    return float((table * centred**2).sum()) * ((high - low) / n) ** 2
