"""Count reports all the time, in a job on Apache Flink.

A job reads the topics of one name and writes estimates and what it rejects to the topics beside
them; sotto sink brings estimates into a database. What the job must not forget is in its folder
(--state): its name, its plans, and, unless they are put elsewhere, its checkpoints and savepoints.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli import given
from sotto.cli.tables import table
from sotto.errors import ParameterError

if TYPE_CHECKING:
    from pipelines.flink.jobfolder import JobFolder, Known
    from pipelines.flink.launch import Asked
    from pipelines.flink.rest import JobManager

#: A partition without a record for so long is named, ms.
IDLE = 86_400_000
_HOUR = 3_600_000

HELP = "run, stop and look at the streaming job on Apache Flink"

_EXAMPLES = """\
examples:
  sotto topics create reports --partitions 8 --plan plan.yaml --broker client.json --sinks
      make what the job reads and writes, once
  sotto flink run --state job --plan plan.yaml --broker client.json --topic reports-e1-p8
      look at everything, say what is wrong, or submit the job
  sotto flink status --state job
      whether it runs, its last checkpoint, why it failed last; with --broker client.json also
      which partitions get nothing, so that their periods stay open
  sotto flink stop --state job
      end it with a savepoint
  sotto flink run --state job --from latest --parallelism 2 --plan plan.yaml --plan new.yaml ...
      go on where it was: with more slots, more plans, after a crash of the job manager

A job that has run goes on --from latest, or from a savepoint. Without its state it would count all
reports again, and is refused. PyFlink lives in an environment of its own: make flink-venv makes
it, --python names another.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto flink``."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run_ = actions.add_parser("run", help="submit a job, or go on with one")
    status = actions.add_parser("status", help="how a job is")
    savepoint = actions.add_parser("savepoint", help="write a job's state down; it goes on")
    stop = actions.add_parser("stop", help="end a job with a savepoint")
    cancel = actions.add_parser("cancel", help="end a job at once; its last checkpoint stays")
    listing = actions.add_parser("list", help="show all jobs of a Flink")
    listing.add_argument("--flink", default=_FLINK, metavar="URL", help=f"default: {_FLINK}")
    for action in (run_, status, savepoint, stop, cancel):
        action.add_argument(
            "--state", type=Path, required=True, metavar="FOLDER", help="the job's folder"
        )
    for action in (status, savepoint, stop, cancel):
        action.add_argument("--flink", metavar="URL", help="default: where it was submitted last")
    status.add_argument(
        "--broker", type=Path, metavar="FILE", help="name the partitions that get nothing, too"
    )
    _add_run(run_)


_FLINK = "http://127.0.0.1:8081"


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    given.add_plans(parser, "all that the job has ever had")
    add("--broker", type=Path, required=True, metavar="FILE", help="how to reach it (JSON)")
    topics = "full name; several are epochs, of which old ones are left out once drained"
    add("--topic", action="append", required=True, metavar="NAME", help=topics)
    add("--flink", default=_FLINK, metavar="URL", help=f"the job manager (default: {_FLINK})")
    add("--from", dest="restore", metavar="PATH", help="latest, a savepoint or a checkpoint")
    add("--parallelism", type=int, default=1, metavar="N", help="slots to use (default: 1)")
    where = "where state is: in the heap (hashmap, the default) or on disk"
    add("--backend", choices=("hashmap", "rocksdb"), default="hashmap", help=where)
    add("--checkpoints", metavar="URI", help="a folder that all of Flink reaches")
    add("--checkpoint-every", default="10s", metavar="DURATION", help="default: 10s")
    often = "how often a window is told anew at most (default: 30s)"
    add("--every", default="30s", metavar="DURATION", help=often)
    add("--python", metavar="PATH", help="of the environment with PyFlink")
    add("--worker", metavar="PATH", help="the same on the task managers, if it is elsewhere there")


def run(args: argparse.Namespace) -> int:
    """Run ``sotto flink`` and return its exit status."""
    from pipelines.flink.rest import JobManager

    if args.action == "list":
        return _list(JobManager(args.flink))
    from pipelines.flink.jobfolder import JobFolder

    folder = JobFolder(args.state)
    if args.action == "run":
        from pipelines.flink.launch import submit

        print(f"submitted: {submit(folder, _asked(args))}")
        return 0
    known = folder.known
    if not known.id:
        raise ParameterError(f"{args.state} knows of no job: sotto flink run submits one")
    manager = JobManager(args.flink or known.flink)
    return {"status": _status, "savepoint": _save, "stop": _save, "cancel": _cancel}[args.action](
        args, folder, known, manager
    )


def _asked(args: argparse.Namespace) -> Asked:
    from pipelines.flink.launch import Asked
    from sotto.durations import parse_duration
    from sotto.topics import ReportTopic

    plans, candidates = given.plans_of(args.plan)
    given.tell_unsigned(plans)
    return Asked(
        plans=plans,
        candidates=candidates,
        broker=args.broker,
        topics=[ReportTopic.parse(name) for name in args.topic],
        flink=args.flink,
        parallelism=args.parallelism,
        restore=args.restore,
        backend=args.backend,
        checkpoints=args.checkpoints,
        checkpoint_every=parse_duration(args.checkpoint_every),
        every=parse_duration(args.every),
        python=args.python,
        worker=args.worker,
    )


def _list(manager: JobManager) -> int:
    jobs = manager.jobs()
    if not jobs:
        print(f"no job on {manager.url}")
        return 0
    rows = [(job.id, job.name, job.state.lower(), f"{job.running}/{job.tasks}") for job in jobs]
    print("\n".join(table(["id", "name", "state", "tasks"], rows)))
    return 0


def _status(args: argparse.Namespace, folder: JobFolder, known: Known, manager: JobManager) -> int:
    job = manager.job(known.id)
    made = manager.checkpoints(known.id)
    last = made["latest"].get("completed")
    print(f"{job.name}: {job.state.lower()}, {job.running} of {job.tasks} tasks run")
    print(f"topics: {', '.join(known.topics)}; plans: {', '.join(known.plans.values())}")
    if last:
        size, took = last["state_size"] / 1e6, last["end_to_end_duration"] / 1e3
        print(f"last checkpoint: {last['id']}, {size:,.1f} MB in {took:.1f} s")
    print(f"checkpoints that failed: {made['counts']['failed']}")
    if failure := manager.failure(known.id):
        print(f"failed last: {failure}")
    if args.broker is not None:
        print("\n".join(_idle(args.broker, known)))
    return 0 if job.well else 1


def _idle(file: Path, known: Known) -> list[str]:
    """Return, in lines, which partitions get nothing: time stands still for their shards."""
    from sotto.brokers import Broker
    from sotto.clocks import now_ms
    from sotto.topicadmin import connected
    from sotto.topics import ReportTopic

    now, lines = now_ms(), []
    with connected(Broker.from_file(file)) as broker:
        for topic in map(ReportTopic.parse, known.topics):
            for number, time in enumerate(broker.newest(topic)):
                if time is None or now - time >= IDLE:
                    since = "ever" if time is None else f"for {(now - time) // _HOUR} hours"
                    lines.append(f"no record {since}: {topic}/{number}; its periods stay open")
    return lines or ["all partitions have had records within a day"]


def _save(args: argparse.Namespace, folder: JobFolder, known: Known, manager: JobManager) -> int:
    place = known.places[-1]
    made = manager.savepoint(known.id, place, stop=args.action == "stop")
    print(f"savepoint: {made}")
    return 0


def _cancel(args: argparse.Namespace, folder: JobFolder, known: Known, manager: JobManager) -> int:
    manager.cancel(known.id)
    manager.wait(known.id, "CANCELED")
    print("cancelled; sotto flink run --from latest goes on from its last checkpoint")
    return 0
