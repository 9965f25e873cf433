"""The fields of the results: frozen records, one a row; times are aware datetimes in UTC.

This is where a field is declared, with its type and what it means; all else is derived from it
(:mod:`pipelines.results.fields`). Privacy amounts are in units of epsilon. None stands for what the
reports do not determine and for what is withheld; then ``withheld`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NamedTuple, TypeAlias

from pipelines.results.fields import About

Collector: TypeAlias = Annotated[str, About("who collects", "fleet.example", key=True)]
MetricType: TypeAlias = Annotated[
    str, About("type of the metric, such as category or number", "category")
]
Mechanism: TypeAlias = Annotated[str, About("by which values were randomized", "grr")]
Reports: TypeAlias = Annotated[int, About("reports that it is made of", 4810, "n")]
ReportsByLevel: TypeAlias = Annotated[
    tuple[int, ...], About("of these, by level, the first one first", [10, 800, 4000])
]
Withheld: TypeAlias = Annotated[
    str | None, About("why there is no estimate, such as too few reports; null where there is one")
]
Revision: TypeAlias = Annotated[int, About("grows whenever the window changes", 7)]
Complete: TypeAlias = Annotated[
    bool,
    About(
        "whether all reports of the window were due and their grace over; until then its figures "
        "are so far",
        True,
        absent=True,
    ),
]


class MetricKey(NamedTuple):
    """A metric of one version of a plan."""

    collector: str
    plan: str
    version: int
    metric: str


@dataclass(frozen=True, slots=True)
class OfMetric:
    """Names of a metric of a plan's version."""

    collector: Collector
    plan: Annotated[str, About("name of the plan", "departures", key=True)]
    version: Annotated[int, About("version of the plan", 3, key=True, small=True)]
    metric: Annotated[str, About("name of the metric", "carrier", key=True)]

    @property
    def key(self) -> MetricKey:
        return MetricKey(self.collector, self.plan, self.version, self.metric)


@dataclass(frozen=True, slots=True)
class OfWindow(OfMetric):
    """Names of a window of a metric: with all reports, or with those of one segment."""

    window_start: Annotated[datetime, About("when the window begins", key=True)]
    window_end: Annotated[
        datetime,
        About("when the window ends; the end is not part of it", "2013-06-29T00:00:00.000Z"),
    ]
    segment: Annotated[
        str,
        About(
            "which reports: empty for all, else such as os=linux,app_version=2",
            "",
            key=True,
            absent="",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Window(OfWindow):
    """A window of a metric that has reports, in all or in one segment of them."""

    type: MetricType
    mechanism: Mechanism
    reports: Reports
    reports_by_level: ReportsByLevel
    minimum_reports: Annotated[
        int, About("number of reports below which the plan has estimates withheld", 20)
    ]
    withheld: Withheld
    revision: Revision
    complete: Complete


@dataclass(frozen=True, slots=True)
class EstimateRecord(OfWindow):
    """An estimate of a window."""

    position: Annotated[int, About("order within the window", 2, small=True)]
    kind: Annotated[
        str,
        About(
            "what is estimated: share, group, mean, missing, quantile, cdf, conversion, bit, "
            "string, unexplained, arm_share, difference",
            "share",
            key=True,
        ),
    ]
    item: Annotated[
        str, About("of which symbol, coordinate, probability or point, by kind", "DL", key=True)
    ]
    value: Annotated[
        float | None,
        About(
            "the estimate; unbiased where method says nothing else, so it may lie outside of what "
            "is possible",
            0.13,
            rounding="nearest",
            heading="estimate",
        ),
    ]
    low: Annotated[float | None, About("lower end of the interval of 95 %", 0.11, rounding="down")]
    high: Annotated[float | None, About("upper end of the interval of 95 %", 0.15, rounding="up")]
    standard_error: Annotated[
        float | None,
        About(
            "standard error of the estimate, from the randomization alone", 0.01, rounding="error"
        ),
    ]
    shown: Annotated[
        float | None,
        About(
            "for charts: a possible value near it; the interval does not belong to it",
            0.13,
            "display",
            rounding="nearest",
            heading="shown",
        ),
    ]
    detection_floor: Annotated[
        float | None,
        About(
            "smallest true share that is reliably distinguished from zero",
            0.02,
            rounding="up",
            heading="floor",
        ),
    ]
    unit: Annotated[str | None, About("share, rank, or the unit of the metric", "share")]
    method: Annotated[
        str | None,
        About(
            "how far the estimate can be relied on: unbiased, monotone, smoothed, em, biased or "
            "always",
            "unbiased",
        ),
    ]
    significant: Annotated[
        bool | None,
        About(
            "of a candidate string: whether it is certainly there; of a difference: whether the "
            "interval excludes zero",
            rounding="exact",
        ),
    ]
    p_value: Annotated[
        float | None,
        About(
            "of a candidate string: p-value after the correction for many candidates; of a "
            "difference: p-value at all looks together",
            rounding="probability",
        ),
    ]
    confounded_with: Annotated[
        tuple[str, ...] | None,
        About(
            "of a candidate string: others that the reports do not distinguish from it",
            rounding="exact",
        ),
    ]
    reports: Reports
    reports_by_level: ReportsByLevel
    withheld: Withheld
    revision: Revision
    complete: Complete
    biased: Annotated[
        bool,
        About(
            "whether the estimate is known to be off by more than noise: it then has no interval",
            False,
            computed=True,
        ),
    ]
    reach: Annotated[
        tuple[tuple[float, float], ...] | None,
        About(
            "by level, how far one forged report can raise, and lower, the number of reports times "
            "the estimate; of a mean of numbers that can be missing also the share present, as a "
            "multiple of it; null where no bound is known",
            rounding="multiples",
        ),
    ]
    forged_down: Annotated[
        float | None,
        About(
            "how far the forged reports of one more pseudonym can lower the estimate, at most; "
            "null where this is not stated",
            0.0001,
            absent=(),
            rounding="multiple",
            heading="forged down",
        ),
    ]
    forged_up: Annotated[
        float | None,
        About(
            "how far they can raise it, at most",
            0.0004,
            absent=(),
            rounding="multiple",
            heading="forged up",
        ),
    ]
    arms: Annotated[
        tuple[tuple[float, float], ...] | None,
        About(
            "of a difference: the reports of the last level in the first arm and in this one, and "
            "the average of each",
            absent=(),
            rounding="averages",
        ),
    ]


#: Columns that the view of shares has of an estimate, beside its names and value.
SHARE_COLUMNS = (
    *("low", "high", "standard_error", "shown", "detection_floor", "significant", "method"),
    *("reports", "complete", "biased"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRange(OfMetric):
    """Names of an estimate of a run of windows, and how many there are."""

    start: Annotated[datetime, About("when the first window begins")]
    end: Annotated[datetime, About("when the last window ends", "2013-06-29T00:00:00.000Z")]
    segment: Annotated[
        str, About("which reports: empty for all, else such as os=linux or os=linux or mac", "")
    ]
    left_out: Annotated[
        int, About("windows in between that are withheld, not complete or not by segment", 0)
    ]
    kind: Annotated[str, About("what is estimated: share, mean, quantile and so on", "share")]
    item: Annotated[str, About("of which symbol, coordinate, probability or point, by kind", "DL")]
    unit: Annotated[str | None, About("share, rank, or the unit of the metric", "share")]
    method: Annotated[
        str | None, About("how far the estimate can be relied on, as of windows", "unbiased")
    ]
    forged_down: Annotated[float | None, About("how far one forger can lower it, at most")] = None
    forged_up: Annotated[float | None, About("how far one forger can raise it, at most")] = None
    under_low: Annotated[float | None, About("least truth if the share asked for is forged")] = None
    under_high: Annotated[float | None, About("largest truth if that share is forged")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeEstimate(OfRange):
    """An estimate of a run of windows; one that is biased has no interval."""

    value: Annotated[float, About("the estimate for the reports of all windows together", 0.13)]
    low: Annotated[float | None, About("lower end of the interval of 95 %", 0.12)]
    high: Annotated[float | None, About("upper end of the interval of 95 %", 0.14)]
    standard_error: Annotated[
        float | None,
        About("standard error, from the randomization alone, with all that is not drawn anew"),
    ]
    significant: Annotated[
        bool | None, About("of a candidate string: whether it is certainly there")
    ]
    reports: Annotated[int, About("reports that it is made of", 62530)]
    windows: Annotated[int, About("windows that it is made of", 13)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRate(OfMetric):
    """The part of the devices that were new in one window that came again at an age.

    Value, interval and error are None where the new devices cannot be told from none.
    """

    segment: Annotated[str, About("which reports: empty for all, else such as os=linux", "")]
    since: Annotated[datetime, About("when the window begins in which the devices were new")]
    age: Annotated[int, About("how often the `every` of the measure has passed since", 4)]
    value: Annotated[float | None, About("which part of them came at that age", 0.4)]
    low: Annotated[
        float | None,
        About("lower end of Fieller's interval of 95 %; covers which devices had a turn", 0.36),
    ]
    high: Annotated[float | None, About("upper end of it", 0.44)]
    standard_error: Annotated[float | None, About("its standard error, with the same parts")]
    reports: Annotated[int, About("reports of the window of that age", 4810)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeComparison(OfRange):
    """How much an estimate of a run of windows, or of a segment, exceeds another one."""

    against_start: Annotated[datetime, About("when the first window of the other range begins")]
    against_end: Annotated[datetime, About("when its last window ends")]
    against_segment: Annotated[str, About("the other segment; empty for all reports", "")]
    value: Annotated[float, About("the estimate", 0.13)]
    against: Annotated[float, About("the other estimate", 0.1)]
    difference: Annotated[float, About("by how much the first is more than the other", 0.03)]
    low: Annotated[float | None, About("lower end of its interval of 95 %", 0.01)]
    high: Annotated[float | None, About("upper end of it", 0.05)]
    standard_error: Annotated[float | None, About("its standard error, from the randomization")]
    significant: Annotated[bool | None, About("whether the interval excludes zero", True)]
    smallest_found: Annotated[
        float | None,
        About("smallest true difference that is told from zero with a probability of 80 %", 0.03),
    ]
    reports: Annotated[int, About("reports of the first", 62530)]
    against_reports: Annotated[int, About("reports of the other", 61200)]

    @property
    def by_who_answered(self) -> float:
        """How far chance in who answers moves a difference of shares, as a share; 0 of others.

        It is 1.96 standard errors, if each report is of another person, drawn independently, and
        for the shares nearest to 1/2 that the noise allows. If a segment is compared with all
        reports of its windows, these include its own.
        """
        if self.unit != "share" or self.low is None or self.kind in ("conversion", "retention"):
            return 0.0
        n, count, other, part = self.reports, self.against_reports, self.against, 1.0
        if self.start == self.against_start and self.segment and not self.against_segment:
            rest = count - n
            if rest <= 0:
                return 0.0
            other, count, part = (count * other - n * self.value) / rest, rest, rest / count
        error = 1.96 * (self.standard_error or 0.0) / part
        chance = _chance(self.value, n, error) + _chance(other, count, error)
        return 1.96 * part * math.sqrt(chance)


def _chance(share: float, n: int, error: float) -> float:
    """Return the largest variance that drawing ``n`` of many people gives a share ± ``error``.

    >>> [round(_chance(*given), 5) for given in ((0.1, 9, 0.0), (-0.03, 9, 0.1), (0.45, 9, 0.2))]
    [0.01, 0.01, 0.02778]
    """
    possible = min(max(share, 0.0), 1.0)
    nearest = min(max(0.5, possible - error), possible + error)
    return nearest * (1 - nearest) / n


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEffect(OfMetric):
    """How much more an arm of an experiment has than the first one, over all its windows."""

    experiment: Annotated[str, About("name of the experiment", "onboarding")]
    arm: Annotated[str, About("which arm is compared with the first one", "treatment")]
    item: Annotated[str, About("of which symbol or answer; empty for a mean", "true")] = ""
    unit: Annotated[str | None, About("share, or the unit of the metric", "share")] = None
    start: Annotated[datetime | None, About("when the first window begins that counts")] = None
    end: Annotated[datetime | None, About("when the last one ends")] = None
    windows: Annotated[int, About("complete windows that count", 13)] = 0
    left_out: Annotated[int, About("complete windows that do not, as they are withheld", 0)] = 0
    reports: Annotated[int, About("reports of both arms at the last level", 84_210)] = 0
    repeats: Annotated[int, About("reports of one device among them, at most", 1)] = 0
    first: Annotated[float | None, About("average of the first arm", 0.1)] = None
    value: Annotated[float | None, About("how much more the arm has", 0.011)] = None
    low: Annotated[
        float | None, About("lower end of the interval for all looks together", 0.001)
    ] = None
    high: Annotated[float | None, About("upper end of it", 0.021)] = None
    p_value: Annotated[float | None, About("p-value at all looks together", 0.03)] = None
    significant: Annotated[bool | None, About("whether the interval excludes zero", True)] = None
    look: Annotated[
        int | None, About("planned looks that were taken, of the metric that decides; else null", 2)
    ] = None
    looks: Annotated[int | None, About("planned looks in all", 5)] = None
    next_look: Annotated[datetime | None, About("when windows of the next look end")] = None
    boundary: Annotated[
        float | None, About("boundary of the last look taken, in standard errors", 3.357)
    ] = None
    errors: Annotated[
        float | None, About("difference at that look, in standard errors, without its sign", 3.6)
    ] = None
    look_value: Annotated[float | None, About("difference at that look", 0.012)] = None
    look_low: Annotated[
        float | None, About("lower end of its interval, for all planned looks together", 0.001)
    ] = None
    look_high: Annotated[float | None, About("upper end of it", 0.023)] = None
    decided_at: Annotated[int | None, About("first look at which the boundary was crossed", 2)] = (
        None
    )
    smallest_found: Annotated[
        float | None,
        About(
            "smallest true difference that is found with a probability of 80 %: of the metric that "
            "decides by the planned end, if reports come as before; else by the interval of now",
            0.009,
        ),
    ] = None
    arms_p_value: Annotated[
        float | None,
        About("p-value at all looks together, that reports are spread evenly over the arms", 1.0),
    ] = None
    withheld: Annotated[str | None, About("why arms are not compared; null where they are")] = None

    @property
    def told(self) -> tuple[float | None, float | None, float | None]:
        """Difference and interval for people: of a metric that decides, those at its last look."""
        if self.look_value is None:
            return self.value, self.low, self.high
        return self.look_value, self.look_low, self.look_high

    @property
    def differs(self) -> bool:
        """Whether the arm differs: by its interval, or as a planned look has decided."""
        return bool(self.significant) if self.look_value is None else bool(self.decided_at)


@dataclass(frozen=True, slots=True)
class Alarm(OfWindow):
    """Reports of a window that are not those of honest devices."""

    kind: Annotated[str, About("coins, levels, bits or cells", "coins", key=True)]
    statistic: Annotated[float, About("what was seen", 9.1)]
    expected: Annotated[float, About("what honest devices have on average", 4.0)]
    threshold: Annotated[float, About("from where on it is an alarm", 8.5)]
    p_value: Annotated[
        float, About("bound of the probability that honest devices show as much, by chance", 1e-10)
    ]
    reports: Annotated[int, About("reports, or pairs of levels, it is seen in", 4810, "n")]
    message: Annotated[str, About("the same in words")]
    revision: Revision


@dataclass(frozen=True, slots=True)
class MetricRecord(OfMetric):
    """A metric of a plan's version that has results."""

    type: MetricType
    mechanism: Mechanism
    windows: Annotated[int, About("windows with reports")]
    reports: Annotated[int, About("reports of all of them")]
    first_window: Annotated[datetime, About("when the first window begins")]
    newest_window: Annotated[datetime, About("when the newest window begins")]


@dataclass(frozen=True, slots=True)
class Budget:
    """The audit of a budget period, over the pseudonyms that reported in it."""

    collector: Collector
    period_start: Annotated[datetime, About("when the budget period begins", key=True)]
    period_end: Annotated[datetime, About("when it ends; the end is not part of it")]
    closed: Annotated[bool, About("whether nothing more is accepted for it", True)]
    pseudonyms: Annotated[int, About("pseudonyms that reported")]
    chains: Annotated[int, About("recorded values that reports are about")]
    accepted: Annotated[
        float, About("epsilon of all reports that count, summed over pseudonyms", micro=True)
    ]
    observed: Annotated[
        float, About("epsilon of all reports that arrived, summed over pseudonyms", micro=True)
    ]
    most_accepted: Annotated[
        float, About("largest accepted epsilon of a single pseudonym", micro=True)
    ]
    most_observed: Annotated[
        float, About("largest observed epsilon of a single pseudonym", micro=True)
    ]
    over_budget: Annotated[int, About("pseudonyms revoked for sending more than their budget")]
    equivocation: Annotated[int, About("pseudonyms revoked for contradicting themselves")]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Reports that were rejected for a reason."""

    collector: Collector
    reason: Annotated[str, About("why they were rejected", "late", key=True)]
    reports: Annotated[int, About("reports rejected for this reason", 12, "rows")]
    requeued: Annotated[
        int | None, About("of these, taken again since; null if that is not known", 0)
    ]


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """A job's own figures; None for what it does not know."""

    reports: Annotated[int | None, About("reports decoded")]
    duplicates: Annotated[
        int | None, About("of them repeats of a report that was known, which count once")
    ]
    counted: Annotated[int | None, About("answers that count")]
    superseded: Annotated[int | None, About("reports replaced by a newer level of the same answer")]
    revoked: Annotated[int | None, About("pseudonyms revoked")]
    chains: Annotated[int | None, About("answers in open budget periods")]
    pseudonyms: Annotated[int | None, About("pseudonyms in open budget periods")]
    state_bytes: Annotated[int | None, About("state of open budget periods")]
    future: Annotated[
        int | None, About("records rejected whole, as they were ahead of the job's clock", absent=0)
    ]


@dataclass(frozen=True, slots=True)
class Health:
    """The owner of the results, how far they are, and how the job is."""

    collector: str
    job: str  #: random name of the state directory or of the streaming job
    generation: int  #: of the results, which grows with every change
    clock: datetime | None  #: append time up to which reports have been read
    lineage: str | None  #: changes with the results, as the generation does
    source: str | None  #: the topic from which a sink takes the results; None of aggregation runs
    #: The job's figures, by name of a field of :class:`JobNumbers`; None where it is not known.
    numbers: Mapping[str, int | None]
    offsets: Mapping[str, int]  #: partition to the offset that the job reads next

    @property
    def stamp(self) -> tuple[object, ...]:
        """A value that changes whenever the results do."""
        return self.source, self.job, self.generation, self.lineage
