"""Run it: ``python -m benchmarks.soak runs``; the exit status says whether everything held."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.soak.faults import Outcome, Play, run, table
from benchmarks.soak.schedule import Injection, schedule

#: Faults that are planned; as many of them as are wanted have to hit.
_MOST = 5_000


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, number, minutes, what in (
        ("runs", 220, 45.0, "runs from Kafka under faults"),
        ("flink", 40, 30.0, "the streaming job under faults"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("--faults", type=int, default=number, help="how many have to hit")
        command.add_argument("--minutes", type=float, default=minutes, help="none begins later")
        command.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
        command.add_argument("--rate", type=float, default=150, help="of the fleet's messages, 1/s")
        command.add_argument("--folder", type=Path, help="kept, if given")
    steady = commands.add_parser("steady", help="the streaming job under a steady load")
    steady.add_argument("--minutes", type=float, default=30)
    steady.add_argument("--rate", type=float, default=20_000, help="of reports, 1/s")
    steady.add_argument("--parallelism", type=int, default=1)
    steady.add_argument("--folder", type=Path, help="kept, if given")
    args = parser.parse_args()
    # Under faults connections fail all the time.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # Whoever ends it with a signal leaves no broker behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    plays = {"runs": _runs, "flink": _flink, "steady": _steady}
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        return plays[args.command](args, args.folder or Path(temporary))


def _runs(args: argparse.Namespace, folder: Path) -> int:
    from benchmarks.soak.aggregated import Aggregated
    from benchmarks.soak.injections import CHOICES, SHARES
    from benchmarks.soak.world import World

    with World(folder, args.seed, args.rate) as world:
        return _played(args, Aggregated(world), schedule(args.seed, _MOST, SHARES, CHOICES))


def _flink(args: argparse.Namespace, folder: Path) -> int:
    from benchmarks.soak.flinkworld import FlinkWorld
    from benchmarks.soak.streamed import CHOICES, SHARES, Streamed

    with FlinkWorld(folder, args.seed, args.rate) as world:
        return _played(args, Streamed(world), schedule(args.seed, _MOST, SHARES, CHOICES))


def _steady(args: argparse.Namespace, folder: Path) -> int:
    from benchmarks.soak.steady import Steady

    held = Steady(folder, args.rate, args.parallelism).run(args.minutes * 60)
    print("held" if held else "DID NOT HOLD")
    return 0 if held else 1


def _played(args: argparse.Namespace, play: Play, planned: list[Injection]) -> int:
    print(f"seed {args.seed}", flush=True)
    began = time.monotonic()
    outcome: Outcome = run(play, planned, args.faults, args.minutes * 60)
    print(table(outcome, play.kinds, time.monotonic() - began))
    if sum(outcome.faults.values()) < args.faults:
        print(f"the time was over before {args.faults} faults had hit")
        return 1
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
