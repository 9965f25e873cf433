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

The figures of a plan with segments are of all reports unless --by or --segment says which segments.
Reports of the values of one segment add up to all reports: never add both. A segment is withheld,
too, where another one of few reports would follow from it.

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
