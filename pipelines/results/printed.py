"""The output of ``sotto estimates``: chooses the estimates that are asked for, and lays them out.

:class:`EstimateChoice` reads rows; :func:`table`, :func:`ranges`, :func:`effects` and
:func:`retention` return them as lines for people.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from textwrap import wrap
from typing import Any, TypeAlias

from mechanisms.estimate import forged
from mechanisms.experiments import SAMPLE_RATIO_ERROR
from mechanisms.items import OF_EXPERIMENTS
from pipelines.results import encode
from pipelines.results.documents import WINDOW_KEY
from pipelines.results.fields import milliseconds, moment
from pipelines.results.ordinals import beyond
from pipelines.results.range_windows import day, names_of
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import (
    Alarm,
    ArmEffect,
    OfRange,
    RangeComparison,
    RangeEstimate,
    RetentionRate,
)
from pipelines.results.views import VIEW_ESTIMATES
from sotto.columns import aligned, columns, time_text
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan

Row: TypeAlias = Mapping[str, Any]
_OfRange: TypeAlias = RangeEstimate | RangeComparison
#: The columns that name a window.
Window: TypeAlias = tuple[Any, ...]

#: The columns between which the truth lies if a share of the reports is forged.
_UNDER = ("under_low", "under_high")
#: Headings of figures by column; the interval is printed after the first figure.
_FIGURES = {each.name: each.about.heading for each in VIEW_ESTIMATES.columns}
_FIRST, *_OTHERS = (name for name, heading in _FIGURES.items() if heading)
_EFFECT_HEADS = (
    *("arm", "of", "first arm", "difference", "at {} looks", "p-value", "found from"),
    *("reports", "windows", "repeats", ""),
)
#: Columns of ranges, and of how they differ: a field, or the ends of an interval.
_INTERVALS = {"95 % interval": "low high", "{:g} % forged": "under_low under_high"}
_INTERVALS |= {"forged down": "forged_down", "forged up": "forged_up"}
_RANGE = {"estimate": "value", **_INTERVALS, "reports": "reports", "windows": "windows"}
_DIFFERENCE = {"estimate": "value", "against": "against", "difference": "difference"}
_DIFFERENCE |= {**_INTERVALS, "found from": "smallest_found"}
_COMPARED = (
    "'found from' is the smallest true difference that is told from zero in 80 % of",
    "cases. Intervals are of the reports counted, and each holds by itself: of many",
    "figures looked at, one in twenty is off by chance.",
)


@dataclass(frozen=True)
class EstimateChoice:
    """Which estimates are asked for; None for all."""

    metric: str | None = None
    #: A time, ms, that is in the window.
    window: int | None = None
    collector: str | None = None
    #: Names of attributes, such as ``os,app_version``, or one segment, such as ``os=linux``.
    by: str | None = None
    segment: str | None = None
    #: A share of forged reports; each row then also has the ends of what the truth may be.
    under: float | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        more = () if self.under is None else _UNDER
        return [*(each.name for each in VIEW_ESTIMATES.columns), *more]

    def read(self, reader: ResultsReader) -> tuple[list[Row], dict[Window, list[str]]]:
        """Return the rows, in the database's order, and what alarms say of their windows.

        Raises ParameterError if there are results, but none of the collector, metric, window or
        segment.
        """
        since = None if self.window is None else moment(self.window)
        until = since and since + timedelta(milliseconds=1)
        asked = Chosen(self.collector, metric=self.metric, since=since, until=until)
        page = reader.page(VIEW_ESTIMATES, asked)
        found: list[Row] = [*encode.objects(VIEW_ESTIMATES, page.rows)]
        if not found and self.window is not None and (known := reader.metrics()):
            first = day(min(each.first_window for each in known))
            newest = day(max(each.newest_window for each in known))
            there = f"the first begins at {first}, the newest at {newest}"
            raise ParameterError(f"--window: none contains {time_text(self.window)}; {there}")
        rows = [row for row in found if _chosen(str(row["segment"]), self.by, self.segment)]
        if found and not rows and (self.by or self.segment):
            raise ParameterError(_no_such_segment(found, self.by, self.segment))
        if self.under is not None:
            rows = [{**row, **_under(row, self.under)} for row in rows]
        return rows, _of_windows(reader.alarms(), rows)


def _no_such_segment(found: Sequence[Row], by: str | None, only: str | None) -> str:
    """Return why there are no rows of the segments that were asked for, and what there is."""
    segments = {row["segment"] for row in found} - {""}
    names = sorted({",".join(names_of(segment)) for segment in segments})
    of = ", or by ".join(names)
    there = f"there are results by {of}" if names else "there are none by segment"
    if only is None:
        return f"--by: no results by '{by}'; {there}"
    alike = sorted(each for each in segments if _chosen(each, ",".join(names_of(only)), None))
    if alike:
        there = f"there are {', '.join(alike)}"
    return f"--segment: no results of '{only}'; {there}"


def _window(row: Row) -> Window:
    return tuple(row[name] for name in WINDOW_KEY)


def _of_windows(alarms: Sequence[Alarm], rows: Sequence[Row]) -> dict[Window, list[str]]:
    """Return the messages of alarms by window, for the windows that rows are of."""
    found: dict[Window, list[str]] = {_window(row): [] for row in rows}
    for alarm in alarms:
        window = (*alarm.key, encode.time_text(milliseconds(alarm.window_start)))
        if window in found:
            found[window].append(f"{alarm.message} (check of {alarm.kind})")
    return found


def _under(row: Row, share: float) -> dict[str, object]:
    known = under_of(row["low"], row["high"], row["reach"], row["reports_by_level"], share)
    return dict(zip(_UNDER, known or (None, None), strict=True))


def under_of(
    low: Any, high: Any, reach: Any, by_level: Any, share: float
) -> tuple[float, float] | None:
    """Return the ends between which the truth lies if a share of the reports is forged.

    ``low`` and ``high`` are those of the interval without forgers, ``reach`` and ``by_level`` the
    fields ``reach`` and ``reports_by_level`` of the row. None if no such bound is known.
    """
    if low is None or high is None or reach is None:
        return None
    over, short = forged(share, by_level, reach)
    return (low - over, high + short) if math.isfinite(over + short) else None


def _chosen(segment: str, by: str | None, only: str | None) -> bool:
    """Return whether rows of a segment are asked for: of all reports if neither option is given."""
    if by is not None:
        return sorted(names_of(segment)) == sorted(by.split(","))
    return sorted(segment.split(",")) == sorted((only or "").split(","))


def table(
    rows: Sequence[Row],
    *,
    everything: bool,
    alarms: Mapping[Window, Sequence[str]] | None = None,
    under: float | None = None,
) -> list[str]:
    """Return estimates, in the database's order, for people to read: a block a metric and window.

    ``everything``: whether to print rows that :func:`_matters` leaves out, too. ``alarms``:
    messages by window, printed below its first block. ``under``: the share of forged reports for
    which rows have ``under_low`` and ``under_high``.
    """
    rows = [row for row in rows if row["kind"] not in OF_EXPERIMENTS]
    if not rows:
        return ["no estimates"]
    told = {_item(row) for row in rows if row["kind"] == "group"}
    shown = [row for row in rows if everything or _matters(row, told)]
    lines: list[str] = []
    said = dict(alarms or {})
    several = len({row["collector"] for row in rows}) > 1
    for title, block in groupby(shown, lambda row: _title(row, several=several)):
        found = list(block)
        lines += [title, *_block(found, under)]
        lines += [f"  warning: {message}" for message in said.pop(_window(found[0]), ())]
        lines.append("")
    more = sum(not _withheld(row) for row in rows) - sum(not _withheld(row) for row in shown)
    if more:
        lines.append(f"{more:,} more with --all: distributions, biased shares of values that have")
        lines.append("an unbiased one, and strings that may well be absent")
    return lines


def _matters(row: Row, told: Container[Window]) -> bool:
    # A value that reports tell from all others also has an unbiased share (``group``): print that.
    if row["kind"] == "share":
        return _item(row) not in told
    return row["kind"] not in ("cdf", "bit", "string") or bool(row["significant"])


def _item(row: Row) -> Window:
    return *_window(row), row["segment"], row["item"]


def _withheld(row: Row) -> str:
    """Return why a row has no estimate; empty where it has one."""
    return str(row.get("withheld") or "")


def _block(rows: Sequence[Row], under: float | None) -> list[str]:
    """Return the lines of a window: one line where all of it is withheld for the same reason."""
    (first, *others) = {_withheld(row) for row in rows}
    if first and not others:
        return [f"  withheld: {first}"]
    share = () if under is None else (f"{100 * under:g} % forged",)
    rest = (*(_FIGURES[each] for each in _OTHERS), "reports", "method")
    heads: tuple[str, ...] = ("", _FIGURES[_FIRST], "95 % interval", *share, *rest)
    cells = [heads, *(_cells(row, under=under is not None) for row in rows)]
    # Empty columns are left out; figures of forgers, for example, are not in old windows.
    filled = [column for column in zip(*cells, strict=True) if any(column[1:])]
    right = [at > 0 for at in range(len(filled))]
    return [f"  {line}" for line in aligned([*zip(*filled, strict=True)], right)]


def _title(row: Row, *, several: bool) -> str:
    whose = f"{row['collector']}: " if several else ""
    segment = f" [{row['segment']}]" if row.get("segment") else ""
    start, end = (minute_of(row[name]) for name in ("window_start", "window_end"))
    so_far = ", so far" if row.get("complete") is False else ""
    return (
        f"{whose}{row['metric']}{segment}, {start} to {end} "
        f"({row['plan']} version {row['version']}, revision {row['revision']}){so_far}"
    )


def minute_of(time: str) -> str:
    """Return a time of a row as people read it."""
    return time_text(milliseconds(datetime.fromisoformat(time)))


def _cells(row: Row, *, under: bool) -> tuple[str, ...]:
    name = _name(row["kind"], row["item"], row["unit"])
    interval = _interval(row["low"], row["high"])
    intervals = [interval, _interval(*(row[end] for end in _UNDER))] if under else [interval]
    numbers = (_number(row[_FIRST]), *intervals, *(_number(row[each]) for each in _OTHERS))
    method = row.get("method") or "unbiased"
    remark = "" if method == "unbiased" else str(method)
    if row["biased"] and method != "biased":
        remark = f"biased ({method})"
    if row["kind"] == "mean" and row["shown"] not in (None, row["value"]):
        remark += f"{', ' * bool(remark)}by chance outside the range"
    if why := _withheld(row):
        remark = f"withheld: {why}"
    return (name, *numbers, f"{row['reports']:,}", remark)


def _interval(low: object, high: object) -> str:
    return "" if low is None else f"{_number(low)} to {_number(high)}"


def _number(value: object) -> str:
    """Return about four significant digits in plain notation; nothing of what is no number.

    >>> _number(12712.3), _number(-0.0000123), _number(0.05297), _number(410.0), _number(-4e-16)
    ('12,712', '-0.0000123', '0.05297', '410', '0')
    """
    if not isinstance(value, float):
        return ""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    text = f"{value:z,.{min(max(3 - size, 0), 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def effects(found: Sequence[ArmEffect], plans: Sequence[CompiledPlan] = ()) -> list[str]:
    """Return how arms of experiments differ, for people to read: a block a metric.

    ``plans``: those that are known.

    >>> effects([])
    ['no plan is known, which says what is compared: of a database give it with --plan']
    """
    if not found and not plans:
        return ["no plan is known, which says what is compared: of a database give it with --plan"]
    if not found:
        names = ", ".join(f"{plan.plan} version {plan.version}" for plan in plans)
        return [f"no experiment is in {names}: one begins with a version that has `experiment:`"]
    lines: list[str] = []
    for title, block in groupby(found, _effect_title):
        rows = list(block)
        lines.append(title)
        if (even := rows[0].arms_p_value) is not None and even < SAMPLE_RATIO_ERROR:
            lines.append(
                f"  THE ARMS' REPORTS ARE NOT AS EVEN AS PLANNED (p-value {_number(even)}): find "
                "out why"
            )
        known = [row for row in rows if row.value is not None]
        planned = any(row.look_value is not None for row in known)
        heads = tuple(each.format("planned" if planned else "all") for each in _EFFECT_HEADS)
        lines += _indented([heads, *map(_effect, known)]) if known else []
        lines += [f"  {row.arm} is not compared: {row.withheld}" for row in rows if row.withheld]
        lines += [f"  {row.arm}: {looked(row)}" for row in known if row.looks]
        lines.append("")
    lines.append("'Found from' is the smallest true difference that is found in 80 % of cases: by")
    lines.append("the planned end of the metric that decides, of others by the interval of now.")
    return lines


def looked(row: ArmEffect) -> str:
    """Return what planned looks found."""
    following = ""
    if row.next_look is not None:
        following = f"; the next one is of windows until {time_text(milliseconds(row.next_look))}"
    if row.boundary is None or row.errors is None:
        return f"no look of {row.looks} has been taken yet{following}"
    said = (
        f"at look {row.look} of {row.looks} the difference is {_number(row.look_value)}, "
        f"{_number(row.errors)} standard errors; the boundary is {_number(row.boundary)}, the "
        f"interval for all planned looks {_interval(row.look_low, row.look_high)}"
    )
    if row.decided_at is not None:
        return f"differs, as look {row.decided_at} decided; {said}"
    ended = "not decided yet" if row.next_look else "ended without a difference"
    return f"{ended}; {said}{following}"


def _effect_title(row: ArmEffect) -> str:
    left_out = f", {row.left_out:,} windows left out" if row.left_out else ""
    decides = ", which decides" if row.looks else ""
    when = ""
    if row.start is not None and row.end is not None:
        start, end = (time_text(milliseconds(each)) for each in (row.start, row.end))
        when = f", {start} to {end}"
    name = f"{row.experiment} of {row.plan} version {row.version}"
    return f"{row.metric}{when} ({name}){decides}{left_out}"


def _effect(row: ArmEffect) -> tuple[str, ...]:
    unit = "" if row.unit in (None, "share") else f"({row.unit})"
    of = f"{row.item or 'mean'} {unit}".strip()
    value, *ends = row.told
    sure = f"{row.p_value:.2g}" if row.look_value is None else "", _number(row.smallest_found)
    figures = _number(row.first), _number(value), _interval(*ends), *sure
    counted = (f"{each:,}" for each in (row.reports, row.windows, row.repeats))
    return row.arm, of, *figures, *counted, "differs" if row.differs else ""


def ranges(found: Sequence[_OfRange], *, everything: bool, under: float | None = None) -> list[str]:
    """Return estimates of ranges, or how they differ, for people: a block a metric and segment.

    ``everything`` and ``under`` are as for :func:`table`.
    """
    lines: list[str] = []
    compared = [row for row in found if isinstance(row, RangeComparison)]
    columns = (_DIFFERENCE if compared else _RANGE).items()
    asked = [(head, names.split()) for head, names in columns if under or "under" not in names]
    heads = [head.format(100 * (under or 0.0)) for head, _ in asked]
    for title, block in groupby(found, _range_title):
        cells: list[tuple[str, ...]] = [("", *heads, "method")]
        for row in block:
            if everything or _stands_out(row):
                figures = (_told(*(getattr(row, each) for each in names)) for _, names in asked)
                method = "" if row.method in (None, "unbiased") else row.method
                remark = "biased" if row.low is None else str(method)
                cells.append((_name(row.kind, row.item, row.unit), *figures, remark))
        lines += [title, *_indented(cells), ""]
    shown = [row for row in compared if everything or _stands_out(row)]
    return lines + [*_COMPARED] * bool(compared) + wrap(who_answered(shown), 80)


def who_answered(found: Sequence[RangeComparison]) -> str:
    """Return a sentence on how far chance in who answered may move these differences, or ""."""
    chance = max((row.by_who_answered for row in found), default=0.0)
    text = (
        f"Chance in who answered may move these differences by up to ± {100 * chance:.3g} "
        "points more, if each report is another person's: no interval here counts it."
    )
    return text if chance else ""


def _told(value: float | None, *end: float | None) -> str:
    return _interval(value, *end) if end else _number(None if value is None else float(value))


def retention(found: Sequence[RetentionRate]) -> list[str]:
    """Return what part of new devices came again, for people to read: a line a window and age."""
    if not found:
        return ["none: it takes estimates of the measure age, in two windows as long as its steps"]
    return columns(
        found,
        {
            "metric": lambda rate: f"{rate.metric} {rate.segment}".strip(),
            "new from": lambda rate: time_text(milliseconds(rate.since)),
            "age": lambda rate: str(rate.age),
            "came again": lambda rate: _number(rate.value),
            "95 % interval": lambda rate: _interval(rate.low, rate.high),
            "reports": lambda rate: f"{rate.reports:,}",
        },
    )


def _range_title(row: _OfRange) -> str:
    start, end = (time_text(milliseconds(each)) for each in (row.start, row.end))
    left_out = f", {row.left_out:,} windows left out" if row.left_out else ""
    name = f" [{row.segment}]" if row.segment else ""
    title = f"{row.metric}{name}, {start} to {end} ({row.plan} version {row.version}){left_out}"
    if not isinstance(row, RangeComparison):
        return title
    ends = row.against_start, row.against_end
    against = " to ".join(time_text(milliseconds(each)) for each in ends)
    if ends == (row.start, row.end):
        against = row.against_segment or "all reports"
    return f"{title} against {against}"


def _name(kind: str, item: str, unit: str | None) -> str:
    if kind == "beyond":
        return beyond(item)
    shown = "" if unit in (None, "share") else f"({unit})"
    return " ".join(filter(None, (kind, item, shown))).removeprefix("share ")


def _stands_out(row: OfRange) -> bool:
    if row.kind == "string":
        return bool(getattr(row, "significant", True))
    return row.kind not in ("cdf", "bit")


def _indented(cells: Sequence[tuple[str, ...]]) -> list[str]:
    right = [0 < column < len(cells[0]) - 1 for column in range(len(cells[0]))]
    return [f"  {line}" for line in aligned(cells, right)]
