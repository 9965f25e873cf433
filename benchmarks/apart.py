"""Aggregates a log or a topic in a process of its own, bound to one core, and says what it took.

Beside it stands a *bound*. The bound of a log is reading it, decoding it and adding its rows up,
without deduplication, levels, budgets, state or commits. The bound of a topic is consuming it with
kafka-python and throwing it away.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import reports
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.log.reader import LogReader, partitions
from sotto.plan.registry import Registry
from sotto.wire.decode import decode


class Aggregated(NamedTuple):
    """Cost of aggregating: CPU and wall seconds, memory in MB, CPU seconds of the bound."""

    reports: int
    counted: int
    messages: int
    runs: int
    cpu: float
    wall: float
    peak: float
    bound: float


def aggregate_apart(
    state: Path, *, log: Path | None = None, servers: str = "", topic: str = ""
) -> Aggregated:
    """Aggregate a log, or a topic, in a process of its own."""
    where = {"log": str(log)} if log else {"servers": servers, "topic": topic}
    command = [sys.executable, "-m", "benchmarks.apart", json.dumps({"state": str(state), **where})]
    # One thread for numpy's matrices, as the sotto command has.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Aggregated(*json.loads(done.stdout))


def _aggregate(state: str, log: str = "", servers: str = "", topic: str = "") -> Aggregated:
    # Beam is imported before the clock starts, and by no process that only sends.
    from pipelines.bounded.run import aggregate, settle_memory
    from pipelines.sources.kafka import KafkaTopics

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    settle_memory()
    plan = reports.plan()
    source: Path | KafkaTopics
    if log:
        source, bound = Path(log), _read(Path(log), Registry([plan]))
    else:
        name = ReportTopic.parse(topic)
        source, bound = KafkaTopics(Broker(servers), [name]), _consume(servers, name)
    candidates = {plan.fingerprint: {"destination": reports.CANDIDATES}}
    cpu, wall = time.process_time(), time.perf_counter()
    result = aggregate(source, Path(state), [plan], candidates=candidates)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if result.rejects or result.tally.revoked:
        raise RuntimeError(f"reports of the benchmark were rejected: {result.rejects}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    counted = result.tally.reports, result.tally.counted, result.size, result.runs
    return Aggregated(*counted, cpu, wall, peak, bound)


def _read(log: Path, registry: Registry) -> float:
    """Return the CPU seconds of reading, decoding and adding up alone."""
    begin = time.process_time()
    for partition in partitions(log):
        for block in LogReader(partition).blocks():
            decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
            for batch in decoded.batches:
                mechanism = registry.metrics[batch.metric].metric.mechanism
                levels = batch.level.astype(np.int64)
                mechanism.accumulate(batch.payload, batch.chain, batch.pseudonym, levels, 3)
    return time.process_time() - begin


def _consume(servers: str, topic: ReportTopic) -> float:
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
    partitions = [TopicPartition(str(topic), number) for number in range(topic.partitions)]
    ends = consumer.end_offsets(partitions)
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    while any(consumer.position(each) < end for each, end in ends.items()):
        consumer.poll(100)
    consumer.close()
    return time.process_time() - begin


if __name__ == "__main__":
    print(json.dumps(_aggregate(**json.loads(sys.argv[1]))))
