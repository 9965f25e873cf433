"""Kill devices with -9 at random instants: ``python -m benchmarks.kills --kills 1000``.

Several processes record into one state file and send from it. One after another is killed, at an
instant that chance chooses, and another takes its place. After every kill the ledger is compared
with itself, with what was acknowledged, and with all bytes that were ever published; at the end,
when everything is delivered, it has to be what an aggregator counts. Some kills fall on the first
moments of a device that is new. The exit status says whether everything held.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks.kills.life import live, open_device, settle
from benchmarks.kills.witness import BrokenPromiseError, Witness

#: Seconds within which a process that was killed, or one that opens a file, has to be through.
_DEADLINE = 60
#: One kill in so many falls on the birth of a device.
_BIRTHS = 10
_AUDITS = 20


class Fleet:
    """Processes on one device's file."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._rng = rng
        self.members: list[int] = []

    def add(self) -> int:
        """Start a process; return its number."""
        seed = self._rng.getrandbits(32)
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(10 * _DEADLINE)
                live(self._folder, seed)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self.members.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Kill a process; one that has ended by itself is a fault."""
        self.members.remove(pid)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if status != signal.SIGKILL:
            raise BrokenPromiseError("a process ended before it was killed; see above")

    def end(self) -> None:
        """Kill all."""
        for pid in list(self.members):
            self.kill(pid)


def _instant(rng: random.Random) -> float:
    """Return how long to wait: mostly into the middle of something, at times not at all."""
    return rng.choice([0.0, rng.uniform(0, 0.005), rng.uniform(0, 0.05), rng.uniform(0, 0.2)])


def kill_births(folder: Path, rng: random.Random, births: int) -> None:
    """Kill devices while their file is made; what is left has to open as if nothing had been."""
    for birth in range(births):
        device = folder / f"birth-{birth}"
        fleet = Fleet(device, rng)
        pid = fleet.add()
        time.sleep(rng.uniform(0, 0.03))
        fleet.kill(pid)
        with open_device(device) as client:
            client.ledger()  # Makes the file if the kill came before that.
            Witness(device).look()


def kill_lives(folder: Path, rng: random.Random, kills: int, workers: int) -> Witness:
    """Kill processes of one device; return who has seen it all."""
    device = folder / "device"
    fleet = Fleet(device, rng)
    with open_device(device) as client:
        client.ledger()
    witness = Witness(device)
    try:
        for _ in range(workers):
            fleet.add()
        for kill in range(kills):
            time.sleep(_instant(rng))
            fleet.kill(rng.choice(fleet.members))
            if kill % _AUDITS == 0:
                witness.look()
                print(f"{kill:6,} kills, {witness.reports:,} reports", flush=True)
            fleet.add()
    finally:
        fleet.end()
    lapsed = settle(device)
    witness.close()
    if lapsed:
        raise BrokenPromiseError(f"{lapsed} chains lapsed")
    return witness


def main() -> int:
    """Run it and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many; default 1000")
    parser.add_argument("--workers", type=int, default=3, help="processes at a time; default 3")
    parser.add_argument("--seed", type=int, default=None, help="of instants and load")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rng, begun = random.Random(seed), time.monotonic()
    births = options.kills // _BIRTHS
    with tempfile.TemporaryDirectory(prefix="sotto-kills-") as directory:
        try:
            kill_births(Path(directory), rng, births)
            witness = kill_lives(Path(directory), rng, options.kills - births, options.workers)
        except BrokenPromiseError as error:
            print(f"broken after {time.monotonic() - begun:.0f} s: {error}", file=sys.stderr)
            return 1
    print(
        f"{options.kills} kills, {births} of them at birth, in {time.monotonic() - begun:.0f} s: "
        f"{witness.reports:,} reports in {witness.messages:,} messages, "
        f"{witness.again:,} sent again with the same bytes; the ledger is what was counted"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
