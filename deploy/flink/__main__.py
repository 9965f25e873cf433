"""Start and stop the session: ``python -m deploy.flink start``, ``stop``, ``pin``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from deploy import jars
from deploy.flink.archives import CONNECTOR, SOURCE, fetch
from deploy.flink.cluster import LocalFlink
from sotto.errors import SottoError

STATE = jars.ROOT / "build" / "flink"


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.flink", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a session on loopback")
    start.add_argument("--port", type=int, default=8081, help="the next one is used too")
    start.add_argument("--slots", type=int, default=2, help="tasks that run side by side")
    commands.add_parser("stop", help="stop it; checkpoints and savepoints stay")
    commands.add_parser("pin", help="write the list of checksums again, after a new version")
    args = parser.parse_args()
    try:
        return _pin() if args.command == "pin" else _run(args)
    except (SottoError, OSError) as error:
        print(f"flink: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.command == "stop":
        print("stopped" if LocalFlink(STATE).stop() else "no session is running")
        return 0
    session = LocalFlink(STATE, slots=args.slots)
    started = session.start(port=args.port)
    print(f"{'Flink answers' if started else 'running already,'} on {session.address}")
    return 0


def _pin() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        flink, connector = Path(temporary) / "flink", Path(temporary) / "connector"
        fetch(flink)
        jars.fetch(CONNECTOR / "pom.xml", connector)
        for source, folder in ((SOURCE, flink), (CONNECTOR, connector)):
            (source / "jars.sha256").write_text(jars.pins(folder), encoding="ascii")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
