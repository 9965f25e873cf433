"""What signatures cost: the same reports, signed and not, aggregated in turn on one core.

A message is a device's: one row, five (a row a metric) or fifty (ten a metric), at three rungs.
Each log is aggregated in a process that is bound to one core, the unsigned and the signed
one in turn, and the least CPU time of each counts. Beside it what verifying the same messages alone
takes, and what a device pays: for a key pair, once a period, and for a signature, once a message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.run import CANDIDATES, DAY, FIRST, HOUR, PERIOD, row
from benchmarks.run import plan as run_plan
from mechanisms.coins import shards_of
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import MAGIC, TRAILER, VERSION
from sotto.wire.signatures import Signer, is_valid, signed_pseudonym

#: Rows a message, and reports of a log.
CASES = ((1, 150_000), (5, 450_000), (50, 1_500_000))
ROUNDS = 3
SEED = 20_261_122


def plan(*, signed: bool) -> CompiledPlan:
    """Return the plan of ``benchmarks.run`` with ten values a period, signed or not."""
    document = json.loads(run_plan().to_json())
    document["ceilings"] = {"period": 200_000_000, "lifetime": 6_400_000_000}
    for metric in document["metrics"]:
        metric["repeat"] = {"kind": "every", "limit": 10}
    if signed:
        document["authentication"] = "required"
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CompiledPlan.from_json(text.encode())


def write(log: Path, plan: CompiledPlan, rows: int, reports: int) -> int:
    """Write a log of messages of so many rows; return how many messages there are."""
    devices, source = reports // 3 // rows, SeededSource(SEED)
    # The same draws in both logs, so that they differ in nothing but pseudonyms and signatures.
    seeds = [source.words(4).tobytes() for _ in range(devices)]
    signers = [Signer(seed) for seed in seeds] if plan.signed else []
    names = [signed_pseudonym(plan.collector, FIRST, each.public_key) for each in signers]
    raw = b"".join(names) if plan.signed else b"".join(seed[:16] for seed in seeds)
    pseudonyms = np.frombuffer(raw, dtype="<u8").reshape(-1, 2)
    made = _messages(plan, rows, pseudonyms, source)
    size = made.dtype.itemsize
    with LogWriter(log, "lane", fsync="never") as writer:
        for level in range(3):
            body = made[level].tobytes()
            append = FIRST * PERIOD + DAY + 2 * HOUR + plan.metrics[0].delays[level]
            for device in range(devices):
                message = body[device * size : (device + 1) * size]
                if plan.signed:
                    message = message[:2] + b"\2" + message[3:] + signers[device].public_key
                    message += signers[device].sign(message)
                writer.append(message, append)
    return 3 * devices


def _messages(
    plan: CompiledPlan,
    rows: int,
    pseudonyms: np.ndarray[tuple[int, int], np.dtype[np.uint64]],
    source: SeededSource,
) -> np.ndarray[tuple[int, int], np.dtype[np.void]]:
    """Return messages, shape (3, devices), without signatures."""
    metrics = plan.metrics[:1] if rows == 1 else plan.metrics
    count, devices = rows // len(metrics), len(pseudonyms)
    header = [("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("shard", "<u2")]
    runs = [(metric.name, _run(metric, count)) for metric in metrics]
    layout = np.dtype([*header, ("runs", "<u2"), ("fingerprint", "S32"), *runs])
    made = np.zeros((3, devices), dtype=layout)
    made["magic"], made["version"] = MAGIC, VERSION
    made["shard"] = shards_of(pseudonyms, plan.shards)
    made["runs"], made["fingerprint"] = len(runs), plan.fingerprint
    own = np.repeat(pseudonyms, count, axis=0)
    for metric in metrics:
        number = devices * count
        chains = source.words(2 * number).reshape(-1, 2)
        payloads = metric.mechanism.randomize(_values(metric, number), chains, own, source)
        run = made[metric.name]
        run["metric"], run["width"], run["count"] = metric.index, payloads.shape[2], count
        table = run["rows"]
        table["level"] = np.arange(3)[:, None, None]
        table["pseudonym"] = own.reshape(devices, count, 2)
        table["chain"] = chains.reshape(devices, count, 2)
        table["event"] = FIRST * PERIOD + DAY
        table["payload"] = payloads.transpose(1, 0, 2).reshape(3, devices, count, -1)
    return made


def _run(metric: CompiledMetric, count: int) -> np.dtype[np.void]:
    width = metric.mechanism.payload_width
    one = [("level", "u1"), ("pseudonym", "<u8", 2), ("chain", "<u8", 2), ("event", "<i8")]
    rows = np.dtype([*one, ("payload", "u1", width)])
    head = [("metric", "<u2"), ("width", "<u2"), ("count", "<u4")]
    return np.dtype([*head, ("rows", rows, count)])


def _values(metric: CompiledMetric, number: int) -> object:
    if metric.type in ("category", "boolean"):
        return np.arange(number) % len(metric.labels)
    if metric.type == "string":
        return [CANDIDATES[each % len(CANDIDATES)].encode() for each in range(number)]
    return np.arange(number) % 100 / 100


def measure(log: Path, state: Path, *, signed: bool) -> tuple[int, float]:
    """Aggregate a log on one core; return the reports that it had, and the CPU seconds."""
    from pipelines.bounded.run import aggregate, keep_freed_memory

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    keep_freed_memory()
    compiled = plan(signed=signed)
    begin = time.process_time()
    result = aggregate(
        log, state, [compiled], candidates={compiled.fingerprint: {"destination": CANDIDATES}}
    )
    cpu = time.process_time() - begin
    if result.rejects or result.tally.revoked:
        raise RuntimeError(f"reports of the benchmark were rejected: {result.rejects}")
    return result.tally.reports, cpu


def _least(folder: Path, logs: dict[bool, Path]) -> tuple[int, dict[bool, float]]:
    """Aggregate the logs in turn; return the reports of one, and the least CPU seconds of each."""
    least = {signed: float("inf") for signed in logs}
    reports = 0
    for attempt in range(ROUNDS):
        for signed, log in logs.items():
            state = folder / f"state-{log.name}-{attempt}"
            command = [sys.executable, "-m", "benchmarks.signatures", str(log), str(state)]
            told = subprocess.run(
                [*command, str(int(signed))], check=True, capture_output=True, text=True
            ).stdout
            reports, cpu = json.loads(told)
            least[signed] = min(least[signed], cpu)
    return reports, least


def _each(work: Callable[[], object], times: int = 2_000) -> float:
    """Return the CPU microseconds of a call, the least of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - begin) / times * 1e6)
    return min(rounds)


def main() -> None:
    """Print the tables."""
    row(("rows/message", "reports", "unsigned/s", "signed/s", "ratio", "us a message", "alone, us"))
    for rows, reports in CASES:
        with tempfile.TemporaryDirectory() as folder:
            logs = {signed: Path(folder) / f"log-{signed:d}" for signed in (False, True)}
            written = [
                write(log, plan(signed=signed), rows, reports) for signed, log in logs.items()
            ]
            taken, least = _least(Path(folder), logs)
        signer, body = Signer(bytes(32)), bytes(48 + 42 * rows)
        signature = signer.sign(body)
        alone = _each(lambda key=signer.public_key, s=signature, b=body: is_valid(key, s, b))  # type: ignore[misc]
        more = (least[True] - least[False]) / written[1] * 1e6
        row(
            (
                f"{rows}",
                f"{taken:,}",
                f"{taken / least[False]:,.0f}",
                f"{taken / least[True]:,.0f}",
                f"{least[True] / least[False]:.2f}",
                f"{more:.1f}",
                f"{alone:.1f}",
            )
        )
    signer = Signer(bytes(32))
    pair, one = _each(lambda: Signer(bytes(32))), _each(lambda: signer.sign(bytes(90)))
    print(f"a device: {pair:.0f} us a key pair, {one:.0f} us and {TRAILER} bytes a message")


if __name__ == "__main__":
    signed = sys.argv[3] == "1"
    print(json.dumps(measure(Path(sys.argv[1]), Path(sys.argv[2]), signed=signed)))
