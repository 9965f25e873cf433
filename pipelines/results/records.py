"""What results are made of: frozen records, one a row; times are aware datetimes in UTC.

Privacy amounts are in units of epsilon. None stands for what the reports do not determine and for
what is withheld; then ``withheld`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class _OfWindow:
    """What names a window of a metric: with all reports, or with those of one segment."""

    collector: str
    plan: str
    version: int
    metric: str
    window_start: datetime
    window_end: datetime
    segment: str  #: empty for all reports, else such as ``os=linux,app_version=2``


@dataclass(frozen=True, slots=True)
class Window(_OfWindow):
    """A window of a metric that has reports, in all or in one segment of them."""

    type: str
    mechanism: str
    reports: int  #: that count: the newest level of each chain
    reports_by_level: tuple[int, ...]
    minimum_reports: int  #: below which the plan has estimates withheld
    withheld: str | None  #: why there are no estimates
    revision: int  #: grows when the window changes
    complete: bool  #: all its reports were due; until then figures are so far


@dataclass(frozen=True, slots=True)
class Estimate(_OfWindow):
    """An estimate of a window."""

    position: int  #: order within the window
    kind: str  #: ``share``, ``mean``, ``quantile`` ...
    item: str  #: symbol, probability, point ..., by kind
    value: float | None  #: unbiased where ``method`` says nothing else
    low: float | None  #: ends of the interval of 95 %
    high: float | None
    standard_error: float | None
    shown: float | None  #: for charts: the closest value that can be; no interval belongs to it
    detection_floor: float | None  #: smallest true share that is distinguished from zero
    unit: str | None
    method: str | None
    biased: bool  #: known to be off by more than noise; then there is no interval
    significant: bool | None  #: of a candidate string
    p_value: float | None
    confounded_with: tuple[str, ...] | None
    reports: int
    reports_by_level: tuple[int, ...]
    withheld: str | None
    revision: int
    complete: bool  #: all reports of the window were due; until then figures are so far


@dataclass(frozen=True, slots=True)
class Alarm(_OfWindow):
    """Reports of a window that are not those of honest devices."""

    kind: str  #: ``coins``, ``levels``, ``bits`` or ``cells``
    statistic: float  #: what was seen
    expected: float  #: what honest devices have on average
    threshold: float  #: from where on it is an alarm
    p_value: float  #: bound of the probability that honest devices show as much, by chance
    reports: int  #: or pairs of levels, that it is seen in
    message: str
    revision: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a plan's version that has results."""

    collector: str
    plan: str
    version: int
    metric: str
    type: str
    mechanism: str
    windows: int
    reports: int  #: of all of them
    first_window: datetime  #: start of the first window
    newest_window: datetime  #: start of the newest window


@dataclass(frozen=True, slots=True)
class Budget:
    """The audit of a budget period, over the devices that reported in it."""

    collector: str
    period_start: datetime
    period_end: datetime
    closed: bool  #: whether nothing more is accepted
    pseudonyms: int
    chains: int
    accepted: float  #: epsilon that was counted, summed over pseudonyms
    observed: float  #: epsilon of all that arrived, summed over pseudonyms
    most_accepted: float  #: of a single pseudonym
    most_observed: float
    over_budget: int  #: pseudonyms revoked because they sent more than their budget
    equivocation: int  #: pseudonyms revoked because they contradicted themselves


@dataclass(frozen=True, slots=True)
class Rejection:
    """Reports that were rejected for a reason."""

    collector: str
    reason: str
    reports: int
    requeued: int | None  #: of these, taken again since; None if not known


@dataclass(frozen=True, slots=True)
class Health:
    """Whose results these are, how far they are, and how the job is."""

    collector: str
    job: str  #: random name of the state directory or of the streaming job
    generation: int  #: of the results, which grows with every change
    clock: datetime | None  #: append time up to which reports have been read
    #: Of the job: ``reports``, ``duplicates``, ``chains``, ``pseudonyms``, ``state_bytes`` ...;
    #: None for what it does not know.
    numbers: Mapping[str, int | None]
    offsets: Mapping[str, int]  #: partition to the offset that the job reads next
