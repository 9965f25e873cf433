"""A sink, and one in a process of its own that is killed."""

from __future__ import annotations

import os
import signal

from pipelines.sinks.sql import SqlSink
from pipelines.sinks.transfer import Transfer, Transferred
from pipelines.sources import kafka_reader as module
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import SinkTopic


def sunk(broker: Broker, topic: SinkTopic, url: str, **options: object) -> Transferred:
    with SqlSink(url) as database, Transfer(broker, topic, database, **options) as sink:  # type: ignore[arg-type]
        return sink.run()


def killed_sink(file: str, topic: str, url: str, when: str, at: str) -> None:
    """Take a topic record by record, and die before or after a transaction."""
    seen = 0

    def die(where: str) -> None:
        nonlocal seen
        seen += where == when
        if seen == int(at) and where == when:
            os.kill(os.getpid(), signal.SIGKILL)

    real = SqlSink.write

    def write(self: SqlSink, *given: object, **options: object) -> object:
        die("before")
        return real(self, *given, **options)  # type: ignore[arg-type]

    SqlSink.write = write  # type: ignore[method-assign,assignment]
    made = module.make_consumer

    def one_by_one(broker: Broker) -> object:
        consumer = made(broker)
        consumer.config["max_poll_records"] = 2
        return consumer

    module.make_consumer = one_by_one
    sunk(Broker.from_file(file), SinkTopic.parse(topic), url, committed=lambda: die("after"))
