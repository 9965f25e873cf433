"""The newest documents of a topic of estimates, followed through whatever befalls the broker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pipelines.sinks.documents import Document, parse
from pipelines.sources.kafka_reader import make_consumer
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import SinkTopic

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_POLL_MS = 200

D = TypeVar("D", bound=Document)


class Follower:
    """Reads a topic of one partition again and again, each time to its end of then.

    Parameters
    ----------
    broker : Broker
    topic : SinkTopic
    """

    def __init__(self, broker: Broker, topic: SinkTopic) -> None:
        self._broker = broker
        self._topic = str(topic)
        self._consumer: KafkaConsumer | None = None
        self._at = 0
        #: The newest document of each key.
        self.newest: dict[bytes, Document] = {}
        #: How many documents came.
        self.records = 0

    def of(self, kind: type[D]) -> list[D]:
        """Return the newest documents of a kind."""
        return [each for each in self.newest.values() if isinstance(each, kind)]

    def read(self) -> bool:
        """Read what is new; False if the broker could not be read to the end."""
        from kafka.errors import KafkaError

        try:
            self._read()
        except (KafkaError, BrokerError, OSError):
            self.close()
            return False
        return True

    def read_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read until something is so, but no longer than that; return whether it is."""
        deadline = time.monotonic() + seconds
        while not (self.read() and condition()):
            if time.monotonic() > deadline:
                return False
            time.sleep(2)
        return True

    def close(self) -> None:
        """Disconnect; the next reading connects anew, and goes on."""
        from kafka.errors import KafkaError

        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError):
                consumer.close(autocommit=False, timeout_ms=1000)

    def _read(self) -> None:
        from kafka import TopicPartition

        partition = TopicPartition(self._topic, 0)
        if self._consumer is None:
            self._consumer = make_consumer(self._broker)
            self._consumer.assign([partition])
            self._consumer.seek(partition, self._at)
        end = self._consumer.end_offsets([partition], timeout_ms=5000)[partition]
        deadline = time.monotonic() + 30
        while self._at < end and time.monotonic() < deadline:
            for record in self._consumer.poll(_POLL_MS).get(partition, []):
                document = parse(record.key, record.value)
                known = self.newest.get(record.key)
                self.records += 1
                if known is None or known.revision <= document.revision:
                    self.newest[record.key] = document
            self._at = self._consumer.position(partition, timeout_ms=5000) or self._at
