"""Whether a series of measurements is flat: its slope, with the slope's error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: What may be added over the time looked at, as a share of the mean.
GROWTH = 0.1


class Trend(NamedTuple):
    """A line through the second half of a series."""

    #: Of that half.
    mean: float
    #: A minute, and its standard error; not a number where there are too few.
    slope: float
    error: float
    #: How long that half is.
    minutes: float

    @property
    def flat(self) -> bool:
        """Whether the slope, two errors added, comes to less than ``GROWTH`` of the mean."""
        most = (self.slope + 2 * self.error) * self.minutes
        return bool(most < GROWTH * self.mean)


def trend(seconds: Sequence[float], values: Sequence[float], cycle: float) -> Trend:
    """Return the trend of the second half of what was measured at ascending seconds.

    After a cycle, in seconds, what is measured falls and rises again; means over a cycle are what
    the line is drawn through, so that neither a cycle's slope nor its waves are taken for the
    trend's.

    >>> seconds = list(range(0, 2400, 10))
    >>> saw = [5 + at % 60 for at in seconds]
    >>> risen = [each + at for each, at in zip(saw, seconds, strict=True)]
    >>> trend(seconds, saw, 60).flat, trend(seconds, risen, 60).flat
    (True, False)
    """
    at, value = np.asarray(seconds, dtype=float), np.asarray(values, dtype=float)
    late = at >= (at[0] + at[-1]) / 2 if len(at) else np.zeros(0, dtype=bool)
    at, value = at[late], value[late]
    cycles = (at - at.min(initial=math.inf)) // cycle
    # The last cycle may be cut short.
    _, *whole = reversed(np.unique(cycles)) if len(at) else (0,)
    if len(whole) < 3:
        return Trend(float(value.mean()) if len(value) else math.nan, math.nan, math.nan, math.nan)
    x = np.array([at[cycles == number].mean() for number in whole]) / 60
    y = np.array([value[cycles == number].mean() for number in whole])
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    minutes = float((at[-1] - at[0]) / 60)
    return Trend(float(y.mean()), float(slope), math.sqrt(covariance[0, 0]), minutes)
