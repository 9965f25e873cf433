"""What the reports of a number tell, and the arithmetic that all its estimators share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mechanisms.estimate import Estimate, nothing
from mechanisms.number.survival import Cdf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
        Distribution function of the values present (random threshold and square wave only).
    quantiles : dict of float to Estimate, or None
        By probability (random threshold and square wave only).
    bit_means : tuple of Estimate, or None
        Share of the values present with each bit set, most significant first (bit-aware
        mechanisms only).
    smoothed : bool
        Whether distribution function and quantiles are of expectation, maximization and smoothing:
        biased toward a smooth law, without standard errors.
    """

    mean: Estimate
    missing: Estimate | None
    cdf: Cdf | None = None
    quantiles: dict[float, Estimate] | None = None
    bit_means: tuple[Estimate, ...] | None = None
    smoothed: bool = False


def counts_of(reports: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the numbers of reports by level as integers."""
    return tuple(int(n) for n in reports)


def usable(present: float, standard_error: float) -> bool:
    """Whether a share of present clients can be divided by."""
    return present > _PRESENT_ERRORS * standard_error


def ratio_of(part: Estimate, whole: Estimate) -> Estimate:
    """Divide by a share estimated from independent noise; the error is the delta method's."""
    if not usable(whole.value, whole.standard_error):
        return nothing(part.reports_by_level)
    ratio = part.value / whole.value
    error = math.hypot(part.standard_error, ratio * whole.standard_error) / whole.value
    return Estimate(ratio, error, part.n, part.reports_by_level)


def scaled(estimate: Estimate, low: float, high: float) -> Estimate:
    """Move value and error from [0, 1] to the metric's range; a region is there already."""
    return replace(
        estimate,
        value=low + (high - low) * estimate.value,
        standard_error=(high - low) * estimate.standard_error,
    )
