"""The one helper of all statistical tests.

Every check names the probability with which it fails although nothing is wrong, 1e-9 by default,
and takes its critical values from the exact distribution of what it looks at. Several numbers
looked at in one check share that probability evenly (Bonferroni), so that it is an upper bound
whatever their dependence. A check fails with an AssertionError that says what was seen, what was
expected and, if the caller passes it as ``label``, the seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

FALSE_FAILURE_RATE = 1e-9


def _rate(false_failure_rate: float, numbers: int = 1) -> float:
    if not 0 < false_failure_rate <= 1e-3:
        raise ValueError(f"false_failure_rate must lie in (0, 0.001], not {false_failure_rate}")
    return false_failure_rate / numbers


def check_binomial(
    successes: int,
    trials: int,
    probability: float | Fraction,
    *,
    false_failure_rate: float = FALSE_FAILURE_RATE,
    label: object = "",
) -> None:
    """Check that successes in independent trials fit their probability, on both sides."""
    check_counts(
        [successes, trials - successes],
        [probability, 1 - probability],
        false_failure_rate=false_failure_rate,
        label=label,
    )


def check_counts(
    counts: ArrayLike,
    probabilities: Sequence[float | Fraction] | ArrayLike,
    *,
    false_failure_rate: float = FALSE_FAILURE_RATE,
    label: object = "",
) -> None:
    """Check that multinomial counts fit their probabilities.

    Each count is binomial; it must lie between the critical values of that distribution.

    Parameters
    ----------
    counts : array_like, shape (m,)
        All trials: outcomes that were not looked at must be given as one more count.
    probabilities : array_like, shape (m,)
        Their sum is 1; an outcome of probability 0 must not occur at all.
    """
    seen = np.asarray(counts, dtype=np.int64)
    expected = np.asarray([float(p) for p in np.asarray(probabilities, dtype=object)])
    if seen.shape != expected.shape or seen.ndim != 1:
        raise ValueError(f"{seen.shape} counts do not fit {expected.shape} probabilities")
    if not math.isclose(expected.sum(), 1, rel_tol=1e-9):
        raise ValueError(f"probabilities sum to {expected.sum()}, not 1")
    trials = int(seen.sum())
    tail = _rate(false_failure_rate, 2 * len(seen))
    below = stats.binom.cdf(seen, trials, expected) < tail
    above = stats.binom.sf(seen - 1, trials, expected) < tail
    _report(below | above, seen, trials * expected, label)


def check_at_least(
    successes: int,
    trials: int,
    probability: float,
    *,
    false_failure_rate: float = FALSE_FAILURE_RATE,
    label: object = "",
) -> None:
    """Check that the chance of success is not below ``probability``: coverage, power."""
    tail = _rate(false_failure_rate)
    if stats.binom.cdf(successes, trials, probability) < tail:
        raise AssertionError(
            f"{label}: {successes} of {trials}, at least about {probability * trials:.1f} expected"
        )


def check_normal(
    value: ArrayLike,
    expected: ArrayLike,
    standard_error: ArrayLike,
    *,
    false_failure_rate: float = FALSE_FAILURE_RATE,
    label: object = "",
) -> None:
    """Check normal variates of known standard error.

    For sums so long that their distribution is normal out to the critical value; where the
    exact distribution is a binomial or multinomial one, use it.
    """
    seen = np.atleast_1d(np.asarray(value, dtype=np.float64))
    mean, error = np.broadcast_arrays(
        np.asarray(expected, float), np.asarray(standard_error, float)
    )
    if not (np.isfinite(error).all() and (error > 0).all()):
        raise ValueError("standard errors must be positive and finite")
    tail = _rate(false_failure_rate, 2 * seen.size)
    off = ~(np.abs(seen - mean) <= stats.norm.isf(tail) * error)
    _report(
        np.atleast_1d(off).ravel(), seen.ravel(), np.broadcast_to(mean, seen.shape).ravel(), label
    )


def check_variance(
    values: ArrayLike,
    variance: float,
    *,
    false_failure_rate: float = FALSE_FAILURE_RATE,
    label: object = "",
) -> None:
    """Check the variance of independent normal variates, by the exact chi-square law."""
    seen = np.asarray(values, dtype=np.float64)
    freedom = seen.size - 1
    statistic = float(seen.var(ddof=1)) * freedom / variance
    tail = _rate(false_failure_rate, 2)
    low, high = stats.chi2.ppf(tail, freedom), stats.chi2.isf(tail, freedom)
    if not low <= statistic <= high:
        raise AssertionError(
            f"{label}: variance {seen.var(ddof=1):.6g}, {variance:.6g} expected, allowed "
            f"{variance * low / freedom:.6g} to {variance * high / freedom:.6g}"
        )


def _report(off: np.ndarray, seen: np.ndarray, expected: np.ndarray, label: object) -> None:
    if off.any():
        rows = [
            f"outcome {i}: {seen[i]}, about {expected[i]:.6g} expected"
            for i in np.flatnonzero(off)[:5]
        ]
        raise AssertionError(f"{label}: {off.sum()} of {off.size} outcomes off; " + "; ".join(rows))
