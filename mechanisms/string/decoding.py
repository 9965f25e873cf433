"""Which strings are behind Bloom filters, and how many clients have each.

The fit is in :mod:`mechanisms.string.bloom_regression`; here it is turned into estimates, tests of
all candidates together, and shares to display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.arrays import Floats, Ints
from mechanisms.errors import ParameterError
from mechanisms.estimate import FLOOR_ERRORS, Estimate, nothing
from mechanisms.estimators.frequency import norm_sub
from mechanisms.string.bloom_regression import (
    UNDETERMINED,
    Errors,
    Filters,
    estimate_errors,
    fit,
    observe,
)


@dataclass(frozen=True)
class CandidateEstimate:
    """A candidate string, its share of the reports, and whether it is there at all.

    Attributes
    ----------
    estimate : Estimate
        Undetermined (NaN, infinite error) if ``confounded_with`` is not empty.
    p_value : float
        One-sided, of the hypothesis that no client has the string, adjusted by Holm's method
        for all candidates; ``significant`` if at most the error asked for.
    confounded_with : tuple of str
        The candidates, itself included, between which the filters cannot tell; else empty.
    """

    candidate: str
    estimate: Estimate
    p_value: float
    significant: bool
    confounded_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class StringEstimates:
    """What the reports of a string metric say of the candidates, in their order.

    ``unexplained`` is the share of the reports whose string is no candidate. ``display`` are the
    shares made non-negative by Norm-Sub, with the sum that the candidates explain: for charts; no
    interval belongs to them.
    """

    items: tuple[CandidateEstimate, ...]
    unexplained: Estimate
    display: tuple[float, ...]


def decode(
    cells: Ints,
    pairs: Floats,
    filters: Filters,
    candidates: Sequence[str],
    *,
    error: float = 0.05,
    design_effect: float = 1.0,
) -> StringEstimates:
    """Estimate the shares of candidate strings.

    All levels have equal weights within a cohort. Significance is a one-sided normal test with the
    skewness of the noise allowed for, for all candidates together by Holm's method.

    Parameters
    ----------
    cells, pairs
        See :func:`mechanisms.string.bloom_regression.observe`.
    candidates : sequence of str
        Distinct, at least one.
    error : float in (0, 1)
        Probability, at most, with which any candidate that nobody has is called significant.
    design_effect : float, at least 1
        Sum of the squares of the pseudonyms' numbers of reports over the number of reports. The
        chains of one pseudonym are in one cohort and may have one value, which makes the
        cohorts' true shares vary by so much more.

    References
    ----------
    Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving
    Ordinal Response", CCS 2014, section 4. Unlike there, no variables are selected before the
    fit, so that the p-values are those of the only fit made.
    """
    names = tuple(candidates)
    if not names or len(set(names)) < len(names):
        raise ParameterError("candidates must be distinct, and at least one")
    if not 0 < error < 1:
        raise ParameterError(f"error must lie in (0, 1), got {error}")
    if not 1 <= design_effect < math.inf:
        raise ParameterError(f"design_effect must be at least 1, got {design_effect}")
    by_level = tuple(int(n) for n in cells[:, :, -1].sum(axis=1))
    if sum(by_level) == 0:
        empty = nothing(by_level)
        items = tuple(CandidateEstimate(name, empty, 1.0, False) for name in names)
        return StringEstimates(items, empty, (0.0,) * len(names))
    observed = observe(cells, pairs, filters.density)
    matrix = filters.matrix(names)
    solved = fit(observed, matrix)
    explained = float(solved.shares.sum())
    display = norm_sub(solved.shares, total=min(max(explained, 0.0), 1.0))
    errors = estimate_errors(observed, matrix, solved, display, design_effect)
    values = np.append(solved.shares, 1 - explained)
    estimates = [
        _estimate(*pair, by_level)
        for pair in zip(values.tolist(), errors.variances.tolist(), strict=True)
    ]
    p_values = _holm(_p_values(values, errors, solved.freedom)[:-1])
    items = tuple(
        CandidateEstimate(name, estimate, p, p <= error, group)
        for name, estimate, p, group in zip(
            names, estimates[:-1], p_values.tolist(), _groups(names, solved.null), strict=True
        )
    )
    return StringEstimates(items, estimates[-1], tuple(display.tolist()))


def _estimate(value: float, variance: float, by_level: tuple[int, ...]) -> Estimate:
    if not math.isfinite(variance):
        return nothing(by_level)
    standard_error = math.sqrt(variance)
    floor = FLOOR_ERRORS * standard_error
    return Estimate(value, standard_error, sum(by_level), by_level, detection_floor=floor)


def _p_values(values: Floats, errors: Errors, freedom: int) -> Floats:
    """Return one-sided p-values: Student's law, Cornish and Fisher's first term for skewness."""
    from scipy import special

    z = values / np.sqrt(errors.testing)
    z -= np.maximum(errors.skews, 0.0) * np.maximum(z**2 - 1, 0.0) / 6
    tails = special.stdtr(max(freedom, 1), -z)
    p_values: Floats = np.where(np.isfinite(errors.variances), tails, 1.0)
    return p_values


def _holm(p_values: Floats) -> Floats:
    """Adjust p-values for each other by Holm's method."""
    order = np.argsort(p_values)
    steps = np.arange(len(p_values), 0, -1) * p_values[order]
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _groups(names: tuple[str, ...], null: Floats) -> list[tuple[str, ...]]:
    """Return for each candidate those between which the filters cannot tell."""
    from scipy import sparse

    groups: list[tuple[str, ...]] = [()] * len(names)
    loose = np.flatnonzero((null**2).sum(axis=1) > UNDETERMINED)
    together = np.abs(null[loose] @ null[loose].T) > UNDETERMINED
    number, labels = sparse.csgraph.connected_components(together, directed=False)
    for label in range(number):
        members = loose[labels == label]
        group = tuple(names[i] for i in members)
        for i in members:
            groups[i] = group
    return groups
