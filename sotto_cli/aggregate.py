"""Count the reports in a log, or in Kafka topics, and estimate from them.

Everything there up to its end of now is taken, in bounded runs that are each committed whole:
a process that is killed loses nothing and counts nothing twice when it is started again.
Reports that are not acceptable go to quarantine, with a reason. State, counts and quarantine are
in the state directory; estimates are in a SQL database, which can always be made again from it.

examples:
  sotto aggregate --plan plan.yaml --log build/log --state build/state
      aggregate the log; estimates are then in build/state/results.db
  sotto aggregate --log build/log --state build/state --follow
      the plans that the state directory has been given; go on until interrupted
  sotto aggregate --plan v2.yaml --log build/log --state build/state
      one more version, or a later document of one that the directory has
  sotto aggregate --plans plans --log build/log --state build/state --follow
      also every plan file that is put into the folder while it runs
  sotto aggregate ... --log build/log --follow --log-retention 60d
      and remove what of the log is counted and 60 days old; without it the log stays
  sotto aggregate ... --as-of 2013-06-01
      only what had arrived by then
  sotto aggregate ... --state again --since 2013-03-01 --as-of 2013-06-01
      count a range of time once more, into a database of its own; windows and ledgers lack what
      came before it
  sotto aggregate --plan v1.json --kafka localhost:9092 --topic reports-e1-p8 --state state --follow
      aggregate a topic; with --broker client.json instead of --kafka, over TLS and with a name

  sotto aggregate ... --publish reports-estimates --follow
      publish what changes to a compacted topic, which sotto sink takes to other databases

Offsets and counts are committed together, in one state directory, to which one run at a time
writes.

Jobs run in this process (Beam's FnApiRunner). Every option that is not one of these goes to Beam,
also behind --, and so another runner is chosen:

  sotto aggregate ... --state /shared/state --runner PortableRunner \\
      --job_endpoint localhost:8099 --environment_type EXTERNAL \\
      --environment_config localhost:50000 --parallelism 4
      on the engine behind a job server, such as Flink's; its workers need Sotto, and reach the log
      (or broker) and the state's files under the same names
  sotto aggregate ... --state state --files gs://bucket/sotto --runner DataflowRunner ...
      with those files on one of Beam's file systems; manifest and results stay in --state
  sotto aggregate ... --max-reports 20000000
      larger runs: each is a job, and an engine takes seconds to start one

More is in docs/beam.md; what is in quarantine, and how it is counted after all, in
docs/operations.md.

Results are committed before they are published: where the topic cannot be reached, that is an
error, and the next run tries again.

An interrupt (or SIGTERM) ends the command after the run that is under way, a second one at
once; neither loses anything.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pipelines.storage.plan_folder import PlanFolder
from sotto.errors import BrokerError, ParameterError
from sotto.exit_status import ExitStatus
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.bounded.run import Progress, RunResult
    from pipelines.sinks.kafka import Publish
    from pipelines.sources.base import BoundedSource


#: Seconds that a job that follows waits for a command that holds the directory.
_WAIT = 60.0
#: Seconds between two looks for old segments of the log.
_RETAINED_EVERY = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(beam=[])
    add = partial(options.add, parser)
    options.add_plans(parser, "kept in the state directory from then on", required=False)
    options.add_plan_folder(parser)
    options.add_source(
        parser, "a topic of reports, by its full name; again for an older epoch still sent to"
    )
    add(
        "--accept-loss", "go on behind records that the broker has deleted before they were counted"
    )
    add("--state DIR", "where state and results are kept", required=True)
    files = "folder or URI (gs://, s3://, ...) of the files that jobs write, if not in --state"
    add("--files PLACE", files)
    add("--database URL", "default: results.db in the state directory (SQLite)")
    add("--publish NAME", "also to a topic of estimates, by its full name")
    rejected = "what is rejected also to a topic of quarantine, by its full name"
    add("--publish-quarantine NAME", rejected)
    reach = "how to reach these topics' brokers (JSON); default: as those of the reports"
    add("--publish-broker FILE", reach)
    add("--follow", "go on with what comes, until interrupted")
    add("--every DURATION", "how often to look", "10s")
    kept = "with --follow and --log: remove segments that are counted and this old, once an hour"
    add("--log-retention DURATION", kept)
    add("--as-of TIME", "take only what was appended up to then")
    add("--since TIME", "leave out what was appended before: for a state directory made anew")
    most = "reports in one run at most, which bounds memory (default: one million, or four where "
    add("--max-reports N", most + "6 GiB of memory are free)", type=int)


def run(args: argparse.Namespace) -> int:
    if args.log_retention is not None and (args.log is None or not args.follow):
        raise ParameterError("--log-retention goes with --log and --follow; see sotto retain")
    plans, candidates = plans_of(args.plan)
    source, publish = _source(args), _publish(args)
    from pipelines.storage.directory import StateDirectory

    stored = StateDirectory(args.state).plans
    folder = PlanFolder(args.plans, stored, source.open, options.warn)
    registry, _ = stored.with_given(folder.added_to(plans, candidates)[0], {})
    options.warn_unsigned(registry.plans)
    options.quiet_libraries()
    from pipelines.beam.runners import Runner
    from pipelines.bounded.run import aggregate, keep_freed_memory
    from pipelines.maintenance.retention import retain

    runner = Runner(tuple(args.beam), _print_job)
    keep_freed_memory()

    retained = float("-inf")

    def once(progress: Progress) -> RunResult:
        nonlocal retained
        found, strings = folder.added_to(plans, candidates)
        result = aggregate(
            source,
            args.state,
            found,
            args.database,
            as_of=args.as_of,
            since=args.since,
            max_reports=args.max_reports,
            progress=progress,
            candidates=strings,
            publish=publish,
            runner=runner,
            elsewhere=args.files,
            stop=stopped.is_set,
            wait=_WAIT if args.follow else 0.0,
        )
        if args.log_retention is not None and time.monotonic() - retained > _RETAINED_EVERY:
            retained = time.monotonic()
            gone = retain(args.state, args.log, args.log_retention, args.database, wait=_WAIT)
            if gone.segments:
                print(f"{len(gone.segments):,} segments of the log removed", flush=True)
        return result

    with options.stopping() as stopped:
        if args.follow:
            follow(once, stopped, args.every / 1000, source.unit)
            return 0
        with options.progress_bar(source.unit, "aggregate") as progress:
            result = once(progress)
        print("\n".join(summary(result)), flush=True)
        if result.unpublished:
            _print_unpublished(result)
            return ExitStatus.FAILED
        return ExitStatus.INTERRUPTED if stopped.is_set() else ExitStatus.DONE


def _print_job(text: str) -> None:
    print(f"sotto: job: {text}", file=sys.stderr, flush=True)


def _print_unpublished(result: RunResult, what_now: str = "") -> None:
    print(
        f"sotto: error: generation {result.generation} is committed, but not published: "
        f"{result.unpublished}{what_now}",
        file=sys.stderr,
        flush=True,
    )


def _source(args: argparse.Namespace) -> BoundedSource:
    """Return where the reports are."""
    if args.log is not None:
        if args.topic or args.accept_loss:
            raise ParameterError("--topic and --accept-loss go with --kafka or --broker")
        from pipelines.sources.log import EmbeddedLog

        return EmbeddedLog(args.log)
    topics = options.topics_of(args.topic)
    from pipelines.sources.kafka import KafkaTopics

    return KafkaTopics(options.broker_of(args), topics, args.accept_loss)


def _publish(args: argparse.Namespace) -> Publish | None:
    """Return the topics to publish to, if any is named."""
    if args.publish is None and args.publish_quarantine is None:
        if args.publish_broker is not None:
            raise ParameterError("--publish-broker goes with --publish or --publish-quarantine")
        return None
    from pipelines.sinks.kafka import EstimatesTopic, QuarantineTopic, Several
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import SinkTopic

    file = args.publish_broker or args.broker
    if file is None and args.kafka is None:
        raise ParameterError("--publish-broker is missing: where is the topic to publish to?")
    broker = Broker(args.kafka) if file is None else Broker.from_file(file)
    ways: list[Publish] = []
    if args.publish is not None:
        ways.append(EstimatesTopic(broker, SinkTopic.parse(args.publish)))
    if args.publish_quarantine is not None:
        ways.append(QuarantineTopic(broker, SinkTopic.parse(args.publish_quarantine)))
    return Several(ways)


def follow(
    once: Callable[[Progress], RunResult],
    stopped: threading.Event,
    seconds: float,
    unit: str = "bytes",
) -> None:
    """Run again and again, so many seconds apart, until ``stopped`` is set."""
    from pipelines.sinks.sql import ProjectionError

    begun = False
    while not stopped.is_set():
        try:
            with options.progress_bar(unit, "aggregate") as progress:
                result = once(progress)
            begun = True
        except (ProjectionError, BrokerError) as error:
            # A broker that cannot be used at the start is for a person to put right.
            if isinstance(error, BrokerError) and not begun:
                raise
            print(f"sotto: error: {error}; trying again", file=sys.stderr, flush=True)
            stopped.wait(seconds)
            continue
        if result.runs:
            print("\n".join(summary(result)), flush=True)
        if result.unpublished:
            _print_unpublished(result, "; trying again")
        stopped.wait(seconds)


def summary(result: RunResult) -> list[str]:
    """Return what aggregating came to, in lines."""
    tally = result.tally
    rate = tally.reports / result.seconds if result.seconds else 0.0
    size = f"{result.size / 1e6:,.1f} MB"
    if result.unit != "bytes":
        size = f"{result.size:,} {result.unit}"
    lines = [
        f"generation {result.generation}: {tally.reports:,} reports, {size}, "
        f"{result.runs} runs, {result.seconds:.1f} s, {rate:,.0f} reports a second",
    ]
    future = [
        f"warning: {number:,} records of partition {name} bear a time ahead of this machine's "
        "clock and are in quarantine as future: one of the clocks is wrong"
        for name, number in result.future.items()
    ]
    where = " in the log" if result.unit == "bytes" else ""
    if not result.runs:
        return [f"generation {result.generation}: nothing new{where}", *future]
    return [*lines, *fates(result), *future]


def fates(result: RunResult) -> list[str]:
    """Return what became of the reports taken, in lines."""
    tally = result.tally
    numbers = {
        "counted": tally.counted,
        "superseded by a newer level": tally.superseded,
        "duplicates": tally.duplicates,
        "in quarantine": sum(result.rejects.values()),
        **{f"  {reason}": number for reason, number in result.rejects.items()},
        "pseudonyms revoked": tally.revoked,
    }
    return [f"{number:>15,}  {what}" for what, number in numbers.items()]
