"""What of its topics a job has not taken whose offsets are those of a consumer group.

Flink commits the offsets of a checkpoint to Kafka once the checkpoint is complete; nothing but that
is asked here. The group is never joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pipelines.exporter.lag import Lag, total
from pipelines.exporter.sources import MissingError
from pipelines.partitions import Partition, Reader
from sotto.brokers import Broker, make_client
from sotto.errors import BrokerError
from sotto.sinktopics import SinkTopic
from sotto.topicadmin import newest
from sotto.topics import ReportTopic

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

#: Before the name of a job in that of its group.
PREFIX = "sotto-"
#: How long a broker may take to answer, in seconds.
PATIENCE = 5.0


class WatchedGroup:
    """Topics whose lag behind a consumer group is read again and again.

    Parameters
    ----------
    broker : Broker
    topics : sequence of ReportTopic
        All that the job reads.
    group : str, optional
        The job's, if it is not known from what it has published.
    """

    def __init__(
        self, broker: Broker, topics: Sequence[ReportTopic], group: str | None = None
    ) -> None:
        self._broker = broker
        self._topics = {str(topic): topic for topic in topics}
        self._requeue = {str(SinkTopic(topic.name, "requeue")) for topic in topics}
        self._group = group

    def lag(self, job: str | None) -> Lag:
        """Return what is beyond the offsets that the group has committed.

        Parameters
        ----------
        job : str or None
            Name of the job, as its documents carry it; None before the first one.

        Raises
        ------
        MissingError
            A topic is not there, or the job is not known yet.
        BrokerError
            The broker does not answer.
        """
        if self._group is None and job is None:
            raise MissingError("no job has published anything, so that its offsets are not known")
        committed, latest = self._asked(self._group or PREFIX + str(job))
        wanted = [
            Partition(name, number)
            for name, topic in self._topics.items()
            for number in range(topic.partitions)
        ]
        requeued = [each for each in committed if each.topic in self._requeue]
        with closing(Reader(self._broker)) as reader:
            bounds = reader.bounds([*wanted, *requeued])
            behind = total(
                [_behind(reader, each, committed.get(each, 0), bounds[each]) for each in wanted]
                # The times of what is given back are those at which it first came.
                + [_behind(None, each, committed[each], bounds[each]) for each in requeued]
            )
        return replace(behind, newest=latest)

    def _asked(self, group: str) -> tuple[dict[Partition, int], dict[str, int]]:
        """Return what the group has committed, and when partitions got their last records."""
        with administered(self._broker) as admin:
            missing = sorted(set(self._topics) - set(admin.list_topics()))
            if missing:
                raise MissingError(f"there is no topic {missing[0]}")
            found = admin.list_group_offsets({group: None}).get(group, {})
            latest = {
                f"{name}/{number}": time or 0
                for name, topic in self._topics.items()
                for number, time in enumerate(newest(admin, topic))
            }
        committed = {
            Partition(at.topic, at.partition): offset.offset
            for at, offset in found.items()
            if offset.offset >= 0
        }
        return committed, latest


@contextmanager
def administered(broker: Broker) -> Iterator[KafkaAdminClient]:
    """Connect for a few questions; a connection that idles would outlive what it leads to.

    Raises
    ------
    BrokerError
        The broker does not answer, or refuses.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    options = {"client_id": "sotto-exporter", "request_timeout_ms": int(PATIENCE * 1000)}
    admin = make_client(KafkaAdminClient, broker, PATIENCE, **options)
    try:
        yield admin
    except KafkaError as error:
        raise BrokerError(f"the broker does not do what it is asked: {error}") from error
    finally:
        admin.close()


def _behind(
    reader: Reader | None, partition: Partition, taken: int, bounds: tuple[int, int]
) -> Lag:
    """Return the lag of a partition; with the age of its oldest record if there is a reader."""
    first, end = bounds
    start = max(taken, first)
    if end <= start:
        return Lag(None)
    if reader is None:
        return Lag(None, end - start, 1)
    piece = next(reader.pieces(partition, start, end, keep=False))
    oldest = int(piece.times[0]) if piece is not None and len(piece.times) else None
    return Lag(None, end - start, 1, oldest)
