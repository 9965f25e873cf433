"""The streaming pipeline on a Flink with two slots, beside a bounded run of the same topic.

Broker, Flink, job server and workers are started for it, on loopback, and share the machine's
cores; workers are one Python process a slot.

Reports are those of ``benchmarks.kafka``, all in the topic before the job is submitted. The rate
is taken from the first health document with reports to the one that has all of them counted, so
that starting costs nothing. A bounded run (``sotto aggregate``) of the same topic stands beside it,
on one core. The ratio is of processor time for a report: that of the task manager and all workers,
by that of the bounded run. The checkpoint is the first that was begun after all was counted.
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


class Bench:
    """A job on a session of its own, and what is known of it."""

    def __init__(self, folder: Path, local: LocalBroker, topic: ReportTopic, heap: int) -> None:
        client, compiled = local.client_file, plan()
        self.broker = Broker.from_file(client)
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
        found = self._estimates.of(HealthDocument)
        return found[0] if found else None

    def processes(self) -> tuple[int | None, list[int]]:
        """Return the task manager and the workers."""
        return self.job.session.task_manager.pid, self.job.session.workers

    def processor_seconds(self) -> float:
        """Return the processor time of the task manager and of all workers until now."""
        manager, workers = self.processes()
        return processor_seconds(manager) + sum(map(processor_seconds, workers))

    def held(self) -> str:
        """Return the memory of the task manager and of the workers, MB."""
        manager, workers = self.processes()
        held = resident_bytes(manager), sum(map(resident_bytes, workers))
        return "/".join(f"{each / 1e6:,.0f}" for each in held)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        local = LocalBroker(Path(name) / "broker")
        try:
            local.start()
            table = Table(
                *("rows/message", "reports", "stream/s", "bounded/s", "CPU ratio"),
                *("MB TM/workers", "checkpoint MB, s"),
            )
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
        before = bench.processor_seconds()
        last = _until(bench, lambda done: done.stepped >= bounded.reports)
        taken = bench.processor_seconds() - before
        # The next checkpoint may have begun before all was counted.
        bench.job.wait_for_checkpoint()
        bench.job.wait_for_checkpoint()
        size, seconds = bench.job.last_checkpoint()
        held = bench.held()
    finally:
        bench.job.stop()
    counted = last.stepped - first.stepped
    ratio = taken / counted / (bounded.cpu / bounded.reports)
    table.row(
        *(rows, bounded.reports, f"{counted / (last.time - first.time):,.0f}"),
        *(f"{bounded.reports / bounded.wall:,.0f}", f"{ratio:.2f}"),
        *(held, f"{size:,.1f}, {seconds:.1f}"),
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
