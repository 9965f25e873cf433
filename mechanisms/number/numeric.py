"""What the counts of a number's reports tell: one function for all mechanisms.

Values lie in [0, 1] once clipped to the plan's range and scaled; estimates are scaled back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimators.frequency import count_table
from mechanisms.number.answers import bit_estimates, split_estimates, threshold_estimates
from mechanisms.number.duchi import DuchiLadder
from mechanisms.number.grid import BINS
from mechanisms.number.gridded import GridLadder
from mechanisms.number.gridmeans import grid_estimates
from mechanisms.number.random_threshold import ThresholdLadder
from mechanisms.number.results import QUANTILES, NumericEstimates
from mechanisms.number.sampled_bit import SampledBitLadder
from mechanisms.number.sampled_bits import SampledBitsLadder
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.number.strata import EXPECTED_REPORTS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mechanisms.base import Mechanism

__all__ = ["QUANTILES", "NumericEstimates", "bit_estimates", "numeric", "threshold_estimates"]


def numeric(
    mechanism: Mechanism,
    counts: ArrayLike,
    low: float,
    high: float,
    quantiles: Sequence[float] = QUANTILES,
    *,
    stratum: int = EXPECTED_REPORTS,
) -> NumericEstimates:
    """Estimate a number's mean, and what else its mechanism tells.

    Parameters
    ----------
    mechanism : Mechanism
        ``threshold``, ``sampled_bit``, ``sampled_bits``, ``split_bits``, ``duchi``, ``piecewise``,
        ``hybrid`` or ``square_wave``.
    counts : array_like, shape (levels, count_length), integers
        Counts of the newest reports, by level, as the mechanism's ``accumulate`` lays them out.
    low, high : float
        The plan's range.
    quantiles : sequence of float in (0, 1)
        Which quantiles to estimate (random threshold and square wave only).
    stratum : int
        Reports that a stratum is expected to have, at least.

    Raises
    ------
    ParameterError
        The mechanism is not one of a number, the counts have the wrong shape, the range is
        empty or a quantile is outside (0, 1).

    Notes
    -----
    All levels have equal weights. ``threshold`` and ``sampled_bit`` are post-stratified by
    threshold and by bit (see :mod:`mechanisms.number.strata`). Threshold bins are joined to a
    power of
    two of at most n/20 strata (n by ``stratum``). Of sampled bits the least significant ones
    share a stratum until it expects as many reports; a bit is drawn with a probability
    proportional to its weight, so the plain average over such a stratum is unbiased for its part.

    The mean of the values present is a ratio; its standard error is the delta method's, and its
    bias of order 1/n.

    The standard error for ``threshold`` subtracts the smallest variance of values that agrees
    with the estimated distribution; bit means do not bound that variance from below, so that
    for ``sampled_bit`` nothing is subtracted and the interval covers more than it states.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> bit = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    >>> below_and_above = [[7, 9] * 64]
    >>> result = numeric(bit, below_and_above, 2.0, 5.0)
    >>> round(result.mean.value, 2), round(result.mean.standard_error, 2)
    (3.91, 0.09)
    """
    table = count_table(mechanism, counts)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"range must be finite and increasing, got [{low}, {high}]")
    if not all(0 < tau < 1 for tau in quantiles):
        raise ParameterError("quantiles must lie in (0, 1)")
    if isinstance(mechanism, ThresholdLadder):
        cells = table.reshape(len(table), BINS, -1)
        pairs = mechanism.pairs()
        return threshold_estimates(cells, pairs, low, high, quantiles, stratum=stratum)
    if isinstance(mechanism, SampledBitLadder | SampledBitsLadder):
        cells = table.reshape(len(table), mechanism.bits, -1)
        draws = mechanism.count if isinstance(mechanism, SampledBitsLadder) else 1
        return bit_estimates(cells, mechanism.pairs(), low, high, draws, stratum)
    if isinstance(mechanism, SplitBitsLadder):
        return split_estimates(mechanism, table, low, high)
    if isinstance(mechanism, GridLadder | DuchiLadder):
        return grid_estimates(mechanism, table, low, high, quantiles)
    raise ParameterError(f"{mechanism.name} is no mechanism of a number")
