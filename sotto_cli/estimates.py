"""Print the estimates that an aggregator has made.

An estimate is unbiased where the column 'method' says nothing else, and so may lie below zero or
above one; its interval covers the truth about the reports counted with 95 % probability. 'shown' is
the closest value that can be, for charts; 'floor' is the smallest true share that would be noticed.
'withheld' says why there is no estimate. docs/guides/results.md (In a terminal) explains each
column, and the warnings under a window.

Figures are of all reports unless --by or --segment says which segments. Reports of the values of
one segment add up to all reports: never add both. Devices that measure something over a period
answer at their first use after it: those figures are of the devices that came back in time.

examples:
  sotto estimates --state build/state
  sotto estimates --state build/state --metric carrier --window 2013-06-01
      one metric, in the window that contains that time
  sotto estimates --state build/state --under 1%
      also what the truth may be if one report in a hundred is forged
  sotto estimates --state build/state --experiment
      how arms of experiments differ over all windows, by intervals for all looks; and what the
      planned looks of the metric that decides found
  sotto estimates --state build/state --returning
      what part of the devices that were new in a window came again, by age
  sotto estimates --database postgresql+psycopg://localhost/sotto --format csv
  sotto estimates --state build/state --by os,app_version
      each combination of two segments; --by os is each value of one, an experiment's name its arms
  sotto estimates --state build/state --segment os=linux
  sotto estimates --state build/state --metric carrier --from 2013-04-01 --to 2013-07-01
      one estimate of all windows that lie in between; docs/guides/results.md (Ranges) says more
  sotto estimates --state build/state --metric carrier --from 2013-06-01 --to 2013-07-01 \
      --compare previous
      how it differs from as long a range before; or from 2013-04-01..2013-05-01, from a segment
      such as os=linux, or, with --by or --segment, from all
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sotto.csv_cells import write_csv_rows
from sotto.errors import ParameterError
from sotto_cli.options import add, add_format, add_results, reader_of, warn

if TYPE_CHECKING:
    from pipelines.results.range_windows import WindowRange
    from pipelines.results.reader import ResultsReader
    from pipelines.results.records import RangeComparison, RangeEstimate
    from pipelines.results.views import RowSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    add(parser, "--collector NAME", "only this one's, of a database that serves several")
    add(parser, "--metric")
    add(parser, "--window TIME", "only windows that contain this time")
    since = "one estimate of all windows since then, of one --metric"
    add(parser, "--from TIME", since, dest="since")
    add(parser, "--to TIME", "and of those that end until then")
    against = "how that differs from another range, a segment, 'all' or 'previous'"
    add(parser, "--compare WHAT", against)
    add(parser, "--under SHARE", "also what the truth may be if so many reports are forged")
    chosen = parser.add_mutually_exclusive_group()
    add(chosen, "--by NAME[,NAME]", "by these segments, or the arms of an experiment of that name")
    add(chosen, "--segment NAME=VALUE[,...]", "only this segment")
    add(chosen, "--experiment", "how arms of experiments differ over all windows")
    add(chosen, "--returning", "what part of the devices that were new came again, by age")
    add_format(parser, "table", "csv", "json")
    everything = "also points of distributions and strings that are not significant in the table"
    add(parser, "--all", everything)


def run(args: argparse.Namespace) -> None:
    from pipelines.results import encode, printed, views
    from pipelines.web.watching import JobWatch

    with reader_of(args) as reader:
        for text in JobWatch(reader, args.state).look().problems:
            warn(text)
        if (computed := _computed(args, reader)) is not None:
            lines, kind, found = computed
            shown = [*encode.objects(kind, views.rows_of(kind, found))]
            _print(args.format, lines, [each.name for each in kind.columns], shown)
            return
        chosen = printed.EstimateChoice(
            args.metric, args.window, args.collector, args.by, args.segment, args.under
        )
        rows, alarms = chosen.read(reader)
    lines = printed.table(rows, everything=args.all, alarms=alarms, under=args.under)
    _print(args.format, lines, chosen.columns, rows)
    for window, messages in alarms.items() if args.format != "table" else ():
        for message in messages:
            warn(f"{window[3]}, {printed.minute_of(window[4])}: {message}")


def _computed(
    args: argparse.Namespace, reader: ResultsReader
) -> tuple[list[str], RowSet, Sequence[Any]] | None:
    """Return what is computed when it is asked for, if it is: lines, and rows of a kind."""
    from pipelines.results import printed, views
    from pipelines.results.ordinals import metrics_of, of_range, readable
    from pipelines.results.reader import Chosen

    found: Sequence[Any]
    chosen = Chosen(collector=args.collector, metric=args.metric)
    wanted = _range_of(args)
    reader.check_known(views.VIEW_ESTIMATES, chosen)
    if wanted is not None:
        kind, found = views.RANGES, reader.range_estimates(wanted)
        if args.compare is not None:
            kind, found = views.COMPARISONS, reader.compared(wanted, wanted.against(args.compare))
        of = readable if args.all else of_range
        shown: list[RangeEstimate | RangeComparison] = of(found, metrics_of(reader.plans()).get)
        return printed.ranges(shown, everything=args.all, under=args.under), kind, found
    if not (args.experiment or args.returning):
        return None
    if args.window is not None or args.under is not None:
        raise ParameterError("--experiment and --returning are of all windows, without --under")
    if args.experiment:
        found = reader.effects(chosen)
        return printed.effects(found, reader.plans()), views.EFFECTS, found
    found = reader.retention(chosen)
    return printed.retention(found), views.RETENTION, found


def _range_of(args: argparse.Namespace) -> WindowRange | None:
    """Return the range that is asked for, if one is."""
    from pipelines.results.fields import moment
    from pipelines.results.range_windows import WindowRange

    since, until = (None if each is None else moment(each) for each in (args.since, args.to))
    if not (since or until or args.compare):
        return None
    if args.metric is None or args.experiment or args.window is not None:
        raise ParameterError(
            "--from, --to and --compare are of one --metric, without --window and --experiment"
        )
    chosen = args.segment or "", args.by, args.collector
    return WindowRange(args.metric, since, until, *chosen, under=args.under)


def _print(
    form: str, lines: list[str], columns: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> None:
    if form == "table":
        print("\n".join(lines))
    elif form == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        write_csv_rows(sys.stdout, columns, rows)
