"""What a run costs that takes little: few reports over many budget periods, or little onto much.

*Sparse*: the devices of ``benchmarks.run``, but few of them for years, beside the same number of
reports in few weeks; each in a process of its own that is bound to one core, by CPU time.

*Little onto much*: one week's devices make a state of tens of megabytes; then runs of a hundred
messages each are aggregated, and what the process has written is read from ``/proc/self/io``: all
files and the database, whatever was written twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.messages import plan
from benchmarks.run import Measured, measured_apart, row, stream, week
from mechanisms.testing import SeededSource
from sotto.plan.compiled import CompiledPlan

REPORTS = 130_000
#: Devices a week of which so many reports last for some 137 weeks, and for three.
DEVICES = {"sparse": 63, "dense": 2_900}
#: Of the week's state, and messages of a run onto it.
STATE_DEVICES = 80_000
MESSAGES = 110
RUNS = 30
SEED = 20_240_501


def spread(devices: int) -> Measured:
    """Aggregate a log of so many devices a week."""
    with tempfile.TemporaryDirectory() as folder:
        for part in stream(plan(), REPORTS, devices):
            part.write(Path(folder) / "log")
        return measured_apart(Path(folder) / "log", Path(folder) / "state")


def runs(compiled: CompiledPlan, folder: Path) -> Iterator[tuple[int, int, int]]:
    """Yield, of run after run, the bytes taken, written, and held as state."""
    from pipelines.bounded.run import aggregate
    from pipelines.storage.directory import StateDirectory

    log, state = folder / "log", folder / "state"
    sent = week(compiled, 0, SeededSource(SEED), STATE_DEVICES + RUNS * MESSAGES)
    late = np.arange(len(sent.append)) % (STATE_DEVICES + RUNS * MESSAGES) >= STATE_DEVICES
    first = sent.select(np.flatnonzero(~late))
    rest = sent.select(np.flatnonzero(late)[: RUNS * MESSAGES])
    now = int(first.append.max())
    for at in range(RUNS + 1):
        if at == 0:
            taken = first.sorted().write(log)
        else:
            some = rest.select(np.arange((at - 1) * MESSAGES, at * MESSAGES))
            taken = some._replace(append=np.full(MESSAGES, now)).write(log)
        before = _written()
        aggregate(log, state, [compiled])
        held = StateDirectory(state).manifest().states.values()
        yield taken, _written() - before, sum(each.size for each in held)


def _written() -> int:
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("wchar:") + 1])


def main() -> None:
    """Print both tables."""
    row(("", "reports", "CPU s", "reports/s", "plain bound/s", "of the bound"))
    for name, devices in DEVICES.items():
        got = spread(devices)
        row(
            (
                name,
                f"{got.reports:,}",
                f"{got.cpu:.2f}",
                f"{got.reports / got.cpu:,.0f}",
                f"{got.reports / got.bound:,.0f}",
                f"{got.bound / got.cpu:.2f}",
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        _, *found = runs(plan(), Path(folder))
    written = [each for _, each, _ in found]
    print(
        f"\n{RUNS} runs of {mean(taken for taken, _, _ in found) / 1e3:.0f} KB onto a state of "
        f"{found[0][2] / 1e6:.1f} MB write {min(written) / 1e3:,.0f} to {max(written) / 1e3:,.0f} "
        f"KB each, {mean(written) / 1e3:,.0f} KB on average"
    )


if __name__ == "__main__":
    main()
