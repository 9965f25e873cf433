"""How fast `sotto replay` plays tables back: rows of seven metrics, at two or three levels each.

Of each row seven values are recorded; what a plan does not take any more in a budget period is
refused. A table with a row a device is the dearest: each row makes a device, and sends some
nineteen reports. Simulated devices are measured beside clients whose store is SQLite, in memory
too, turn by turn in one process; the least CPU time of each counts. Then two processes read and
play a larger table: rows a second of CPU, of all processes together, and by the clock.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Table
from sotto.cli.replay.devices import Fleet
from sotto.cli.replay.playback import Replay
from sotto.cli.replay.simulated_store import Device
from sotto.cli.replay.table import Columns, Recordings, read_recordings
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

DAY = 86_400_000
#: Of a Monday in 2025, in milliseconds since the epoch.
START = 1_748_822_400_000
#: By name: devices, rows of each, and milliseconds between them.
SHAPES = {
    "one row a device": (600, 1, DAY),
    "a row a week": (40, 20, 7 * DAY),
    "a row a day": (40, 60, DAY),
    "a row an hour": (20, 400, DAY // 24),
}
ROUNDS = 3
#: How many times as many devices two processes play.
LARGER = 10
SEED = 20_261_122
PLAN = """
collector: bench.example
plan: seven
version: 1
owner: nobody@bench.example
expires: 2036-01-01
period: 7d
ceilings: {period: 30, lifetime: 90000}
resolution: 1h
metrics:
  theme: {type: category, domain: [light, dark, high], outside: other, window: 28d, ladder: &three [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2, after: 7d}]}
  startup: {type: number, range: [0, 5000], outside: clip, missing: true, window: 7d, ladder: *three}
  works: {type: boolean, window: 7d, ladder: *three}
  page: {type: string, bits: 128, hashes: 2, cohorts: 16, candidates: pages.txt, window: 28d, ladder: *three}
  size: {type: number, range: [0, 10], outside: clip, window: 7d, repeat: {once: reservoir}, ladder: [{epsilon: 1, after: 7d}, {epsilon: 2, after: 8d}]}
  distance: {type: number, range: [0, 5000], outside: clip, mechanism: {bit_aware: sampled, bits: 10}, window: 28d, ladder: *three}
  model: {type: category, domain: [old, new], outside: other, window: 7d, mechanism: grr, repeat: {constant: true}, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}, {epsilon: 3, after: 1d}]}
"""  # noqa: E501


class SqliteFleet(Fleet):
    """Devices that are clients with SQLite in memory."""

    device = Device


def write(path: Path, devices: int, rows: int, every: int) -> None:
    """Write a table of so many rows of each device."""
    source = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        file.write("device,time,theme,startup,works,page,size,distance,model\n")
        for device in range(devices):
            for row in range(rows):
                cells = (
                    f"d{device}",
                    START + row * every + source.randrange(3_600_000),
                    source.choice(("light", "dark", "blue")),
                    source.randrange(5_000),
                    source.choice(("yes", "no")),
                    source.choice(("home", "help")),
                    source.randrange(10),
                    source.randrange(5_000),
                    source.choice(("old", "new")),
                )
                file.write(",".join(map(str, cells)) + "\n")


def seconds_of(
    fleet: type[Fleet], plan: CompiledPlan, recordings: Recordings, log: Path
) -> tuple[float, int]:
    """Return the CPU seconds of one replay in this process, and how many values were accepted."""
    start = time.process_time()
    played = Replay(log, processes=1, fleet=fleet).run(plan, recordings)
    taken = time.process_time() - start
    return taken, sum(n for (_, outcome), n in played.outcomes.items() if outcome == "accepted")


def cpu_of_all() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def logs(folder: Path) -> Iterator[Path]:
    """Yield folders that are not there."""
    number = 0
    while True:
        number += 1
        yield folder / f"log-{number}"


def main() -> None:
    """Print the table."""
    table = Table(
        *("table<", "rows", "accepted", "rows/s (CPU)", "with SQLite", "ratio"),
        *("larger, rows", "rows/s (CPU)", "rows/s"),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pages.txt").write_text("home\nhelp\n")
        plan, empty = parse_plan(PLAN, folder).compile(), logs(folder)
        columns = Columns.of_plan(plan, "device", "time")
        for shape, (devices, rows, every) in SHAPES.items():
            write(folder / "table.csv", devices, rows, every)
            recordings = read_recordings(folder / "table.csv", plan, columns)
            least = dict.fromkeys((Fleet, SqliteFleet), float("inf"))
            for fleet in list(least) * ROUNDS:
                taken, accepted = seconds_of(fleet, plan, recordings, next(empty))
                least[fleet] = min(least[fleet], taken)
            write(folder / "table.csv", LARGER * devices, rows, every)
            start, used = time.perf_counter(), cpu_of_all()
            recordings = read_recordings(folder / "table.csv", plan, columns)
            Replay(next(empty)).run(plan, recordings)
            wall, used = time.perf_counter() - start, cpu_of_all() - used
            n = devices * rows
            table.row(
                *(shape, n, accepted, f"{n / least[Fleet]:,.0f}"),
                *(f"{n / least[SqliteFleet]:,.0f}", f"{least[SqliteFleet] / least[Fleet]:.1f}"),
                *(LARGER * n, f"{LARGER * n / used:,.0f}", f"{LARGER * n / wall:,.0f}"),
            )


if __name__ == "__main__":
    main()
