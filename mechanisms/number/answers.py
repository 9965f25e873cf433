"""The estimates that reports of a number give, from answers of one bit and from split bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mechanisms.arrays import Floats, Ints, np
from mechanisms.estimate import SCORE_REPORTS, Estimate, ShareNoise, nothing
from mechanisms.estimators.frequency import answer_ends, shares
from mechanisms.number.grid import bit_weights
from mechanisms.number.questions import BitQuestion, strata_for
from mechanisms.number.strata import Cdf, MeanRegion, Strata, Survival, stratify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mechanisms.number.questions import NumberQuestion

#: A share of present clients must exceed so many of its standard errors to be divided by.
_PRESENT_ERRORS = 2


@dataclass(frozen=True)
class NumericEstimates:
    """Estimates from the reports of a number.

    ``mean`` is that of the values present, after clipping, and so are ``cdf`` and, by probability,
    ``quantiles`` (random threshold and square wave only) and ``bit_means``, the shares with each
    bit set, most significant first (bit-aware mechanisms only). ``missing`` is the share of the
    reports whose value is. ``cdf`` and ``quantiles`` that are ``smoothed`` are of expectation,
    maximization and smoothing: biased toward a smooth law, without standard errors.
    """

    mean: Estimate
    missing: Estimate | None
    cdf: Cdf | None = None
    quantiles: dict[float, Estimate] | None = None
    bit_means: tuple[Estimate, ...] | None = None
    smoothed: bool = False

    def points(self) -> Iterator[tuple[float, Estimate]]:
        """Yield the points of the distribution function, if there is one, with their values."""
        if self.cdf is not None:
            columns = (self.cdf.grid, self.cdf.values, self.cdf.standard_errors)
            for at, value, error in zip(*(column.tolist() for column in columns), strict=True):
                yield at, Estimate(value, error, self.mean.n, self.mean.reports_by_level)


def counts_of(reports: Ints) -> tuple[int, ...]:
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


def scaled(estimate: Estimate, low: float, high: float, step: float) -> Estimate:
    """Move an estimate from [0, 1] to the metric's range; a region is there already.

    An answer changes n times the estimate by ``step``: if chance makes few answers, a normal
    interval is longer by half of that (:attr:`~mechanisms.estimate.ShareNoise.half`).
    """
    length, scores, n = high - low, estimate.scores, estimate.n
    return replace(
        estimate,
        value=low + length * estimate.value,
        standard_error=length * estimate.standard_error,
        half=length * ShareNoise(n, (n * estimate.standard_error) ** 2, (), step).half,
        scores=scores and (low + length * scores[0], low + length * scores[1]),
    )


def question_estimates(
    question: NumberQuestion,
    cells: Ints,
    pairs: Floats,
    ends: tuple[float, float],
    quantiles: Sequence[float],
    strata: int,
    *,
    draws: int = 1,
    share: float = 1.0,
) -> NumericEstimates:
    """Estimate a mean, and its bits or its distribution, from answers to a question.

    ``cells``, ``(levels, size, symbols)``, counts the answers by the stratum of their coin.
    ``pairs``, ``(levels, 2)``, are the probabilities that an answer is kept, and that it becomes a
    given other one. A report has ``draws`` answers, each with a coin of its own. ``share``, in
    (0, 1], is that of the clients that answer, where the coins choose them too; at most so many
    ``strata`` are told apart.
    """
    reports = cells.sum(axis=(1, 2))
    by_level, n = counts_of(reports // draws), int(reports.sum())
    missing, bits = _missing_share(cells, pairs, draws), None
    if isinstance(question, BitQuestion):
        bits = tuple(_bit_mean(cells[:, i], pairs) for i in range(question.size))
    none = NumericEstimates(nothing(by_level), missing, bit_means=bits)
    if n == 0:
        return none
    starts = strata_for(question, n, strata)
    weights = np.add.reduceat(question.law(), starts)
    made = stratify(np.add.reduceat(cells, starts, axis=1), weights, pairs)
    present = _present(made)
    if present is None:
        return none
    moves = None if missing else made.one_more(answer_ends(pairs[reports > 0]), draws)
    if bits is not None:
        return replace(none, mean=_mean(made, present, by_level, *ends, 0.0, moves))
    survival = Survival(made, present, *ends)
    return NumericEstimates(
        _mean(made, present, by_level, *ends, share * survival.least_variance(), moves),
        missing,
        cdf=survival.cdf(),
        quantiles={tau: survival.quantile(tau, by_level) for tau in quantiles},
    )


def split_estimates(
    table: Ints, pairs: Sequence[Floats], low: float, high: float, missing: bool
) -> NumericEstimates:
    """Estimate a mean and the means of bits from reports of all bits.

    ``table``, ``(levels, bits + 1)``, counts the reports that have each bit set, and all of them;
    ``pairs`` are of each bit the probabilities, ``(levels, 2)``, that a 1, and a 0, is reported as
    1. ``missing`` says whether the last bit says that the value is there.
    """
    sums, reports = table[:, :-1], table[:, -1]
    by_level, n = counts_of(reports), int(reports.sum())
    answers = [shares(sums[:, i : i + 1], reports, pair)[0] for i, pair in enumerate(pairs)]
    gone = None
    if not missing:
        bits, here = tuple(answers), Estimate(1.0, 0.0, n, by_level)
    else:
        here = answers.pop()
        [gone] = shares((reports - sums[:, -1])[:, None], reports, 1 - pairs[-1][:, ::-1])
        bits = tuple(ratio_of(bit, here) for bit in answers)
    if n == 0 or not usable(here.value, here.standard_error):
        return NumericEstimates(nothing(by_level), gone, bit_means=bits)
    weights = bit_weights(len(answers))
    yes = float(sum(w * e.value for w, e in zip(weights, answers, strict=True)))
    noise = sum(float(w * e.standard_error) ** 2 for w, e in zip(weights, answers, strict=True))
    # Rounding to the grid of the bits adds at most a quarter of a squared step a client.
    noise += 1 / (4 * (2 ** len(answers) - 1) ** 2 * n)
    total = ratio_of(Estimate(yes, noise**0.5, n, by_level), here)
    if gone is None:
        pairs_of_scores = [each.scores or (0.0, 0.0) for each in answers]
        least, most = (float(weights @ ends) for ends in zip(*pairs_of_scores, strict=True))
        total = replace(total, scores=(least, most))
    return NumericEstimates(scaled(total, low, high, float(weights[0])), gone, bit_means=bits)


def _missing_share(cells: Ints, pairs: Floats, draws: int = 1) -> Estimate | None:
    """Estimate the share of missing values, whose answer does not depend on the coin."""
    if cells.shape[2] < 3:
        return None
    gone, answers = cells[:, :, 2].sum(axis=1), cells.sum(axis=(1, 2))
    by_level = counts_of(answers // draws)
    [estimate] = shares(gone[:, None], answers, pairs)
    return replace(estimate, n=sum(by_level), reports_by_level=by_level)


def _present(strata: Strata) -> float | None:
    """Return the share of clients present, or None where it can hardly be told from zero."""
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
    moves: tuple[float, float] | None = None,
) -> Estimate:
    """Estimate the mean of values present, ``spread`` being the least variance they can have.

    ``moves`` is how far one more report can lower, and raise, it.
    """
    n = sum(by_level)
    ratio = float(strata.weights @ strata.means[:, 0]) / present
    contrast = strata.weights[:, None] * np.array([1.0, -ratio])
    scatter, floor = strata.variances(contrast).sum(axis=1)
    # Few answers may scatter less than they vary. The square of a step is added, as much as the
    # variance in the interval of E. B. Wilson (1927) has beyond that of the scatter.
    scatter += strata.step**2 - min(present, 1.0) * spread / n
    region = MeanRegion(strata, present, low, high) if n < SCORE_REPORTS else None
    scores = moves and (ratio - (n + 1) * moves[0], ratio + (n + 1) * moves[1])
    error = max(float(scatter), float(floor)) ** 0.5 / present
    found = Estimate(ratio, error, n, by_level, region=region, scores=scores)
    return scaled(found, low, high, n / float(strata.reports.sum()))


def _bit_mean(cells: Ints, pairs: Floats) -> Estimate:
    """Estimate the share of values present with a bit set from the reports about it alone."""
    reports = cells.sum(axis=1)
    by_level = counts_of(reports)
    if not reports.any():
        return nothing(by_level)
    strata = stratify(cells[:, None], np.ones(1), pairs)
    present = _present(strata)
    return nothing(by_level) if present is None else _mean(strata, present, by_level, 0.0, 1.0, 0.0)
