"""Start and stop a gateway of Oblivious HTTP: ``python -m deploy.ohttp start``, ``stop``."""

from __future__ import annotations

import argparse
import sys

from deploy.ohttp.service import BUILT, LocalGateway
from deploy.ports import HOST
from sotto.errors import SottoError


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.ohttp", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a gateway on loopback; its key stays")
    start.add_argument("--port", type=int, default=8471)
    start.add_argument("--origin", default="telemetry.example", help="how apps name the collector")
    start.add_argument("--collector", default="http://127.0.0.1:8470", help="where it is reached")
    commands.add_parser("stop", help="stop it")
    args = parser.parse_args()
    try:
        return _run(args)
    except (SottoError, OSError) as error:
        print(f"ohttp: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    gateway = LocalGateway(BUILT / "state")
    if args.command == "stop":
        print("stopped" if gateway.stop() else "no gateway is running")
        return 0
    gateway.start(args.origin, args.collector, args.port)
    public = gateway.folder / "public.keys"
    public.write_bytes(gateway.public_keys())
    print(f"http://{HOST}:{gateway.port}/gateway, for apps with the keys in {public}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
