"""The windows of a range, and the segments that they have in common.

A window that is withheld or not complete yet is left out. Windows may publish different segments,
such as ``os=linux`` in one and ``os=linux or mac`` in the next. So segments of any windows that
have a value in common are joined, and a joined segment is left out if some window withholds one of
its values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, product
from operator import attrgetter
from typing import TypeAlias

from pipelines.results.fields import milliseconds, moment
from pipelines.results.records import MetricKey, Window
from pipelines.results.retention import Arrived, arrived_of
from sotto.columns import time_text
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text, parse_time
from sotto.plan.segments import label

#: By start of a window: its published segments that one segment of the range is made of.
Pieces: TypeAlias = Mapping[datetime, Sequence[str]]
#: The values of one combination of attributes, in the attributes' order.
_Values: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class WindowRange:
    """Which windows are put together: those that lie between two times; None is without an end.

    Parameters
    ----------
    metric : str
    since, until : datetime, optional
        Aware; a window that reaches beyond one of them is not part of the range.
    segment : str
        Such as ``os=linux``; empty for all reports together.
    by : str, optional
        Names of attributes, such as ``os`` or ``os,app_version``: each of their segments, in the
        place of ``segment``.
    collector, plan, version : optional
        If given, only windows of these.
    under : float in [0, 1], optional
        A share of forged reports: estimates then also say between which ends the truth lies.
    """

    metric: str
    since: datetime | None = None
    until: datetime | None = None
    segment: str = ""
    by: str | None = None
    collector: str | None = None
    plan: str | None = None
    version: int | None = None
    under: float | None = None

    def against(self, text: str) -> WindowRange:
        """Return the range or segment that a text names, to compare this one with.

        ``previous``: as long a range just before this one; ``2013-06-01..2013-07-01``: another
        range; ``all``: all reports of this range; ``os=linux``: another segment of it.

        Raises ParameterError for other texts, and if there is no range just before.
        """
        if text == "previous":
            if self.since is None or self.until is None:
                raise ParameterError("a range with a previous one has two ends: give both")
            return replace(self, since=self.since - (self.until - self.since), until=self.since)
        if text == "all":
            return replace(self, segment="", by=None)
        first, dots, last = text.partition("..")
        if dots:
            ends = [moment(parse_time(each)) for each in (first, last)]
            return replace(self, since=ends[0], until=ends[1])
        if "=" in text:
            return replace(self, segment=text, by=None)
        raise ParameterError(
            f"what to compare with must be 'previous', a range such as 2013-06-01..2013-07-01, "
            f"'all' or a segment such as os=linux; got {text!r}"
        )

    def holds(self, window: Window) -> bool:
        """Return whether a window lies wholly within the range."""
        after = self.since is None or self.since <= window.window_start
        return after and (self.until is None or window.window_end <= self.until)


@dataclass(frozen=True)
class WindowRun:
    """The windows of a metric that are put together: all reports of them, or those of a segment."""

    key: MetricKey
    plan: CompiledPlan
    segment: str
    windows: Sequence[Window]  #: those of all reports, oldest first
    left_out: int  #: windows within the range that are withheld, not complete or not by segment
    pieces: Pieces
    arrived: Arrived = field(default_factory=dict)  #: reports of windows and of their pieces

    @property
    def metric(self) -> CompiledMetric:
        return self.plan.metric(self.key[3])


def runs_of(
    wanted: WindowRange, windows: Sequence[Window], plans: Sequence[CompiledPlan]
) -> list[WindowRun]:
    """Return the windows of a range, by segment if that is asked for, of each version of each plan.

    ``windows``: all windows of the metric and their segments, by metric and time.

    Raises ParameterError if nothing of what is asked for exists.
    """
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        raise ParameterError(f"a range must end after it begins; got {_span(wanted)}")
    within = [each for each in windows if wanted.holds(each)]
    if not within:
        raise ParameterError(_no_windows(wanted, windows))
    found: list[WindowRun] = []
    refused: ParameterError | None = None
    for key, of_metric in groupby(within, attrgetter("key")):
        try:
            found += _Metric(key, list(of_metric), _plan_of(key, plans)).runs(wanted)
        except ParameterError as error:
            # Another version of the plan may have the segments.
            refused = error
    if refused is not None and not found:
        raise refused
    if not found:
        raise ParameterError(
            f"every window of {wanted.metric!r} {_span(wanted)} is withheld, or not complete yet"
        )
    return found


class _Metric:
    """The windows of a metric within a range, and the segments that they have in common."""

    def __init__(self, key: MetricKey, windows: Sequence[Window], plan: CompiledPlan) -> None:
        self.key, self.plan = key, plan
        self.every = [each for each in windows if not each.segment]
        self.arrived = arrived_of(windows)
        usable = (each for each in self.every if each.complete and each.withheld is None)
        self.usable = {each.window_start: each for each in usable}
        #: By names of attributes and start of a window, its segments.
        self.segments: dict[_Values, dict[datetime, list[Window]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for each in windows:
            if each.segment and each.window_start in self.usable:
                self.segments[names_of(each.segment)][each.window_start].append(each)

    def runs(self, wanted: WindowRange) -> Iterator[WindowRun]:
        """Yield the runs that are asked for; none where no window can be used."""
        if not self.usable:
            return
        if wanted.by is None and not wanted.segment:
            yield self._run("", {start: [""] for start in self.usable})
            return
        names = names_of(wanted.segment) if wanted.by is None else (*wanted.by.split(","),)
        there = [each for each in self.segments if sorted(each) == sorted(names)]
        if not there:
            by = " or ".join(",".join(each) for each in sorted(self.segments))
            raise ParameterError(
                f"no window of {self.key[3]!r} has results by {','.join(names)!r}; there are "
                f"{f'results by {by}' if by else 'none by segment'}"
            )
        found = dict(self._common(there[0]))
        if wanted.by is None:
            # Attributes may be named in any order.
            asked = sorted(wanted.segment.split(","))
            name = next((each for each in found if sorted(each.split(",")) == asked), None)
            if name is None:
                have = ", ".join(sorted(found)) or "none"
                raise ParameterError(
                    f"{wanted.segment!r} is withheld in a window of the range, or unknown; "
                    f"segments that all windows have: {have}"
                )
            found = {name: found[name]}
        for segment, pieces in found.items():
            yield self._run(segment, pieces)

    def _run(self, segment: str, pieces: Pieces) -> WindowRun:
        starts = self.segments[names_of(segment)] if segment else self.usable
        windows = [window for start, window in self.usable.items() if start in starts]
        left_out = len(self.every) - len(windows)
        return WindowRun(self.key, self.plan, segment, windows, left_out, pieces, self.arrived)

    def _common(self, names: _Values) -> Iterator[tuple[str, Pieces]]:
        """Yield the segments of the coarsest partition in which nothing is withheld."""
        together: dict[_Values, frozenset[_Values]] = {}
        hidden: set[_Values] = set()
        published: list[tuple[datetime, str, frozenset[_Values]]] = []
        for start, windows in list(self.segments[names].items()):
            shown = [each for each in windows if each.withheld is None]
            if not shown:
                # A window that withholds all these segments is left out, as a withheld window is.
                del self.segments[names][start]
                continue
            own = {each.segment: combinations(each.segment) for each in windows}
            known = frozenset[_Values]().union(*(own[each.segment] for each in shown))
            hidden |= frozenset().union(*own.values()) - known
            published += [(start, each.segment, own[each.segment]) for each in shown]
        for _, _, values in published:
            joined = values.union(*(together.get(each, {each}) for each in values))
            together |= dict.fromkeys(joined, joined)
        for values in dict.fromkeys(together.values()):
            if values & hidden:
                continue
            pieces: dict[datetime, list[str]] = defaultdict(list)
            for start, name, inside in published:
                if inside <= values:
                    pieces[start].append(name)
            yield self._name(names, values), pieces

    def _name(self, names: _Values, values: frozenset[_Values]) -> str:
        """Return the name of a segment that has these combinations of values."""
        listed = {each.name: each.values for each in self.plan.attributes}

        def place(values: _Values) -> list[tuple[int, str]]:
            """Return the sort key of values; those that the plan does not list come first."""
            own = (listed.get(name, ()) for name in names)
            return [
                (known.index(value) if value in known else -1, value)
                for known, value in zip(own, values, strict=True)
            ]

        columns = [dict.fromkeys(column) for column in zip(*sorted(values, key=place), strict=True)]
        if math.prod(map(len, columns)) == len(values):
            return label(zip(names, map(" or ".join, columns), strict=True))
        each = (label(zip(names, one, strict=True)) for one in sorted(values, key=place))
        return " or ".join(each)


def _plan_of(key: MetricKey, plans: Sequence[CompiledPlan]) -> CompiledPlan:
    for plan in plans:
        if (plan.collector, plan.plan, plan.version) == key[:3]:
            return plan
    raise ParameterError(
        f"ranges need the plan {key[1]!r} version {key[2]}, which says what is drawn anew: give it "
        "with --plan, or the state directory"
    )


def names_of(segment: str) -> _Values:
    """Return the attributes of a segment.

    >>> names_of("os=linux or mac,app_version=2"), names_of("")
    (('os', 'app_version'), ())
    """
    pairs = segment.partition(" or ")[0] if segment.count("=") > segment.count(",") + 1 else segment
    return tuple(pair.partition("=")[0] for pair in pairs.split(",") if pair)


def combinations(segment: str) -> frozenset[_Values]:
    """Return the combinations of values that a segment has.

    >>> sorted(combinations("os=linux or mac,app=2"))
    [('linux', '2'), ('mac', '2')]
    """
    values = [pair.partition("=")[2].split(" or ") for pair in segment.split(",")]
    return frozenset(product(*values))


def _span(wanted: WindowRange) -> str:
    since, until = wanted.since, wanted.until
    begin = "" if since is None else f"from {day(since)}"
    end = "" if until is None else f"to {day(until)}"
    return f"{begin} {end}".strip() or "of all"


def day(time: datetime) -> str:
    """Return a time as people write it."""
    return time_text(milliseconds(time))


def _no_windows(wanted: WindowRange, windows: Sequence[Window]) -> str:
    if not windows:
        return f"there are no results of {wanted.metric!r}"
    first, last = windows[0], max(windows, key=lambda each: each.window_start)
    length = milliseconds(first.window_end) - milliseconds(first.window_start)
    return (
        f"no window of {wanted.metric!r} lies {_span(wanted)}; windows take "
        f"{duration_text(length)}, the first begins at {day(first.window_start)}, the last ends at "
        f"{day(last.window_end)}"
    )
