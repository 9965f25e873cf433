"""Print the estimates that an aggregator has made.

An estimate is unbiased where nothing else is said, and so may lie below zero or above one; its
interval covers the truth about the reports counted with 95 % probability over the randomization.
'shown' is the closest set of shares that can be: for charts, without an interval. 'floor' is the
smallest true share that would be noticed. 'method' names what is not unbiased: 'monotone'
(isotonic regression; the interval covers at least as much, of a 'cdf' its average over the part
of the range in whose middle the point is, at best 1/64), 'smoothed' (toward a smooth law, with
no interval), 'em' (the most likely shares; the interval is good only for many reports and away
from 0 and 1) or 'biased' (of what was reported, not of what was true).

An estimate of fewer reports than the plan's 'minimum_reports' is withheld: its fields are empty,
in CSV and JSON too, and the column 'withheld' has the reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TypeAlias

from sotto.cli.format import aligned
from sotto.cli.options import add

HELP = "print the estimates that an aggregator has made"

EXAMPLES = """\
examples:
  sotto estimates --state build/state
  sotto estimates --state build/state --metric carrier --window 2013-06-01
      one metric, in the window that contains that time
  sotto estimates --database postgresql+psycopg://localhost/sotto --format csv
"""

Row: TypeAlias = Mapping[str, object]

_HEADS = ("", "estimate", "95 % interval", "shown", "floor", "reports", "method")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    add(place, "--state DIR", "of sotto aggregate")
    add(place, "--database URL", "of sotto aggregate, where it has its own")
    add(parser, "--collector NAME", "only this one's, of a database that serves several")
    add(parser, "--metric NAME", "only this one")
    add(parser, "--window TIME", "only windows that contain this time")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    everything = "also points of distributions and strings that are not significant in the table"
    add(parser, "--all", everything)


def run(args: argparse.Namespace) -> int:
    from pipelines.sinks.sql import Results, of_state

    with Results(args.database or of_state(args.state), create=False) as results:
        rows = results.estimates(args.metric, args.window, args.collector)
    if args.format == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    elif args.format == "csv":
        _write_csv(rows)
    else:
        print("\n".join(table(rows, everything=args.all)))
    return 0


def table(rows: Sequence[Row], *, everything: bool) -> list[str]:
    """Return estimates, in the database's order, for people to read: a block a metric and window.

    ``everything`` is also what mostly is too much.
    """
    if not rows:
        return ["no estimates"]
    shown = [row for row in rows if everything or _matters(row)]
    lines: list[str] = []
    several = len({row["collector"] for row in rows}) > 1
    for title, block in groupby(shown, lambda row: _title(row, several=several)):
        lines += [title, *_block(list(block)), ""]
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


def _block(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a window: one line where all of it is withheld for the same reason."""
    (first, *others) = {_withheld(row) for row in rows}
    if first and not others:
        return [f"  withheld: {first}"]
    cells = [_HEADS, *map(_cells, rows)]
    if not any(method for *_, method in cells[1:]):
        cells = [most[:-1] for most in cells]
    right = [column > 0 for column in range(len(cells[0]))]
    return [f"  {line}" for line in aligned(cells, right)]


def _title(row: Row, *, several: bool) -> str:
    whose = f"{row['collector']}: " if several else ""
    return (
        f"{whose}{row['metric']}, {_day(row['window_start'])} to {_day(row['window_end'])} "
        f"({row['plan']} version {row['version']}, revision {row['revision']})"
    )


def _cells(row: Row) -> tuple[str, ...]:
    unit = "" if row["unit"] in (None, "share") else f"({row['unit']})"
    name = " ".join(str(part) for part in (row["kind"], row["item"], unit) if part != "")
    interval = "" if row["low"] is None else f"{_number(row['low'])} to {_number(row['high'])}"
    floor = row["detection_floor"]
    numbers = (_number(row["value"]), interval, _number(row["display"]), _number(floor))
    method = row.get("method") or "unbiased"
    remark = "" if method == "unbiased" else str(method)
    if why := _withheld(row):
        remark = f"withheld: {why}"
    return (name.removeprefix("share "), *numbers, f"{row['n']:,}", remark)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else ""


def _day(time: object) -> str:
    assert isinstance(time, int)
    try:
        return f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    except (OverflowError, ValueError, OSError):
        return f"{time} ms"


def _write_csv(rows: Sequence[Row]) -> None:
    from pipelines.sinks.tables import ESTIMATES

    writer = csv.DictWriter(sys.stdout, ESTIMATES.columns.keys(), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        lists = {name: json.dumps(value) for name, value in row.items() if isinstance(value, list)}
        writer.writerow({**row, **lists})
