"""Estimates of recorded values from reports of an ordinal mechanism.

A sum Σ f(x) over the values has an unbiased estimate if and only if f = C g for weights g of the
outputs: f lies in the column space of the channel. Values with equal rows, such as those near
an end, then cannot be distinguished by anyone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from mechanisms.arrays import ArrayLike, Floats, Ints, np
from mechanisms.errors import ParameterError
from mechanisms.estimate import SCORE_REPORTS, Estimate, ShareNoise, nothing, share_region
from mechanisms.planner.targets import Assumed, Precision

if TYPE_CHECKING:
    from mechanisms.base import Mechanism
    from mechanisms.estimators.expectation import EmEstimate
    from mechanisms.items import Context, Item

    #: A channel, and what makes sums over its inputs weights of its outputs.
    Level = tuple[Floats, Floats]

#: A sum is in the column space if it is missed by at most this part of its largest term.
_MISSED = 1e-6
#: A singular value of differences between rows of chances that rounding alone may have made.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class OrdinalEstimates:
    """Estimates from the counts of an ordinal mechanism.

    Attributes
    ----------
    groups, group_shares : tuple of tuple of int, tuple of Estimate
        Values, in order, that reports do not distinguish at any level; their shares, unbiased.
    cumulative : tuple of Estimate
        Unbiased: the share of values up to 0, 1, ..., N − 2, in their order, missing ones not
        among them; nothing where a group of more values than one is cut in two.
    mean_bounds : (Estimate, Estimate)
        What the mean over values that are not missing is at least and at most, wherever values are
        in their groups, the same if reports distinguish every value: unbiased, where values can be
        missing only for many reports.
    shares : EmEstimate
        The most likely shares of all values. They are biased: none is negative, and what reports
        leave open is decided by no data (their error is infinite). The errors are those of the
        estimate without that limit, no confidence interval at a share near zero.
    """

    groups: tuple[tuple[int, ...], ...]
    group_shares: tuple[Estimate, ...]
    cumulative: tuple[Estimate, ...]
    mean_bounds: tuple[Estimate, Estimate]
    shares: EmEstimate


def ordinal(
    mechanism: Mechanism,
    counts: ArrayLike,
    numbers: Sequence[float] | None = None,
    *,
    missing: bool = False,
) -> OrdinalEstimates:
    """Estimate from the newest reports of all levels of ``brr`` or ``grr``.

    ``counts`` has the shape ``(levels, count_length)``. ``numbers`` are what the values stand for,
    in increasing order, missing ones not among them, by default 0, 1, 2, ...; ``missing`` says
    whether the last value stands for a missing one.

    The weights g with C g = f are taken whose estimate varies least if all values are alike: they
    depend on no counts, so that the estimate is unbiased. Levels are averaged with equal weights a
    report. The variance given the values, Σ (C g² − f²)(x), is a sum over the values too and
    estimated like one, within its least and largest possible amount; of levels with fewer than 200
    reports the largest is taken. Intervals are normal, with a continuity correction where reports
    are few, or chance makes few answers (:attr:`~mechanisms.estimate.ShareNoise.half`).

    D. G. Horvitz, D. J. Thompson, "A Generalization of Sampling Without Replacement from a Finite
    Universe", JASA 47(260), 1952; C. F. Manski, "Partial Identification of Probability
    Distributions", Springer 2003 (bounds).

    >>> from mechanisms.ordinal.brr import BipartiteRandomizedResponse
    >>> brr = BipartiteRandomizedResponse(epsilon=2.0, domain_size=5, subset_size=3)
    >>> found = brr.estimates([[250, 320, 330, 220, 80]])
    >>> found.groups
    ((0, 1), (2,), (3, 4))
    >>> [round(share.value, 3) for share in found.group_shares]
    [0.56, 0.322, 0.118]
    >>> [round(bound.value, 2) for bound in found.mean_bounds]
    [1.0, 1.68]
    """
    from mechanisms.estimators.expectation import expectation_maximization
    from mechanisms.estimators.frequency import count_table

    table = count_table(mechanism, counts)
    levels = _levels(cast(Hashable, mechanism))
    matrices = [matrix for matrix, _ in levels]
    inputs = len(matrices[0])
    points = inputs - missing
    places = np.arange(points, dtype=float) if numbers is None else np.asarray(numbers, float)
    if not (
        places.shape == (points,) and np.isfinite(places).all() and (np.diff(places) > 0).all()
    ):
        raise ParameterError(f"numbers must be {points} finite numbers in increasing order")
    groups = groups_of(matrices)
    sums = np.zeros((inputs, len(groups) + points + 2))
    for number, group in enumerate(groups):
        sums[list(group), number] = 1.0
        if group[0] < points:
            sums[list(group), -2:] = places[[group[0], min(group[-1], points - 1)]]
    for last in range(points - 1):
        sums[: last + 1, len(groups) + last] = 1.0
    sums[:points, -3] = 1.0
    means = _Sums(levels, table, sums)
    return OrdinalEstimates(
        groups,
        tuple(means.estimate(number) for number in range(len(groups))),
        tuple(means.estimate(len(groups) + last) for last in range(points - 1)),
        (means.quotient(-2, -3), means.quotient(-1, -3)),
        expectation_maximization(matrices, list(table)),
    )


def groups_of(matrices: Sequence[Floats]) -> tuple[tuple[int, ...], ...]:
    """Return the inputs with equal rows at all levels together, in order of their first."""
    found: dict[bytes, list[int]] = {}
    for x in range(len(matrices[0])):
        found.setdefault(b"".join(matrix[x].tobytes() for matrix in matrices), []).append(x)
    return tuple(tuple(group) for group in found.values())


def ordinal_items(
    mechanism: Mechanism, counts: Ints, context: Context, shares: Iterator[Item] | None = None
) -> Iterator[Item]:
    """Yield ``shares`` (by default the most likely ones), then groups, the mean and the CDF."""
    from mechanisms.items import Item, Method

    labels = context.labels
    points = labels[: len(labels) - context.missing]
    numbers = context.points or range(1, len(points) + 1)
    found = ordinal(mechanism, counts, numbers, missing=context.missing)
    by_level = found.group_shares[0].reports_by_level
    if shares is not None:
        yield from shares
    else:
        errors = found.shares.standard_errors.tolist()
        for label, value, error in zip(labels, found.shares.values, errors, strict=True):
            likely = Estimate(float(value), error, sum(by_level), by_level)
            yield Item("share", label, likely, method=Method.EM)
        for group, each in zip(found.groups, found.group_shares, strict=True):
            ends = dict.fromkeys((labels[group[0]], labels[group[-1]]))
            yield Item("group", " to ".join(ends), each)
    unit = context.unit if context.points is not None else "rank"
    least, most = found.mean_bounds
    if len(found.groups) == len(labels):
        yield Item("mean", "", least, unit)
    else:
        # Bounds of the mean where reports do not distinguish some values.
        yield Item("mean", "at least", least, unit)
        yield Item("mean", "at most", most, unit)
    for label, each in zip(points, found.cumulative, strict=False):
        if math.isfinite(each.standard_error):
            yield Item("cdf", label, each)


@lru_cache(maxsize=64)
def _levels(mechanism: Hashable) -> tuple[Level, ...]:
    given: Any = mechanism
    matrices = [given.matrix(level) for level in range(given.levels)]
    return tuple((matrix, _inverse(matrix)) for matrix in matrices)


class _Sums:
    """Unbiased estimates of sums over values, from all levels."""

    def __init__(self, levels: Sequence[Level], table: Ints, sums: Floats) -> None:
        self._by_level = tuple(int(n) for n in table.sum(axis=1))
        self._levels, self._table, self._sums = levels, table, sums
        self._weights = [inverse @ sums for _, inverse in levels]

    def estimate(self, column: int) -> Estimate:
        weights, whole = [g[:, column] for g in self._weights], self._sums[:, column]
        for (matrix, _), g, n in zip(self._levels, weights, self._by_level, strict=True):
            if n and np.abs(matrix @ g - whole).max() > _MISSED * np.abs(whole).max():
                return nothing(self._by_level)
        if not any(self._by_level):
            return nothing(self._by_level)
        total = sum(float(row @ g) for row, g in zip(self._table, weights, strict=True))
        return self._mean(total / sum(self._by_level), weights, whole)

    def quotient(self, column: int, below: int) -> Estimate:
        """Estimate the quotient of two means, as it varies if there are many reports."""
        over, under = self.estimate(column), self.estimate(below)
        if (self._sums[:, below] == 1).all():
            # The divisor is one, whatever reports say, as no value can be missing.
            return over
        if not (math.isfinite(over.standard_error) and under.value > 0):
            return nothing(self._by_level)
        value = over.value / under.value
        weights = [(g[:, column] - value * g[:, below]) / under.value for g in self._weights]
        whole = (self._sums[:, column] - value * self._sums[:, below]) / under.value
        found = self._mean(value, weights, whole)
        pairs = zip(found.reach or (), under.reach or (), strict=True)
        reach = tuple((*pair, more / under.value) for pair, (more, _) in pairs)
        return replace(found, reach=reach, scores=None)

    def _mean(self, value: float, weights: Sequence[Floats], whole: Floats) -> Estimate:
        """Return the estimate of a mean whose weights give ``whole`` a value.

        Reports may be forged by those of any value, for whom any output is sent.
        """
        error, least, most = math.sqrt(self._variance(weights, whole)), whole.min(), whole.max()
        reach = tuple((float(g.max() - least), float(most - g.min())) for g in weights)
        used = np.concatenate([g for g, n in zip(weights, self._by_level, strict=True) if n])
        low, high = float(used.min()), float(used.max())
        # Outputs for neighbours among the values are so far apart on average.
        n, step = sum(self._by_level), (high - low) / max(len(np.unique(whole)) - 1, 1)
        noise = ShareNoise(n, (n * error) ** 2, (), step)
        region = share_region(value, noise) if np.isin(whole, (0, 1)).all() else None
        made = Estimate(value, error, n, self._by_level, region=region, reach=reach)
        return replace(made, scores=(low, high), half=noise.half)

    def _variance(self, weights: Sequence[Floats], whole: Floats) -> float:
        """Return the estimated variance of a mean whose weights give ``whole`` a value."""
        total = 0.0
        for (matrix, inverse), g, row in zip(self._levels, weights, self._table, strict=True):
            each, n = np.maximum(matrix @ g**2 - whole**2, 0.0), int(row.sum())
            most = float(each.max()) * n
            if n >= SCORE_REPORTS:
                by_output = inverse @ each
                seen = float(row @ by_output)
                known = np.abs(matrix @ by_output - each).max() <= _MISSED * each.max()
                most = min(max(seen, float(each.min()) * n), most) if known else most
            total += most
        return total / sum(self._by_level) ** 2


def _inverse(matrix: Floats) -> Floats:
    """Return what makes sums output weights whose means given the values come closest to them."""
    spread = np.sqrt(matrix.mean(axis=0))
    used = spread > 0
    left, singular, right = np.linalg.svd(matrix[:, used] / spread[used], full_matrices=False)
    kept = singular > 4 * sys.float_info.epsilon * max(matrix.shape) * float(singular[0])
    inverse = np.zeros(matrix.shape[::-1])
    inverse[used] = right[kept].T @ (left[:, kept] / singular[kept]).T / spread[used][:, None]
    return inverse


def mean_precision(
    matrix: Floats, assumed: Assumed, scale: float, *, missing: bool = False
) -> Precision:
    """Return that of the mean, or of its wider bound; see :func:`mean_bound_variance`.

    It has bounds where reports do not distinguish all values.
    """
    unit = mean_bound_variance(matrix, assumed.values, missing=missing)
    data = "the worst values" if assumed.values is None else "the values given"
    what = "the mean" if len(groups_of([matrix])) == len(matrix) else "a bound of the mean"
    return Precision(what, data, lambda n: unit, scale)


def mean_bound_variance(
    matrix: Floats, values: Sequence[float] | None = None, *, missing: bool = False
) -> float:
    """Return n times the variance of a bound of the mean, the larger one of the two.

    The points of a level's channel are evenly spaced in [0, 1]. ``values`` are a picture of the
    data, each at the nearest point; by default the worst: for every bound the point of which the
    variance is largest, if all are there. ``missing`` says whether the last input is a missing
    value.

    >>> from mechanisms.ordinal.brr import BipartiteRandomizedResponse
    >>> round(mean_bound_variance(BipartiteRandomizedResponse(2.0, 5, 3).matrix(0)), 4)
    0.297
    """
    points = len(matrix) - missing
    places = np.linspace(0.0, 1.0, points)
    present = np.arange(len(matrix)) < points
    shares = None
    # A mean is a quotient by the estimated share of those present, where values can be missing.
    centres = np.linspace(0.0, 1.0, 9) if missing else np.array([0.5])
    if values is not None:
        nearest = np.rint(np.asarray(values, dtype=np.float64) * (points - 1)).astype(np.int64)
        shares = np.bincount(nearest, minlength=points) / len(nearest)
    worst = 0.0
    for end in (0, -1):
        bound = np.zeros(len(matrix))
        for group in groups_of([matrix]):
            if group[0] < points:
                bound[list(group)] = places[min(group[end], points - 1)]
        if shares is not None:
            centres = np.array([shares @ bound[:points]])
        for centre in centres.tolist():
            spread = _spread(matrix, bound - centre * present)[:points]
            worst = max(worst, float(spread.max() if shares is None else shares @ spread))
    return worst


def _spread(matrix: Floats, whole: Floats) -> Floats:
    """Return the variance that a report adds to the estimated sum of ``whole``, by its value."""
    # Rows that differ by a millionth of themselves are solved without what they have in common,
    # whose rounding would be as large as their differences.
    common = matrix.mean(axis=0)
    root, level = np.sqrt(common), whole.mean()
    used = root > 0
    differences = (matrix - common)[:, used] / root[used]
    left, singular, right = np.linalg.svd(differences, full_matrices=False)
    kept = singular > _ROUNDING
    solved = right[kept].T @ (left[:, kept].T @ (whole - level) / singular[kept])
    if np.abs(differences @ solved + level - whole).max() > _MISSED * np.abs(whole).max():
        raise ParameterError("the reports of this level do not determine the mean")
    weights = np.zeros(matrix.shape[1])
    weights[used] = level + solved / root[used]
    found: Floats = matrix @ weights**2 - whole**2
    return found
