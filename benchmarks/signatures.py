"""What signatures cost: the same reports, signed and not, aggregated in turn on one core.

A message is a device's: one row, five (a row a metric) or fifty (ten a metric), at three levels.
Each log is aggregated in a process that is bound to one core, the unsigned and the signed
one in turn, and the least CPU time of each counts. Beside it what verifying the same messages alone
takes, and what a device pays: for a key pair, once a period, and for a signature, once a message.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.apart import aggregate_apart, signed_plan
from benchmarks.harness import Table, cpu_seconds
from benchmarks.reports import DAY, FIRST, HOUR, LEVELS, PERIOD, messages
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.wire.format import TRAILER
from sotto.wire.signatures import Signer, is_valid, signed_pseudonym

#: Rows a message, and reports of a log.
CASES = ((1, 150_000), (5, 450_000), (50, 1_500_000))
ROUNDS = 3
SEED = 20_261_122


def write(log: Path, rows: int, reports: int, *, signed: bool) -> None:
    """Write a log of messages of so many rows."""
    plan, source = signed_plan(signed=signed), SeededSource(SEED)
    devices = reports // LEVELS // rows
    # The same draws in both logs, so that they differ in nothing but pseudonyms and signatures.
    seeds = [source.words(4).tobytes() for _ in range(devices)]
    signers = [Signer(seed) for seed in seeds] if signed else []
    raw = [signed_pseudonym(plan.collector, FIRST, signer.public_key) for signer in signers]
    raw = raw or [seed[:16] for seed in seeds]
    pseudonyms = np.frombuffer(b"".join(raw), dtype="<u8").reshape(-1, 2)
    metrics = plan.metrics[:1] if rows == 1 else plan.metrics
    each = rows // len(metrics)
    events = np.full(devices * each, FIRST * PERIOD + DAY)
    made = messages(plan, np.repeat(pseudonyms, each, axis=0), events, source, metrics, each)
    size = made.dtype.itemsize
    with LogWriter(log, "lane", fsync="never") as writer:
        for level, delay in enumerate(plan.metrics[0].delays):
            body = made[level].tobytes()
            for device in range(devices):
                message = body[device * size : (device + 1) * size]
                if signed:
                    message = message[:2] + b"\2" + message[3:] + signers[device].public_key
                    message += signers[device].sign(message)
                writer.append(message, FIRST * PERIOD + DAY + 2 * HOUR + delay)


def main() -> None:
    """Print the tables."""
    table = Table(
        "rows/message", "reports", "unsigned/s", "signed/s", "ratio", "us a message", "alone, us"
    )
    for rows, reports in CASES:
        least = {False: float("inf"), True: float("inf")}
        with tempfile.TemporaryDirectory() as folder:
            for signed in least:
                write(Path(folder) / f"log-{signed}", rows, reports, signed=signed)
            for attempt in range(ROUNDS):
                for signed in least:
                    state, log = f"{signed}-{attempt}", Path(folder) / f"log-{signed}"
                    got = aggregate_apart(Path(folder) / state, log=log, signed=signed)
                    least[signed] = min(least[signed], got.cpu)
        signer, body = Signer(bytes(32)), bytes(48 + 42 * rows)
        verify = partial(is_valid, signer.public_key, signer.sign(body), body)
        table.row(
            *(rows, got.reports, f"{got.reports / least[False]:,.0f}"),
            *(f"{got.reports / least[True]:,.0f}", f"{least[True] / least[False]:.2f}"),
            f"{(least[True] - least[False]) / (got.reports / rows) * 1e6:.1f}",
            f"{cpu_seconds(verify, 2_000, ROUNDS) * 1e6:.1f}",
        )
    pair = cpu_seconds(lambda: Signer(bytes(32)), 2_000, ROUNDS) * 1e6
    sign = cpu_seconds(lambda: signer.sign(bytes(90)), 2_000, ROUNDS) * 1e6
    print(f"a device: {pair:.0f} us a key pair, {sign:.0f} us and {TRAILER} bytes a message")
