"""Start and stop the session: ``python -m deploy.flink start``, ``stop``, ``pin``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from deploy import jars
from deploy.flink.archives import JOB_SERVER, SOURCE, fetch, fetch_job_server
from deploy.flink.cluster import LocalFlink, Ports
from deploy.flink.settings import TASK_MANAGER_HEAP
from sotto.errors import SottoError

STATE = jars.ROOT / "build" / "flink"
_OPEN = (
    "warning: the job server, and the task manager while a pipeline runs, listen on all addresses "
    "of this machine, which Beam leaves no choice of; on a network of others, close these ports"
)


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.flink", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a session on loopback")
    start.add_argument("--port", type=int, default=8081, help="of Flink; the next one is used too")
    start.add_argument(
        "--job-port", type=int, default=8099, help="of the job server; the one before is used too"
    )
    start.add_argument("--pool-port", type=int, default=50000, help="of the workers' pool")
    start.add_argument("--slots", type=int, default=2, help="tasks that run side by side")
    start.add_argument("--cache", type=int, default=256, metavar="MB", help="state of a worker")
    start.add_argument(
        "--heap", type=int, default=TASK_MANAGER_HEAP, metavar="MB", help="state of all jobs"
    )
    stop = commands.add_parser("stop", help="stop it; checkpoints and savepoints stay")
    for command in (start, stop):
        command.add_argument("--folder", type=Path, default=STATE, help="of all its files")
    commands.add_parser("pin", help="write the list of checksums again, after a new version")
    args = parser.parse_args()
    try:
        return _pin() if args.command == "pin" else _run(args)
    except (SottoError, OSError) as error:
        print(f"flink: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.command == "stop":
        print("stopped" if LocalFlink(args.folder).stop() else "no session is running")
        return 0
    session = LocalFlink(args.folder, slots=args.slots, cache=args.cache, heap=args.heap)
    job, pool = args.job_port, args.pool_port
    ports = Ports(rest=args.port, rpc=args.port + 1, job=job, artifacts=job - 1, pool=pool)
    started = session.start(ports, say=lambda text: print(text, flush=True))
    print(f"{'Flink answers' if started else 'running already,'} on {session.address}")
    print(f"for pipelines: {' '.join(session.options)}; sotto stream: --flink={session.address}")
    print(_OPEN, file=sys.stderr)
    return 0


def _pin() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        for source, fetch_into in ((SOURCE, fetch), (JOB_SERVER, fetch_job_server)):
            folder = Path(temporary, source.name)
            fetch_into(folder)
            (source / "jars.sha256").write_text(jars.pins(folder), encoding="ascii")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
