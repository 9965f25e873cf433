"""The streaming pipeline on a Flink with two slots, beside a bounded run of the same topic.

Broker, Flink, job server and workers are started for it, on loopback, and share the machine's
cores; workers are one Python process a slot.

Reports are those of ``benchmarks.kafka``, all in the topic before the job is submitted. The rate
is taken from the first health document with reports to the one that has all of them counted, so
that starting costs nothing. A bounded run (``sotto aggregate``) of the same topic stands beside it,
on one core. The ratio is of processor time for a report: that of the task manager and all workers,
by that of the bounded run. The checkpoint is the first that was begun after all was counted; its
bytes, and those of the bounded run's state directory, are also given for a live chain.

Cores are processor time by wall time: of the broker, the job manager, the task manager, and all
workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.apart import aggregate_apart
from benchmarks.harness import Table, processor_seconds, resident_bytes
from benchmarks.kafka import PARTITIONS, fill
from benchmarks.reports import CANDIDATES, plan
from benchmarks.soak.flinkjob import SLOTS, FlinkJob, Follower
from benchmarks.soak.stage import FaultError
from deploy.errors import DeployError
from deploy.flink.settings import TASK_MANAGER_HEAP
from deploy.kafka.broker import LocalBroker
from pipelines.flink.rest import FlinkError
from pipelines.results.documents import HealthDocument
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic

#: Rows a message, reports of the topic, and megabytes of the task manager's heap.
CASES = (
    (5, 2_000_000, TASK_MANAGER_HEAP),
    (50, 6_000_000, TASK_MANAGER_HEAP),
    (50, 30_000_000, 6144),
)
#: How long anything may take, s.
PATIENCE = 600
#: The last columns of the table.
COLUMNS = ("    cores B/JM/TM/w", "MB TM/w", "checkpoint MB, s", "B/chain: stream, bounded")


class Bench:
    """A job on a session of its own, and what is known of it."""

    def __init__(self, folder: Path, local: LocalBroker, topic: ReportTopic, heap: int) -> None:
        client, compiled = local.client_file, plan()
        self.topic, self.broker, self._local = topic, Broker.from_file(client), local
        self.job = FlinkJob(
            folder,
            compiled,
            client,
            topic,
            checkpoint_every=10_000,
            every=1_000,
            linger=2_000,
            parallelism=SLOTS,
            candidates={compiled.fingerprint: {"destination": CANDIDATES}},
            heap=heap,
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
        return time.monotonic(), [sum(map(processor_seconds, pids)) for pids in self.pids()]

    def used(self, since: tuple[float, list[float]]) -> tuple[float, list[float]]:
        """Return wall seconds, and the processor time of all processes, since :meth:`clock`."""
        (began, before), (now, after) = since, self.clock()
        return now - began, [b - a for a, b in zip(before, after, strict=True)]

    def held(self) -> str:
        """Return the memory of the task manager and of the workers, MB."""
        *_, manager, workers = self.pids()
        pids = manager, workers
        return "/".join(f"{sum(map(resident_bytes, each)) / 1e6:,.0f}" for each in pids)

    def checkpoint(self, number: int) -> tuple[float, float]:
        """Return MB and seconds of the last checkpoint, once so many more have been made."""
        wanted, deadline = self.job.checkpoints() + number, time.monotonic() + PATIENCE
        while self.job.checkpoints() < wanted:
            if time.monotonic() > deadline:
                raise FlinkError(f"no checkpoint within {PATIENCE} s")
            time.sleep(0.2)
        return self.job.last_checkpoint()


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        local = LocalBroker(Path(name) / "broker")
        try:
            local.start()
            table = Table("rows/message", "reports", "stream/s", "bounded/s", "CPU ratio", *COLUMNS)
            for rows, reports, heap in CASES:
                _backlog(table, local, Path(name) / f"{reports}", rows, reports, heap)
        except (DeployError, FlinkError, FaultError) as error:
            print(f"not measured: {error}")
        finally:
            local.stop()


def _backlog(
    table: Table, local: LocalBroker, folder: Path, rows: int, reports: int, heap: int
) -> None:
    topic = ReportTopic(f"reports-{reports}", 1, PARTITIONS)
    bench = Bench(folder, local, topic, heap)
    fill(bench.broker, topic, rows, reports)
    bounded = aggregate_apart(folder / "state", servers=bench.broker.servers, topic=str(topic))
    bench.job.session.start()
    try:
        bench.job.submit()
        first = _until(bench, lambda done: done.reports > 0)
        clock = bench.clock()
        last = _until(bench, lambda done: done.stepped >= bounded.reports)
        wall, taken = bench.used(clock)
        size, seconds = bench.checkpoint(2)
        held = bench.held()
    finally:
        bench.job.stop()
    counted = last.stepped - first.stepped
    ratio = sum(taken[2:]) / counted / (bounded.cpu / bounded.reports)
    table.row(
        *(rows, bounded.reports, f"{counted / (last.time - first.time):,.0f}"),
        *(f"{bounded.reports / bounded.wall:,.0f}", f"{ratio:.2f}"),
        *("/".join(f"{each / wall:.2f}" for each in taken), held, f"{size:,.1f}, {seconds:.1f}"),
        ", ".join(f"{each * 1e6 / bounded.counted:.1f}" for each in (size, bounded.stored)),
    )


class _Done(NamedTuple):
    """Figures of a health document: its time, s; reports read, and those that are in a state."""

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


#: Outcomes of reports that are not rejected.
_STEPPED = ("counted", "superseded", "duplicates", "revoked")
