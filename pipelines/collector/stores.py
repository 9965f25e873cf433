"""Stores to which the collector writes messages: the embedded log, or a Kafka topic.

``MessageStore.write`` returns once all the messages that it is given are durable, and raises
PublishError otherwise. In that case some messages may have been written; the devices send all of
them again, as the same bytes, which are counted once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.collector.clocks import LEAP, CheckedClock, steady_ms
from sotto.clocks import now_ms
from sotto.errors import BrokerError, PublishError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import MAX_BATCH, ReportTopic
from sotto.log.reader import first_append, last_append, segments
from sotto.log.writer import LogWriter

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: The log's partition to which a collector of that name writes.
PARTITION = "collector"
#: The most bytes of messages for one Kafka partition that are sent together.
_BATCH_BYTES = 256 << 10
#: The producer's time of a record in Kafka, which is not used: brokers note the append time.
_NO_TIME = 0
_DAY = 86_400_000
#: Append times are truncated to multiples of this, ms: messages of one slice of time can only be
#: told apart by their order, which is random within a group.
_GRANULARITY = 1000
#: Seconds within which the brokers must acknowledge a group of messages.
_TIMEOUT = 10.0

_logger = logging.getLogger(__name__)


class MessageStore(Protocol):
    """Takes messages durably. One thread at a time calls it."""

    def write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Write messages, each with its shard; return once all of them are durable.

        Raises
        ------
        PublishError
            Not all messages are durable.
        """
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class LogStore:
    """Appends messages to a partition of an embedded log, and forces them to disk.

    Parameters
    ----------
    directory : path
        The log.
    name : str
        The name of the partition. Two collectors that write to one log need two names.
    clock, steady : callable
        Return milliseconds: since the epoch, and of a clock that is never set. If the first has
        leapt against the second, nothing is written, since a record with a wrong time does not
        count.
    warn : callable
        Called if the time of the last record is ahead of the clock.

    Raises
    ------
    PublishError
        The log cannot be written, or another collector has the name.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str = PARTITION,
        clock: Callable[[], int] = now_ms,
        steady: Callable[[], int] = steady_ms,
        warn: Callable[[str], None] = _logger.warning,
    ) -> None:
        self._directory = directory
        self._name = name
        found = segments(Path(directory) / name)
        last = None if not found else last_append(found[-1])
        if last is not None and last - clock() > LEAP:
            warn(
                f"the last record of partition {name!r} bears a time ahead of this machine's "
                "clock: what is written now counts, unless this clock is wrong"
            )
        self._clock = CheckedClock(clock, steady, last)
        #: Whether to begin a new segment: because the last one could not be forced to disk, or
        #: because another day has begun, so that segments can be removed by age.
        self._anew = False
        begun = None if not found else first_append(found[-1])
        self._day = (clock() if begun is None else begun) // _DAY
        self._writer: LogWriter | None = self._open()

    def write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Append all messages at one time, and force them to disk."""
        now = self._clock()
        if now // _DAY != self._day:
            self._day, self._anew = now // _DAY, True
            self.close()
        if self._writer is None:
            self._writer = self._open()
        append_time = now - now % _GRANULARITY
        try:
            for _, message in messages:
                self._writer.append(message, append_time)
            self._writer.sync()
        except PublishError:
            # Messages that were written stay; the devices send all of them again.
            if not self._writer.usable:
                self._anew = True
                self.close()
            raise

    def close(self) -> None:
        """Close the partition's writer; the next write opens it again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(PublishError):
                writer.close()

    def _open(self) -> LogWriter:
        writer = LogWriter(self._directory, self._name, clock=self._clock, new_segment=self._anew)
        self._anew = False
        return writer


class KafkaStore:
    """Sends messages to a topic of reports, and waits until all replicas have them.

    Parameters
    ----------
    broker : Broker
    topic : ReportTopic
    """

    def __init__(self, broker: Broker, topic: ReportTopic) -> None:
        self._broker = broker
        self._topic = topic
        self._producer: KafkaProducer | None = None

    def write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Send all messages, each to the partition of its shard, and wait for the brokers."""
        from kafka.errors import KafkaError

        deadline = time.monotonic() + _TIMEOUT
        try:
            producer = self._producer = self._producer or self._connect()
            sent = [
                producer.send(
                    str(self._topic),
                    value=message,
                    partition=self._topic.partition(shard),
                    timestamp_ms=_NO_TIME,
                )
                for shard, message in messages
            ]
            for future in sent:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
        except BrokerError as error:
            self.close()
            raise PublishError(str(error)) from None
        except KafkaError as error:
            self.close()
            raise PublishError(f"the brokers took no messages ({type(error).__name__})") from None
        except BaseException:
            # The producer's state is not known.
            self.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        from sotto.kafka.producers import end_producer

        producer, self._producer = self._producer, None
        if producer is not None:
            end_producer(producer)

    def _connect(self) -> KafkaProducer:
        from sotto.kafka.producers import end_producer, make_producer, require_partitions

        producer = make_producer(
            self._broker, _TIMEOUT, batch=_BATCH_BYTES, largest=MAX_BATCH, linger_ms=0
        )
        try:
            require_partitions(producer, self._topic)
        except BaseException:
            end_producer(producer)
            raise
        return producer
