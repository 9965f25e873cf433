"""Start and stop the broker: ``python -m deploy.kafka start``, ``stop``, ``pin``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from deploy import jars
from deploy.kafka.broker import PROFILES, SOURCE, LocalBroker
from sotto.errors import SottoError

STATE = jars.ROOT / "build" / "kafka"


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a broker on loopback; its log stays")
    start.add_argument("--port", type=int, default=9092, help="the next one is used too")
    stop = commands.add_parser("stop", help="stop it; what it holds stays")
    for command in (start, stop):
        command.add_argument("--profile", choices=PROFILES, default="plain")
    commands.add_parser("pin", help="write the list of checksums again, after a new version")
    args = parser.parse_args()
    try:
        return _pin() if args.command == "pin" else _run(args)
    except (SottoError, OSError) as error:
        print(f"kafka: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    broker = LocalBroker(STATE / args.profile, profile=args.profile)
    if args.command == "stop":
        print("stopped" if broker.stop() else "no broker is running")
        return 0
    if broker.running:
        print(f"running already, on {broker.servers}")
        return 0
    broker.start(port=args.port)
    print(f"Kafka answers on {broker.servers}; for clients: --broker {broker.client_file}")
    return 0


def _pin() -> int:
    with tempfile.TemporaryDirectory() as folder:
        jars.fetch(SOURCE / "pom.xml", Path(folder) / "jars")
        (SOURCE / "jars.sha256").write_text(jars.pins(Path(folder) / "jars"), encoding="ascii")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
