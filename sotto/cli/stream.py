"""Count reports all the time, in a Beam pipeline on an engine such as Apache Flink.

The pipeline reads the topics of one name, also epochs that are created while it runs, and writes
estimates and what it rejects to the topics beside them; sotto sink brings estimates into a
database. What must not be forgotten is in the job's folder (--state): the name that its documents
carry, and its plans, which workers read there. The engine keeps the counts, in its checkpoints.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotto.cli import given, planfolder
from sotto.errors import BrokerError, ParameterError

if TYPE_CHECKING:
    from pipelines.beam.submission import JobFolder, Log, Topics

HELP = "count reports all the time, on Flink or another engine of Beam's"

#: Seconds between two looks at the folder of plans, and at the pipeline.
_LOOK_SECONDS = 5.0

_EXAMPLES = """\
examples:
  sotto topics create reports --partitions 8 --plan plan.yaml --broker client.json --sinks
      make what the pipeline reads and writes, once
  sotto stream --state job --plan plan.yaml --broker client.json --topic reports-e1-p8 \\
      --runner PortableRunner --job_endpoint localhost:8099 \\
      --environment_type EXTERNAL --environment_config localhost:50000 --parallelism 2
      look at everything, say what is wrong, or submit the pipeline and wait while it runs; an
      interrupt ends the waiting, not the pipeline
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto stream``."""
    parser.epilog = _EXAMPLES
    parser.set_defaults(beam=[])
    add = parser.add_argument
    given.add_plans(parser, "kept in the job's folder from then on", required=False)
    planfolder.add_argument(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--log", type=Path, metavar="DIR", help="an embedded log")
    given.add_broker(where)
    topics = "full name of a topic of reports; later epochs of its name are read as well"
    add("--topic", action="append", default=[], metavar="NAME", help=topics)
    add("--state", type=Path, required=True, metavar="DIR", help="the job's folder")
    add("--database", metavar="URL", help="with --log: where estimates go")
    often = "how often a window is told anew at most (default: 30s)"
    add("--every", default="30s", metavar="DURATION", help=often)
    linger = "for how long rows are gathered before they are counted (default: 10s)"
    add("--linger", default="10s", metavar="DURATION", help=linger)
    idle = "a partition without a record for so long holds no window open (default: 1m)"
    add("--idle", default="1m", metavar="DURATION", help=idle)
    add("--anew", action="store_true", help="count everything again, under a new name")
    add("--until-end", action="store_true", help="end once everything there is now is read")
    add("--detach", action="store_true", help="do not wait while the pipeline runs")


def run(args: argparse.Namespace) -> int:
    """Run ``sotto stream`` and return its exit status."""
    from pipelines.beam.submission import JobFolder, submit
    from sotto.plan.durations import parse_duration

    folder = JobFolder(args.state)
    io = _io(args, folder)
    watched = planfolder.PlanFolder(args.plans, folder.plans, io.check, _warn)
    plans, candidates = watched.added_to(*given.plans_of(args.plan))
    given.tell_unsigned(folder.plans.with_given(plans, {})[0].plans)
    result = submit(
        folder,
        io,
        plans,
        candidates,
        args.beam,
        anew=args.anew,
        every=parse_duration(args.every),
        linger=parse_duration(args.linger),
        idle=parse_duration(args.idle),
        bounded=args.until_end,
    )
    job = folder.job()
    print(f"submitted: job {job.name if job else ''}", flush=True)
    return 0 if args.detach else _wait(result, folder, watched)


def _io(args: argparse.Namespace, folder: JobFolder) -> Topics | Log:
    from pipelines.beam.submission import Log, Topics
    from sotto.kafka.topics import ReportTopic

    if args.log is not None:
        if args.topic:
            raise ParameterError("--topic goes with --kafka or --broker")
        if args.database is None:
            raise ParameterError("--log needs --database, where estimates go")
        return Log(args.log, args.database, folder.path / "quarantine")
    if not args.topic:
        raise ParameterError("--topic is missing: sotto topics list shows what there is")
    if args.database is not None:
        raise ParameterError("--database goes with --log: of topics sotto sink writes a database")
    topics = tuple(ReportTopic.parse(name) for name in args.topic)
    return Topics(given.broker_of(args), topics)


def _wait(result: Any, folder: JobFolder, watched: planfolder.PlanFolder) -> int:
    """Wait while the pipeline runs; keep the plans that come meanwhile."""
    from apache_beam.runners.runner import PipelineState

    state = ""
    while True:
        if result.state != state:
            state = result.state
            print(f"pipeline: {state.lower()}", flush=True)
        if PipelineState.is_terminal(state):
            return 0 if state == PipelineState.DONE else 1
        try:
            folder.keep(*watched.added_to([], {}))
        except BrokerError as error:
            _warn(f"{error}; plans are looked at again")
        time.sleep(_LOOK_SECONDS)


def _warn(text: str) -> None:
    print(f"sotto: warning: {text}", file=sys.stderr, flush=True)
