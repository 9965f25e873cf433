"""Run it: ``python -m benchmarks.soak faults``; the exit status says whether everything held."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.soak import faults
from benchmarks.soak.injections import schedule


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("faults", help="drains from Kafka under faults")
    run.add_argument("--faults", type=int, default=220, help="how many have to hit")
    run.add_argument("--minutes", type=float, default=45, help="none begins later")
    run.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    run.add_argument("--rate", type=float, default=150, help="messages of the fleet a second")
    run.add_argument("--folder", type=Path, help="kept, if given")
    args = parser.parse_args()
    began = time.monotonic()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        outcome = faults.run(
            args.folder or Path(temporary),
            args.seed,
            schedule(args.seed, 3 * args.faults),
            args.faults,
            args.minutes * 60,
            args.rate,
        )
    print(faults.table(outcome, time.monotonic() - began))
    if sum(outcome.faults.values()) < args.faults:
        print(f"the time was over before {args.faults} faults had hit: not enough to say so")
        return 1
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
