"""A command-line tool that says which of its commands are used: ``python -m examples.apps.tool``.

Each run lives for a moment only. It records in microseconds and ends when its work is done; what
is due by then it sends as it ends, and what is not the next runs will send. The first run at a
terminal asks; ``telemetry on``, ``off``, ``status`` and ``show`` come back to the answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clientsdk import TelemetryAction, ask, telemetry
from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one command."""
    parser = argparse.ArgumentParser(prog="python -m examples.apps.tool", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("convert", "resize", "show"):
        commands.add_parser(name)
    switch = commands.add_parser("telemetry", help="what this tool reports, and whether it does")
    switch.add_argument("action", nargs="?", choices=[*map(str, TelemetryAction)], default="status")
    args = parser.parse_args(arguments)
    with make_client(home()) as client:
        if args.command == "telemetry":
            print(telemetry(client, args.action))
        else:
            ask(client)
            Metrics(client).command.record(args.command)
            print(f"{args.command}: done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
