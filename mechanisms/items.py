"""Estimates that the counts of a window give of a metric, one by one.

Kinds of estimate: ``share`` of a category, point, answer or item; ``mean``, ``missing``,
``quantile``, ``cdf`` and ``bit`` of a number; ``group``, ``mean``, ``cdf`` and, of the steps of a
funnel, ``conversion`` of an ordinal metric;
``mean`` of each coordinate of a vector; ``string``, ``missing``, ``unexplained`` and
``false_names`` of a string metric; ``arm_share`` and ``difference`` of the arms of an experiment.
``display`` is a consistent value of what sums to one, to show: it stands beside the estimate, and
the interval does not belong to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mechanisms.estimate import Estimate

#: More strata than this are never told apart.
MAX_STRATA = 64
#: The kinds that say how the arms of an experiment differ.
OF_EXPERIMENTS = ("arm_share", "difference")


@dataclass(frozen=True)
class Context:
    """A plan's words on a metric, beyond its mechanism.

    Parameters
    ----------
    labels, points : sequence of str, of float
        Of the symbols, in order, that of a missing value last where it has one; the numbers that
        ordered ones stand for, by default their ranks.
    range : (float, float)
        Lowest and highest value of a number, of a coordinate, or of the points.
    candidates, missing_string : sequence of str, str
        Strings that reports are tested for, that of a missing one among them.
    limit : int
        Reports that one pseudonym has in a window, at most.
    least : int
        The plan's ``minimum_reports``: no part of the reports that is told apart has fewer.
    strata : int
        How many strata of a number's reports are told apart by their coins, at most.
    funnel : bool
        Whether the ordered symbols are the furthest of some steps.
    false_discovery_rate : float, optional
        By which candidates are called significant, in the place of a familywise error of 5 %.
    """

    labels: Sequence[str] = ()
    range: tuple[float, float] = (0.0, 1.0)
    unit: str | None = None
    missing: bool = False
    ordered: bool = False
    points: Sequence[float] | None = None
    candidates: Sequence[str] = ()
    missing_string: str = ""
    limit: int = 1
    least: int = 1
    strata: int = MAX_STRATA
    false_discovery_rate: float | None = None
    funnel: bool = False

    def number(self, scaled: float) -> str:
        """Return a number that was scaled to [0, 1] in its own range and unit, for people.

        It is rounded to about a hundredth of the range, and one beyond an end is shown as the end.

        >>> Context(range=(0, 5000), unit="ms").number(0.0823), Context().number(1.2)
        ('410 ms', '1')
        """
        low, high = self.range
        unit = f" {self.unit}" if self.unit else ""
        decimals = 2 - math.floor(math.log10(high - low))
        number = low + min(max(scaled, 0.0), 1.0) * (high - low)
        # Without a minus before a zero.
        number = round(number, decimals) + 0.0
        if abs(number) >= 1e15 or decimals > 12:
            return f"{number:.3g}{unit}"
        text = f"{number:,.{max(decimals, 0)}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text) + unit


class Method(StrEnum):
    """How far an estimate can be relied on.

    ``unbiased``: right on average (a ratio, to order 1/n), and its interval covers what it says.
    ``monotone``: isotonic regression, biased where it evens out; its interval covers what it says
    of the distribution evened out over each stratum of thresholds: the share at a point, and a
    quantile, may lie anywhere between their neighbours. ``smoothed``: biased toward
    a smooth law. ``em``: the most likely shares, biased near zero; the standard error, from the
    curvature of the likelihood, holds only for many reports and away from zero and one.
    ``biased``: of what was reported, and not of what was true. ``always``: a difference
    between arms whose interval holds at all looks together (:mod:`mechanisms.experiments`).
    """

    UNBIASED = "unbiased"
    MONOTONE = "monotone"
    SMOOTHED = "smoothed"
    EM = "em"
    BIASED = "biased"
    ALWAYS = "always"

    @property
    def biased(self) -> bool:
        """Whether an estimate is known to be off by more than its interval covers.

        Such an estimate is published without a standard error and without an interval.
        """
        return self in (Method.SMOOTHED, Method.EM, Method.BIASED)


@dataclass(frozen=True)
class Item:
    """One estimate of a window, with what it is of: kind and item are together unique in it.

    ``unit`` is ``share`` or the metric's own, ``display`` as
    :func:`~mechanisms.estimators.frequency.consistent_shares` makes it. A candidate string has
    ``p_value``, ``significant``, and the candidates between which reports cannot tell
    (``confounded_with``): nothing is determined of them.
    """

    kind: str
    item: str
    estimate: Estimate
    unit: str | None = "share"
    display: float | None = None
    p_value: float | None = None
    significant: bool | None = None
    confounded_with: tuple[str, ...] = ()
    #: Reports and average of the first arm and of this one, where the item is their difference.
    arms: tuple[tuple[float, float], ...] = ()
    method: Method = Method.UNBIASED
