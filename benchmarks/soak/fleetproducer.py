"""One producer for a whole fleet that is made up.

A device's publisher has a connection for each pseudonym, which thousands of devices in one process
cannot have at hundreds of messages a second.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from clientsdk import Broker
from sotto.errors import BrokerError, PublishError
from sotto.kafka.producers import end_producer, make_producer
from sotto.kafka.topics import ReportTopic
from sotto.wire.format import MAX_MESSAGE

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import FutureRecordMetadata

_BATCH_BYTES = 128 << 10


class FleetProducer:
    """Sends messages of any pseudonyms; after a failure it connects anew.

    Parameters
    ----------
    broker : Broker
    topic : str
    seconds : float
        Within which a message is acknowledged or given up.
    """

    def __init__(self, broker: Broker, topic: str, seconds: float) -> None:
        self._broker = broker
        self._topic = ReportTopic.parse(topic)
        self._seconds = seconds
        self._producer: KafkaProducer | None = None
        self._sent: list[FutureRecordMetadata] = []

    def publish(self, shard: int, message: bytes) -> None:
        """Hand a message to the producer; it is safe once :meth:`sync` returns.

        Raises
        ------
        PublishError
            The broker cannot be reached, or does not take it.
        """
        from kafka.errors import KafkaError

        try:
            if self._producer is None:
                self._producer = make_producer(
                    self._broker,
                    self._seconds,
                    compression="zstd",
                    batch=_BATCH_BYTES,
                    largest=2 * MAX_MESSAGE,
                    enable_idempotence=False,
                )
            partition = self._topic.partition(shard)
            self._sent.append(
                self._producer.send(str(self._topic), value=message, partition=partition)
            )
        except (KafkaError, BrokerError) as error:
            self._give_up()
            raise PublishError(f"the broker did not take a message: {error}") from error

    def sync(self) -> None:
        """Wait until the broker has acknowledged what was published.

        Raises
        ------
        PublishError
            It has not.
        """
        from kafka.errors import KafkaError

        deadline = time.monotonic() + self._seconds
        try:
            for future in self._sent:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
        except KafkaError as error:
            self._give_up()
            raise PublishError(f"the broker did not acknowledge: {error}") from error
        self._sent.clear()

    def close(self) -> None:
        """Disconnect; what is not acknowledged is given up."""
        self._give_up()

    def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        self._sent.clear()
        if producer is not None:
            end_producer(producer)
