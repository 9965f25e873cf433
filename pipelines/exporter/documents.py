"""The topic of estimates: how old the newest document is, and what no sink has taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.exporter.sources import MissingError
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker, make_client
from sotto.kafka.sinktopics import SinkTopic

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

#: How long a broker may take to answer, in seconds.
PATIENCE = 5.0


@dataclass(frozen=True)
class Documents:
    """What a topic of estimates says of itself.

    Parameters
    ----------
    newest : int or None
        When the broker took the newest document, ms; None for none.
    behind : int
        Offsets beyond those that the sink has taken.
    """

    newest: int | None
    behind: int


class WatchedDocuments:
    """A topic of estimates that is looked at again and again.

    Parameters
    ----------
    broker : Broker
    topic : SinkTopic
        Of the kind ``estimates``.
    """

    def __init__(self, broker: Broker, topic: SinkTopic) -> None:
        self._broker = broker
        self._topic = str(topic)

    def read(self, taken: Mapping[tuple[str, int], int]) -> Documents:
        """Return what the topic says.

        Parameters
        ----------
        taken : mapping
            Topic and partition to the offset that the sink takes next.

        Raises
        ------
        MissingError
            The topic is not there.
        BrokerError
            The broker does not answer.
        """
        with _administered(self._broker) as admin:
            if self._topic not in admin.list_topics():
                raise MissingError(f"there is no topic {self._topic}")
            return self._read(admin, taken)

    def _read(self, admin: KafkaAdminClient, taken: Mapping[tuple[str, int], int]) -> Documents:
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        (described,) = admin.describe_topics([self._topic])
        partitions = [TopicPartition(self._topic, at) for at in range(len(described["partitions"]))]

        def offsets(spec: OffsetSpec) -> Mapping[TopicPartition, tuple[int, int, int | None]]:
            found: Mapping[TopicPartition, tuple[int, int, int | None]]
            found = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
            return found

        first, end = offsets(OffsetSpec.EARLIEST), offsets(OffsetSpec.LATEST)
        newest = offsets(OffsetSpec.MAX_TIMESTAMP)
        times = [newest[each][1] for each in partitions if newest[each][1] >= 0]
        behind = (
            end[each][0] - max(taken.get((self._topic, each.partition), 0), first[each][0])
            for each in partitions
        )
        return Documents(max(times, default=None), sum(max(each, 0) for each in behind))


@contextmanager
def _administered(broker: Broker) -> Iterator[KafkaAdminClient]:
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
