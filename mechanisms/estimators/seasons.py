"""Seasons: a pattern that comes again, taken out of a series by what its past says of it."""

from __future__ import annotations

import numpy as np

from mechanisms.arrays import Floats


def without_season(
    values: Floats, errors: Floats, length: int, phase: int = 0
) -> tuple[Floats, Floats]:
    """Return a series less its season, and the standard errors of what is left.

    The season of a window is by how much windows at its place lay above the mean of their cycle, on
    average over earlier cycles: no window says anything of its own season, so that what is left of
    it is a surprise. A cycle counts if half of its windows are there. The season of k cycles has
    1/k of a window's variance, less the part of the cycle's mean.

    Parameters
    ----------
    values, errors : ndarray of float64, shape (t,)
        One entry a window, in order; a missing window is NaN in ``values``.
    length : int
        Windows of a cycle, at least 2.
    phase : int in [0, length)
        The place of the first window in its cycle.

    Returns
    -------
    values, errors : ndarray of float64, shape (t,)
        NaN until a cycle has taught the season of that place.

    References
    ----------
    Cleveland et al., "STL: A seasonal-trend decomposition procedure based on loess", Journal of
    Official Statistics 6 (1990), for subseries of a place; here of the past alone.

    Examples
    --------
    >>> values, errors = without_season(np.array([1.0, 3.0, 1.0, 3.0, 2.0]), np.ones(5), 2)
    >>> values.tolist(), errors.round(3).tolist()
    ([nan, nan, 2.0, 2.0, 3.0], [nan, nan, 1.225, 1.225, 1.118])
    """
    shown = slice(phase, phase + len(values))
    padded = np.full(-(-shown.stop // length) * length, np.nan)
    padded[shown] = values
    table = np.ma.masked_invalid(padded.reshape(-1, length))
    above = table - table.mean(axis=1, keepdims=True)
    above[2 * table.count(axis=1) < length] = np.ma.masked
    teaches, known = ~np.ma.getmaskarray(above), above.filled(0.0)
    taught = teaches.cumsum(axis=0) - teaches
    taught = np.where(taught, taught, np.nan)
    season = (known.cumsum(axis=0) - known) / taught
    wider = np.sqrt(1 + (1 - 1 / length) / taught)
    return values - season.ravel()[shown], errors * wider.ravel()[shown]
