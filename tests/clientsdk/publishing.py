"""Receivers for tests of publishers: a collector, a played Kafka cluster; and one maker each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from local_server import Answer, LocalServer
from oblivious import Behind, Relay, known
from scripts import logged

from clientsdk import Broker, EmbeddedLogPublisher, KafkaPublisher, MemoryPublisher, Publisher
from clientsdk.publishers.http import HttpPublisher
from clientsdk.publishers.ohttp import ObliviousPublisher
from sotto.wire.batch import join_messages, split_messages

#: The played cluster makes topics of four partitions.
TOPIC = "reports-e1-p4"
OLD = (2, 3)


class Collector(LocalServer):
    """A collector, with the bodies of reports that it was sent, and their connections."""

    @property
    def bodies(self) -> list[bytes]:
        reports = "POST", "/v1/reports"
        return [asked.body for asked in self.requests if (asked.method, asked.path) == reports]

    @property
    def connections(self) -> list[tuple[str, int]]:
        return [asked.client for asked in self.requests]


@contextmanager
def played_cluster() -> Iterator[Broker]:
    """A cluster as publishers reach it; it lives as long as its producer."""
    played = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (server,) = played.list_topics(TOPIC, timeout=600).brokers.values()
    yield Broker(f"{server.host}:{server.port}", api_version=OLD)
    played.purge()


def taken(broker, expected):
    """Partitions and messages of the topic, once there are as many as expected."""
    consumer = KafkaConsumer(bootstrap_servers=broker.servers, api_version=OLD)
    consumer.assign([TopicPartition(TOPIC, partition) for partition in range(4)])
    consumer.seek_to_beginning()
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 600
    while len(found) < expected and time.monotonic() < deadline:
        for partition, records in consumer.poll(timeout_ms=200).items():
            found += [(partition.partition, record.value) for record in records]
    consumer.close()
    return sorted(found)


#: A publisher, what returns the messages that arrived given those expected, and what makes the way
#: unusable, for those ways that can be.
Way = tuple[Publisher, Callable[[list[bytes]], list[bytes]], Callable[[], object] | None]


@contextmanager
def memory(folder: Path) -> Iterator[Way]:
    publisher = MemoryPublisher()
    yield publisher, lambda _: [body for _, body in publisher.messages], None


@contextmanager
def log(folder: Path) -> Iterator[Way]:
    publisher = EmbeddedLogPublisher(folder / "log")
    bodies = lambda _: [record.body for record in logged(folder / "log")]  # noqa: E731
    yield publisher, bodies, lambda: (folder / "log").write_bytes(b"")


@contextmanager
def http(folder: Path) -> Iterator[Way]:
    with Collector() as server:
        publisher = HttpPublisher(server.url, timeout=300)
        yield (
            publisher,
            lambda _: [each for body in server.bodies for each in split_messages(body)],
            lambda: setattr(server, "answer", Answer(503)),
        )
        publisher.close()


@contextmanager
def oblivious(folder: Path) -> Iterator[Way]:
    with Relay() as server:
        server.given = behind = Behind()
        publisher = ObliviousPublisher(
            server.url, "https://telemetry.example", behind.gateway.configuration, timeout=300
        )
        yield (
            publisher,
            lambda expected: [
                m for r in behind.requests for m in expected if join_messages([m]) in r
            ],
            lambda: setattr(behind, "answer", known(503)),
        )
        publisher.close()


@contextmanager
def kafka(folder: Path) -> Iterator[Way]:
    with played_cluster() as broker:
        publisher = KafkaPublisher(broker, TOPIC, timeout=300)
        yield (publisher, lambda expected: [body for _, body in taken(broker, len(expected))], None)
        publisher.close()


#: A new publisher is a line here.
WAYS: dict[str, Callable[[Path], AbstractContextManager[Way]]] = {
    "memory": memory,
    "log": log,
    "http": http,
    "oblivious": oblivious,
    "kafka": kafka,
}
