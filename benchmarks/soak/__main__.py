"""Run it: ``python -m benchmarks.soak runs``; the exit status says whether everything held."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.soak.faults import Play, run, schedule, table
from benchmarks.soak.stage import Stage

#: Faults that are planned; as many of them as are wanted have to hit.
_MOST = 5_000


def main() -> int:
    """Run a subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, number, minutes, what in (
        ("runs", 220, 45.0, "runs from Kafka under faults"),
        ("http", 220, 45.0, "the collector under faults, half with a log and half with Kafka"),
        ("flink", 40, 30.0, "the streaming job under faults"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("--faults", type=int, default=number, help="how many have to hit")
        command.add_argument("--minutes", type=float, default=minutes, help="none begins later")
        command.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
        command.add_argument("--rate", type=float, default=150, help="of the fleet's messages, 1/s")
        command.add_argument("--folder", type=Path, help="kept, if given")
    args = parser.parse_args()
    # Under faults connections fail all the time.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # Whoever ends it with a signal leaves no broker behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    commands_ = {"runs": _runs, "http": _http, "flink": _flink}
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        held = commands_[args.command](args, args.folder or Path(temporary))
    return 0 if held else 1


def _runs(args: argparse.Namespace, folder: Path) -> bool:
    from benchmarks.soak.runs import Runs

    with Stage(folder, args.seed, args.rate, Runs.DISK) as stage:
        return _played(args, Runs(stage))


def _http(args: argparse.Namespace, folder: Path) -> bool:
    from benchmarks.soak.collected import STORES, Collected, HttpStage

    held, share = True, 1 / len(STORES)
    for number, store in enumerate(STORES):
        faults = (args.faults + number) // len(STORES)
        print(f"collector with {store}, {faults} faults", flush=True)
        with HttpStage(folder / store, args.seed, args.rate, store) as stage:
            held &= _played(args, Collected(stage), faults, share)
    return held


def _flink(args: argparse.Namespace, folder: Path) -> bool:
    from benchmarks.soak.streamed import FlinkStage, Streamed

    with FlinkStage(folder, args.seed, args.rate) as stage:
        return _played(args, Streamed(stage))


def _played(
    args: argparse.Namespace, play: Play, faults: int | None = None, share: float = 1.0
) -> bool:
    """Play so many faults, or all, in a share of the time."""
    wanted, seconds = faults or args.faults, share * args.minutes * 60
    print(f"seed {args.seed}", flush=True)
    began, planned = time.monotonic(), schedule(args.seed, _MOST, play.shares, play.choices)
    outcome = run(play, planned, wanted, seconds)
    print(table(outcome, tuple(play.shares), time.monotonic() - began))
    if outcome.faults.total() < wanted:
        print(f"the time was over before {wanted} faults had hit")
        return False
    return outcome.holds


if __name__ == "__main__":
    sys.exit(main())
