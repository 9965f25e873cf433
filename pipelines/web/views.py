"""The view of a page: what its sections are given, which are results and links to other pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol

from pipelines.aggregation.rounding import upward
from pipelines.results.fields import grouped, moment
from pipelines.results.ordinals import ASKED, beyond
from pipelines.results.range_windows import WindowRange
from pipelines.results.records import (
    EstimateRecord,
    MetricKey,
    RangeComparison,
    RangeEstimate,
    Window,
)
from pipelines.web import charts, formats
from pipelines.web.boards import Board
from pipelines.web.snapshot import HEADLINES, ResultsSnapshot
from sotto.disclosure import facts
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import parse_time


class Links(Protocol):
    """Addresses of pages; None if there is no page to link to."""

    def page(self, name: str) -> str | None: ...

    def board(self, name: str) -> str | None:
        return None

    def metric(
        self, key: MetricKey, window: Window | None = None, query: RangeQuery | None = None
    ) -> str | None: ...

    def chart(self, page: str | None, name: str, form: str) -> str | None:
        return None

    def plan(self, plan: CompiledPlan) -> str | None: ...

    def data(self, window: Window, form: str) -> str | None:
        return None


@dataclass(frozen=True)
class PageView:
    """The view of a page.

    ``public``: whether only sections for the public are shown. ``draws``: whether charts of many
    windows are drawn now, for which all of their windows are read.
    """

    snapshot: ResultsSnapshot
    links: Links
    public: bool = False
    draws: bool = True


@dataclass(frozen=True, kw_only=True)
class PlanView(PageView):
    """The view of the page of a plan."""

    plan: CompiledPlan


@dataclass(frozen=True, kw_only=True)
class OverviewView(PageView):
    """The view of the first page: which metrics are looked for, and which part of them is shown."""

    find: str = ""
    part: int = 1


@dataclass(frozen=True, kw_only=True)
class BoardView(PageView):
    """The view of the page of a board."""

    board: Board


@dataclass(frozen=True)
class RangeQuery:
    """The part of a page's address that names a range: texts as they were given, empty for none.

    ``segment`` is one segment, or names of attributes for all their segments; ``against`` is what
    to compare with, as :meth:`~pipelines.results.range_windows.WindowRange.against` takes it;
    ``under`` is how many percent of the reports may be forged; ``items`` are the names of the
    figures to draw, as :func:`figure_of` makes them.
    """

    since: str = ""
    until: str = ""
    segment: str = ""
    against: str = ""
    under: str = ""
    items: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str], items: Sequence[str] = ()) -> RangeQuery:
        """Return the query of an address's parameters."""
        names = [each.name for each in fields(cls) if each.name != "items"]
        return cls(**{name: given.get(name, "").strip() for name in names}, items=tuple(items))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of an address that asks the same."""
        names = ("since", "until", "segment", "against", "under")
        texts = [(name, getattr(self, name)) for name in names]
        return [each for each in texts if each[1]] + [("item", each) for each in self.items]

    @property
    def forged(self) -> float:
        """The share of reports that may be forged; 0 where the address has none."""
        known = formats.is_number(self.under) and 0 < float(self.under) <= 100
        return float(self.under) / 100 if known else 0.0

    @property
    def asks(self) -> bool:
        """Whether windows are to be put together."""
        return bool(self.since or self.until or self.against)

    def wanted(self, key: MetricKey) -> WindowRange:
        """Return the range of a metric; ParameterError if ``since`` or ``until`` is no time."""
        ends = [moment(parse_time(each)) if each else None for each in (self.since, self.until)]
        by = self.segment if self.segment and "=" not in self.segment else None
        segment = "" if by else self.segment
        which = key.collector, key.plan, key.version, self.forged or None
        return WindowRange(key.metric, ends[0], ends[1], segment, by, *which)


@dataclass(frozen=True, kw_only=True)
class MetricView(PageView):
    """The view of the page of a metric, in one window and maybe a range of them."""

    key: MetricKey
    shown: Window
    query: RangeQuery = RangeQuery()

    @cached_property
    def windows(self) -> list[Window]:
        """All windows, oldest first."""
        return self.snapshot.windows(self.key)

    @cached_property
    def metric(self) -> CompiledMetric | None:
        """The metric in the plan, if it is known."""
        return self.snapshot.metric_of(self.key)

    @cached_property
    def plan(self) -> CompiledPlan | None:
        """The plan, if it is known."""
        return self.snapshot.plan_of(self.key)

    @property
    def title(self) -> str:
        """The metric in the plan's words."""
        return title_of(self.metric, self.key)

    @cached_property
    def all_rows(self) -> list[EstimateRecord]:
        """The window's estimates, those of segments too."""
        return self.snapshot.estimates(self.shown)

    @cached_property
    def rows(self) -> list[EstimateRecord]:
        """The window's estimates of all reports together."""
        return [row for row in self.all_rows if not row.segment]

    def of_kind(self, *kinds: str) -> list[EstimateRecord]:
        """Return the estimates of some kinds, without those of segments."""
        return [row for row in self.rows if row.kind in kinds]

    @cached_property
    def headlines(self) -> list[EstimateRecord]:
        """The estimates that stand for the metric."""
        return headlines(self.rows)

    def address(self, window: Window | None = None) -> str | None:
        """Return the address of this page and its query, for this window or another."""
        return self.links.metric(self.key, window or self.shown, self.query)


def title_of(metric: CompiledMetric | None, key: MetricKey) -> str:
    """Return a metric's title, or its name if no plan describes it."""
    described = metric is not None and (metric.description or metric.question)
    return facts.title(metric) if metric is not None and described else key.metric


def newest(windows: list[Window]) -> Window:
    """Return the newest complete window that is not withheld, or the newest if all are."""
    shown = [window for window in windows if window.withheld is None]
    return ([window for window in shown if window.complete] or shown or windows)[-1]


def headlines(rows: list[EstimateRecord]) -> list[EstimateRecord]:
    """Return the estimates that stand for a window, the most telling ones first."""
    # Without candidates all strings are unexplained, with an error of 0: that says nothing.
    known = [row for row in rows if (row.kind, row.standard_error) != ("unexplained", 0.0)]
    by_kind = grouped((row for row in known if row.value is not None), lambda row: row.kind)
    shares = by_kind.get("share", [])
    if {row.item for row in shares} in ({"true", "false"}, {"yes", "no"}):
        return [row for row in shares if row.item in ("true", "yes")]
    asked = [row for kind in ASKED for row in by_kind.get(kind, [])]
    means = [row for row in by_kind.get("mean", []) if not asked or row.unit != "rank"]
    if asked or means:
        return [*asked, *means, *by_kind.get("missing", [])][:HEADLINES]
    strings = [row for row in by_kind.get("string", []) if row.significant]
    named = shares or strings or by_kind.get("group", []) or by_kind.get("unexplained", [])
    return sorted(named, key=lambda row: -(row.value or 0))[:HEADLINES]


def figure_of(row: EstimateRecord) -> str:
    """Return a figure's name in addresses."""
    return f"{row.kind} {row.item}".strip()


def told(
    name: str, figures: Sequence[float | None], unit: str | None, of: str = "interval of 95 %"
) -> charts.Value:
    """Return an estimate and its ends as charts take them, with a text that says what they are."""
    value, low, high = figures
    ends = None if low is None or high is None else (low, high)
    between = f"{of} {formats.interval(low, high, unit)}"
    return value, ends, f"{name}: {formats.quantity(value, unit)}, {between}"


def differences(title: str, values: Mapping[str, charts.Value], unit: str | None) -> charts.Chart:
    """Return a chart of differences in their unit, by name."""
    of_shares = "difference of shares, in percentage points"
    label = of_shares if unit == "points" else f"difference ({unit})" if unit else "difference"
    return charts.intervals(title, [*values], [*values.values()], unit or "", label)


def ends_of(row: EstimateRecord) -> str:
    """Return an estimate's interval of 95 %, or that it is biased and so has none."""
    return formats.BIASED if row.biased else formats.interval(row.low, row.high, row.unit)


def forged_of(row: EstimateRecord | RangeEstimate | RangeComparison) -> str:
    """Return how far the forged reports of one more pseudonym can move an estimate, at most.

    The bound is rounded up to two digits.
    """
    if row.forged_down is None or row.forged_up is None:
        return "not stated"
    ends = row.forged_down, row.forged_up
    down, up = (formats.difference(upward(each, 2), row.unit) for each in ends)
    return f"−{down.split()[0]}, +{up}"


def name_of(row: EstimateRecord | RangeEstimate | RangeComparison) -> str:
    """Return what an estimate is of, as people say it."""
    if row.kind == "quantile" and formats.is_number(row.item):
        return "median" if row.item == "0.5" else f"{100 * float(row.item):g} % quantile"
    if row.kind in ("share", "string", "group"):
        return row.item
    if row.kind == "cdf":
        return f"at or below {row.item}"
    if row.kind == "retention":
        return f"came again at age {row.item}"
    if row.kind == "beyond":
        return beyond(row.item)
    kind = "mean rank" if (row.kind, row.unit) == ("mean", "rank") else row.kind
    return f"{kind} {row.item}".strip()
