"""Reads Kafka topics by one connection a process, and returns records as packed pieces.

kafka-python returns records as one object each, which costs more than all further work; so they
are packed into arrays at once.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker, make_client, require_client

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

#: How long a broker may take to answer, in seconds.
PATIENCE = 15.0
#: The most bytes that one request returns, unless a single batch has more.
FETCH_BYTES = 1 << 20

_POLL_MS = 200
#: The wait, ms, if no record is known to be left; one that comes later is found at the next call.
_LOOK_MS = 20
_MOST_RECORDS = 1 << 20
_APPEND_TIME = 1
_HEADER = struct.Struct("<qII")


class PartitionId(NamedTuple):
    """A partition of a topic, whether or not kafka-python is installed."""

    topic: str
    number: int


@dataclass(frozen=True, eq=False)
class Piece:
    """The records that one request returned of a partition."""

    #: The offsets that it covers; there are no other records between them.
    start: int
    end: int
    offsets: NDArray[np.int64]  #: (n,) int64; of each record
    times: NDArray[np.int64]  #: (n,) int64; the broker's append time of each record, ms
    appended: NDArray[np.bool_]  #: (n,) bool; whether the time is the broker's, not the sender's
    data: bytes  #: the records' values, one behind the other
    at: NDArray[np.int64]  #: (n + 1,) int64; where they begin, and where the last ends

    def cut(self, start: int, end: int) -> Piece:
        if start <= self.start and self.end <= end:
            return self
        first, last = np.searchsorted(self.offsets, (start, end)).tolist()
        part, at = slice(first, last), self.at[first : last + 1]
        return Piece(
            max(start, self.start),
            min(end, self.end),
            self.offsets[part],
            self.times[part],
            self.appended[part],
            self.data[at[0] : at[-1]],
            at - at[0],
        )

    def header(self, offset: int) -> bytes | None:
        at = int(np.searchsorted(self.offsets, offset))
        if at == len(self.offsets) or self.offsets[at] != offset:
            return None
        return header(int(self.times[at]), self.data[self.at[at] : self.at[at + 1]])


def header(time: int, body: bytes) -> bytes:
    """Return bytes that identify a record, made of the broker's append time, ms, and the value."""
    return _HEADER.pack(time, len(body), zlib.crc32(body))


class Reader:
    """Reads partitions; for one thread at a time, and for the process that made it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: KafkaConsumer | None = None
        self._lock = threading.RLock()

    def bounds(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, tuple[int, int]]:
        """Return each partition's offset of its first record, and that of the next one to come."""
        wanted = [_known(each) for each in partitions]
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self._bounds(wanted)
            missing = [each for each in wanted if each not in found]
            if not missing:
                return {each: found[known] for each, known in zip(partitions, wanted, strict=True)}
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{missing[0].topic} partition {missing[0].partition}: the broker does not say "
                    "where it begins and ends; try again"
                )
            time.sleep(_POLL_MS / 1000)

    def _bounds(self, wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return where partitions begin and end, without those that the client does not know."""
        with self._lock, map_kafka_errors(self._broker):
            consumer = self._consumer()
            try:
                first, last = offsets(consumer, wanted)
            except KeyError:
                # kafka-python raises it if its metadata are older than the topic.
                return {}
        return {each: (first[each], last[each]) for each in first.keys() & last.keys()}

    def offsets_at(
        self, partitions: Sequence[PartitionId], time: int
    ) -> Mapping[PartitionId, int | None]:
        """Return the offset of each partition's first record from a time on, ms; None for none."""
        with self._lock, map_kafka_errors(self._broker):
            wanted = {each: _known(each) for each in partitions}
            asked = dict.fromkeys(wanted.values(), time)
            found = self._consumer().offsets_for_times(asked) if asked else {}
            at = {each: found.get(known) for each, known in wanted.items()}
            return {each: None if one is None else one.offset for each, one in at.items()}

    def pieces(self, partition: PartitionId, start: int, end: int) -> Iterator[Piece | None]:
        """Yield the records between two offsets; all of them must have been written already.

        If the next record has been deleted, None is yielded last.
        """
        while start < end:
            with self._lock:
                piece = self._fetch(partition, start)
            if piece is None:
                yield None
                return
            yield piece.cut(start, end)
            start = piece.end

    def poll(self, partition: PartitionId, start: int) -> Piece | None:
        """Return the records that come soon, None if none do.

        An empty piece that begins after ``start`` says that records before it were deleted.
        """
        from kafka.errors import OffsetOutOfRangeError

        with self._lock, map_kafka_errors(self._broker):
            wanted = _known(partition)
            consumer = self._placed(wanted, start)
            # The partition's end as of the last answer; None before the first.
            end = consumer.highwater(wanted)
            wait = _POLL_MS if end is None or start < end else _LOOK_MS
            try:
                return self._polled(consumer, wanted, start, wait)
            except OffsetOutOfRangeError:
                first = consumer.beginning_offsets([wanted])[wanted]
                return _packed([], first, first) if first > start else None

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            made, self._made = self._made, None
            if made is not None:
                close_consumer(made)

    def _consumer(self) -> KafkaConsumer:
        if self._made is None:
            self._made = make_consumer(self._broker)
        return self._made

    def _fetch(self, partition: PartitionId, start: int) -> Piece | None:
        """Return the next records, or an empty piece over offsets without any; None if deleted."""
        from kafka.errors import OffsetOutOfRangeError

        wanted = _known(partition)
        with map_kafka_errors(self._broker):
            consumer = self._placed(wanted, start)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                try:
                    piece = self._polled(consumer, wanted, start)
                except OffsetOutOfRangeError:
                    return None
                if piece is not None:
                    return piece
        raise _silent(wanted, start)

    def _placed(self, wanted: TopicPartition, start: int) -> KafkaConsumer:
        """Return the consumer, so placed that it reads from an offset on."""
        consumer = self._consumer()
        if consumer.assignment() != {wanted}:
            consumer.assign([wanted])
            consumer.seek(wanted, start)
        elif consumer.position(wanted) != start:
            consumer.seek(wanted, start)
        return consumer

    @staticmethod
    def _polled(
        consumer: KafkaConsumer, wanted: TopicPartition, start: int, wait: int = _POLL_MS
    ) -> Piece | None:
        """Return the records of one request; a piece may be empty, None if no offset was passed."""
        from kafka.errors import CorruptRecordError

        try:
            records = consumer.poll(wait).get(wanted, [])
        except (struct.error, ValueError):
            # The batch cannot be skipped, since its end is not known.
            raise CorruptRecordError from None
        reached = consumer.position(wanted)
        return _packed(records, start, reached) if reached is not None and reached > start else None


def make_consumer(broker: Broker) -> KafkaConsumer:
    """Return a consumer without a group, to which partitions are assigned by hand."""
    require_client()
    from kafka import KafkaConsumer

    from sotto.kafka.client_internals import FAST_CHECKSUMS, tolerate_bad_batches

    made = make_client(
        KafkaConsumer,
        broker,
        PATIENCE,
        client_id="sotto",
        # No group: the offsets that have been read are committed with the counts.
        group_id=None,
        enable_auto_commit=False,
        # An offset that is gone must be an error, and not be replaced by another.
        auto_offset_reset="none",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        check_crcs=FAST_CHECKSUMS,
        metrics_enabled=False,
        max_poll_records=_MOST_RECORDS,
        max_partition_fetch_bytes=FETCH_BYTES,
        # Records that are read are there already, so brokers need not wait for more.
        fetch_max_wait_ms=5,
        request_timeout_ms=int(PATIENCE * 1000),
    )
    tolerate_bad_batches(made)
    return made


def read_to_end(
    broker: Broker,
    topic: str,
    partitions: int,
    progress: Callable[[int, int], None] = lambda *_: None,
    begin: Mapping[str, int] | None = None,
) -> Generator[Any]:
    """Yield the records of a topic as kafka-python returns them, partition by partition.

    Each partition is read up to its present end. ``progress`` is called with how many records have
    been read, and how many there are. ``begin``: by partition, as text, the offset at which reading
    starts, by default the first.
    """
    from kafka import TopicPartition

    consumer = make_consumer(broker)
    try:
        with map_kafka_errors(broker):
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            kept, ends = offsets(consumer, wanted)
            first = {
                each: max(kept[each], (begin or {}).get(str(each.partition), 0)) for each in wanted
            }
            left = {each: max(ends[each] - first[each], 0) for each in wanted}
            read, total = 0, sum(left.values())
            progress(read, total)
            for each in wanted:
                if left[each]:
                    consumer.assign([each])
                    consumer.seek(each, first[each])
                    for records in read_until(consumer, {each: ends[each]}):
                        yield from (record for record in records if record.offset < ends[each])
                read += left[each]
                progress(read, total)
    finally:
        close_consumer(consumer)


def read_until(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]
) -> Iterator[Sequence[Any]]:
    """Yield the records of each request, maybe none, until all partitions are read to their ends.

    The partitions are assigned to the consumer already.
    """
    at = {each: consumer.position(each) for each in ends}
    deadline = time.monotonic() + PATIENCE
    while behind := [each for each, end in ends.items() if at[each] < end]:
        found = consumer.poll(_POLL_MS)
        reached = {each: consumer.position(each) for each in ends}
        if any(reached[each] is not None and reached[each] > at[each] for each in ends):
            at = {each: at[each] if reached[each] is None else reached[each] for each in ends}
            yield [record for records in found.values() for record in records]
            # The time that the caller took with the records is not the broker's.
            deadline = time.monotonic() + PATIENCE
        elif time.monotonic() > deadline:
            raise _silent(behind[0], at[behind[0]])


def offsets(
    consumer: KafkaConsumer, partitions: Iterable[TopicPartition]
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the offsets at which partitions begin, and those at which they end."""
    wanted, wait = list(partitions), int(PATIENCE * 1000)
    return (
        consumer.beginning_offsets(wanted, timeout_ms=wait),
        consumer.end_offsets(wanted, timeout_ms=wait),
    )


def close_consumer(consumer: KafkaConsumer) -> None:
    """Close a consumer within a second."""
    consumer.close(autocommit=False, timeout_ms=1000)


def _silent(partition: TopicPartition, offset: int) -> BrokerError:
    return BrokerError(
        f"{partition.topic} partition {partition.partition}: the broker does not give the records "
        f"from offset {offset} on within {PATIENCE:.0f} s: see its log"
    )


def _packed(records: Sequence[Any], start: int, end: int) -> Piece:
    # A record without a value is an empty one.
    values = [record.value or b"" for record in records]
    return Piece(
        start,
        end,
        np.array([record.offset for record in records], dtype=np.int64),
        np.array([record.timestamp for record in records], dtype=np.int64),
        np.array([record.timestamp_type == _APPEND_TIME for record in records], dtype=np.bool_),
        b"".join(values),
        np.cumsum([0, *map(len, values)], dtype=np.int64),
    )


def _known(partition: PartitionId) -> TopicPartition:
    from kafka import TopicPartition

    return TopicPartition(*partition)


@contextmanager
def map_kafka_errors(broker: Broker) -> Iterator[None]:
    """Raise errors of kafka-python as errors that say what to do."""
    from kafka.errors import AuthorizationError, CorruptRecordError, KafkaError

    try:
        yield
    except CorruptRecordError:
        # The text of kafka-python's error may hold bytes of messages.
        raise BrokerError(
            "the broker gives a damaged batch of records: let it restore the partition from "
            "another replica, or delete the records up to it and go on with --accept-loss"
        ) from None
    except AuthorizationError as error:
        raise BrokerError(f"the broker does not let us read ({error}): allow it") from error
    except KafkaError as error:
        raise BrokerError(f"{broker.servers} does not do what it is asked: {error}") from error


def reader_of(broker: Broker) -> Reader:
    """Return this process's reader of a cluster; clients do not survive a fork."""
    return _reader(os.getpid(), broker)


@lru_cache(maxsize=4)
def _reader(process: int, broker: Broker) -> Reader:
    return Reader(broker)
