"""Topics that are read whole, or from where one has been, up to their ends of now."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from pipelines.sources.records import PATIENCE, make_consumer, told
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker

_POLL_MS = 200


def records(
    broker: Broker,
    topic: str,
    partitions: int,
    progress: Callable[[int, int], None] = lambda *_: None,
    begin: Mapping[str, int] | None = None,
) -> Generator[Any]:
    """Yield the records of a topic up to its end of now, partition by partition.

    Parameters
    ----------
    broker : Broker
    topic : str
    partitions : int
        How many it has.
    progress : callable
        Told how many records have been read, and how many there are.
    begin : mapping, optional
        Partition, as text, to the offset from which on it is read; 0 where it is not said.

    Raises
    ------
    BrokerError
        The topic cannot be read.
    """
    from kafka import TopicPartition

    consumer = make_consumer(broker)
    try:
        with told(broker):
            all_of_them = [TopicPartition(topic, number) for number in range(partitions)]
            wait = int(PATIENCE * 1000)
            kept = consumer.beginning_offsets(all_of_them, timeout_ms=wait)
            ends = consumer.end_offsets(all_of_them, timeout_ms=wait)
            first = {
                each: max(kept[each], (begin or {}).get(str(each.partition), 0))
                for each in all_of_them
            }
            left = {each: max(ends[each] - first[each], 0) for each in all_of_them}
            read, total = 0, sum(left.values())
            progress(read, total)
            for each in all_of_them:
                if left[each]:
                    consumer.assign([each])
                    consumer.seek(each, first[each])
                    yield from _up_to(consumer, each, ends[each])
                read += left[each]
                progress(read, total)
    finally:
        consumer.close(autocommit=False, timeout_ms=1000)


def _up_to(consumer: Any, partition: Any, end: int) -> Iterator[Any]:
    """Yield the records of the partition assigned, up to an offset."""
    deadline = time.monotonic() + PATIENCE
    at = consumer.position(partition)
    while at < end:
        for record in consumer.poll(_POLL_MS).get(partition, []):
            if record.offset < end:
                yield record
        reached = consumer.position(partition)
        if reached is not None and reached > at:
            at, deadline = reached, time.monotonic() + PATIENCE
        elif time.monotonic() > deadline:
            raise BrokerError(
                f"{partition.topic} partition {partition.partition}: the broker does not give the "
                f"records from offset {at} on within {PATIENCE:.0f} s: see its log"
            )
