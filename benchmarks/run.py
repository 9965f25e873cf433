"""From the embedded log to estimates in the database, on one core: rate, memory, linearity.

Devices send weekly what they recorded, five metrics of five mechanisms on a ladder of three rungs
(at once, after a day, after a week): every message has five reports. A larger log has more weeks,
not more devices a week, so that the live state stays as it is and the rate has to. Every size is
aggregated in a process of its own that is bound to one core. The plain bound beside it is what
reading the same log, decoding it and adding its rows up costs, without deduplication, ladder,
budgets, state or commits.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.messages import CANDIDATES, HOUR, WEEK, Devices, Sent, messages, plan
from mechanisms.testing import SeededSource
from sotto.log.reader import LogReader, partitions
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import decode

DEVICES = 20_000
MILLIONS = (1, 2, 5, 10)
SEED = 20_240_501
FIRST = 2800


def week(plan: CompiledPlan, number: int, source: SeededSource, devices: int) -> Sent:
    """Return all that the devices of one week send, now or later."""
    pseudonyms = source.words(2 * devices).reshape(-1, 2)
    moments = (source.words(devices) % np.uint64(WEEK)).astype(np.int64)
    events = (FIRST + number) * WEEK + moments // HOUR * HOUR
    found = Devices.of(pseudonyms, events, plan.shards)
    made = messages(plan, list(plan.metrics), found, 1, source)
    delays = np.array(plan.metrics[0].delays)[:, None]
    jitter = (source.words(3 * devices) % np.uint64(HOUR)).astype(np.int64).reshape(3, -1)
    return Sent((events + HOUR + delays + jitter).ravel(), made.ravel())


def stream(plan: CompiledPlan, reports: int, devices: int = DEVICES) -> Iterator[Sent]:
    """Yield messages in the order of their append times, as many as make up the reports."""
    source = SeededSource(SEED)
    left = reports // len(plan.metrics)
    held = week(plan, 0, source, devices)
    number = 0
    while left > 0:
        number += 1
        more = week(plan, number, source, devices)
        held = Sent(*(np.concatenate(pair) for pair in zip(held, more, strict=True)))
        due = held.append < (FIRST + number) * WEEK
        part = held.select(np.flatnonzero(due)).sorted()
        yield part.select(np.arange(min(left, len(part.append))))
        left -= len(part.append)
        held = held.select(np.flatnonzero(~due))


def write(log: Path, plan: CompiledPlan, reports: int) -> int:
    """Write a log and return its number of reports."""
    written = 0
    for part in stream(plan, reports):
        part.write(log)
        written += len(part.append) * len(plan.metrics)
    return written


class Measured(NamedTuple):
    """What aggregating a log took."""

    reports: int
    counted: int
    runs: int
    cpu: float
    wall: float
    peak: float
    bound: float


def measure(log: Path, state: Path, plan_file: Path) -> Measured:
    """Aggregate a log on one core."""
    # Beam is imported by the processes that aggregate alone, and before their clock starts.
    from pipelines.bounded.run import aggregate, keep_freed_memory

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    keep_freed_memory()
    compiled = CompiledPlan.from_file(plan_file)
    registry = Registry([compiled])
    bound = _bound(log, registry)
    cpu, wall = time.process_time(), time.perf_counter()
    result = aggregate(
        log, state, [compiled], candidates={compiled.fingerprint: {"destination": CANDIDATES}}
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    tally = result.tally
    if result.rejects or tally.revoked:
        raise RuntimeError(f"reports of the benchmark were rejected: {result.rejects}")
    return Measured(tally.reports, tally.counted, result.runs, cpu, wall, peak, bound)


def _bound(log: Path, registry: Registry) -> float:
    """Return the CPU seconds of reading and decoding alone, and adding everything up."""
    begin = time.process_time()
    for lane in partitions(log):
        for block in LogReader(lane).blocks():
            decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
            for batch in decoded.batches:
                mechanism = registry.metrics[batch.metric].metric.mechanism
                levels = batch.level.astype(np.int64)
                mechanism.accumulate(batch.payload, batch.chain, batch.pseudonym, levels, 3)
    return time.process_time() - begin


def measured(write: Callable[[Path, CompiledPlan, int], object]) -> Iterator[Measured]:
    """Yield what aggregating logs of ``MILLIONS`` takes, each in a process of its own.

    Parameters
    ----------
    write : callable
        Writes a log of so many reports.
    """
    with tempfile.TemporaryDirectory() as folder:
        for millions in MILLIONS:
            log = Path(folder) / f"log-{millions}"
            write(log, plan(), millions * 1_000_000)
            yield measured_apart(log, Path(folder) / str(millions))


def measured_apart(log: Path, state: Path, compiled: CompiledPlan | None = None) -> Measured:
    """Return what aggregating a log takes in a process of its own."""
    plan_file = log.with_suffix(".json")
    plan_file.write_bytes((compiled or plan()).to_json())
    command = [sys.executable, "-m", "benchmarks.run", str(log), str(state), str(plan_file)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Measured(*json.loads(output))


def row(cells: Iterable[str]) -> None:
    """Print a row of the table."""
    print("  ".join(f"{cell:>13}" for cell in cells), flush=True)


def main() -> None:
    """Print the table."""
    row(
        (
            "reports",
            "runs",
            "CPU s",
            "wall s",
            "reports/s",
            "plain bound/s",
            "of the bound",
            "peak MB",
        )
    )
    for got in measured(write):
        row(
            (
                f"{got.reports:,}",
                f"{got.runs}",
                f"{got.cpu:.2f}",
                f"{got.wall:.2f}",
                f"{got.reports / got.cpu:,.0f}",
                f"{got.reports / got.bound:,.0f}",
                f"{got.bound / got.cpu:.2f}",
                f"{got.peak:,.0f}",
            )
        )


if __name__ == "__main__":
    print(json.dumps(measure(*map(Path, sys.argv[1:4]))))
