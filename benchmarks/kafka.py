"""From a Kafka topic to estimates in the database, on one core, beside kafka-python's own ceiling.

A broker is started for it, on loopback. Reports are those of ``benchmarks.run``: five metrics of
five mechanisms, three rungs; a message has one row, five (a device's), or fifty (ten devices of
one shard). What is measured is CPU time of the aggregating process, which is bound to one core.
The ceiling beside it is consuming the same messages with kafka-python and throwing them away.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer

from benchmarks.messages import CANDIDATES, HOUR, WEEK, Devices, messages, plan
from deploy.errors import DeployError
from deploy.kafka.broker import LocalBroker
from mechanisms.testing import SeededSource
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic

PARTITIONS = 4
SEED = 20_240_502
#: Rows a message, and reports of the topic.
CASES = ((1, 600_000), (5, 1_000_000), (50, 3_000_000))


def devices(number: int, shards: int, group: int, source: SeededSource) -> Devices:
    """Return about so many devices, of each shard a multiple of ``group``."""
    now = time.time_ns() // 1_000_000 // HOUR * HOUR
    back = (source.words(number) % np.uint64(24)).astype(np.int64) * HOUR
    event = np.maximum(now - back, now // WEEK * WEEK)
    found = Devices.of(source.words(2 * number).reshape(-1, 2), event, shards)
    found = found.select(np.argsort(found.shard, kind="stable"))
    first = np.searchsorted(found.shard, found.shard)
    sizes = np.bincount(found.shard, minlength=shards)[found.shard]
    return found.select(np.flatnonzero(np.arange(number) - first < sizes // group * group))


def fill(broker: Broker, topic: ReportTopic, rows: int, reports: int) -> int:
    """Publish messages of so many rows; return how many there are."""
    compiled, source = plan(), SeededSource(SEED)
    group = max(1, rows // len(compiled.metrics))
    sets = [[metric] for metric in compiled.metrics] if rows == 1 else [list(compiled.metrics)]
    number = reports // 3 // len(compiled.metrics)
    found = devices(number, compiled.shards, group, source)
    parts = [messages(compiled, chosen, found, group, source) for chosen in sets]
    producer = Producer(
        {
            "bootstrap.servers": broker.servers,
            "compression.type": "zstd",
            "linger.ms": 50,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    sent = 0
    for level in range(3):
        for part in parts:
            raw, size = part[level].tobytes(), part.dtype.itemsize
            for at, shard in enumerate(part[level]["shard"].tolist()):
                message = raw[at * size : (at + 1) * size]
                producer.produce(str(topic), message, partition=topic.partition(shard))
                producer.poll(0)
            sent += part.shape[1]
    producer.flush()
    return sent


class Measured(NamedTuple):
    """What aggregating a topic took, and what consuming it alone took."""

    reports: int
    counted: int
    messages: int
    runs: int
    cpu: float
    wall: float
    peak: float
    ceiling: float


def measure(servers: str, name: str, state: Path) -> Measured:
    """Aggregate a topic on one core, after consuming it once."""
    from pipelines.bounded.run import aggregate, keep_freed_memory
    from pipelines.sources.kafka import KafkaTopics

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    keep_freed_memory()
    compiled, topic = plan(), ReportTopic.parse(name)
    ceiling = consume(servers, topic)
    source = KafkaTopics(Broker(servers), [topic])
    cpu, wall = time.process_time(), time.perf_counter()
    result = aggregate(
        source, state, [compiled], candidates={compiled.fingerprint: {"destination": CANDIDATES}}
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    tally = result.tally
    if result.rejects:
        raise RuntimeError(f"reports of the benchmark were rejected: {result.rejects}")
    return Measured(
        tally.reports, tally.counted, result.size, result.runs, cpu, wall, peak, ceiling
    )


def consume(servers: str, topic: ReportTopic) -> float:
    """Return the CPU seconds that kafka-python takes to consume a topic."""
    from kafka import KafkaConsumer, TopicPartition

    begin = time.process_time()
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        enable_auto_commit=False,
        check_crcs=False,
        metrics_enabled=False,
        max_poll_records=1 << 20,
    )
    wanted = [TopicPartition(str(topic), number) for number in range(topic.partitions)]
    ends = consumer.end_offsets(wanted)
    consumer.assign(wanted)
    consumer.seek_to_beginning(*wanted)
    while any(consumer.position(each) < end for each, end in ends.items()):
        consumer.poll(100)
    consumer.close()
    return time.process_time() - begin


def main() -> None:
    """Print the table."""
    head = ("rows/message", "reports", "messages", "runs", "CPU s", "wall s", "reports/s")
    print("  ".join(f"{name:>12}" for name in (*head, "ceiling/s", "of ceiling", "peak MB")))
    with tempfile.TemporaryDirectory() as folder:
        local = LocalBroker(Path(folder) / "broker")
        try:
            local.start()
        except DeployError as error:
            print(f"no broker can be started: {error}")
            return
        try:
            for rows, reports in CASES:
                print(_line(Broker.from_file(local.client_file), Path(folder), rows, reports))
        finally:
            local.stop()


def _line(broker: Broker, folder: Path, rows: int, reports: int) -> str:
    topic = ReportTopic(f"rows-{rows}", 1, PARTITIONS)
    with connected(broker) as topics:
        topics.create(topic, replicas=1, retention=plan().horizon)
    fill(broker, topic, rows, reports)
    command = [sys.executable, "-m", "benchmarks.kafka", broker.servers, str(topic)]
    output = subprocess.run(
        [*command, str(folder / f"state-{rows}")], check=True, capture_output=True, text=True
    ).stdout
    got = Measured(*json.loads(output))
    cells = (
        f"{rows}",
        f"{got.reports:,}",
        f"{got.messages:,}",
        f"{got.runs}",
        f"{got.cpu:.2f}",
        f"{got.wall:.2f}",
        f"{got.reports / got.cpu:,.0f}",
        f"{got.reports / got.ceiling:,.0f}",
        f"{got.ceiling / got.cpu:.0%}",
        f"{got.peak:,.0f}",
    )
    return "  ".join(f"{cell:>12}" for cell in cells)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
