"""Runs the demo: ``python -m examples.flights``, or ``make demo``."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

DESCRIPTION = """\
A year of real flights: 4,043 aircraft, each with the real SDK in it, report on their departures
from New York through a log that is tampered with; the aggregator's estimates and both ledgers
are set beside the truth. Writes report.html.
"""


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=DESCRIPTION)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="default: build/demo")
    parser.add_argument("--processes", type=int, default=2, help="default: 2")
    parser.add_argument("--aircraft", type=int, help="only the so many that fly most (a trial run)")
    arguments = parser.parse_args()
    # Beam warns of optional Google libraries at import.
    logging.basicConfig(level=logging.ERROR)
    # Imported here, so that the replay's processes, which import this module, stay light.
    from examples.flights.demo import Demo, run
    from sotto.errors import SottoError

    try:
        run(Demo(arguments.out, arguments.processes, arguments.aircraft))
    except SottoError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
