"""Which strings are behind Bloom filters, and how many clients have each.

Debiased and divided by the reports of its cohort, the sum of a bit has as mean the share of
clients whose string sets it. With X the filters of the candidates, a row a cohort and bit, and d
the density of a random filter,

    y − d = (X − d) π + noise,

π being the candidates' shares: what no candidate explains, a share 1 − Σπ, is taken to set each
bit with probability d, which is true on average over the hashes of unlisted strings. π is
estimated by least squares, weighted by the known noise of each cohort's mix of levels.

The variance of a share is that of the known noise, but a frequent unlisted string sets bits of
its own, some of which are a candidate's too, and the residuals scatter more than the noise does.
On average over the hashes, that multiplies the variance by the mean excess of the residuals: this
is the variance of an estimate. Whether a candidate that nobody has happens to share several bits
with such a string is another matter: the fit then lies on few of its bits, which its own
residuals show, so that tests use a variance from those (HC3, less what it adds to plain noise)
where it is larger. The random assignment of clients to cohorts adds a little to both.

References
----------
J. G. MacKinnon, H. White. "Some heteroskedasticity-consistent covariance matrix estimators with
improved finite sample properties", Journal of Econometrics 29, 1985.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms import coins
from mechanisms.arrays import Floats, Ints
from mechanisms.errors import ParameterError, check_probability
from mechanisms.estimate import FLOOR_ERRORS, Estimate, nothing
from mechanisms.estimators.frequency import answer_ends, consistent_shares, norm_sub

#: A candidate of which a larger part lies in the null space is not determined.
UNDETERMINED = 1e-8
#: Eigenvalues below this part of the largest one are taken to be zero.
_SINGULAR = 1e-10
#: A leverage is taken to be at most so much.
_LEVERAGE = 1 - 1e-6
#: The most frequent candidates, which stand for all in the small variance between cohorts.
_FREQUENT = 128
#: Reports of a cohort, so many that what is random about them is as good as exact.
_EACH = 10**12


@dataclass(frozen=True, eq=False)
class Observed:
    """Debiased bit sums of the C cohorts that have reports, for filters of k bits.

    ``bits``, ``(C, k)``, are the estimated shares of a cohort's reports with each bit set,
    ``weights`` one over the noise variance of such a share, ``cumulants`` the third cumulant of its
    noise; ``density`` is the probability that a random filter sets a bit.
    """

    cohorts: NDArray[np.intp]
    reports: Ints
    bits: Floats
    weights: Floats
    cumulants: Floats
    density: float


@dataclass(frozen=True, eq=False)
class Fit:
    """A solution of the least squares for S candidates.

    ``inverse``, ``(S, S)``, is that of the normal matrix, or its pseudo-inverse; ``residuals`` are
    ``(C, k)``; ``null``, ``(S, z)``, is an orthonormal basis of what the filters cannot tell.
    ``excess`` is the residuals' mean square over that of the known noise, at least 1, and
    ``freedom`` their degrees of freedom.
    """

    shares: Floats
    inverse: Floats
    residuals: Floats
    null: Floats
    excess: float
    freedom: int


@dataclass(frozen=True, eq=False)
class Influence:
    """The part of each estimate that one report of each of C cohorts has.

    ``parts``, ``(6, C, S + 1)``, are sums over the bits of a report: the positive and the negative
    coefficients, the most and the least that any string's filter adds, what the fit has of a
    report, and the residual. ``precision``, ``(C, 1)``, is one over a report's mean noise.
    """

    parts: Floats
    precision: Floats

    def reach(self, no: float, yes: float) -> tuple[Floats, Floats]:
        """Return how far a report that takes a true one's place raises and lowers estimates.

        Each bit counts ``no`` or ``yes``, whichever its forger likes; he chooses the cohort, too.
        """
        _, _, most, least, _, _ = self.parts
        high, low = self._ends(no, yes)
        return (high - least).max(axis=0), (most - low).max(axis=0)

    def one_more(self, no: float, yes: float) -> tuple[Floats, Floats]:
        """Return how far one more report lowers and raises estimates, but for terms in 1/n²."""
        # A report with more noise than others lowers the weight of its cohort.
        lost = -no * yes * self.precision - 1
        present = self.parts[4] + lost * self.parts[5]
        high, low = self._ends(no, yes)
        return (present - low).max(axis=0), (high - present).max(axis=0)

    def _ends(self, no: float, yes: float) -> tuple[Floats, Floats]:
        plus, minus = self.parts[:2]
        return yes * plus + no * minus, no * plus + yes * minus


class Errors(NamedTuple):
    """Errors of the shares of S candidates and, last, of the unexplained share: ``(S + 1,)`` each.

    ``variances`` are those of the estimates, ``testing`` those for tests, ``skews`` of the noise;
    ``influence`` is that of one report.
    """

    variances: Floats
    testing: Floats
    skews: Floats
    influence: Influence


@dataclass(frozen=True)
class Filters:
    """How strings become Bloom filters: ``bits`` bits, ``hashes`` hashes, ``cohorts`` cohorts."""

    bits: int
    hashes: int
    cohorts: int

    @property
    def density(self) -> float:
        """The probability that a random filter sets a bit."""
        return 1 - (1 - 1 / self.bits) ** self.hashes

    def matrix(self, names: tuple[str, ...]) -> Any:
        """Return the filters of strings, ``(cohorts * bits, S)``; see :func:`bloom_filters`."""
        return bloom_filters(names, self.bits, self.hashes, self.cohorts)


def observe(cells: Ints, pairs: Floats, density: float) -> Observed:
    """Debias bit sums at each level and add the levels, all reports with equal weights.

    ``cells``, ``(levels, cohorts, k + 1)``, are bit sums and, last, reports; ``pairs``,
    ``(levels, 2)``, the probabilities that a set bit, and that another, is reported as 1.
    """
    p, q = pairs.T[:, :, None]
    gap = p - q
    ones, by_level = cells[:, :, :-1], cells[:, :, -1]
    reports = by_level.sum(axis=0)
    cohorts = np.flatnonzero(reports)
    n = reports[cohorts]
    sums = ((ones - (by_level * q)[:, :, None]) / gap[:, :, None]).sum(axis=0)
    noise = (by_level * q * (1 - q) / gap**2).sum(axis=0)
    third = (by_level * q * (1 - q) * (1 - 2 * q) / gap**3).sum(axis=0)
    return Observed(
        cohorts,
        n,
        sums[cohorts] / n[:, None],
        n.astype(np.float64) ** 2 / noise[cohorts],
        third[cohorts] / n.astype(np.float64) ** 3,
        density,
    )


@lru_cache(maxsize=8)
def bloom_filters(names: tuple[str, ...], bits: int, hashes: int, cohorts: int) -> Any:
    """Return the candidates' filters, a sparse ``(cohorts * bits, S)`` matrix of zeros and ones."""
    from scipy import sparse

    strings = [name.encode() for name in names]
    positions = np.array(
        [
            [coins.bloom_positions(string, cohort, hashes, bits) for string in strings]
            for cohort in range(cohorts)
        ]
    )
    rows = positions + bits * np.arange(cohorts)[:, None, None]
    columns = np.broadcast_to(np.arange(len(names))[None, :, None], rows.shape)
    matrix = sparse.coo_array(
        (np.ones(rows.size), (rows.reshape(-1), columns.reshape(-1))),
        shape=(cohorts * bits, len(names)),
    ).tocsr()
    # Positions of one string may coincide; the bit is set all the same.
    matrix.data[:] = 1.0
    return matrix


def fit(observed: Observed, filters: Any) -> Fit:
    """Solve the weighted least squares by its normal equations."""
    d, (_, width) = observed.density, observed.bits.shape
    used = filters
    if len(observed.cohorts) * width < filters.shape[0]:
        used = filters[(observed.cohorts[:, None] * width + np.arange(width)).reshape(-1)]
    weights = np.repeat(observed.weights, width)
    target = observed.bits.reshape(-1) - d
    weighted = used.multiply(weights[:, None]).tocsr()
    lengths = weighted.sum(axis=0)
    normal = (used.T @ weighted).toarray()
    normal -= d * (lengths[:, None] + (lengths - d * weights.sum())[None, :])
    inverse, null = _invert(normal)
    shares = inverse @ (weighted.T @ target - d * (weights @ target))
    residuals = target - (used @ shares - d * shares.sum())
    freedom = len(target) - len(shares) + null.shape[1]
    excess = max(1.0, float(weights @ residuals**2) / freedom) if freedom > 0 else 1.0
    return Fit(shares, inverse, residuals.reshape(-1, width), null, excess, freedom)


def _invert(normal: Floats) -> tuple[Floats, Floats]:
    """Return the inverse of a symmetric matrix, and what it maps to zero: ``(S, k)``, a base."""
    with suppress(np.linalg.LinAlgError):
        inverse = np.linalg.inv(normal)
        if np.linalg.norm(normal, 1) * np.linalg.norm(inverse, 1) * _SINGULAR < 1:
            return (inverse + inverse.T) / 2, np.empty((len(normal), 0))
    values, vectors = np.linalg.eigh(normal)
    kept = values > _SINGULAR * max(values[-1], 0.0)
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverse, vectors[:, ~kept]


def estimate_errors(
    observed: Observed,
    filters: Any,
    solved: Fit,
    display: Floats,
    design_effect: float,
    hashes: int,
) -> Errors:
    """Estimate the errors of all shares; infinite where the filters do not determine one.

    A share is a sum a·y over cohorts and bits. Its noise is that of y. To it comes that the true
    shares of a cohort are those of a random part of the clients: by Neyman's result their
    covariance is that of one client, H Γ Hᵀ / n_c a cohort, less Γ / n for what all cohorts
    together have fixed, H being what a makes of each candidate. Γ is that of ``display``, the
    shares made non-negative; ``design_effect`` multiplies this variance between cohorts.
    """
    d, (_, width) = observed.density, observed.bits.shape
    linear = np.column_stack((solved.inverse, -solved.inverse.sum(axis=1)))
    totals = linear.sum(axis=0)
    frequent = np.argsort(display)[::-1][:_FREQUENT]
    shares = display[frequent]
    noise, robust, third, spread = np.zeros((4, len(totals)))
    parts = np.empty((6, len(observed.cohorts), len(totals)))
    set_bits = min(hashes, width)
    for row, cohort in enumerate(observed.cohorts):
        matrix = filters[cohort * width : (cohort + 1) * width]
        a = observed.weights[row] * (matrix @ linear - d * totals)
        squares = a**2
        noise += squares.sum(axis=0) / observed.weights[row]
        third += np.einsum("js,js->s", squares, a) * observed.cumulants[row]
        leverage = matrix.multiply(a[:, :-1]).sum(axis=1) - d * a[:, :-1].sum(axis=1)
        rest = 1 - np.minimum(leverage, _LEVERAGE)
        squared = (solved.residuals[row] / rest) ** 2
        robust += (squared - (1 / rest - 1) / observed.weights[row]) @ squares
        effect = matrix[:, frequent].T @ a - d * a.sum(axis=0)
        spread += (shares @ effect**2 - (shares @ effect) ** 2) / observed.reports[row]
        rest = solved.residuals[row] @ a
        fitted = observed.bits[row] @ a - rest
        a = np.partition(a, (set_bits - 1, width - set_bits), axis=0)
        plus, minus = np.maximum(a, 0.0), np.minimum(a, 0.0)
        most, least = plus[width - set_bits :].sum(axis=0), minus[:set_bits].sum(axis=0)
        of_cohort = plus.sum(axis=0), minus.sum(axis=0), most, least, fitted, rest
        parts[:, row] = np.array(of_cohort) / observed.reports[row]
    explained = float(display.sum())
    spread *= explained / max(float(shares.sum()), 1e-300)
    own = np.append(display, explained)
    spread -= own * (1 - own) / observed.reports.sum()
    spread = design_effect * np.maximum(spread, 0.0)
    noise *= solved.excess
    testing = np.maximum(noise, robust) + spread
    influence = Influence(parts, (observed.weights / observed.reports)[:, None])
    errors = Errors(noise + spread, testing, third / noise**1.5, influence)
    loose = np.append((solved.null**2).sum(axis=1), (solved.null.sum(axis=0) ** 2).sum())
    errors.variances[loose > UNDETERMINED] = math.inf
    return errors


def string_variances(
    filters: Filters, pair: tuple[float, float], candidates: Sequence[str], shares: Sequence[float]
) -> list[float]:
    """Return n times the variances of the candidates' shares and of the unexplained share.

    :func:`estimate_errors` of counts without noise, infinite where the filters cannot tell: the
    noise of every bit is known, and that of the random cohorts follows from the true shares. The
    share that these leave is taken to be spread over strings that share no bits; frequent ones
    would add to the variances.
    """
    true, cohorts = np.asarray(shares, dtype=np.float64), filters.cohorts
    p, q = pair
    unit, density = q * (1 - q) / (p - q) ** 2, filters.density
    matrix = filters.matrix(tuple(candidates))
    bits = (matrix @ true + (1 - true.sum()) * density).reshape(cohorts, filters.bits)
    reports = np.full(cohorts, _EACH, dtype=np.int64)
    observed = Observed(
        np.arange(cohorts), reports, bits, reports / unit, np.zeros(cohorts), density
    )
    solved = fit(observed, matrix)
    errors = estimate_errors(observed, matrix, solved, true, 1.0, filters.hashes)
    found: list[float] = (errors.variances * float(_EACH * cohorts)).tolist()
    return found


@dataclass(frozen=True)
class CandidateEstimate:
    """A candidate string, its share of the reports, and whether it is there at all.

    ``p_value`` is one-sided, of the hypothesis that no client has the string, adjusted for all
    candidates by Holm's method, or by Benjamini's and Hochberg's where a false discovery rate is
    asked for; ``significant`` if at most the error, or the rate, asked for. ``confounded_with``
    are the candidates, itself included, between which the filters cannot tell, if there are any:
    the estimate is then undetermined (NaN, infinite error).
    """

    candidate: str
    estimate: Estimate
    p_value: float
    significant: bool
    confounded_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class StringEstimates:
    """Estimates of the candidates of a string metric, in their order.

    ``unexplained`` is the share of the reports whose string is no candidate. ``display`` are shares
    made non-negative, with the sum that the candidates explain: for charts; no interval belongs to
    them (:func:`~mechanisms.estimators.frequency.consistent_shares`). ``false_names`` is the
    false discovery rate times the number of significant candidates: on average at least as many as
    nobody has of these, where some candidates that somebody has are found; too few where all that
    are significant are nobody's. None without such a rate.
    """

    items: tuple[CandidateEstimate, ...]
    unexplained: Estimate
    display: tuple[float, ...]
    false_names: float | None


def decode(
    cells: Ints,
    pairs: Floats,
    filters: Filters,
    candidates: Sequence[str],
    *,
    error: float = 0.05,
    false_discovery_rate: float | None = None,
    design_effect: float = 1.0,
) -> StringEstimates:
    """Estimate the shares of distinct candidate strings from what :func:`observe` takes.

    All levels have equal weights within a cohort. Significance is a one-sided normal test with the
    skewness of the noise allowed for, for all candidates together by Holm's method: ``error`` is
    the probability, at most, with which any candidate that nobody has is called significant.

    With a ``false_discovery_rate`` more are called significant: of them, nobody has so large a
    share on average, at most, by the step-up method of Benjamini and Hochberg. It holds for tests
    that are independent or positively dependent; filters that share bits are nearly so.

    ``design_effect``, at least 1, is the sum of the squares of the pseudonyms' numbers of reports
    over the number of reports. The chains of one pseudonym are in one cohort and may have one
    value, which makes the cohorts' true shares vary by so much more.

    References
    ----------
    Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving
    Ordinal Response", CCS 2014, section 4. Unlike there, no variables are selected before the
    fit, so that the p-values are those of the only fit made. Y. Benjamini, Y. Hochberg,
    "Controlling the False Discovery Rate", Journal of the Royal Statistical Society B 57, 1995.
    """
    names = tuple(candidates)
    if not names or len(set(names)) < len(names):
        raise ParameterError("candidates must be distinct, and at least one")
    check_probability("error", error)
    if false_discovery_rate is not None:
        check_probability("false_discovery_rate", false_discovery_rate)
    if not 1 <= design_effect < math.inf:
        raise ParameterError(f"design_effect must be at least 1, got {design_effect}")
    by_level = tuple(int(n) for n in cells[:, :, -1].sum(axis=1))
    if sum(by_level) == 0:
        empty = nothing(by_level)
        items = tuple(CandidateEstimate(name, empty, 1.0, False) for name in names)
        none = None if false_discovery_rate is None else 0.0
        return StringEstimates(items, empty, (0.0,) * len(names), none)
    observed = observe(cells, pairs, filters.density)
    matrix = filters.matrix(names)
    solved = fit(observed, matrix)
    explained = float(solved.shares.sum())
    total = min(max(explained, 0.0), 1.0)
    nearest = norm_sub(solved.shares, total)
    errors = estimate_errors(observed, matrix, solved, nearest, design_effect, filters.hashes)
    display = consistent_shares(solved.shares, np.sqrt(errors.variances[:-1]), total)
    values = np.append(solved.shares, 1 - explained)
    estimates = _estimates(values, errors, by_level, pairs)
    single = _p_values(values, errors, solved.freedom)[:-1]
    if false_discovery_rate is None:
        limit, p_values = error, _holm(single)
    else:
        limit, p_values = false_discovery_rate, _benjamini_hochberg(single)
    found = int(np.count_nonzero(p_values <= limit))
    false_names = None if false_discovery_rate is None else false_discovery_rate * found
    items = tuple(
        CandidateEstimate(name, estimate, p, p <= limit, group)
        for name, estimate, p, group in zip(
            names, estimates[:-1], p_values.tolist(), _groups(names, solved.null), strict=True
        )
    )
    return StringEstimates(items, estimates[-1], tuple(display.tolist()), false_names)


def _estimates(
    values: Floats, errors: Errors, by_level: tuple[int, ...], pairs: Floats
) -> list[Estimate]:
    n = sum(by_level)
    reach = n * np.array([errors.influence.reach(*answer_ends(pair[None])) for pair in pairs])
    down, up = errors.influence.one_more(*answer_ends(pairs[np.array(by_level) > 0]))
    least, most = values - (n + 1) * down, values + (n + 1) * up
    found = []
    for at, (value, variance) in enumerate(zip(values.tolist(), errors.variances, strict=True)):
        error = math.sqrt(variance)
        known = Estimate(
            value,
            error,
            n,
            by_level,
            FLOOR_ERRORS * error,
            reach=tuple(map(tuple, reach[:, :, at].tolist())),
            scores=(float(least[at]), float(most[at])),
        )
        found.append(known if math.isfinite(error) else nothing(by_level))
    return found


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


def _benjamini_hochberg(p_values: Floats) -> Floats:
    """Adjust p-values for each other by Benjamini's and Hochberg's step-up method."""
    order = np.argsort(p_values)[::-1]
    steps = p_values[order] * len(p_values) / np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.minimum.accumulate(steps), 1.0)
    return adjusted


def _groups(names: tuple[str, ...], null: Floats) -> list[tuple[str, ...]]:
    """Return for each candidate those between which the filters cannot tell."""
    groups: list[tuple[str, ...]] = [()] * len(names)
    loose = np.flatnonzero((null**2).sum(axis=1) > UNDETERMINED)
    if not loose.size:
        return groups
    # Graphs load all of SciPy's linear algebra.
    from scipy import sparse

    together = np.abs(null[loose] @ null[loose].T) > UNDETERMINED
    number, labels = sparse.csgraph.connected_components(together, directed=False)
    for label in range(number):
        members = loose[labels == label]
        group = tuple(names[i] for i in members)
        for i in members:
            groups[i] = group
    return groups
