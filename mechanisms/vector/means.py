"""What the answers about sampled coordinates tell of each coordinate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimators.frequency import count_table
from mechanisms.number.answers import bit_estimates, threshold_estimates
from mechanisms.number.results import QUANTILES, NumericEstimates
from mechanisms.number.strata import EXPECTED_REPORTS
from mechanisms.vector.gridvectors import grid_means
from mechanisms.vector.sampled_hybrid import SampledHybridLadder
from mechanisms.vector.sampled_vector import SampledVectorLadder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mechanisms.estimate import Estimate

VECTOR_LADDERS = (SampledVectorLadder, SampledHybridLadder)


def vector_estimates(
    ladder: SampledVectorLadder | SampledHybridLadder,
    counts: ArrayLike,
    low: float = 0.0,
    high: float = 1.0,
    quantiles: Sequence[float] = QUANTILES,
    *,
    stratum: int = EXPECTED_REPORTS,
) -> tuple[NumericEstimates, ...]:
    """Estimate the mean of each coordinate, and its distribution or its bits.

    Parameters
    ----------
    ladder : SampledVectorLadder or SampledHybridLadder
    counts : array_like, shape (levels, count_length), integers
        Counts of the newest reports, by level, as the ladder's ``accumulate`` lays them out.
    low, high : float
        The range of all coordinates.
    quantiles : sequence of float in (0, 1)
        Which quantiles to estimate (thresholds only).
    stratum : int
        Answers that a stratum is expected to have, at least.

    Returns
    -------
    tuple of NumericEstimates
        One a coordinate. The mean is that of all clients, whose coordinates were sampled at
        random; ``n`` counts the answers about the coordinate. The distribution function and the
        quantiles come with thresholds, the means of the bits with bits, neither with a grid.

    Raises
    ------
    ParameterError
        The counts have the wrong shape, the range is empty or a quantile is outside (0, 1).

    Notes
    -----
    All levels have equal weights, so that a level may depend on values. A coordinate's answers
    are post-stratified by threshold or bit (see :mod:`mechanisms.number.strata`): its clients are
    a random
    subset of all, chosen by coins. Estimates of different coordinates are all but uncorrelated
    through the randomization; through the sampling they have a covariance that is of the order
    of that of the values, over n.

    Examples
    --------
    >>> from mechanisms.vector.sampled_vector import sampled_vector_ladder
    >>> ladder = sampled_vector_ladder(2, 1, 1, [1_000_000], "position")
    >>> above, below = vector_means(ladder, [[30, 70, 60, 40]])
    >>> round(above.value, 3), round(below.value, 3)
    (0.933, 0.284)
    """
    table = count_table(ladder, counts)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"range must be finite and increasing, got [{low}, {high}]")
    if not all(0 < tau < 1 for tau in quantiles):
        raise ParameterError("quantiles must lie in (0, 1)")
    share = ladder.sampled / ladder.dimensions
    columns = range(ladder.dimensions)
    if isinstance(ladder, SampledHybridLadder):
        outputs = table.reshape(len(table), ladder.dimensions, -1)
        return tuple(grid_means(ladder.grid, outputs[:, i], low, high, share) for i in columns)
    cells = table.reshape(len(table), ladder.dimensions, ladder.slots, 2)
    pairs = ladder.pairs()
    if ladder.bits:
        return tuple(bit_estimates(cells[:, i], pairs, low, high, stratum=stratum) for i in columns)
    return tuple(
        threshold_estimates(cells[:, i], pairs, low, high, quantiles, share, stratum)
        for i in columns
    )


def vector_means(
    ladder: SampledVectorLadder | SampledHybridLadder,
    counts: ArrayLike,
    low: float = 0.0,
    high: float = 1.0,
    *,
    stratum: int = EXPECTED_REPORTS,
) -> tuple[Estimate, ...]:
    """Estimate the mean of each coordinate; see :func:`vector_estimates`."""
    found = vector_estimates(ladder, counts, low, high, (), stratum=stratum)
    return tuple(estimates.mean for estimates in found)
