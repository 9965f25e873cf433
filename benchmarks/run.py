"""From the embedded log to estimates in the database, on one core: rate, memory, what grows.

In the first table a larger log has more weeks, not more devices a week, so that the live state
stays as it is and the rate has to. In the second one all devices are of one week, so that no state
is ever dropped: the more reports there are, the more chains each further run finds, reads and
writes again. Every log is aggregated in a process of its own that is bound to one core
(``benchmarks.apart``).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.apart import aggregate_apart
from benchmarks.harness import Table
from benchmarks.reports import DEVICES, SEED, plan, week, weeks, write
from mechanisms.testing import SeededSource

MILLIONS = (1, 2, 5, 10)
PARTITIONS = 4


def main() -> None:
    """Print the rate by size of the log, and what a million costs while the live state grows."""
    table = Table(
        "reports", "runs", "CPU s", "wall s", "reports/s", "bound/s", "of the bound", "peak MB"
    )
    for millions in MILLIONS:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "log", weeks(plan(), millions * 1_000_000, DEVICES))
            got = aggregate_apart(Path(folder) / "state", log=Path(folder) / "log")
        table.row(
            *(got.reports, got.runs, f"{got.cpu:.2f}", f"{got.wall:.2f}"),
            *(f"{got.reports / got.cpu:,.0f}", f"{got.reports / got.bound:,.0f}"),
            *(f"{got.bound / got.cpu:.2f}", f"{got.peak:,.0f}"),
        )
    print()
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
