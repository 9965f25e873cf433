"""Count what was rejected for want of a plan, or as ahead of the clock, once it can be counted.

A report whose plan an aggregator does not have goes to quarantine, whole. Give the plan, and what
waits there for it is taken again, each report judged by the time at which the log first took it:
one that was late stays late, and so is one of a budget period that has been closed since; one that
has been counted meanwhile is a duplicate. A record that was ahead of the reader's clock is taken
again, and judged by its own time, once that has passed. What was rejected for any other reason
would be rejected again, and cannot be requeued. Nothing is removed from quarantine: what was
requeued is noted there, so that nothing is requeued twice.

Plans that the state directory has are not given again.

Of runs (--state) reports are counted at once. Of a streaming job (--topic) they go from
NAME-quarantine to NAME-requeue, which the job reads, and runs do not; give it the plan first.

examples:
  sotto requeue --plan v2.yaml --state state --dry-run
      what waits, by reason and plan, and whether this plan or those kept cure it; changes nothing
  sotto requeue --plan v2.yaml --state state
      count it; the state directory has the plan from now on
  sotto requeue --plan v2.yaml --broker client.json --topic reports-e1-p8
      give it back to a streaming job

Killed at any moment, it is finished by the next sotto requeue, or sotto aggregate.

The dry run does not say what would count: of budget periods that are closed all is late. How to see
what is in quarantine for other reasons, and its bytes, is in docs/operations.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.clocks import now_ms
from sotto.columns import table
from sotto.errors import ParameterError
from sotto.plan.files import plans_of
from sotto_cli import options
from sotto_cli.aggregate import fates

if TYPE_CHECKING:
    from pipelines.aggregation.result_rows import Candidates
    from pipelines.bounded.run import RunResult
    from sotto.plan.compiled import CompiledPlan
    from sotto.wire.reasons import Reason


#: Plans shown of what waits; anybody can send messages that name others.
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_plans(parser, "with --state only those that it does not have", required=False)
    where = parser.add_mutually_exclusive_group(required=True)
    options.add(where, "--state DIR", "the state directory of runs")
    options.add_broker(where)
    add("--topic NAME", "the topic of reports that the streaming job reads")
    add("--database URL", "as of sotto aggregate")
    reasons = "unknown_plan, unknown_version or future; again for another (default: all)"
    add("--reason REASON", reasons, action="append")
    add("--again", "with --topic: also what was given back before the job had its plan")
    add("--dry-run", "print what waits, and change nothing")
    most = "reports in one commit, which bounds memory"
    add("--max-reports N", most, 1_000_000, type=options.whole(1))
    add("--wait DURATION", "how long to wait for a run that is under way", "60s")


def run(args: argparse.Namespace) -> int:
    reasons = _reasons(args.reason)
    plans, candidates = plans_of(args.plan)
    if args.state is None:
        if not plans:
            raise ParameterError("--plan is missing: of a streaming job all plans are given here")
        return _of_topic(args, plans, reasons)
    if args.topic is not None or args.again:
        raise ParameterError("--topic and --again go with --kafka or --broker")
    if args.dry_run:
        print("\n".join(_waiting(args.state, plans, reasons)))
        return 0
    return _of_state(args, plans, candidates, reasons)


def _reasons(names: list[str] | None) -> list[Reason]:
    from pipelines.sinks.quarantine import CURABLE, check_reasons
    from sotto.wire.reasons import Reason

    if names is None:
        return list(CURABLE)
    known = {reason.label: reason for reason in Reason}
    for name in names:
        if name not in known:
            raise ParameterError(f"--reason {name!r} is none: {', '.join(known)}")
    chosen = [known[name] for name in names]
    check_reasons(chosen)
    return chosen


def _of_state(
    args: argparse.Namespace,
    plans: list[CompiledPlan],
    candidates: Candidates,
    reasons: list[Reason],
) -> int:
    """Count what the files of a state directory hold."""
    options.quiet_libraries()
    from pipelines.requeue.state import requeue

    with (
        options.stopping() as stopped,
        options.progress_bar("reports", "requeue") as progress,
    ):
        result = requeue(
            args.state,
            plans,
            args.database,
            reasons,
            args.max_reports,
            progress,
            candidates=candidates,
            stop=stopped.is_set,
            wait=args.wait / 1000,
        )
    print("\n".join(summary(result)))
    return 130 if stopped.is_set() else 0


def summary(result: RunResult) -> list[str]:
    """Return what requeueing came to, in lines."""
    if not result.runs:
        return [f"generation {result.generation}: nothing that these plans cure"]
    first = f"generation {result.generation}: {result.size:,} reports requeued, "
    return [f"{first}{result.seconds:.1f} s", *fates(result)]


def _waiting(state: Path, plans: list[CompiledPlan], reasons: list[Reason]) -> list[str]:
    """Return what is in quarantine for these reasons, and what becomes of it."""
    from pipelines.storage.directory import StateDirectory
    from pipelines.storage.quarantine_files import waiting

    directory = StateDirectory(state)
    manifest = directory.manifest()
    found: Counter[tuple[str, str]] = Counter()
    for each in waiting(directory, manifest, reasons, now_ms()):
        found[each.reason, each.plan] += each.rows
    done: Counter[tuple[str, str]] = Counter()
    for entry in manifest.quarantine:
        for reason, plan, rows in entry.requeued:
            done[reason, plan] += rows
    registry, _ = directory.plans.with_given(plans, {})
    return waiting_lines(found, done, registry.plans)


def waiting_lines(
    waiting: Mapping[tuple[str, str], int],
    done: Mapping[tuple[str, str], int],
    plans: Iterable[CompiledPlan],
) -> list[str]:
    """Return a table of reports by reason and plan, and how many the given plans would requeue.

    What waits and what is done are reports by reason and fingerprint, in hexadecimal.
    """
    from sotto.plan.registry import names_of

    names = names_of(plans)
    cured = sum(rows for (_, plan), rows in waiting.items() if plan in names)
    first = f"{cured:,} reports would be requeued"
    if not waiting and not done:
        return [first]
    # Those that can be cured first, then the most reports.
    order = sorted(
        waiting.keys() | done.keys(),
        key=lambda each: (each[1] not in names, -waiting.get(each, 0), each),
    )
    rows = [
        (
            reason,
            names.get(plan, f"not given ({plan[:16]}…)"),
            f"{waiting.get((reason, plan), 0):,}",
            f"{done.get((reason, plan), 0):,}",
        )
        for reason, plan in order[:_SHOWN]
    ]
    lines = [first, *table(["reason", "plan", "waiting", "requeued"], rows)]
    more = len(order) - _SHOWN
    return lines if more <= 0 else [*lines, f"and {more:,} more plans that nobody gave"]


def _of_topic(args: argparse.Namespace, plans: list[CompiledPlan], reasons: list[Reason]) -> int:
    """Give back to a streaming job what its quarantine topic holds."""
    if args.topic is None:
        raise ParameterError("--topic is missing: sotto topics list shows what there is")
    if args.database is not None:
        raise ParameterError(
            "--database goes with --state: of a streaming job sotto sink writes one"
        )
    from pipelines.requeue.topic import RequeueTopics
    from sotto.kafka.topics import ReportTopic

    broker = options.broker_of(args)
    name = ReportTopic.parse(args.topic).name
    topics = RequeueTopics(broker, name, plans, reasons, args.again)
    with options.progress_bar("messages", "requeue") as progress:
        found = topics.waiting(progress) if args.dry_run else topics.requeue(progress)
    if args.dry_run:
        print("\n".join(waiting_lines(found.waiting, found.done, plans)))
    else:
        print(f"{found.given_back:,} reports given back to the streaming job by {topics.target}")
    if found.unreadable:
        why = "cannot be read, or have a time that no broker takes"
        print(f"{found.unreadable:,} records of {topics.origin} {why}: they are left")
    return 0
