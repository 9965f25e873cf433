"""Publishes what runs commit to a compacted topic, beside the database.

The topic may be out of reach: what is committed stands, and is published once it can be.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.aggregation.result_rows import Candidates
from pipelines.sinks.projection import projection
from pipelines.sinks.publication import Publication, documents_of, health_of
from pipelines.sinks.results import Projection
from pipelines.sinks.stamps import check_stamps, stamp_of
from pipelines.sources.whole_topics import records
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest
from sotto.errors import BrokerError, FormatError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker, require_client
from sotto.kafka.producers import end_producer, make_producer
from sotto.kafka.sinktopics import MAX_DOCUMENT, SinkTopic, Stay
from sotto.kafka.topics import FoundTopic
from sotto.plan.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka import KafkaProducer

#: Within which a document is acknowledged, in seconds.
PATIENCE = 15.0
#: Bytes sent and not acknowledged.
_IN_FLIGHT = 16 << 20
_BATCH = 256 << 10
#: Bytes of a document, with its key, that a broker takes.
LARGEST = MAX_DOCUMENT - _BATCH


class Publish(Protocol):
    """Publishes what is committed and has not been published."""

    def __call__(
        self,
        directory: StateDirectory,
        manifest: Manifest,
        registry: Registry,
        candidates: Candidates,
    ) -> None:
        """Publish, and note that it is done.

        Raises
        ------
        BrokerError
            It could not be, or only in part; it can be tried again.
        """


@dataclass(frozen=True)
class Several:
    """Publishes by several ways, each whether or not the others fail."""

    ways: Sequence[Publish]

    def __call__(
        self,
        directory: StateDirectory,
        manifest: Manifest,
        registry: Registry,
        candidates: Candidates,
    ) -> None:
        """Publish by all of them.

        Raises
        ------
        BrokerError
            What kept any of them from it.
        """
        failed = []
        for way in self.ways:
            try:
                way(directory, manifest, registry, candidates)
            except BrokerError as error:
                failed.append(str(error))
        if failed:
            raise BrokerError("; ".join(failed))


@dataclass
class EstimatesTopic:
    """A topic of estimates to publish to.

    Parameters
    ----------
    broker : Broker
    topic : SinkTopic
        Of the kind ``estimates``.

    Raises
    ------
    ParameterError
        It is of another kind.
    ModuleNotFoundError
        kafka-python is not installed.
    """

    broker: Broker
    topic: SinkTopic

    def __post_init__(self) -> None:
        if self.topic.kind != "estimates":
            raise ParameterError(f"topic {self.topic} is not one of estimates: its name ends so")
        require_client()

    def __call__(
        self,
        directory: StateDirectory,
        manifest: Manifest,
        registry: Registry,
        candidates: Candidates,
    ) -> None:
        """Publish what has changed since what the state directory's note says."""
        if manifest.generation == 0:
            return
        found = self.found()
        note = Publication.of(directory)
        since = 0 if note is None else note.since(str(self.topic), found.id, manifest)
        if since == manifest.generation:
            return
        ends = dict(note.ends) if note and note.of_topic(str(self.topic), found.id) else {}
        with closing(self.records(found.partitions, ends)) as others:
            check_stamps(others, manifest, str(self.topic))
        changed = projection(directory, manifest, registry, candidates, since)
        before = note.clock if note is not None and since else None
        collector = registry.collector
        health = health_of(manifest, collector)
        ends |= self.send(changed, collector, before, health, [stamp_of(manifest)])
        done = Publication(
            str(self.topic), found.id, manifest.generation, manifest.clock, changed.lineage, ends
        )
        done.leave(directory.path)

    def found(self) -> FoundTopic:
        """Return what the broker says of the topic.

        Raises
        ------
        BrokerError
            It cannot be used, or the broker cannot be reached.
        """
        with connected(self.broker) as topics:
            return topics.check_sink(self.topic, Stay(0, 0))

    def records(self, partitions: int, begin: Mapping[str, int]) -> Generator[Any]:
        """Yield what the topic has; as :func:`pipelines.sources.whole_topics.records`."""
        return records(self.broker, str(self.topic), partitions, begin=begin)

    def send(
        self,
        changed: Projection,
        collector: str,
        before: int | None,
        health: tuple[bytes, bytes],
        stamps: list[tuple[str, bytes]],
    ) -> dict[str, int]:
        """Send the documents of what has changed, and then that of the job's health.

        Whoever has read the last one has read all that belongs to its revision.

        Parameters
        ----------
        changed : Projection
        collector : str
        before : int or None
            As of :func:`pipelines.sinks.publication.documents_of`.
        health : (bytes, bytes)
            Key and value of the last document.
        stamps : list
            Headers of all of them.

        Returns
        -------
        dict of str to int
            Partition, as text, to the offset behind the last record sent there.

        Raises
        ------
        BrokerError
            Not all were acknowledged.
        """
        with producer_for(self.broker) as producer, _publishable():
            ends = self._send(producer, documents_of(changed, collector, before), stamps)
            return ends | self._send(producer, [health], stamps)

    def _send(
        self,
        producer: KafkaProducer,
        documents: Iterable[tuple[bytes, bytes]],
        headers: list[tuple[str, bytes]],
    ) -> dict[str, int]:
        """Send documents, have all of them acknowledged, and return where partitions are then."""
        checked = (self._fitting(key, value) for key, value in documents)
        return send_all(producer, str(self.topic), ((*each, headers) for each in checked))

    def _fitting(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        if len(key) + len(value) > LARGEST:
            raise BrokerError(
                f"a document has {len(value)} bytes, more than a record of {self.topic} may: "
                "look for fewer candidates"
            )
        return key, value


def send_all(
    producer: KafkaProducer,
    topic: str,
    records: Iterable[tuple[bytes, bytes, list[tuple[str, bytes]]]],
) -> dict[str, int]:
    """Send records and return once the broker has acknowledged all of them.

    Parameters
    ----------
    producer : KafkaProducer
        Of :func:`producer_for`.
    topic : str
    records : iterable of (bytes, bytes, list)
        Key, value and headers of each. At most 16 MiB wait for acknowledgement.

    Returns
    -------
    dict of str to int
        Partition, as text, to the offset behind the last record sent there.

    Raises
    ------
    KafkaError
        The broker did not take a record, or not within ``PATIENCE`` seconds.
    """
    waiting: list[Any] = []
    size = 0
    ends: dict[str, int] = {}
    for key, value, headers in records:
        waiting.append(producer.send(topic, key=key, value=value, headers=headers))
        size += len(key) + len(value)
        if size > _IN_FLIGHT:
            ends |= _acknowledged(waiting)
            waiting, size = [], 0
    return ends | _acknowledged(waiting)


def _acknowledged(waiting: Iterable[Any]) -> dict[str, int]:
    """Return once the broker has acknowledged all records of which these are the futures.

    Returns
    -------
    dict of str to int
        Partition, as text, to the offset behind the last of them.
    """
    ends: dict[str, int] = {}
    for future in waiting:
        record = future.get(timeout=PATIENCE)
        ends[str(record.partition)] = record.offset + 1
    return ends


@contextmanager
def _publishable() -> Iterator[None]:
    """Tell of a document that cannot be made, as of one that the broker does not take."""
    try:
        yield
    except FormatError as error:
        raise BrokerError(f"a document cannot be made of the results: {error}") from error


@contextmanager
def producer_for(broker: Broker) -> Iterator[KafkaProducer]:
    """Return a producer, for a while.

    Raises
    ------
    BrokerError
        There, or within: the broker does not take records; what it says.
    """
    from kafka.errors import KafkaError, KafkaTimeoutError

    producer = make_producer(
        broker, PATIENCE, compression="zstd", batch=_BATCH, largest=MAX_DOCUMENT
    )
    try:
        yield producer
    except KafkaTimeoutError as error:
        raise BrokerError("the broker did not acknowledge in time") from error
    except KafkaError as error:
        raise BrokerError(f"the broker did not take a record ({type(error).__name__})") from error
    finally:
        end_producer(producer)
