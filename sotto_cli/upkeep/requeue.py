"""Count what was rejected for want of a plan, or as ahead of the clock, once it can be counted.

A report whose plan an aggregator does not have goes to quarantine, whole. Give the plan, and what
waits there for it is taken again, each report judged by the time at which the log first took it:
one that was late stays late, and so is one of a budget period that has been closed since; one that
has been counted meanwhile is a duplicate. A record that was ahead of the reader's clock is taken
again, and judged by its own time, once that has passed. Reports rejected for any other reason would
be rejected again, and cannot be requeued. Nothing is removed from quarantine: what was requeued is
noted there, so that nothing is requeued twice.

Plans that the state directory has are not given again.

Reports of runs (--state) are counted at once. Those of a streaming job (--topic) go from
NAME-quarantine to NAME-requeue, which the job reads, and runs do not; give it the plan first.

examples:
  sotto requeue --plan v2.yaml --state state --dry-run
      what waits, by reason and plan, and whether this plan or those kept cure it; changes nothing
  sotto requeue --plan v2.yaml --state state
      count it; the state directory has the plan from now on
  sotto requeue --plan v2.yaml --broker client.json --topic reports-e1-p8
      give it back to a streaming job

Killed at any moment, it is finished by the next sotto requeue, or sotto aggregate.

The dry run does not say what would count: of budget periods that are closed all is late. Sotto
quarantine shows what is in quarantine for other reasons.
"""

from __future__ import annotations

import argparse
from functools import partial

from sotto.errors import ParameterError
from sotto.plan.files import plans_of
from sotto_cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_plans(parser, "with --state only those that it does not have", required=False)
    where = parser.add_mutually_exclusive_group(required=True)
    options.add(where, "--state")
    options.add_broker(where)
    add("--topic NAME", "the topic of reports that the streaming job reads")
    add("--database")
    reasons = "unknown_plan, unknown_version or future; again for another (default: all)"
    options.add_reasons(parser, reasons)
    add("--again", "with --topic: also what was given back before the job had its plan")
    add("--dry-run")
    add("--max-reports N", "reports in one commit, which bounds memory", 1_000_000)
    add("--wait")


def run(args: argparse.Namespace) -> int:
    options.quiet_libraries()
    return _of_topic(args) if args.state is None else _of_state(args)


def _of_state(args: argparse.Namespace) -> int:
    """Count what the files of a state directory hold."""
    from pipelines.requeue.contents import waiting_in
    from pipelines.requeue.state import requeue
    from pipelines.sinks.quarantine import CURABLE, check_reasons

    if args.topic is not None or args.again:
        raise ParameterError("--topic and --again go with --kafka or --broker")
    check_reasons(reasons := args.reason or CURABLE)
    plans, candidates = plans_of(args.plan)
    if args.dry_run:
        print("\n".join(waiting_in(args.state, plans, reasons)))
        return 0
    with options.stopping() as stopped, options.progress_bar("reports", "requeue") as progress:
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
    print("\n".join(result.lines()))
    return options.stopped_status(stopped)


def _of_topic(args: argparse.Namespace) -> int:
    """Give back to a streaming job what its quarantine topic holds."""
    from pipelines.requeue.contents import waiting_lines
    from pipelines.requeue.topic import RequeueTopics
    from pipelines.sinks.quarantine import CURABLE

    if not args.plan:
        raise ParameterError("--plan is missing: of a streaming job all plans are given here")
    if args.database is not None:
        raise ParameterError(
            "--database goes with --state: of a streaming job sotto sink writes one"
        )
    plans, _ = plans_of(args.plan)
    name = options.topics_of(args.topic)[0].name
    reasons = args.reason or CURABLE
    topics = RequeueTopics(options.broker_of(args), name, plans, reasons, args.again)
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
