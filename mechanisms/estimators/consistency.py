"""Shares made to look like shares: Norm-Sub's kin, each with what it is biased by.

Unbiased estimates of shares can be negative and need not sum to one. Every repair that is not
linear is biased: what noise pushes below zero is cut off, what it pushes above stays, so that
values nobody has gain, and frequent ones pay for it. Repaired shares are for display and for
tasks that need a distribution; they stand beside the estimates, and no interval belongs to them.

The methods and their names are those of T. Wang, M. Lopuhaä-Zwakenberg, Z. Li, B. Skoric, N. Li,
"Locally Differentially Private Frequency Estimation with Consistency", NDSS 2020, section 4. Its
Norm-Sub is :func:`mechanisms.estimators.frequency.norm_sub`; Power and the maximum likelihood that
it approximates need a prior or the channel: see :mod:`mechanisms.estimators.expectation` for the
latter.
:func:`norm_shrink` is not of that paper: it needs the noise, which randomized reports tell.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


def base_pos(values: ArrayLike) -> NDArray[np.float64]:
    """Return the values with negative ones replaced by zero (Base-Pos).

    Bias: upward for every value, most for those that nobody has: each gains 0.4 of a standard
    error, so that the sum exceeds one by 0.4 standard errors a rare value.

    Examples
    --------
    >>> base_pos([0.7, 0.5, -0.2])
    array([0.7, 0.5, 0. ])
    """
    import numpy as np

    kept: NDArray[np.float64] = np.maximum(_row(values), 0.0)
    return kept


def base_cut(
    values: ArrayLike, standard_errors: ArrayLike, expected: float = 2.0
) -> NDArray[np.float64]:
    """Return the values that are significant, and zero for all others (Base-Cut).

    Bias: downward for every share that is not far above the threshold, which on average becomes
    nearly zero; values that nobody has become zero almost always. The sum is below one.

    Parameters
    ----------
    values : array_like, shape (m,)
        Finite.
    standard_errors : array_like, shape (m,) or a number
        Of a share of zero.
    expected : float in (0, m)
        How many of m values that nobody has would pass on average.

    Raises
    ------
    ParameterError
        A value is not finite, an error is negative, or ``expected`` is outside its range.

    Examples
    --------
    >>> base_cut([0.7, 0.04, 0.29, -0.03], 0.05, expected=0.1)
    array([0.7 , 0.  , 0.29, 0.  ])
    """
    import numpy as np

    given, errors = _row(values), np.asarray(standard_errors, dtype=np.float64)
    if not (errors.shape in ((), given.shape) and (errors >= 0).all()):
        raise ParameterError("standard_errors must be one, or one a value, and none negative")
    if not 0 < expected < given.size:
        raise ParameterError(f"expected must lie in (0, {given.size}), got {expected}")
    threshold = -NormalDist().inv_cdf(expected / given.size) * errors
    kept: NDArray[np.float64] = np.where(given > np.maximum(threshold, 0.0), given, 0.0)
    return kept


def norm(values: ArrayLike, total: float = 1.0) -> NDArray[np.float64]:
    """Return the values, all shifted by the same amount to the given sum (Norm).

    Bias: none, since the shift is zero on average; the result can still be negative.

    Examples
    --------
    >>> norm([0.75, 0.5, -0.0625]).round(4)
    array([ 0.6875,  0.4375, -0.125 ])
    """
    given = _row(values)
    _check_total(total)
    shifted: NDArray[np.float64] = given + (total - given.sum()) / max(given.size, 1)
    return shifted


def norm_mul(values: ArrayLike, total: float = 1.0) -> NDArray[np.float64]:
    """Return the positive values, scaled to the given sum (Norm-Mul).

    Bias: downward for frequent values, in proportion to them, and upward for those that nobody
    has. With many rare values most of the sum goes to them: the worst of the kin for the frequent.

    Returns
    -------
    ndarray, shape (m,), float64
        All equal if no value is positive.

    Examples
    --------
    >>> norm_mul([0.75, 0.5, -0.25])
    array([0.6, 0.4, 0. ])
    """
    import numpy as np

    kept = base_pos(values)
    _check_total(total)
    whole = float(kept.sum())
    if whole <= 0:
        return np.full(kept.size, total / max(kept.size, 1))
    # The largest is taken out first: the quotients of very small values would not be finite.
    shares = kept / kept.max()
    scaled: NDArray[np.float64] = total * shares / shares.sum()
    return scaled


def norm_cut(values: ArrayLike, total: float = 1.0) -> NDArray[np.float64]:
    """Return the largest values as they are, as long as they do not exceed the sum (Norm-Cut).

    Bias: none to speak of for frequent values, which are not touched; downward for rare ones,
    which are cut. The sum can stay below the given one.

    Examples
    --------
    >>> norm_cut([0.75, 0.25, 0.125, -0.125])
    array([0.75, 0.25, 0.  , 0.  ])
    """
    import numpy as np

    kept = base_pos(values)
    _check_total(total)
    order = np.argsort(-kept, kind="stable")
    # A sum that is the total but for rounding is the total.
    inside = np.cumsum(kept[order]) <= total * (1 + 1e-12)
    kept[order[~inside]] = 0.0
    return kept


def norm_shrink(values: ArrayLike, variance: float, steps: int = 64) -> NDArray[np.float64]:
    """Return the values drawn towards equal shares by as much as their noise asks for.

    Values are moved a part of the way to 1/m, then Norm-Sub makes shares of them. Of all parts the
    one with the least squared error as Stein's unbiased estimate has it is taken: none where the
    noise is small, nearly all where it covers everything. There Norm-Sub alone leaves a few large
    shares made of noise.

    Bias: towards 1/m for every value, by at most the noise's share of the values' spread.

    Parameters
    ----------
    values : array_like, shape (m,)
        Finite; unbiased estimates.
    variance : float, at least 0
        Of a value, on average over the values.
    steps : int
        How many parts are tried.

    Raises
    ------
    ParameterError
        A value is not finite, or the variance is negative or not finite.

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
    import numpy as np

    from mechanisms.estimators.frequency import norm_sub

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


def _row(values: ArrayLike) -> NDArray[np.float64]:
    import numpy as np

    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise ParameterError("values must be one row of finite numbers")
    return given


def _check_total(total: float) -> None:
    if not 0 <= total < float("inf"):
        raise ParameterError(f"total must be at least 0 and finite, got {total}")
