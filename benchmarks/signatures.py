"""What signatures cost: the same reports, signed and not, aggregated in turn on one core.

A message is a device's: one row, five (a row a metric) or fifty (ten a metric), at three rungs.
Each log is aggregated in a process that is bound to one core, the unsigned and the signed
one in turn, and the least CPU time of each counts. Beside it what verifying the same messages alone
takes, and what a device pays: for a key pair, once a period, and for a signature, once a message.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.messages import DAY, HOUR, WEEK, Devices, messages, plan
from benchmarks.run import FIRST, measured_apart, row
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import TRAILER
from sotto.wire.signatures import Signer, is_valid, signed_pseudonym

#: Rows a message, and reports of a log.
CASES = ((1, 150_000), (5, 450_000), (50, 1_500_000))
ROUNDS = 3
SEED = 20_261_122
#: Of either plan: with signatures or without.
PLANS = {signed: plan(limit=10, signed=signed) for signed in (False, True)}


def write(log: Path, plan: CompiledPlan, rows: int, reports: int) -> int:
    """Write a log of messages of so many rows; return how many messages there are."""
    devices, source = reports // 3 // rows, SeededSource(SEED)
    # The same draws in both logs, so that they differ in nothing but pseudonyms and signatures.
    seeds = [source.words(4).tobytes() for _ in range(devices)]
    signers = [Signer(seed) for seed in seeds] if plan.signed else []
    names = [signed_pseudonym(plan.collector, FIRST, each.public_key) for each in signers]
    raw = b"".join(names) if plan.signed else b"".join(seed[:16] for seed in seeds)
    pseudonyms = np.frombuffer(raw, dtype="<u8").reshape(-1, 2)
    metrics = list(plan.metrics[:1] if rows == 1 else plan.metrics)
    count = rows // len(metrics)
    own = Devices.of(np.repeat(pseudonyms, count, axis=0), FIRST * WEEK + DAY, plan.shards)
    made = messages(plan, metrics, own, count, source)
    size = made.dtype.itemsize
    with LogWriter(log, "lane", fsync="never") as writer:
        for level in range(3):
            body = made[level].tobytes()
            append = FIRST * WEEK + DAY + 2 * HOUR + plan.metrics[0].delays[level]
            for device in range(devices):
                message = body[device * size : (device + 1) * size]
                if plan.signed:
                    message = message[:2] + b"\2" + message[3:] + signers[device].public_key
                    message += signers[device].sign(message)
                writer.append(message, append)
    return 3 * devices


def _least(folder: Path, logs: dict[bool, Path]) -> tuple[int, dict[bool, float]]:
    """Aggregate the logs in turn; return the reports of one, and the least CPU seconds of each."""
    least = {signed: float("inf") for signed in logs}
    reports = 0
    for attempt in range(ROUNDS):
        for signed, log in logs.items():
            state = folder / f"state-{log.name}-{attempt}"
            got = measured_apart(log, state, PLANS[signed])
            reports = got.reports
            least[signed] = min(least[signed], got.cpu)
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
            written = [write(log, PLANS[signed], rows, reports) for signed, log in logs.items()]
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
    main()
