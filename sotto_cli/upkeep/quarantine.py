"""Show what was rejected, why, and what a requeue would do.

First come reports by reason; then each entry, newest first: its place in quarantine, when the log
took it, the reason, the field of the message at which it is seen and that field's offset in bytes
(docs/spec/formats.md), what came and what was expected, the plan, the metric and the pseudonym's
first digits. A device's pseudonyms and payloads are in the bytes: --full writes them out.

'a requeue' says what sotto requeue would do: 'taken again' with the plans there are, 'needs the
plan', which --plan or sotto aggregate --plan gives, 'waits for its time', or 'rejected again'.

Runs (--state) keep quarantine in their state directory. A streaming job (--topic) publishes it to
NAME-quarantine; give its plans, so that metrics have names.

examples:
  sotto quarantine --state build/state
      all reasons, and the newest entries
  sotto quarantine --state build/state --reason late --metric carrier --since 2026-06-01
      what was late of one metric
  sotto quarantine --state build/state --reason unknown_plan --plan v2.yaml
      whether this plan is the one that is missing; sotto requeue then counts them
  sotto quarantine --state build/state --reason malformed --full --format json
      whole ids and bytes, for a program
  sotto quarantine --broker client.json --topic reports-e1-p8 --plan plan.yaml
      of a streaming job
"""

from __future__ import annotations

import argparse
import json
from functools import partial

from sotto.errors import ParameterError
from sotto.plan.files import plans_of
from sotto_cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    where = parser.add_mutually_exclusive_group(required=True)
    options.add(where, "--state")
    options.add_broker(where)
    add("--topic NAME", "the topic of reports that the streaming job reads")
    options.add_plans(parser, "beside those that the state directory has", required=False)
    options.add_reasons(parser, "only what was rejected for this; again for another")
    add("--metric")
    add("--of-plan NAME", "only of this plan, or of a fingerprint that begins so (8 digits)")
    add("--since TIME", "only what the log took from then on")
    add("--until TIME", "only what the log took up to then")
    add("--limit N", "entries shown at most", 20)
    add("--full", "write ids and bytes out; they link reports to their device")
    options.add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> None:
    options.quiet_libraries()
    from pipelines.requeue import contents

    plans = plans_of(args.plan)[0]
    reasons = frozenset(args.reason)
    chosen = contents.QuarantineFilter(reasons, args.metric, args.of_plan, args.since, args.until)
    if args.state is not None:
        if args.topic is not None:
            raise ParameterError("--topic goes with --kafka or --broker")
        found = contents.rejected_by_runs(args.state, plans, chosen)
    else:
        from pipelines.requeue.topic import held

        name = options.topics_of(args.topic)[0].name
        with options.progress_bar("messages", "quarantine") as progress:
            entries = held(options.broker_of(args), name, progress)
            found = contents.rejected(entries, plans, chosen)
    if args.format == "json":
        shown = [each.document(full=args.full) for each in found[: args.limit]]
        print(json.dumps(shown, indent=1))
    else:
        print("\n".join(contents.lines(found, args.limit, full=args.full)))
