"""Count reports all the time, in a Beam pipeline on an engine such as Apache Flink.

The pipeline reads the topics of one name, also epochs that are created while it runs, and writes
estimates and what it rejects to the topics beside them; sotto sink brings estimates into a
database. The job's folder (--state) holds what must not be forgotten: the name that its documents
carry, and its plans, which workers read there. The engine keeps the counts, in its checkpoints.

examples:
  sotto topics create reports --partitions 8 --plan plan.yaml --broker client.json --sinks
      make what the pipeline reads and writes, once
  sotto stream --state job --plan plan.yaml --broker client.json --topic reports-e1-p8 \\
      --runner PortableRunner --job_endpoint localhost:8099 \\
      --environment_type EXTERNAL --environment_config localhost:50000 --parallelism 2 \\
      --flink http://localhost:8081
      check everything, print what is wrong, or submit the pipeline and wait while it runs; an
      interrupt ends the waiting, not the pipeline, and the same command waits for it again
  sotto stream --state job --plans plans --broker client.json --topic reports-e1-p8 \\
      --savepoint_path file:///savepoints/savepoint-1a2b3c --parallelism 4 --runner ...
      go on from a savepoint or a checkpoint of Flink's, with more slots; as long as this waits,
      plan files that are put into the folder are counted by without a restart
  sotto stream --state try --plan plan.yaml --log build/log --database sqlite:///try.db --until-end
      the same pipeline on this machine without an engine: read an embedded log up to its end,
      close all periods, and end

Options that are not listed here are Beam's: --runner, --parallelism, --checkpointing_interval
(ms), --job_name, ...; for Flink what a savepoint needs is set unless it is given. A task manager
has one Python process for a job, or as many as --sdk_worker_parallelism says: one a slot.
"""

from __future__ import annotations

import argparse
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from pipelines.storage.plan_folder import PlanFolder
from sotto.errors import AggregationError, BrokerError, ParameterError
from sotto.exit_status import ExitStatus
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.beam.submission import JobFolder, Log, Topics
    from pipelines.flink.watch import SubmittedJob


#: Seconds between two looks at the folder of plans, and at the pipeline.
_LOOK_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(beam=[])
    add = partial(options.add, parser)
    options.add_plans(parser, "kept in the job's folder from then on", required=False)
    options.add_plan_folder(parser)
    options.add_source(
        parser, "full name of a topic of reports; later epochs of its name are read as well"
    )
    add("--state DIR", "the job's folder", required=True)
    add("--database URL", "with --log: where estimates go")
    add("--publish-every DURATION", "how often a window is published again at most", "30s")
    add("--linger DURATION", "for how long rows are gathered before they are counted", "10s")
    add("--idle DURATION", "a partition without a record for so long holds no window open", "1m")
    add("--from-scratch", "count everything again, under a new name")
    add("--until-end", "end once everything there is now is read")
    add("--flink URL", "Flink's job manager: wait for what it says of the job, not the job server")
    add("--detach", "do not wait while the pipeline runs")


def run(args: argparse.Namespace) -> int:
    options.quiet_libraries()
    from pipelines.beam.runners import Runner
    from pipelines.beam.submission import JobFolder, submit
    from pipelines.flink.watch import FlinkJob, ServedJob

    # Without an engine the workers' own warnings come here.
    logging.getLogger("pipelines").setLevel(logging.WARNING)
    if args.detach and args.plans:
        options.warn("--detach: plans that come to the folder later wait for another sotto stream")
    options.check_outside(args.state, args.log)
    folder = JobFolder(args.state)
    io = _io(args, folder)
    watched = PlanFolder(args.plans, folder.plans, io.check, options.warn)
    plans, candidates = watched.added_to(*plans_of(args.plan))
    options.warn_unsigned(folder.plans.with_given(plans, {})[0].plans)
    flink = FlinkJob(args.flink) if args.flink else None
    job: SubmittedJob
    waits = not args.detach
    if flink is not None and flink.find(folder.job()):
        if args.from_scratch or any(each.startswith("--savepoint_path") for each in args.beam):
            raise AggregationError(f"stop the job first, with a savepoint: it runs, {flink.page}")
        job = flink
        folder.keep(plans, candidates)
        print(f"runs already, with its own options: job {folder.job()}, {flink.page}", flush=True)
    else:
        result = submit(
            folder,
            io,
            plans,
            candidates,
            args.beam,
            anew=args.from_scratch,
            publish_every_ms=args.publish_every,
            linger_ms=args.linger,
            idle_ms=args.idle,
            until_end=args.until_end,
        )
        where, job = "", ServedJob(result, flink=Runner(tuple(args.beam)).flink)
        if flink is not None:
            where = ", which Flink has not begun yet"
            if flink.wait_until_begun(folder.job(), options.say):
                where, job = f", {flink.page}", flink
        print(f"submitted: job {folder.job()}{where}", flush=True)
        # One that has failed already, for want of its savepoint for example, is told in any case.
        waits = waits or job.look().ending is not None
    return _wait(job, folder, watched) if waits else ExitStatus.DONE


def _io(args: argparse.Namespace, folder: JobFolder) -> Topics | Log:
    from pipelines.beam.submission import Log, Topics

    if args.log is not None:
        if args.topic:
            raise ParameterError("--topic goes with --kafka or --broker")
        if args.database is None:
            raise ParameterError("--log needs --database, where estimates go")
        return Log(args.log, args.database, folder.path / "quarantine")
    topics = tuple(options.topics_of(args.topic))
    if args.database is not None:
        raise ParameterError("--database goes with --log: of topics sotto sink writes a database")
    return Topics(options.broker_of(args), topics)


def _wait(job: SubmittedJob, folder: JobFolder, watched: PlanFolder) -> int:
    """Wait while the pipeline runs; keep the plans that come meanwhile."""
    from pipelines.flink.watch import Ending

    statuses = {Ending.DONE: ExitStatus.DONE, Ending.LOST: ExitStatus.LOST}
    before = ""
    while True:
        text, ending = job.look()
        if text != before:
            print(f"pipeline: {text}", flush=True)
            before = text
        if ending is not None:
            return statuses.get(ending, ExitStatus.FOUND)
        try:
            folder.keep(*watched.added_to([], {}))
        except BrokerError as error:
            options.warn(f"{error}; plans are looked at again")
        time.sleep(_LOOK_SECONDS)
