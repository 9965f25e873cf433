"""The streaming pipeline on a Flink with two slots: a backlog, and many partitions and shards.

Broker, Flink, job server and workers are started for it, on loopback, and share the machine's
cores; workers are one Python process a slot.

*Backlog*: reports are those of ``benchmarks.kafka``, all in the topic before the job is submitted.
The rate is taken from the first health document with reports to the one that has all of them
counted, so that starting costs nothing. A bounded run (``sotto aggregate``) of the same
topic stands beside it, on one core, by wall time too. The checkpoint is the first that was begun
after all was counted.

*Wide*: 64 partitions, 1,000 shards, budget periods of a minute. First nothing comes, then 20,000
reports a second (``benchmarks.soak.load``), then nothing again: what a job costs that waits, and
whether checkpoints go on. *Behind* is the most records that were not read, in seconds of the load.

Cores are processor time by wall time: of the broker, the job manager, the task manager, and all
workers.
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
from typing import NamedTuple

from benchmarks.apart import aggregate_apart
from benchmarks.harness import Table
from benchmarks.kafka import PARTITIONS, fill
from benchmarks.reports import CANDIDATES, plan
from benchmarks.soak import load
from benchmarks.soak.flinkjob import SLOTS, FlinkJob, Follower, memory
from benchmarks.soak.stage import FaultError
from deploy.errors import DeployError
from deploy.flink.rest import FlinkError
from deploy.kafka.broker import LocalBroker
from pipelines.exporter.lag import WatchedStream
from pipelines.sinks.documents import HealthDocument
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.compiled import CompiledPlan

#: Rows a message, and reports of the topic.
CASES = ((5, 2_000_000), (50, 6_000_000))
#: Of the wide job.
WIDE_PARTITIONS, WIDE_SHARDS = 64, 1_000
RATE = 20_000
#: Seconds of each of its phases, and between two looks.
PHASE, LOOK = 90, 5
#: How long anything may take, s.
PATIENCE = 600
#: The last columns of both tables, see :meth:`Bench.usage`.
COLUMNS = ("    cores B/JM/TM/w", "MB TM/w", "checkpoint MB, s")


class Bench:
    """A job on a session of its own, and what is known of it."""

    def __init__(
        self, folder: Path, local: LocalBroker, plan: CompiledPlan, topic: ReportTopic, every: int
    ) -> None:
        client = local.client_file
        self.topic, self.broker, self._local = topic, Broker.from_file(client), local
        self.job = FlinkJob(
            folder,
            plan,
            client,
            topic,
            checkpoint_every=10_000,
            every=every,
            linger=2_000,
            parallelism=SLOTS,
            candidates={plan.fingerprint: {"destination": CANDIDATES}},
        )
        self.job.make_topics()
        self._estimates = Follower(self.broker, SinkTopic(topic.name, "estimates"))

    def health(self) -> HealthDocument | None:
        """Return the job's last health document."""
        self._estimates.read()
        return self._estimates.health()

    def pids(self) -> tuple[list[int | None], ...]:
        """Return the processes: broker, job manager, task manager, workers."""
        session = self.job.session
        one = [[self._local.pid], [session.job_manager.pid], [session.task_manager.pid]]
        return *one, [*session.workers]

    def clock(self) -> tuple[float, list[float]]:
        """Return what time it is, and the processor time of all processes until now."""
        return time.monotonic(), [sum(map(_processor, pids)) for pids in self.pids()]

    def usage(self, since: tuple[float, list[float]], checkpoints: int = 0) -> tuple[str, str, str]:
        """Return cores used since :meth:`clock`, memory now, and the last checkpoint.

        So many more checkpoints are waited for first.
        """
        (began, before), (now, after) = since, self.clock()
        cores = (f"{(b - a) / (now - began):.2f}" for a, b in zip(before, after, strict=True))
        *_, manager, workers = self.pids()
        held = f"{memory(manager):,.0f}/{memory(workers):,.0f}"
        size, seconds = self.checkpoint(checkpoints)
        return "/".join(cores), held, f"{size:,.1f}, {seconds:.1f}"

    def checkpoint(self, number: int = 0) -> tuple[float, float]:
        """Return MB and seconds of the last checkpoint, once so many more have been made."""
        wanted, deadline = self.job.checkpoints() + number, time.monotonic() + PATIENCE
        while self.job.checkpoints() < wanted:
            if time.monotonic() > deadline:
                raise FlinkError(f"no checkpoint within {PATIENCE} s")
            time.sleep(0.2)
        return self.job.last_checkpoint()


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name:
        local = LocalBroker(Path(name) / "broker")
        try:
            local.start()
            table = Table("rows/message", "reports", "stream/s", "bounded/s", "ratio", *COLUMNS)
            for rows, reports in CASES:
                _backlog(table, local, Path(name) / f"rows-{rows}", rows, reports)
            table = Table("<", "reports/s", "behind s", "made", "failed", *COLUMNS)
            _wide(table, local, Path(name) / "wide")
        except (DeployError, FlinkError, FaultError) as error:
            print(f"not measured: {error}")
        finally:
            local.stop()


def _backlog(table: Table, local: LocalBroker, folder: Path, rows: int, reports: int) -> None:
    topic = ReportTopic(f"rows-{rows}", 1, PARTITIONS)
    bench = Bench(folder, local, plan(), topic, every=1_000)
    fill(bench.broker, topic, rows, reports)
    bounded = aggregate_apart(folder / "state", servers=bench.broker.servers, topic=str(topic))
    bench.job.session.start()
    try:
        bench.job.submit()
        first = _until(bench, lambda done: done.reports > 0)
        clock = bench.clock()
        last = _until(bench, lambda done: done.stepped >= bounded.reports)
        usage = bench.usage(clock, 2)
    finally:
        bench.job.stop()
    rate = (last.stepped - first.stepped) / (last.time - first.time)
    reference = bounded.reports / bounded.wall
    table.row(
        *(rows, bounded.reports, f"{rate:,.0f}", f"{reference:,.0f}", f"{rate / reference:.2f}"),
        *usage,
    )


class _Done(NamedTuple):
    """What a health document says: when, s; reports read, and those that are in a state."""

    time: float
    reports: int
    stepped: int


def _until(bench: Bench, reached: Callable[[_Done], bool]) -> _Done:
    deadline, done = time.monotonic() + PATIENCE, None
    while time.monotonic() < deadline:
        if (document := bench.health()) is not None:
            say = {name: int(str(dict(document.health)[name])) for name in ("reports", *_STEPPED)}
            reports = say.pop("reports")
            done = _Done(document.revision / 1000, reports, sum(say.values()))
            if reached(done):
                return done
        time.sleep(0.2)
    raise FlinkError(f"after {PATIENCE} s the job has done {done}")


#: What becomes of a report that is not rejected.
_STEPPED = ("counted", "superseded", "duplicates", "revoked")


def _wide(table: Table, local: LocalBroker, folder: Path) -> None:
    topic = ReportTopic("wide", 1, WIDE_PARTITIONS)
    bench = Bench(folder, local, load.plan_of(WIDE_SHARDS), topic, every=5_000)
    command = [sys.executable, "-m", "benchmarks.soak.load", str(local.client_file), str(topic)]
    command += ["--shards", str(WIDE_SHARDS), "--rate", str(RATE), "--seconds", str(PHASE)]
    bench.job.start()
    try:
        bench.checkpoint(1)
        _phase(table, bench, "idle", 0)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sending:
            _phase(table, bench, "loaded", RATE)
            sent = json.loads(sending.communicate()[0])
        _until(bench, lambda done: done.stepped >= sent["reports"])
        _phase(table, bench, "idle again", 0)
    finally:
        bench.job.stop()


def _phase(table: Table, bench: Bench, name: str, rate: int) -> None:
    watched = WatchedStream(bench.broker, [bench.topic])
    clock, behind = bench.clock(), 0
    made, failed = bench.job.checkpoints(), bench.job.checkpoints("failed")
    while time.monotonic() - clock[0] < PHASE:
        time.sleep(LOOK)
        if rate and (document := bench.health()) is not None:
            offsets = document.health["offsets"]
            assert isinstance(offsets, dict)
            behind = max(behind, watched.lag(offsets).records)
    table.row(
        *(name, rate, f"{behind * load.METRICS / rate:.1f}" if rate else ""),
        *(bench.job.checkpoints() - made, bench.job.checkpoints("failed") - failed),
        *bench.usage(clock),
    )


def _processor(pid: int | None) -> float:
    """Return the processor time of a process, s; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
