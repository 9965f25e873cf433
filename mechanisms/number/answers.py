"""Means, distributions and bits of numbers, from answers of one bit and from split bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mechanisms.estimate import SCORE_REPORTS, Estimate, nothing
from mechanisms.estimators.frequency import shares
from mechanisms.number.results import (
    QUANTILES,
    NumericEstimates,
    counts_of,
    ratio_of,
    scaled,
    usable,
)
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.number.strata import EXPECTED_REPORTS, MeanRegion, Strata, stratify
from mechanisms.number.survival import Survival

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def threshold_estimates(
    cells: NDArray[np.int64],
    pairs: NDArray[np.float64],
    low: float,
    high: float,
    quantiles: Sequence[float] = QUANTILES,
    share: float = 1.0,
    stratum: int = EXPECTED_REPORTS,
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
    stratum : int
        Reports that a stratum is expected to have, at least.
    """
    import numpy as np

    levels, bins = cells.shape[:2]
    reports = cells.sum(axis=(1, 2))
    by_level, n = counts_of(reports), int(reports.sum())
    missing = _missing_share(cells, pairs)
    if n == 0:
        return NumericEstimates(nothing(by_level), missing)
    most = min(max(n // stratum, 1), bins)
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
    stratum: int = EXPECTED_REPORTS,
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
    stratum : int
        Answers that a stratum is expected to have, at least.
    """
    import numpy as np

    reports = cells.sum(axis=(1, 2))
    by_level, n = counts_of(reports // draws), int(reports.sum())
    missing = _missing_share(cells, pairs, draws)
    weights = _bit_weights(cells.shape[1])
    bits = tuple(_bit_mean(cells[:, i], pairs) for i in range(len(weights)))
    if n == 0:
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    # The least significant bits share a stratum until it expects enough answers.
    tails = np.cumsum(weights[::-1])[::-1]
    alone = max(int((n * tails >= stratum).sum()) - 1, 0)
    starts = np.arange(alone + 1)
    strata = stratify(
        np.add.reduceat(cells, starts, axis=1), np.add.reduceat(weights, starts), pairs
    )
    present = _present(strata)
    if present is None:
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    mean = _mean(strata, present, by_level, low, high, 0.0)
    return NumericEstimates(mean, missing, bit_means=bits)


def split_estimates(
    mechanism: SplitBitsLadder, table: NDArray[np.int64], low: float, high: float
) -> NumericEstimates:
    sums, reports = table[:, :-1], table[:, -1]
    by_level, n = counts_of(reports), int(reports.sum())
    answers = [
        shares(sums[:, i : i + 1], reports, mechanism.pairs(i))[0] for i in range(sums.shape[1])
    ]
    if not mechanism.missing:
        bits, here, missing = tuple(answers), Estimate(1.0, 0.0, n, by_level), None
    else:
        here = answers.pop()
        pairs = 1 - mechanism.pairs(len(answers))[:, ::-1]
        [missing] = shares((reports - sums[:, -1])[:, None], reports, pairs)
        bits = tuple(ratio_of(bit, here) for bit in answers)
    if n == 0 or not usable(here.value, here.standard_error):
        return NumericEstimates(nothing(by_level), missing, bit_means=bits)
    weights = _bit_weights(len(answers))
    yes = float(sum(w * e.value for w, e in zip(weights, answers, strict=True)))
    noise = sum(float(w * e.standard_error) ** 2 for w, e in zip(weights, answers, strict=True))
    # Rounding to the grid of the bits adds at most a quarter of a squared step a client.
    noise += 1 / (4 * (2 ** len(answers) - 1) ** 2 * n)
    total = Estimate(yes, noise**0.5, n, by_level)
    mean = scaled(ratio_of(total, here), low, high)
    return NumericEstimates(mean, missing, bit_means=bits)


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
    by_level = counts_of(answers // draws)
    [estimate] = shares(gone[:, None], answers, pairs)
    return replace(estimate, n=sum(by_level), reports_by_level=by_level)


def _present(strata: Strata) -> float | None:
    """Return the share of clients present, or None where it can hardly be told from zero."""
    import numpy as np

    present = float(strata.weights @ strata.means[:, 1])
    contrast = np.stack((np.zeros_like(strata.weights), strata.weights), axis=1)
    error = float(strata.variances(contrast).sum(axis=1).max()) ** 0.5
    return present if usable(present, error) else None


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
    return scaled(Estimate(ratio, variance**0.5 / present, n, by_level, region=region), low, high)


def _bit_mean(cells: NDArray[np.int64], pairs: NDArray[np.float64]) -> Estimate:
    """Estimate the share of values present with a bit set from the reports about it alone."""
    import numpy as np

    reports = cells.sum(axis=1)
    by_level = counts_of(reports)
    if not reports.any():
        return nothing(by_level)
    strata = stratify(cells[:, None], np.ones(1), pairs)
    present = _present(strata)
    return nothing(by_level) if present is None else _mean(strata, present, by_level, 0.0, 1.0, 0.0)
