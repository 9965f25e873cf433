"""Fills a topic of reports from an embedded log, as devices would have."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator

from pipelines.sinks.kafka import producer_for, send_all
from pipelines.sinks.quarantine import Record
from sotto.errors import ParameterError
from sotto.kafka.brokers import Broker
from sotto.kafka.producers import require_partitions
from sotto.kafka.topics import MAX_BATCH, ReportTopic
from sotto.log.reader import EARLIEST, LATEST, Corrupt, LogReader, partitions
from sotto.wire.format import HEADER, MAX_MESSAGE


def copy_log(
    log: str | os.PathLike[str],
    broker: Broker,
    topic: ReportTopic,
    since: int = EARLIEST,
    until: int = LATEST,
    progress: Callable[[int], object] = lambda size: None,
) -> tuple[int, int]:
    """Send the messages of an embedded log to a topic; return how many were sent and left out.

    Messages are sent in the order of their append times, each to the partition of its shard; the
    topic's times are the broker's. ``since``, ``until``: only messages appended in between, ms,
    both included. Records that are damaged, or longer than a topic takes, are left out.
    ``progress`` is called with the bytes of each record. Records that were sent before an error
    stay; if the log is copied again, aggregators find duplicates of them.

    Raises ParameterError if there is no log, and BrokerError if the topic cannot be used.
    """
    found = partitions(log)
    if not found:
        raise ParameterError(f"{log} holds no log: name the folder of --log, or of replay --out")
    sent = left = 0

    def chosen() -> Iterator[Record]:
        nonlocal sent, left
        each = [LogReader(path).records() for path in found]
        for record in heapq.merge(*each, key=lambda record: record.append):
            progress(len(record.body))
            if not since <= record.append <= until:
                continue
            if isinstance(record, Corrupt) or len(record.body) > MAX_MESSAGE:
                left += 1
                continue
            sent += 1
            # The producer's time is 0, since brokers would keep it beside their own.
            yield Record(None, record.body, (), 0, topic.partition(_shard(record.body)))

    advice = f" of {topic}; what was sent stays, and is a duplicate when it comes again"
    with producer_for(broker, MAX_BATCH, advice) as producer:
        require_partitions(producer, topic)
        send_all(producer, str(topic), chosen())
    return sent, left


def _shard(message: bytes) -> int:
    """Return a message's shard; 0 if it is too short to have one, and will be rejected anyway."""
    if len(message) < HEADER.size:
        return 0
    shard: int = HEADER.unpack_from(message)[3]
    return shard
