"""What a million reports costs while the live state grows: all of them are of one budget period.

The devices of ``benchmarks.run``, but all in one week, so that no state is ever dropped: the
more reports there are, the more chains each further run finds, reads and writes again. What is
measured is CPU time, user and system, of a process bound to one core.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.run import SEED, measured, row, week
from mechanisms.testing import SeededSource
from sotto.plan.compiled import CompiledPlan

PARTITIONS = 4


def write(log: Path, plan: CompiledPlan, reports: int) -> int:
    """Write a log of one week's devices and return its number of reports."""
    source = SeededSource(SEED)
    rows = len(plan.metrics) * plan.metrics[0].sent
    devices = reports // rows // PARTITIONS
    for number in range(PARTITIONS):
        week(plan, 0, source, devices).sorted().write(log, f"part-{number}")
    return devices * PARTITIONS * rows


def main() -> None:
    """Print the table."""
    row(("reports", "runs", "live chains", "CPU s", "CPU s/million", "peak MB"))
    for got in measured(write):
        row(
            (
                f"{got.reports:,}",
                f"{got.runs}",
                f"{got.counted:,}",
                f"{got.cpu:.2f}",
                f"{got.cpu / got.reports * 1e6:.2f}",
                f"{got.peak:,.0f}",
            )
        )


if __name__ == "__main__":
    main()
