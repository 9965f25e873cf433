"""When the newest record of each partition of a topic came, and which partition has gone silent.

This is known for topics only: a hash spreads devices over their partitions. An embedded log has a
partition for each writer; a writer may end at any time, and its times are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pipelines.results.fields import grouped
from pipelines.sources.kafka import PartitionName
from pipelines.sources.kafka_reader import PartitionId, Reader
from sotto.kafka.brokers import Broker

#: A partition is silent if it has no record of the last ten minutes of its topic, ms, ...
PAUSE = 600_000
#: ... and the other partitions have got so many records each, on average, since its newest one. If
#: no device sends more than 40 of them, 25 devices are expected in the partition; chance leaves it
#: empty with probability exp(-25), which is 1.4e-11.
RECORDS = 1000
#: How far from the end the newest record is looked for, in offsets: transactions leave gaps.
_BACK = (20, 10_000)


@dataclass(frozen=True)
class Arrival:
    """The newest record of a partition, and where it begins and ends."""

    partition: str  #: ``TOPIC/NUMBER``
    newest: int | None  #: append time, ms; None for no record
    silent: bool = False
    first: int = 0  #: offset of its first record
    end: int = 0  #: offset that its next record will have


class ArrivalTimes:
    """Arrivals in topics, read again and again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, tuple[int, int | None]] = {}

    def read(self, names: Sequence[PartitionName]) -> list[Arrival]:
        """Return the newest records of partitions; those of a topic are compared."""
        topics = grouped(names, lambda name: name.topic)
        with closing(Reader(self._broker)) as reader:
            return [each for topic in topics.values() for each in self._topic(reader, topic)]

    def _topic(self, reader: Reader, names: Sequence[PartitionName]) -> list[Arrival]:
        bounds = reader.bounds([name.partition for name in names])
        newest = {}
        for name in names:
            end = bounds[name.partition][1]
            known = self._known.get(str(name))
            if known is None or known[0] != end:
                known = end, _newest(reader, name.partition, *bounds[name.partition])
                self._known[str(name)] = known
            newest[name] = known[1]
        last = max((time for time in newest.values() if time is not None), default=0)
        found = []
        for name, time in newest.items():
            silent = False
            if last - (time or 0) >= PAUSE:
                others = [each.partition for each in names if each != name]
                since = reader.offsets_at(others, (time or 0) + 1)
                # An offset is None if nothing has come since.
                came = sum(
                    bounds[at][1] - start for at, start in since.items() if start is not None
                )
                silent = came >= RECORDS * len(others) > 0
            which = f"{name.topic}/{name.number}"
            found.append(Arrival(which, time, silent, *bounds[name.partition]))
        return found


def _newest(reader: Reader, partition: PartitionId, first: int, end: int) -> int | None:
    """Return when the newest record of a partition came, ms; None if none is found."""
    for back in _BACK:
        times = [
            int(piece.times[-1])
            for piece in reader.pieces(partition, max(first, end - back), end)
            if piece is not None and len(piece.times)
        ]
        if times or end - back <= first:
            return max(times, default=None)
    return None
