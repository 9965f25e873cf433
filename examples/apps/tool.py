"""A command-line tool that says which of its commands are used: ``python -m examples.apps.tool``.

Each run lives for a moment only. It records in microseconds and ends when its work is done; what
is due by then it sends as it ends, and what is not the next runs will send.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one command."""
    parser = argparse.ArgumentParser(prog="python -m examples.apps.tool", description=__doc__)
    parser.add_argument("command", choices=["convert", "resize", "show", "agree", "disagree"])
    command = parser.parse_args(arguments).command
    with make_client(home()) as client:
        if command == "agree":
            client.give_consent(again=True)
        elif command == "disagree":
            client.withdraw_consent()
        else:
            Metrics(client).command.record(command)
            print(f"{command}: done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
