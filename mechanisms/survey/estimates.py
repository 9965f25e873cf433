"""The share of yes, from counts of answers at mixed levels.

An answer o at level c contributes (o − m0_c)/(m1_c − m0_c), where m0_c and m1_c are the mean
answers of a no and of a yes: its expectation is the respondent's true 0 or 1. All levels are
averaged with equal weights, as in :mod:`mechanisms.estimators.frequency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from mechanisms.errors import ParameterError
from mechanisms.estimate import SCORE_REPORTS, Estimate, ShareNoise, ShareRegion, nothing
from mechanisms.survey.moments import Row, moments

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mechanisms.survey.ladders import SurveyLadder


class Contribution(NamedTuple):
    """What the answers of one level contribute to the share.

    Parameters
    ----------
    scores : tuple of float
        The unbiased contribution of each answer.
    no, yes : float
        Their variances for a respondent whose truth is no, and yes.
    """

    scores: tuple[float, ...]
    no: float
    yes: float


def contribution(rows: tuple[Row, Row], answers: Sequence[int]) -> Contribution:
    """Return the contribution of the answers of one channel.

    Raises
    ------
    ParameterError
        The mean answer of a no is that of a yes.
    """
    (low, spread_no), (high, spread_yes) = (moments(row, answers) for row in rows)
    gap = high - low
    if gap == 0:
        raise ParameterError("the mean answer does not depend on the truth")
    scores = tuple(float((answer - low) / gap) for answer in answers)
    return Contribution(scores, float(spread_no / gap**2), float(spread_yes / gap**2))


def estimate_share(parts: Sequence[Contribution], counts: Sequence[Sequence[int]]) -> Estimate:
    """Estimate the share of yes among the respondents.

    Parameters
    ----------
    parts : sequence of Contribution
        One a level.
    counts : sequence of sequences of int, shape (levels, L)
        Respondents by level and answer.

    Returns
    -------
    Estimate
        Unbiased. The standard error covers the randomization, and below 200 respondents the
        interval inverts a test.

    Examples
    --------
    >>> from fractions import Fraction
    >>> warner = ((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4)))
    >>> estimate = estimate_share([contribution(warner, (0, 1))], [[300, 700]])
    >>> round(estimate.value, 3), round(estimate.standard_error, 4)
    (0.9, 0.0274)
    """
    by_level = tuple(sum(row) for row in counts)
    n = sum(by_level)
    if n == 0:
        return nothing(by_level)
    total = base = spread = step = 0.0
    slopes = []
    for part, seen, reports in zip(parts, counts, by_level, strict=True):
        yes = sum(score * count for score, count in zip(part.scores, seen, strict=True))
        slope = part.yes - part.no
        total += yes
        base += reports * part.no
        # Each level's true yeses are estimated, but kept where they can be.
        spread += slope * min(max(yes, 0.0), reports)
        slopes.append((reports, slope))
        if reports:
            step = max(step, max(part.scores) - min(part.scores))
    noise = ShareNoise(n, base, tuple(slopes), step)
    value = total / n
    return Estimate(
        value,
        sqrt(max(base + spread, 0.0)) / n,
        n,
        by_level,
        detection_floor=noise.detection_floor,
        region=ShareRegion(value, noise) if n < SCORE_REPORTS else None,
    )


def survey_share(ladder: SurveyLadder, counts: ArrayLike) -> Estimate:
    """Estimate the share of yes from the counts of a survey's ladder.

    Parameters
    ----------
    ladder : SurveyLadder
        ``warner``, ``simmons`` or ``christofides``.
    counts : array_like, shape (levels, count_length), integers
        Newest answers by level, as the ladder's ``accumulate`` lays them out.

    Returns
    -------
    Estimate
        See :func:`estimate_share`.

    Raises
    ------
    ParameterError
        The counts have the wrong shape or are negative.

    Examples
    --------
    >>> from mechanisms.survey.ladders import warner_ladder
    >>> survey_share(warner_ladder([1_000_000], "smokes"), [[620, 380]]).n
    1000
    """
    from mechanisms.estimators.frequency import count_table

    table = count_table(ladder, counts)
    return estimate_share(ladder.contributions, table.tolist())


def of_population(estimate: Estimate, population: int) -> Estimate:
    """Return an estimated share as one of the population that the respondents were drawn from.

    Parameters
    ----------
    estimate : Estimate
        Of the n respondents.
    population : int
        At least n, N; the respondents are a simple random sample of it without replacement.

    Returns
    -------
    Estimate
        The same value; its variance also has π(1−π)/n · (N−n)/(N−1), with the estimated share kept
        in [0, 1], and its interval is the normal one.

    Raises
    ------
    ParameterError
        The population is smaller than the sample.

    Examples
    --------
    >>> from mechanisms.survey.designs import Warner
    >>> sample = Warner(0.75).estimate([1] * 400 + [0] * 600)
    >>> [round(of_population(sample, size).standard_error, 4) for size in (1000, 10**6)]
    [0.0274, 0.031]
    """
    if not population >= max(1, estimate.n):
        raise ParameterError(f"population must be at least {max(1, estimate.n)}, not {population}")
    if not estimate.n:
        return estimate
    share = min(max(estimate.value, 0.0), 1.0)
    left = (population - estimate.n) / max(1, population - 1)
    sampling = share * (1 - share) / estimate.n * left
    error = sqrt(estimate.standard_error**2 + sampling)
    return replace(estimate, standard_error=error, detection_floor=None, region=None)
