"""Print the estimates that an aggregator has made.

An estimate is unbiased where nothing else is said, and so may lie below zero or above one; its
interval covers the truth about the reports counted with 95 % probability over the randomization.
'shown' is the closest set of shares, or the closest mean, that can be: for charts, without an
interval; 'by chance outside the range' marks a mean whose estimate cannot be. 'floor' is the
smallest true share that would be noticed. 'method' names what is not unbiased: 'monotone'
(isotonic regression; the interval covers at least as much, of a 'cdf' its average over the part
of the range in whose middle the point is, at best 1/64), or that an estimate is known to be biased
and so has no interval: 'biased' (of what was reported, not of what was true), 'biased (smoothed)'
(toward a smooth law) or 'biased (em)' (the most likely shares).

A warning under a window says that its reports are not those of honest devices: which check failed,
what was seen, and what honest devices would have sent (docs/poisoning.md).

With '--under 1%' a column has what the truth may be if up to 1 % of the reports of each window are
forged: the interval, widened by what they can do at most, which is not the same on both sides. Such
reports cannot be told from others if they follow the protocol. It is empty where no bound is known.

--experiment prints how much more each arm of an experiment has than the first one, from reports of
the last level alone. These intervals hold at all looks together: each excludes the true average
effect, on the devices counted, at any time ever, with at most 5 % probability. The arms' shares of
the reports should be as even as planned: if their p-value is below 0.01, find out why before you
read differences. docs/experiments.md says what is assumed.

An estimate of fewer reports than the plan's 'minimum_reports' is withheld: its fields are empty,
in CSV and JSON too, and the column 'withheld' has the reason.

Where the plan has segments, what is printed is of all reports unless --by or --segment says which
segments. Reports of the values of one segment add up to all reports: never add both. A segment is
withheld, too, where another one of few reports would follow from it.

examples:
  sotto estimates --state build/state
  sotto estimates --state build/state --metric carrier --window 2013-06-01
      one metric, in the window that contains that time
  sotto estimates --state build/state --under 1%
      also what the truth may be if one report in a hundred is forged
  sotto estimates --state build/state --experiment
      how the arms of an experiment differ
  sotto estimates --database postgresql+psycopg://localhost/sotto --format csv
  sotto estimates --state build/state --by os,app_version
      each combination of two segments; --by os is each value of one, an experiment's name its arms
  sotto estimates --state build/state --segment os=linux
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from mechanisms.estimate import forged
from mechanisms.items import OF_EXPERIMENTS, Method
from sotto.clocks import now_ms
from sotto.columns import aligned
from sotto.csv_cells import write_csv_rows
from sotto.errors import ParameterError
from sotto_cli.options import add, add_format, warn

Row: TypeAlias = Mapping[str, object]
#: The columns that name a window.
Window: TypeAlias = tuple[object, ...]

#: Names of the ends of what the truth may be if reports are forged.
_UNDER = ("under_low", "under_high")

_HEADS = ("", "estimate", "95 % interval", "shown", "floor", "reports", "method")
_COMPARED = ("arm", "of", "difference", "at all looks", "p-value", "reports", "withheld")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    add(place, "--state DIR", "of sotto aggregate")
    add(place, "--database URL", "of sotto aggregate, where it has its own")
    add(parser, "--collector NAME", "only this one's, of a database that serves several")
    add(parser, "--metric NAME", "only this one")
    add(parser, "--window TIME", "only windows that contain this time")
    add(parser, "--under SHARE", "also what the truth may be if so many reports are forged")
    chosen = parser.add_mutually_exclusive_group()
    add(chosen, "--by NAME[,NAME]", "by these segments, or the arms of an experiment of that name")
    add(chosen, "--segment NAME=VALUE[,...]", "only this segment")
    add(chosen, "--experiment", "how the arms of an experiment differ, and nothing else")
    add_format(parser, "table", "csv", "json")
    everything = "also points of distributions and strings that are not significant in the table"
    add(parser, "--all", everything)


def run(args: argparse.Namespace) -> int:
    from pipelines.exporter.freshness import stale
    from pipelines.results.reader import ResultsReader
    from pipelines.results.tables import ALARMS, ESTIMATES
    from pipelines.results.views import ENDS
    from pipelines.sinks.sql import Results, of_state
    from pipelines.storage.directory import LastRun

    last = None if args.state is None else LastRun.of(Path(args.state))
    with ResultsReader(args.database or of_state(args.state), args.state) as reader:
        for text in stale(reader.health(), last, now_ms()):
            warn(text)
    with Results(args.database or of_state(args.state), create=False) as results:
        found = results.estimates(args.metric, args.window, args.collector)
        if args.metric and not found:
            _check_metric(args.metric, results.estimates())
        marked = results.table(ALARMS)
    biased = {each.value for each in Method if each.biased}
    found = [
        {**row, **dict.fromkeys(ENDS), "biased": True}
        if row["method"] in biased
        else {**row, "biased": False}
        for row in found
    ]
    if args.experiment:
        rows = [row for row in found if row["kind"] in OF_EXPERIMENTS]
    else:
        rows = [row for row in found if _chosen(str(row["segment"]), args.by, args.segment)]
    if found and not rows and (args.by or args.segment):
        raise ParameterError(_no_such_segment(found, args.by, args.segment))
    alarms = _of_windows(marked, rows)
    if args.under is not None:
        rows = [{**row, **_under(row, args.under)} for row in rows]
    if args.format == "table":
        if args.experiment:
            lines = experiments(rows)
        else:
            lines = table(rows, everything=args.all, alarms=alarms, under=args.under)
        print("\n".join(lines))
        return 0
    if args.format == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        names = [*ESTIMATES.columns.keys(), "biased", *(() if args.under is None else _UNDER)]
        write_csv_rows(sys.stdout, names, rows)
    for window, messages in alarms.items():
        for message in messages:
            warn(f"{window[3]}, {_day(window[4])}: {message}")
    return 0


def _check_metric(name: str, everything: Sequence[Row]) -> None:
    """Refuse a metric without results where others have some."""
    names = sorted({str(row["metric"]) for row in everything})
    if names and name not in names:
        raise ParameterError(
            f"--metric: no results of '{name}'; there are results of {', '.join(names)}"
        )


def _no_such_segment(found: Sequence[Row], by: str | None, only: str | None) -> str:
    """Return why there are no rows of the segments that were asked for, and what there is."""
    segments = {str(row["segment"]) for row in found} - {""}
    names = sorted({_names(segment) for segment in segments})
    there = f"there are results by {', or by '.join(names) or 'none'}"
    if only is None:
        return f"--by: no results by '{by}'; {there}"
    alike = sorted(each for each in segments if _chosen(each, _names(only), None))
    if alike:
        there = f"there are {', '.join(alike)}"
    return f"--segment: no results of '{only}'; {there}"


def _window(row: Row) -> Window:
    return tuple(row[name] for name in ("collector", "plan", "version", "metric", "window_start"))


def _of_windows(alarms: Sequence[Row], rows: Sequence[Row]) -> dict[Window, list[str]]:
    """Return what alarms say of windows, of those that estimates are of."""
    found: dict[Window, list[str]] = {_window(row): [] for row in rows}
    for alarm in alarms:
        if (window := _window(alarm)) in found:
            found[window].append(f"{alarm['message']} (check of {alarm['kind']})")
    return found


def _under(row: Row, share: float) -> dict[str, object]:
    """Return the ends of what the truth may be if a share of the reports is forged."""
    low, high, reach, by_level = (
        row[name] for name in ("low", "high", "reach", "reports_by_level")
    )
    if not (isinstance(low, float) and isinstance(high, float) and isinstance(reach, list)):
        return dict.fromkeys(_UNDER)
    assert isinstance(by_level, list)
    over, short = forged(share, by_level, reach)
    ends = low - over, high + short
    return dict(zip(_UNDER, ends if math.isfinite(over + short) else (None, None), strict=True))


def _chosen(segment: str, by: str | None, only: str | None) -> bool:
    """Return whether the rows of a segment are asked for; of all reports where nothing is said."""
    if by is not None:
        return sorted(_names(segment).split(",")) == sorted(by.split(","))
    return sorted(segment.split(",")) == sorted((only or "").split(","))


def _names(segment: str) -> str:
    """Return the attributes of a segment.

    >>> _names("os=linux,app_version=2")
    'os,app_version'
    """
    return ",".join(part.partition("=")[0] for part in segment.split(","))


def table(
    rows: Sequence[Row],
    *,
    everything: bool,
    alarms: Mapping[Window, Sequence[str]] | None = None,
    under: float | None = None,
) -> list[str]:
    """Return estimates, in the database's order, for people to read: a block a metric and window.

    ``alarms`` are what they say, by window, below its first block; ``everything`` is also what
    mostly is too much; ``under`` is the share of forged reports of which rows have what the truth
    may be.
    """
    rows = [row for row in rows if row["kind"] not in OF_EXPERIMENTS]
    if not rows:
        return ["no estimates"]
    shown = [row for row in rows if everything or _matters(row)]
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
        lines.append(f"{more:,} more with --all: distributions, and strings")
        lines.append("that may well be absent")
    return lines


def _matters(row: Row) -> bool:
    return row["kind"] not in ("cdf", "bit", "string") or bool(row["significant"])


def _withheld(row: Row) -> str:
    """Return why a row has no estimate; empty where it has one."""
    return str(row.get("withheld") or "")


def _block(rows: Sequence[Row], under: float | None) -> list[str]:
    """Return the lines of a window: one line where all of it is withheld for the same reason."""
    (first, *others) = {_withheld(row) for row in rows}
    if first and not others:
        return [f"  withheld: {first}"]
    heads = list(_HEADS)
    if under is not None:
        heads.insert(3, f"{100 * under:g} % forged")
    cells = [tuple(heads), *(_cells(row, under=under is not None) for row in rows)]
    if not any(method for *_, method in cells[1:]):
        cells = [most[:-1] for most in cells]
    right = [column > 0 for column in range(len(cells[0]))]
    return [f"  {line}" for line in aligned(cells, right)]


def _title(row: Row, *, several: bool, segments: bool = True) -> str:
    whose = f"{row['collector']}: " if several else ""
    segment = f" [{row['segment']}]" if segments and row.get("segment") else ""
    start, end = _day(row["window_start"]), _day(row["window_end"])
    so_far = ", so far" if row.get("complete") is False else ""
    return (
        f"{whose}{row['metric']}{segment}, {start} to {end} "
        f"({row['plan']} version {row['version']}, revision {row['revision']}){so_far}"
    )


def _cells(row: Row, *, under: bool) -> tuple[str, ...]:
    unit = "" if row["unit"] in (None, "share") else f"({row['unit']})"
    name = " ".join(str(part) for part in (row["kind"], row["item"], unit) if part != "")
    interval = _interval(row["low"], row["high"])
    intervals = [interval, _interval(*(row[end] for end in _UNDER))] if under else [interval]
    floor = row["detection_floor"]
    numbers = (_number(row["value"]), *intervals, _number(row["display"]), _number(floor))
    method = row.get("method") or "unbiased"
    remark = "" if method == "unbiased" else str(method)
    if row["biased"] and method != "biased":
        remark = f"biased ({method})"
    if row["kind"] == "mean" and row["display"] not in (None, row["value"]):
        remark += f"{', ' * bool(remark)}by chance outside the range"
    if why := _withheld(row):
        remark = f"withheld: {why}"
    return (name.removeprefix("share "), *numbers, f"{row['n']:,}", remark)


def _interval(low: object, high: object) -> str:
    return "" if low is None else f"{_number(low)} to {_number(high)}"


def _number(value: object) -> str:
    """Return about four significant digits in plain notation; nothing of what is no number.

    >>> _number(12712.3), _number(-0.0000123), _number(0.05297), _number(410.0), _number(None)
    ('12,712', '-0.0000123', '0.05297', '410', '')
    """
    if not isinstance(value, float):
        return ""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    text = f"{value:,.{min(max(3 - size, 0), 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _day(time: object) -> str:
    assert isinstance(time, int)
    try:
        return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    except (OverflowError, ValueError, OSError):
        return f"{time} ms"


def experiments(rows: Sequence[Row]) -> list[str]:
    """Return how arms differ, in the database's order, for people to read: a block a window.

    >>> experiments([])
    ['no experiment']
    """
    lines: list[str] = []
    several = len({row["collector"] for row in rows}) > 1
    for head, block in groupby(rows, lambda row: _title(row, several=several, segments=False)):
        lines += [head, *_of_experiment(list(block)), ""]
    return lines or ["no experiment"]


def _of_experiment(rows: Sequence[Row]) -> Iterator[str]:
    shares = [row for row in rows if row["kind"] == "arm_share"]
    yield f"  arms: {', '.join(map(_share, shares))}"
    if any(row["significant"] for row in shares):
        p_value = _number(shares[0]["p_value"])
        yield f"  THE ARMS' REPORTS ARE NOT AS EVEN AS PLANNED (p-value {p_value}): find out why"
    cells = [_compared(row) for row in rows if row["kind"] == "difference"]
    if not cells:
        yield "  no arm that is compared has reports"
        return
    shown = len(_COMPARED) - (not any(remark for *_, remark in cells))
    right = [False, False, True, True, True, True, False][:shown]
    yield from (
        f"  {line}" for line in aligned([row[:shown] for row in (_COMPARED, *cells)], right)
    )


def _share(row: Row) -> str:
    value = row["value"]
    assert isinstance(value, float)
    return f"{_arm(row)} {100 * value:.2f} %"


def _compared(row: Row) -> tuple[str, ...]:
    unit = "" if row["unit"] in (None, "share") else f"({row['unit']})"
    of = f"{row['item'] or 'mean'} {unit}".strip()
    interval = "" if row["low"] is None else f"{_number(row['low'])} to {_number(row['high'])}"
    figures = (_number(row["value"]), interval, _number(row["p_value"]))
    return (_arm(row), of, *figures, f"{row['n']:,}", str(row["withheld"] or ""))


def _arm(row: Row) -> str:
    return str(row["segment"]).partition("=")[2]
