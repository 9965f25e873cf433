"""From the embedded log to estimates in the database, on one core: rate, memory, what grows.

*run*: a larger log has more weeks, not more devices a week, so that the live state stays as it is
and the rate has to.

*growth*: all devices are of one week, so that no state is ever dropped: the more reports there are,
the more chains each further run finds, reads and writes again.

*costs*: few devices for years beside the same number of reports in few weeks; and runs of a hundred
messages onto a state of tens of megabytes, with all that the process writes (``/proc/self/io``).

Every log is aggregated in a process of its own that is bound to one core (``benchmarks.apart``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.apart import Aggregated, aggregate_apart
from benchmarks.harness import Table
from benchmarks.reports import DEVICES, SEED, Sent, plan, week, weeks, write
from mechanisms.testing import SeededSource

MILLIONS = (1, 2, 5, 10)
PARTITIONS = 4
#: Of the costs: reports, and devices a week of which these are some 137 weeks, and three.
REPORTS = 130_000
SPREADS = {"sparse": 63, "dense": 2_900}
#: Devices of the week's state, messages of a run onto it, and runs.
STATE_DEVICES, MESSAGES, RUNS = 80_000, 110, 30


def aggregated(parts: Iterable[Sent]) -> Aggregated:
    """Write a log and return what aggregating it takes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "log", parts)
        return aggregate_apart(Path(folder) / "state", log=Path(folder) / "log")


def main() -> None:
    """Print the rate, by size of the log."""
    table = Table(
        "reports", "runs", "CPU s", "wall s", "reports/s", "bound/s", "of the bound", "peak MB"
    )
    for millions in MILLIONS:
        got = aggregated(weeks(plan(), millions * 1_000_000, DEVICES))
        table.row(
            *(got.reports, got.runs, f"{got.cpu:.2f}", f"{got.wall:.2f}"),
            *(f"{got.reports / got.cpu:,.0f}", f"{got.reports / got.bound:,.0f}"),
            *(f"{got.bound / got.cpu:.2f}", f"{got.peak:,.0f}"),
        )


def growth() -> None:
    """Print what a million reports costs while the live state grows."""
    table = Table("reports", "runs", "live chains", "CPU s", "CPU s/million", "peak MB")
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory() as folder:
            log, source = Path(folder) / "log", SeededSource(SEED)
            for partition in range(PARTITIONS):
                sent = week(plan(), 0, source, millions * 1_000_000 // 15 // PARTITIONS)
                sent = sent.select(np.argsort(sent.append, kind="stable"))
                sent.write(log, f"partition-{partition}")
            got = aggregate_apart(Path(folder) / "state", log=log)
        table.row(
            *(got.reports, got.runs, got.counted, f"{got.cpu:.2f}"),
            *(f"{got.cpu / got.reports * 1e6:.2f}", f"{got.peak:,.0f}"),
        )


def costs() -> None:
    """Print what runs cost that take little."""
    table = Table("<", "reports", "CPU s", "reports/s", "bound/s", "of the bound")
    for name, devices in SPREADS.items():
        got = aggregated(weeks(plan(), REPORTS, devices))
        table.row(
            *(name, got.reports, f"{got.cpu:.2f}", f"{got.reports / got.cpu:,.0f}"),
            *(f"{got.reports / got.bound:,.0f}", f"{got.bound / got.cpu:.2f}"),
        )
    with tempfile.TemporaryDirectory() as folder:
        _, *found = _small_runs(Path(folder))
    written = [each for _, each, _ in found]
    print(
        f"\n{RUNS} runs of {mean(taken for taken, _, _ in found) / 1e3:.0f} KB onto a state of "
        f"{found[0][2] / 1e6:.1f} MB write {min(written) / 1e3:,.0f} to {max(written) / 1e3:,.0f} "
        f"KB each, {mean(written) / 1e3:,.0f} KB on average"
    )


def _small_runs(folder: Path) -> Iterator[tuple[int, int, int]]:
    """Yield, of run after run, the bytes taken, written, and held as state."""
    from pipelines.bounded.run import aggregate
    from pipelines.storage.directory import StateDirectory

    compiled, log, state = plan(), folder / "log", folder / "state"
    devices = STATE_DEVICES + RUNS * MESSAGES
    sent = week(compiled, 0, SeededSource(SEED), devices)
    late = np.arange(len(sent.append)) % devices >= STATE_DEVICES
    first = sent.select(np.flatnonzero(~late))
    rest = sent.select(np.flatnonzero(late)[: RUNS * MESSAGES])
    now = np.full(MESSAGES, first.append.max())
    runs = [first.select(np.argsort(first.append, kind="stable"))]
    runs += [Sent(now, part) for part in np.split(rest.message, RUNS)]
    for messages in runs:
        taken, before = messages.write(log), _written()
        aggregate(log, state, [compiled])
        held = StateDirectory(state).manifest().states.values()
        yield taken, _written() - before, sum(each.size for each in held)


def _written() -> int:
    """Return the bytes that this process has written, whatever was written twice."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("wchar:") + 1])
