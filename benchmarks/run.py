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

from mechanisms.coins import shards_of
from mechanisms.testing import SeededSource
from sotto.log.reader import LogReader, partitions
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import decode
from sotto.wire.format import MAGIC, VERSION

HOUR = 3_600_000
DAY = 24 * HOUR
PERIOD = 7 * DAY
DEVICES = 20_000
MILLIONS = (1, 2, 5, 10)
SEED = 20_240_501
FIRST = 2800
CANDIDATES = tuple(f"airport {number}" for number in range(100))


def plan() -> CompiledPlan:
    """Return the plan of the benchmark."""
    ladder = [
        {"epsilon": 500_000, "after": 0},
        {"epsilon": 1_000_000, "after": DAY},
        {"epsilon": 2_000_000, "after": 7 * DAY},
    ]
    common = {
        "missing": False,
        "window": 4 * PERIOD,
        "repeat": {"kind": "first", "limit": 1},
        "ladder": ladder,
    }
    number = {"type": "number", "outside": "clip", "range": [0.0, 1.0]}
    domain = [f"c{value}" for value in range(16)]
    bloom = {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
    metrics: list[dict[str, object]] = [
        {
            "name": "carrier",
            "type": "category",
            "mechanism": {"name": "grr", "domain_size": 16},
            "domain": domain,
            "outside": "c0",
        },
        {"name": "diverted", "type": "boolean", "mechanism": {"name": "grr", "domain_size": 2}},
        {"name": "delay", "mechanism": {"name": "threshold", "missing": False}, **number},
        {
            "name": "distance",
            "mechanism": {"name": "sampled_bit", "bits": 10, "missing": False},
            **number,
        },
        {"name": "destination", "type": "string", "mechanism": bloom},
    ]
    document = {
        "format": 2,
        "collector": "benchmark.example",
        "plan": "run",
        "version": 1,
        "owner": "benchmark@benchmark.example",
        "expires": 4_102_444_800_000,
        "period": PERIOD,
        "resolution": HOUR,
        "grace": DAY,
        "retention": 30 * DAY,
        "shards": 64,
        "ceilings": {"period": 20_000_000, "lifetime": 640_000_000},
        "metrics": [{**common, **metric} for metric in metrics],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CompiledPlan.from_json(text.encode())


class Messages(NamedTuple):
    """Messages of one length and when they are appended."""

    append: np.ndarray[tuple[int], np.dtype[np.int64]]
    message: np.ndarray[tuple[int], np.dtype[np.void]]

    def select(self, at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Messages:
        return Messages(self.append[at], self.message[at])


def week(plan: CompiledPlan, number: int, source: SeededSource, devices: int) -> Messages:
    """Return all that the devices of one week send, now or later."""
    pseudonyms = source.words(2 * devices).reshape(-1, 2)
    moments = (source.words(devices) % np.uint64(PERIOD)).astype(np.int64)
    events = (FIRST + number) * PERIOD + moments // HOUR * HOUR
    runs = []
    for metric in plan.metrics:
        width = metric.mechanism.payload_width
        row = [("level", "u1"), ("pseudonym", "<u8", 2), ("chain", "<u8", 2), ("event", "<i8")]
        head = [("metric", "<u2"), ("width", "<u2"), ("count", "<u4")]
        runs.append((metric.name, np.dtype([*head, *row, ("payload", "u1", width)])))
    header = [("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("shard", "<u2")]
    layout = np.dtype([*header, ("runs", "<u2"), ("fingerprint", "S32"), *runs])
    messages = np.zeros((3, devices), dtype=layout)
    messages["magic"], messages["version"] = MAGIC, VERSION
    messages["shard"] = shards_of(pseudonyms, plan.shards)
    messages["runs"], messages["fingerprint"] = len(runs), plan.fingerprint
    for metric in plan.metrics:
        run = messages[metric.name]
        chains = source.words(2 * devices).reshape(-1, 2)
        values = _values(metric, source, devices)
        payloads = metric.mechanism.randomize(values, chains, pseudonyms, source)
        run["metric"], run["width"], run["count"] = metric.index, payloads.shape[2], 1
        run["level"] = np.arange(3)[:, None]
        run["pseudonym"], run["chain"], run["event"] = pseudonyms, chains, events
        run["payload"] = payloads.transpose(1, 0, 2)
    delays = np.array(plan.metrics[0].delays)[:, None]
    jitter = (source.words(3 * devices) % np.uint64(HOUR)).astype(np.int64).reshape(3, -1)
    return Messages((events + HOUR + delays + jitter).ravel(), messages.ravel())


def _values(metric: CompiledMetric, source: SeededSource, devices: int) -> object:
    """Return skewed values of a metric, one a device."""
    uniform = source.words(devices).astype(np.float64) / 2.0**64
    if metric.type in ("category", "boolean"):
        return (uniform**2 * len(metric.labels)).astype(np.int64)
    if metric.type == "string":
        return [CANDIDATES[int(len(CANDIDATES) * u**4)].encode() for u in uniform]
    return uniform**2


def stream(plan: CompiledPlan, reports: int, devices: int = DEVICES) -> Iterator[Messages]:
    """Yield messages in the order of their append times, as many as make up the reports."""
    source = SeededSource(SEED)
    left = reports // len(plan.metrics)
    held = week(plan, 0, source, devices)
    number = 0
    while left > 0:
        number += 1
        more = week(plan, number, source, devices)
        held = Messages(*(np.concatenate(pair) for pair in zip(held, more, strict=True)))
        due = held.append < (FIRST + number) * PERIOD
        part = held.select(np.flatnonzero(due))
        yield part.select(np.argsort(part.append, kind="stable")[:left])
        left -= len(part.append)
        held = held.select(np.flatnonzero(~due))


def write(log: Path, plan: CompiledPlan, reports: int) -> int:
    """Write a log and return its number of reports."""
    written = 0
    with LogWriter(log, "lane", fsync="never") as writer:
        for part in stream(plan, reports):
            size, raw = part.message.itemsize, part.message.tobytes()
            for number, append in enumerate(part.append.tolist()):
                writer.append(raw[number * size : (number + 1) * size], append)
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


def measure(log: Path, state: Path) -> Measured:
    """Aggregate a log on one core."""
    # Beam is imported by the processes that aggregate alone, and before their clock starts.
    from pipelines.bounded.run import aggregate, keep_freed_memory

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    keep_freed_memory()
    compiled = plan()
    registry = Registry([compiled])
    bound = _bound(log, registry)
    cpu, wall = time.process_time(), time.perf_counter()
    result = aggregate(
        log, state, [compiled], candidates={compiled.fingerprint: {"destination": CANDIDATES}}
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    tally = result.tally
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


def measured_apart(log: Path, state: Path) -> Measured:
    """Return what aggregating a log takes in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.run", str(log), str(state)]
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
    print(json.dumps(measure(Path(sys.argv[1]), Path(sys.argv[2]))))
