"""Print the estimates that an aggregator has made.

An estimate is unbiased where the column 'method' says nothing else, and so may lie below zero or
above one; its interval covers the truth about the reports counted with 95 % probability. 'shown' is
the closest value that can be, for charts; 'floor' is the smallest true share that would be noticed.
'withheld' says why there is no estimate. docs/guides/results.md (In a terminal) explains each
column, and the warnings under a window.

Figures are of all reports unless --by or --segment says which segments. Reports of the values of
one segment add up to all reports: never add both.

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
import sys
from pathlib import Path

from sotto.clocks import now_ms
from sotto.columns import time_text
from sotto.csv_cells import write_csv_rows
from sotto_cli.options import add, add_format, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    add(place, "--state")
    add(place, "--database")
    add(parser, "--collector NAME", "only this one's, of a database that serves several")
    add(parser, "--metric")
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
    from pipelines.results import printed
    from pipelines.results.reader import ResultsReader
    from pipelines.sinks.sql import Results, of_state
    from pipelines.storage.directory import LastRun

    last = None if args.state is None else LastRun.of(Path(args.state))
    with ResultsReader(args.database or of_state(args.state), args.state) as reader:
        for text in stale(reader.health(), last, now_ms()):
            warn(text)
    chosen = printed.EstimateChoice(
        args.metric, args.window, args.collector, args.by, args.segment, args.experiment, args.under
    )
    with Results(args.database or of_state(args.state), create=False) as results:
        rows, alarms = chosen.read(results)
    if args.format == "table":
        if args.experiment:
            lines = printed.experiments(rows)
        else:
            lines = printed.table(rows, everything=args.all, alarms=alarms, under=args.under)
        print("\n".join(lines))
        return 0
    if args.format == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        write_csv_rows(sys.stdout, chosen.columns, rows)
    for window, messages in alarms.items():
        for message in messages:
            warn(f"{window[3]}, {time_text(window[4])}: {message}")
    return 0
