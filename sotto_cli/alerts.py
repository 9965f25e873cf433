"""Look for figures that moved, and tell who should know.

Each figure (a share, a mean) is compared with what its earlier windows predict. A figure may drift
as it has drifted so far, and its noise is known; what goes beyond that is an alert: it says by how
much the figure moved, since when, how sure that is, and how many false alarms a year are expected
of all watched figures together (one, unless the configuration says otherwise). The more figures
are watched, the larger a shift must be: watch those that you would act upon.

Alerts are kept in a file, alerts.json in the state directory: each is new once, whatever is
revised later, and is sent once if the configuration says to whom. The first time, alerts about
older windows are listed and not sent. sotto serve --alerts does the same all the time.

A window is judged when its last level is due, and from its figure's ninth window on (the first
eight say how much it drifts). docs/guides/alerts.md says more.

Exit status: 0 if there is no new alert, 1 if there is one, 3 if an alert could not be delivered
(the next run tries again), 2 after an error.

examples:
  sotto alerts --state build/state
      all shares and means; print what is new
  sotto alerts --state build/state --alerts alerts.yaml
      as configured: which metrics, how many false alarms a year, whom to tell; for cron
  sotto alerts --state build/state --watched
      which figures are watched, and which shifts would be found how soon; nothing is sent
  sotto alerts --database postgresql+psycopg://localhost/sotto --plan plan.yaml \\
      --kept alerts.json --alerts alerts.yaml
      of a streaming job

alerts.yaml:
  false_alarms_per_year: 1          # of all watched figures together
  metrics:                          # all, if left out
    - {metric: carrier, items: [AA, DL]}
    - {metric: dep_delay, kinds: [mean]}
  notify:
    webhook: {url: "https://hooks.example/sotto", secret_file: webhook.secret}
    slack: {url_file: slack.url}    # the address of an incoming webhook, which is a secret
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from sotto.columns import table
from sotto.exit_status import ExitStatus
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.alerts.evaluation import Judgement
    from pipelines.alerts.watch import Looked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_results(parser)
    options.add_alerts(parser, "what is watched and who is told (YAML); see below")
    add("--watched", "only show what is watched, and how well")
    add("--all", "print all alerts that are kept, not only new ones")
    options.add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    options.quiet_libraries()
    watch = options.alerts_of(args, options.reader_of(args))
    if args.watched:
        _print_watched(watch.judgements())
        return 0
    looked = watch.look()
    shown = looked.kept if args.all else looked.new
    if args.format == "json":
        json.dump([alert.data() for alert in shown], sys.stdout, indent=1)
        print()
    else:
        _print(looked, everything=args.all)
    if looked.undelivered:
        count = looked.undelivered
        messages = "1 message is" if count == 1 else f"{count} messages are"
        options.warn(f"{messages} not delivered and will be tried again: {_problem(looked)}")
        return ExitStatus.UNDELIVERED
    return ExitStatus.found(looked.new)


def _print(looked: Looked, *, everything: bool) -> None:
    for alert in looked.kept if everything else looked.new:
        print("\n".join(alert.paragraph()))
        if not alert.standing:
            print("  by the results as they are now, it would not be an alert")
        print()
    judged = [each for each in looked.judgements if each.found.judged]
    learning = len(looked.judgements) - len(judged)
    more = f"; {learning} more have too few windows yet (--watched)" if learning else ""
    alerts = "1 new alert" if len(looked.new) == 1 else f"{len(looked.new)} new alerts"
    print(f"{alerts} of {len(judged)} figures{more}")


def _problem(looked: Looked) -> str:
    problems = [
        f"{name}: {each.problem}"
        for alert in looked.kept
        for name, each in alert.deliveries.items()
        if each.next is not None and each.problem
    ]
    return problems[-1] if problems else "not due yet"


def _print_watched(judgements: list[Judgement]) -> None:
    rows: list[tuple[str, ...]] = []
    for each in judgements:
        found, name = each.found, each.series.figure.name
        windows = str(sum(revision > 0 for revision in each.series.revisions))
        if not each.judged:
            rows.append((name, windows, "learning", "", "", "", ""))
            continue
        least = [found.smallest(within) for within in (2, 4)]
        numbers = [f"{each:.3g}" for each in (found.level, found.error, found.drift)]
        rows.append(
            (name, windows, *numbers, *("none" if x is None else f"{x:.3g}" for x in least))
        )
    if not rows:
        print("no figures: no window is ripe yet")
        return
    head = ("figure", "windows", "expected", "noise", "drift", "found within 2", "within 4")
    print("\n".join(table(head, rows)))
    years = min(each.years for each in judgements)
    print(f"\n{len(rows)} figures; a false alarm of any single one in {years:,.0f} years")
    print("noise: standard deviation of the next window around what is expected of it;")
    print("found at once, within 4: the smallest shift that is found with 90 % probability within")
    print("two windows, and within four")
