"""The streaming job on a Flink with two slots beside a drain of the same topic.

Broker, Flink and job are started for it, on loopback, and share the machine's cores. Reports are
those of ``benchmarks.kafka``. The job finds all of them in the topic; its rate is taken between the
first and the last health document that tells of new ones, so that starting costs nothing. The
drain has one core; its rate is by wall time too. *Recovery* is from the death of the task manager,
which is started again at once, to the document that tells of reports sent after it: JVM, restore
of the last checkpoint, Python workers. The checkpoint is the first after all reports were counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.drain import CANDIDATES, plan
from benchmarks.kafka import PARTITIONS, Measured, fill
from deploy.errors import DeployError
from deploy.flink.cluster import LocalFlink
from deploy.kafka.broker import LocalBroker
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.launch import Asked, submit
from pipelines.flink.preflight import stay_of
from pipelines.flink.rest import FlinkError, JobManager
from pipelines.published import HealthDocument, parse
from sotto.brokers import Broker
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic
from sotto.topicadmin import connected
from sotto.topics import ReportTopic

SLOTS = 2
#: Rows a message, and reports of the topic.
CASES = ((5, 300_000), (50, 1_500_000))
#: About how many reports are sent after the task manager's death.
AFTERWARDS = 30_000
#: How long a job may take, s.
PATIENCE = 600


class Streamed(NamedTuple):
    """What a job has done.

    Attributes
    ----------
    rate : float
        Reports a second.
    checkpoint : int
        Bytes of the last one.
    memory : tuple of float
        Resident megabytes: of the job manager, the task manager and the workers together.
    recovery : float
        Seconds.
    """

    rate: float
    checkpoint: int
    memory: tuple[float, float, float]
    recovery: float


def main() -> None:
    """Print the table."""
    head = (
        "rows/message",
        "reports",
        "Flink/s",
        "drain/s",
        "ratio",
        "checkpoint",
        "MB JM/TM/workers",
    )
    print("  ".join(f"{name:>16}" for name in (*head, "recovery")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = LocalBroker(folder / "broker")
        session = LocalFlink(folder / "flink", slots=SLOTS)
        try:
            local.start()
            session.start()
            for rows, reports in CASES:
                print(_line(local, session, folder, rows, reports), flush=True)
        except (DeployError, FlinkError) as error:
            print(f"not measured: {error}")
        finally:
            session.stop()
            local.stop()


def _line(local: LocalBroker, session: LocalFlink, folder: Path, rows: int, reports: int) -> str:
    broker = Broker.from_file(local.client_file)
    topic = ReportTopic(f"rows-{rows}", 1, PARTITIONS)
    registry = Registry([plan()])
    with connected(broker) as topics:
        topics.create(topic, replicas=1, retention=registry.horizon)
        for kind in ("estimates", "quarantine"):
            topics.create_sink(SinkTopic(topic.name, kind), 1, 1, stay_of(registry))
    fill(broker, topic, rows, reports)
    command = [sys.executable, "-m", "benchmarks.kafka", broker.servers, str(topic)]
    output = subprocess.run(
        [*command, str(folder / f"state-{rows}")], check=True, capture_output=True, text=True
    ).stdout
    drained = Measured(*json.loads(output))
    job = folder / f"job-{rows}"
    streamed = _stream(local, session, job, topic, rows, drained.reports)
    drain_rate = drained.reports / drained.wall
    cells = (
        f"{rows}",
        f"{drained.reports:,}",
        f"{streamed.rate:,.0f}",
        f"{drain_rate:,.0f}",
        f"{streamed.rate / drain_rate:.2f}",
        f"{streamed.checkpoint / 1e6:,.1f} MB",
        "/".join(f"{size:,.0f}" for size in streamed.memory),
        f"{streamed.recovery:.1f} s",
    )
    return "  ".join(f"{cell:>16}" for cell in cells)


def _stream(
    local: LocalBroker,
    session: LocalFlink,
    folder: Path,
    topic: ReportTopic,
    rows: int,
    reports: int,
) -> Streamed:
    """Let a job count a topic, lose its task manager, and end."""
    compiled, broker = plan(), Broker.from_file(local.client_file)
    asked = Asked(
        plans=[compiled],
        candidates={compiled.fingerprint: {"destination": CANDIDATES}},
        broker=local.client_file,
        topics=[topic],
        flink=session.address,
        parallelism=SLOTS,
        every=1_000,
        environment=session.client,
    )
    manager = JobManager(session.address)
    manager.wait_for_slots(SLOTS, PATIENCE)
    job = submit(JobFolder(folder), asked)
    try:
        seen = _progress(broker, topic, reports)
        if len(seen) < 2:
            raise FlinkError(f"{reports} reports are too few: one document tells of all")
        checkpoint = _next_checkpoint(manager, job)
        managers = _resident(session.job_manager.pid), _resident(session.task_manager.pid)
        memory = (*managers, sum(map(_resident, session.workers)))
        died = time.time()
        session.task_manager.kill()
        session.start()
        more = fill(broker, topic, rows, AFTERWARDS) * rows
        recovered = _progress(broker, topic, reports + more)[-1][0]
    finally:
        manager.cancel(job)
        manager.wait(job, "CANCELED")
    (first, had), (last, has) = seen[0], seen[-1]
    return Streamed((has - had) / (last - first), checkpoint, memory, recovered - died)


def _progress(broker: Broker, topic: ReportTopic, reports: int) -> list[tuple[float, int]]:
    """Return when health documents were made and how many reports they tell of, up to all."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(str(SinkTopic(topic.name, "estimates")), 0)
    consumer = KafkaConsumer(**broker.options(10))
    consumer.assign([partition])
    consumer.seek_to_beginning()
    seen: list[tuple[float, int]] = []
    deadline = time.monotonic() + PATIENCE
    while not seen or seen[-1][1] < reports:
        if time.monotonic() > deadline:
            raise FlinkError(f"{seen[-1:]} of {reports} reports within {PATIENCE} s")
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                document = parse(record.key, record.value)
                if isinstance(document, HealthDocument):
                    number = int(str(document.health["reports"]))
                    if number and (not seen or number > seen[-1][1]):
                        seen.append((record.timestamp / 1000, number))
    consumer.close()
    return seen


def _next_checkpoint(manager: JobManager, job: str) -> int:
    """Return the size in bytes of the next checkpoint."""
    before, deadline = _made(manager, job), time.monotonic() + PATIENCE
    while _made(manager, job) == before:
        if time.monotonic() > deadline:
            raise FlinkError(f"no checkpoint within {PATIENCE} s: {manager.failure(job)}")
        time.sleep(0.2)
    return int(manager.checkpoints(job)["latest"]["completed"]["state_size"])


def _made(manager: JobManager, job: str) -> int:
    return int(manager.checkpoints(job)["counts"]["completed"])


def _resident(pid: int | None) -> float:
    """Return the memory of a process in megabytes; 0 if it has ended."""
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid or 0)], capture_output=True, text=True, check=False
    ).stdout
    return int(said or 0) * 1024 / 1e6


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
