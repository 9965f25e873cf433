"""Print how the arms of an experiment differ.

A difference is how much more an arm has than the first one. Its interval holds at all looks
together: it excludes the true average effect, on the devices counted, at any time ever, with at
most 5 % probability. So look every day, and stop when you like. It counts the reports of the last
level alone, of one window and one estimate. What it assumes is in docs/experiments.md.

The arms' shares of the reports should be as even as the plan makes them. If their p-value is below
0.01, reports of an arm are lost, or devices are not assigned as planned, and differences say
nothing until it is known why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from mechanisms.items import OF_EXPERIMENTS
from sotto.cli.estimates import number, title, write_csv
from sotto.cli.format import aligned
from sotto.cli.options import add

HELP = "print how the arms of an experiment differ"

EXAMPLES = """\
examples:
  sotto experiment --state build/state
  sotto experiment --state build/state --metric dark --window 2026-06-01
      one metric, in the window that contains that time
  sotto experiment --database postgresql+psycopg://localhost/sotto --format csv
"""

Row: TypeAlias = Mapping[str, object]

_HEADS = ("arm", "of", "difference", "at all looks", "p-value", "reports", "withheld")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    add(place, "--state DIR", "of sotto aggregate")
    add(place, "--database URL", "of sotto aggregate, where it has its own")
    add(parser, "--collector NAME", "only this one's, of a database that serves several")
    add(parser, "--metric NAME", "only this one")
    add(parser, "--window TIME", "only windows that contain this time")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    from pipelines.sinks.sql import Results, of_state

    with Results(args.database or of_state(args.state), create=False) as results:
        found = results.estimates(args.metric, args.window, args.collector)
    rows = [row for row in found if row["kind"] in OF_EXPERIMENTS]
    if args.format == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    elif args.format == "csv":
        write_csv(rows)
    else:
        print("\n".join(table(rows)))
    return 0


def table(rows: Sequence[Row]) -> list[str]:
    """Return rows of experiments, in the database's order, for people: a block a window.

    >>> table([])
    ['no experiment']
    """
    lines: list[str] = []
    several = len({row["collector"] for row in rows}) > 1
    for head, block in groupby(rows, lambda row: title(row, several=several)):
        lines += [head, *_block(list(block)), ""]
    return lines or ["no experiment"]


def _block(rows: Sequence[Row]) -> Iterator[str]:
    shares = [row for row in rows if row["kind"] == "arm_share"]
    yield f"  arms: {', '.join(map(_share, shares))}"
    if any(row["significant"] for row in shares):
        p_value = number(shares[0]["p_value"])
        yield f"  THE ARMS' REPORTS ARE NOT AS EVEN AS PLANNED (p-value {p_value}): find out why"
    cells = [_cells(row) for row in rows if row["kind"] == "difference"]
    if not cells:
        yield "  no arm that is compared has reports"
        return
    shown = len(_HEADS) - (not any(remark for *_, remark in cells))
    right = [False, False, True, True, True, True, False][:shown]
    yield from (f"  {line}" for line in aligned([row[:shown] for row in (_HEADS, *cells)], right))


def _share(row: Row) -> str:
    value = row["value"]
    assert isinstance(value, float)
    return f"{_arm(row)} {100 * value:.2f} %"


def _cells(row: Row) -> tuple[str, ...]:
    unit = "" if row["unit"] in (None, "share") else f"({row['unit']})"
    of = f"{row['item'] or 'mean'} {unit}".strip()
    interval = "" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"
    figures = (number(row["value"]), interval, number(row["p_value"]))
    return (_arm(row), of, *figures, f"{row['n']:,}", str(row["withheld"] or ""))


def _arm(row: Row) -> str:
    return str(row["segment"]).partition("=")[2]
