"""Shares for people to look at, made of unbiased estimates by as much as their noise asks for.

Unbiased estimates of shares can be negative and need not sum to one. Every repair that is not
linear is biased: it stands beside the estimates, and no interval belongs to it. What results show
is the better of two of them (:func:`mechanisms.estimators.frequency.consistent_shares`), one of
them Norm-Sub (:func:`mechanisms.estimators.frequency.norm_sub`); its kin are compared in
T. Wang, M. Lopuhaä-Zwakenberg, Z. Li, B. Skoric, N. Li, "Locally Differentially Private Frequency
Estimation with Consistency", NDSS 2020, section 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Floats
from mechanisms.errors import ParameterError
from mechanisms.estimators.frequency import norm_sub


def norm_shrink(values: ArrayLike, variance: float, steps: int = 64) -> Floats:
    """Return unbiased estimates drawn towards equal shares by as much as their noise asks for.

    Values are moved a part of the way to 1/m, then Norm-Sub makes shares of them. Of all parts, as
    many as ``steps``, the one with the least squared error as Stein's unbiased estimate has it is
    taken: none where the noise is small, nearly all where it covers everything. There Norm-Sub
    alone leaves a few large shares made of noise. ``variance`` is that of a value, on average over
    the values.

    Bias: towards 1/m for every value, by at most the noise's share of the values' spread.

    References
    ----------
    C. M. Stein, "Estimation of the Mean of a Multivariate Normal Distribution", Annals of
    Statistics 9(6), 1981. The degrees of freedom are those of a projection onto a simplex, the
    kept values less one, times the part that is kept.

    Examples
    --------
    >>> norm_shrink([0.7, 0.5, -0.2], 0.0)
    array([0.6, 0.4, 0. ])
    >>> norm_shrink([0.7, 0.5, -0.2], 10.0).round(3)
    array([0.339, 0.336, 0.325])
    """
    given = _row(values)
    if not 0 <= variance < np.inf:
        raise ParameterError(f"variance must be at least 0 and finite, got {variance}")
    best, least = norm_sub(given), np.inf
    for kept in np.arange(steps, 0, -1) / steps:
        shares = norm_sub(1 / given.size + kept * (given - 1 / given.size))
        freedom = kept * (np.count_nonzero(shares) - 1)
        risk = ((given - shares) ** 2).sum() + 2 * variance * freedom
        if risk < least:
            best, least = shares, risk
    return best


def _row(values: ArrayLike) -> Floats:
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise ParameterError("values must be one row of finite numbers")
    return given
