"""Means, distributions and bits of numbers, from the counts of one-bit and split-bit reports.

Values lie in [0, 1] once clipped to the plan's range and scaled; estimates are scaled back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimate import SCORE_REPORTS, Estimate, nothing
from mechanisms.frequency import channel_pairs, count_table, shares
from mechanisms.grid import BINS
from mechanisms.random_threshold import ThresholdLadder
from mechanisms.sampled_bit import SampledBitLadder
from mechanisms.split_bits import SplitBitsLadder
from mechanisms.strata import EXPECTED_REPORTS, MeanRegion, Strata, stratify
from mechanisms.survival import Cdf, Survival
from mechanisms.vectors.sampled_bits import SampledBitsLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.ladders import LadderedMechanism

#: A share of present clients must exceed so many of its standard errors to be divided by.
_PRESENT_ERRORS = 2
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class NumericEstimates:
    """What the reports of a number tell.

    Attributes
    ----------
    mean : Estimate
        Of the values present, after clipping.
    missing : Estimate or None
        Share of the reports whose value is missing, where the plan allows that.
    cdf : Cdf or None
        Distribution function of the values present (random threshold only).
    quantiles : dict of float to Estimate, or None
        By probability (random threshold only).
    bit_means : tuple of Estimate, or None
        Share of the values present with each bit set, most significant first (bit-aware
        mechanisms only).
    """

    mean: Estimate
    missing: Estimate | None
    cdf: Cdf | None = None
    quantiles: dict[float, Estimate] | None = None
    bit_means: tuple[Estimate, ...] | None = None


def numeric(
    mechanism: LadderedMechanism,
    counts: ArrayLike,
    low: float,
    high: float,
    quantiles: Sequence[float] = QUANTILES,
) -> NumericEstimates:
    """Estimate a number's mean, and what else its mechanism tells.

    Parameters
    ----------
    mechanism : LadderedMechanism
        ``threshold``, ``sampled_bit``, ``sampled_bits`` or ``split_bits``.
    counts : array_like, shape (levels, count_length), integers
        Counts of the newest reports, by level, as the mechanism's ``accumulate`` lays them out.
    low, high : float
        The plan's range.
    quantiles : sequence of float in (0, 1)
        Which quantiles to estimate (random threshold only).

    Raises
    ------
    ParameterError
        The mechanism is not one of a number, the counts have the wrong shape, the range is
        empty or a quantile is outside (0, 1).

    Notes
    -----
    All levels have equal weights. ``threshold`` and ``sampled_bit`` are post-stratified by
    threshold and by bit (see :mod:`mechanisms.strata`). Threshold bins are joined to a power of
    two of at most n/20 strata. Of sampled bits the least significant ones share a stratum until
    it expects 20 reports; a bit is drawn with a probability proportional to its weight, so the
    plain average over such a stratum is unbiased for its part.

    The mean of the values present is a ratio; its standard error is the delta method's, and its
    bias of order 1/n.

    The standard error for ``threshold`` subtracts the smallest variance of values that agrees
    with the estimated distribution; bit means do not bound that variance from below, so that
    for ``sampled_bit`` nothing is subtracted and the interval covers more than it states.

    Examples
    --------
    >>> from mechanisms.ladders import build
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
        return threshold_estimates(cells, channel_pairs(mechanism, 0), low, high, quantiles)
    if isinstance(mechanism, SampledBitLadder | SampledBitsLadder):
        cells = table.reshape(len(table), mechanism.bits, -1)
        draws = mechanism.count if isinstance(mechanism, SampledBitsLadder) else 1
        return bit_estimates(cells, channel_pairs(mechanism, 0), low, high, draws)
    if isinstance(mechanism, SplitBitsLadder):
        return _split_bits(mechanism, table, low, high)
    raise ParameterError(f"{mechanism.name} is no mechanism of a number")


def threshold_estimates(
    cells: NDArray[np.int64],
    pairs: NDArray[np.float64],
    low: float,
    high: float,
    quantiles: Sequence[float] = QUANTILES,
    share: float = 1.0,
) -> NumericEstimates:
    """Estimate mean, distribution and quantiles from answers about random thresholds.

    Parameters
    ----------
    cells : ndarray, shape (levels, bins, symbols), integers
        Answers by the bin of their threshold; the number of bins is a power of two.
    pairs : ndarray, shape (levels, 2)
        Probability that an answer is kept, and that it becomes a given other one.
    low, high : float
        The range.
    quantiles : sequence of float in (0, 1)
    share : float in (0, 1]
        Share of the clients that answer, where the coins choose them too.
    """
    import numpy as np

    levels, bins = cells.shape[:2]
    reports = cells.sum(axis=(1, 2))
    by_level, n = _by_level(reports), int(reports.sum())
    missing = _missing_share(cells, pairs)
    if n == 0:
        return NumericEstimates(nothing(by_level), missing)
    most = min(max(n // EXPECTED_REPORTS, 1), bins)
    count = 1 << (most.bit_length() - 1)
    joined = cells.reshape(levels, count, bins // count, -1).sum(axis=2)
    strata = stratify(joined, np.full(count, 1 / count), pairs)
    present = _present(strata)
    if present is None:
        return NumericEstimates(nothing(by_level), missing)
    survival = Survival(strata, present, low, high)
    return NumericEstimates(
        _mean(strata, present, by_level, low, high, share * survival.least_variance()),
        missing,
        cdf=survival.cdf(),
        quantiles={tau: survival.quantile(tau, by_level) for tau in quantiles},
    )


def bit_estimates(
    cells: NDArray[np.int64],
    pairs: NDArray[np.float64],
    low: float,
    high: float,
    draws: int = 1,
) -> NumericEstimates:
    """Estimate a mean and the means of bits from answers about sampled bits.

    Parameters
    ----------
    cells : ndarray, shape (levels, bits, symbols), integers
        Answers by their bit, most significant first.
    pairs : ndarray, shape (levels, 2)
        Probability that an answer is kept, and that it becomes a given other one.
    low, high : float
        The range.
    draws : int
        Answers that a report has, each about a bit of its own.
    """
    import numpy as np

    reports = cells.sum(axis=(1, 2))
    by_level, n = _by_level(reports // draws), int(reports.sum())
    missing = _missing_share(cells, pairs, draws)
    weights = _bit_weights(cells.shape[1])
    bits = tuple(_bit_mean(cells[:, i], pairs) for i in range(len(weights)))
    if n == 0:
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    # The least significant bits share a stratum until it expects enough answers.
    tails = np.cumsum(weights[::-1])[::-1]
    alone = max(int((n * tails >= EXPECTED_REPORTS).sum()) - 1, 0)
    starts = np.arange(alone + 1)
    strata = stratify(
        np.add.reduceat(cells, starts, axis=1), np.add.reduceat(weights, starts), pairs
    )
    present = _present(strata)
    if present is None:
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    mean = _mean(strata, present, by_level, low, high, 0.0)
    return NumericEstimates(mean, missing, bit_means=bits)


def _split_bits(
    mechanism: SplitBitsLadder, table: NDArray[np.int64], low: float, high: float
) -> NumericEstimates:
    sums, reports = table[:, :-1], table[:, -1]
    by_level, n = _by_level(reports), int(reports.sum())
    answers = [
        shares(sums[:, i : i + 1], reports, channel_pairs(mechanism, i))[0]
        for i in range(sums.shape[1])
    ]
    if not mechanism.missing:
        bits, here, missing = tuple(answers), Estimate(1.0, 0.0, n, by_level), None
    else:
        here = answers.pop()
        pairs = 1 - channel_pairs(mechanism, len(answers))[:, ::-1]
        [missing] = shares((reports - sums[:, -1])[:, None], reports, pairs)
        bits = tuple(_ratio(bit, here) for bit in answers)
    if n == 0 or not _usable(here.value, here.standard_error):
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    weights = _bit_weights(len(answers))
    yes = float(sum(w * e.value for w, e in zip(weights, answers, strict=True)))
    noise = sum(float(w * e.standard_error) ** 2 for w, e in zip(weights, answers, strict=True))
    # Rounding to the grid of the bits adds at most a quarter of a squared step a client.
    noise += 1 / (4 * (2 ** len(answers) - 1) ** 2 * n)
    total = Estimate(yes, noise**0.5, n, by_level)
    mean = _scaled(_ratio(total, here), low, high)
    return NumericEstimates(mean, missing, bit_means=bits)


def _by_level(reports: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(n) for n in reports)


def _bit_weights(bits: int) -> NDArray[np.float64]:
    """Return the weights of the bits in a value of [0, 1], most significant first."""
    import numpy as np

    return np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)


def _missing_share(
    cells: NDArray[np.int64], pairs: NDArray[np.float64], draws: int = 1
) -> Estimate | None:
    """Estimate the share of missing values, whose answer does not depend on the coin."""
    if cells.shape[2] < 3:
        return None
    gone, answers = cells[:, :, 2].sum(axis=1), cells.sum(axis=(1, 2))
    by_level = _by_level(answers // draws)
    [estimate] = shares(gone[:, None], answers, pairs)
    return replace(estimate, n=sum(by_level), reports_by_level=by_level)


def _usable(present: float, standard_error: float) -> bool:
    """Whether a share of present clients can be divided by."""
    return present > _PRESENT_ERRORS * standard_error


def _present(strata: Strata) -> float | None:
    """Return the share of clients present, or None where it can hardly be told from zero."""
    import numpy as np

    present = float(strata.weights @ strata.means[:, 1])
    contrast = np.stack((np.zeros_like(strata.weights), strata.weights), axis=1)
    error = float(strata.variances(contrast).sum(axis=1).max()) ** 0.5
    return present if _usable(present, error) else None


def _mean(
    strata: Strata,
    present: float,
    by_level: tuple[int, ...],
    low: float,
    high: float,
    spread: float,
) -> Estimate:
    """Estimate the mean of values present, ``spread`` being the least variance they can have."""
    import numpy as np

    n = sum(by_level)
    ratio = float(strata.weights @ strata.means[:, 0]) / present
    contrast = strata.weights[:, None] * np.array([1.0, -ratio])
    scatter, floor = strata.variances(contrast).sum(axis=1)
    variance = max(float(scatter) - min(present, 1.0) * spread / n, float(floor))
    region = MeanRegion(strata, present, low, high) if n < SCORE_REPORTS else None
    return _scaled(Estimate(ratio, variance**0.5 / present, n, by_level, region=region), low, high)


def _bit_mean(cells: NDArray[np.int64], pairs: NDArray[np.float64]) -> Estimate:
    """Estimate the share of values present with a bit set from the reports about it alone."""
    import numpy as np

    reports = cells.sum(axis=1)
    by_level = _by_level(reports)
    if not reports.any():
        return nothing(by_level)
    strata = stratify(cells[:, None], np.ones(1), pairs)
    present = _present(strata)
    return nothing(by_level) if present is None else _mean(strata, present, by_level, 0.0, 1.0, 0.0)


def _ratio(part: Estimate, whole: Estimate) -> Estimate:
    """Divide by a share estimated from independent noise; the error is the delta method's."""
    if not _usable(whole.value, whole.standard_error):
        return nothing(part.reports_by_level)
    ratio = part.value / whole.value
    error = math.hypot(part.standard_error, ratio * whole.standard_error) / whole.value
    return Estimate(ratio, error, part.n, part.reports_by_level)


def _scaled(estimate: Estimate, low: float, high: float) -> Estimate:
    """Move value and error from [0, 1] to the metric's range; a region is there already."""
    return replace(
        estimate,
        value=low + (high - low) * estimate.value,
        standard_error=(high - low) * estimate.standard_error,
    )
