"""From a Kafka topic to estimates in the database, on one core, beside kafka-python's own ceiling.

A broker is started for it, on loopback. A message has one row, five (a device's), or fifty (ten
devices of one shard). The figures are CPU time of the aggregating process, which is bound to one
core (``benchmarks.apart``).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks.apart import aggregate_apart
from benchmarks.harness import Table
from benchmarks.reports import HOUR, LEVELS, PERIOD, Ids, messages, plan
from deploy.errors import DeployError
from deploy.kafka.broker import LocalBroker
from mechanisms.coins import shards_of
from mechanisms.testing import SeededSource
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic

PARTITIONS = 4
SEED = 20_240_502
#: Rows a message, and reports of the topic.
CASES = ((1, 600_000), (5, 1_000_000), (50, 3_000_000))


def producer(broker: Broker, **settings: object) -> Producer:
    """Return a producer that takes whatever it is given, and compresses it."""
    return Producer(
        {
            "bootstrap.servers": broker.servers,
            "compression.type": "zstd",
            "linger.ms": 50,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1 << 20,
            **settings,
        }
    )


def _devices(number: int, shards: int, group: int, source: SeededSource) -> Ids:
    """Return about so many pseudonyms by shard, of each a multiple of ``group``."""
    pseudonyms = source.words(2 * number).reshape(-1, 2)
    shard = np.asarray(shards_of(pseudonyms, shards))
    order = np.argsort(shard, kind="stable")
    shard = shard[order]
    place = np.arange(number) - np.searchsorted(shard, shard)
    whole = place < np.bincount(shard, minlength=shards)[shard] // group * group
    found: Ids = pseudonyms[order][whole]
    return found


def fill(broker: Broker, topic: ReportTopic, rows: int, reports: int) -> None:
    """Publish messages of so many rows."""
    compiled, source = plan(), SeededSource(SEED)
    group = max(1, rows // len(compiled.metrics))
    sets = [[metric] for metric in compiled.metrics] if rows == 1 else [list(compiled.metrics)]
    number = reports // LEVELS // len(compiled.metrics)
    pseudonyms = _devices(number, compiled.shards, group, source)
    now = time.time_ns() // 1_000_000 // HOUR * HOUR
    back = (source.words(len(pseudonyms)) % np.uint64(24)).astype(np.int64) * HOUR
    events = np.maximum(now - back, now // PERIOD * PERIOD)
    parts = [messages(compiled, pseudonyms, events, source, each, group) for each in sets]
    sending = producer(broker)
    for level in range(LEVELS):
        for part in parts:
            raw, size = part[level].tobytes(), part.dtype.itemsize
            for at, shard in enumerate(part[level]["shard"].tolist()):
                message = raw[at * size : (at + 1) * size]
                sending.produce(str(topic), message, partition=topic.partition(shard))
                sending.poll(0)
    sending.flush()


def main() -> None:
    """Print the table."""
    table = Table(
        *("rows/message", "reports", "messages", "runs", "CPU s", "wall s", "reports/s"),
        *("ceiling/s", "of ceiling", "peak MB"),
    )
    with tempfile.TemporaryDirectory() as folder:
        local = LocalBroker(Path(folder) / "broker")
        try:
            local.start()
            broker = Broker.from_file(local.client_file)
            for rows, reports in CASES:
                topic = ReportTopic(f"rows-{rows}", 1, PARTITIONS)
                with connected(broker) as topics:
                    topics.create(topic, replicas=1, retention=plan().horizon)
                fill(broker, topic, rows, reports)
                state = Path(folder) / f"state-{rows}"
                got = aggregate_apart(state, servers=broker.servers, topic=str(topic))
                table.row(
                    *(rows, got.reports, got.messages, got.runs),
                    *(f"{got.cpu:.2f}", f"{got.wall:.2f}", f"{got.reports / got.cpu:,.0f}"),
                    *(f"{got.reports / got.bound:,.0f}", f"{got.bound / got.cpu:.0%}"),
                    f"{got.peak:,.0f}",
                )
        except DeployError as error:
            print(f"not measured: {error}")
        finally:
            local.stop()
