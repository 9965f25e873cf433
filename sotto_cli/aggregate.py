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

More is in docs/guides/beam.md; what is in quarantine, and how it is counted after all, in
docs/operate/operations.md.

Results are committed before they are published: where the database or the topic cannot be reached,
also at the first run, that is an error, and the next run tries again.

An interrupt (or SIGTERM) ends the command after the run that is under way, a second one at
once; neither loses anything.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from sotto.clocks import now_ms
from sotto.errors import ParameterError
from sotto.exit_status import ExitStatus
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.bounded.run import RunResult
    from pipelines.sinks.kafka import Publish
    from pipelines.sources.base import BoundedSource

#: Seconds that a job that follows waits for a command that holds the directory.
_WAIT = 60.0


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
    add("--state", required=True)
    files = "folder or URI (gs://, s3://, ...) of the files that jobs write, if not in --state"
    add("--files PLACE", files)
    add("--database")
    add("--publish NAME", "also to a topic of estimates, by its full name")
    rejected = "what is rejected also to a topic of quarantine, by its full name"
    add("--publish-quarantine NAME", rejected)
    reach = "how to reach these topics' brokers (JSON); default: as those of the reports"
    add("--publish-broker FILE", reach)
    add("--follow")
    add("--every DURATION", "how often to look", "10s", type=options.interval)
    kept = "with --follow and --log: remove segments that are counted and this old, once an hour"
    add("--log-retention DURATION", kept)
    add("--as-of TIME", "take only what was appended up to then")
    add("--since TIME", "leave out what was appended before: for a state directory made anew")
    most = "reports in one run at most, which bounds memory (default: one million, or four where "
    add("--max-reports N", most + "6 GiB of memory are free)")


def run(args: argparse.Namespace) -> int:
    if args.log_retention is not None and (args.log is None or not args.follow):
        raise ParameterError("--log-retention goes with --log and --follow; see sotto retain")
    if args.follow and args.as_of is not None:
        raise ParameterError("--as-of ends what is taken: leave out --follow, which never ends")
    options.check_outside(args.state, args.log)
    if (args.state / "job.json").exists():
        raise ParameterError(f"{args.state} is of a streaming job: --state must be another folder")
    if args.since is not None and args.since >= (args.as_of or now_ms()):
        options.warn("--since is after now, or --as-of: nothing that is there is taken")
    plans, candidates = plans_of(args.plan)
    source, publish = _source(args), _publish(args)
    from pipelines.storage.directory import StateDirectory
    from pipelines.storage.plan_folder import PlanFolder

    stored = StateDirectory(args.state).plans
    folder = PlanFolder(args.plans, stored, source.open, options.warn)
    registry, _ = stored.with_given(folder.added_to(plans, candidates)[0], {})
    options.warn_unsigned(registry.plans)
    options.quiet_libraries()
    from pipelines.beam.runners import Runner
    from pipelines.bounded.run import aggregate, settle_memory
    from pipelines.maintenance.retention import HourlyRetention

    wait = _WAIT if args.follow else 0.0
    runner = Runner(tuple(args.beam), lambda text: options.say(f"job: {text}"))
    retention = HourlyRetention(args.state, args.log, args.log_retention, args.database, wait)
    settle_memory()

    def once() -> RunResult:
        found, strings = folder.added_to(plans, candidates)
        with options.progress_bar(source.unit, "aggregate") as progress:
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
                wait=wait,
            )
        if gone := retention.look():
            print(f"{gone:,} segments of the log removed", flush=True)
        if result.runs or not args.follow:
            print("\n".join(result.lines()), flush=True)
        if result.unpublished:
            text = f"generation {result.generation} is committed, but not published: "
            again = "trying again" if args.follow else "the next run tries again"
            options.error(f"{text}{result.unpublished}; {again}")
        return result

    with options.stopping() as stopped:
        if args.follow:
            options.follow(once, stopped, args.every / 1000)
            return ExitStatus.DONE
        return ExitStatus.FAILED if once().unpublished else options.stopped_status(stopped)


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


def _publish(args: argparse.Namespace) -> Sequence[Publish]:
    """Return the topics to publish to, if any is named."""
    if args.publish is None and args.publish_quarantine is None:
        if args.publish_broker is not None:
            raise ParameterError("--publish-broker goes with --publish or --publish-quarantine")
        return ()
    from pipelines.sinks.kafka import EstimatesTopic, QuarantineTopic
    from sotto.kafka.topics import SinkTopic

    kinds = ((args.publish, EstimatesTopic), (args.publish_quarantine, QuarantineTopic))
    topics = [(kind, SinkTopic.parse(name)) for name, kind in kinds if name]
    args.broker = args.publish_broker or args.broker
    if args.broker is None and args.kafka is None:
        raise ParameterError("--publish-broker is missing: where is the topic to publish to?")
    broker = options.broker_of(args)
    return [kind(broker, topic) for kind, topic in topics]
