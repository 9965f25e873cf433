"""Kafka topics as sinks: for aggregation runs, which publish what they commit, and for pipelines.

If the topic is out of reach, the commit stands, and is published once the topic can be reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from urllib.parse import urlsplit

from pipelines.aggregation import quarantine
from pipelines.results.documents import Document
from pipelines.sinks import committed
from pipelines.sinks.base import Applied, ReadTopic, Sink
from pipelines.sinks.committed import CommittedGeneration, Note
from pipelines.sinks.quarantine import Headers, Record, key_of, quarantine_record
from pipelines.sources.base import Outage
from pipelines.sources.kafka_reader import read_to_end
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest, Quarantined
from sotto.errors import BrokerError, FormatError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker, require_client
from sotto.kafka.producers import end_producer, make_producer
from sotto.kafka.topics import MAX_DOCUMENT, FoundTopic, SinkTopic, Stay

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: Seconds within which a broker must acknowledge a document.
PATIENCE = 15.0
#: Seconds until records are sent again if the broker was away.
AWAY_SECONDS = 5.0
#: The most bytes that are sent and not acknowledged.
_IN_FLIGHT = 16 << 20
_BATCH = 256 << 10
#: The most bytes of a document, with its key, that a broker takes.
LARGEST = MAX_DOCUMENT - _BATCH
#: The note of how far the topic of quarantine is published.
QUARANTINE_NOTE = "published-quarantine.json"

_LOGGER = logging.getLogger(__name__)


#: Publishes what is committed and not yet published, and notes how far. It is called after every
#: commit, and also if nothing is new. It raises :class:`~sotto.errors.BrokerError` if not all could
#: be published, and is then called again later; any other error ends the command.
Publish: TypeAlias = Callable[[CommittedGeneration], None]


@dataclass
class _Published:
    """A topic to which state directories are published; its name must be that of its kind."""

    broker: Broker
    topic: SinkTopic
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if self.topic.kind != self.kind:
            raise ParameterError(
                f"topic {self.topic} is not a topic of {self.kind}: its name must end in "
                f"-{self.kind}"
            )
        require_client()


class EstimatesTopic(_Published):
    """Publishes what is committed to a compacted topic of estimates."""

    kind = "estimates"

    def __call__(self, generation: CommittedGeneration) -> None:
        """Publish what has changed since the state directory's note.

        The document of the job's health comes last: whoever has read it has read all that belongs
        to its revision.
        """
        directory, manifest = generation.directory, generation.manifest
        if manifest.generation == 0:
            return
        topic, found = str(self.topic), self.found()
        note = Note.load(directory)
        since = 0 if note is None else note.since(topic, found.id, manifest)
        if since == manifest.generation:
            return
        ends = dict(note.ends) if note and note.of_topic(topic, found.id) else {}
        with closing(self.records(found.partitions, ends)) as others:
            committed.check_stamps(others, manifest, topic)
        before = note.clock if note is not None and since else None
        changed = generation.projection(since, before=before)
        try:
            ends |= self.send(changed.documents, (committed.stamp_of(manifest),))
        except FormatError as error:
            raise BrokerError(f"a document cannot be made of the results: {error}") from error
        about = changed.generation, changed.clock, changed.lineage
        Note(topic, found.id, *about, ends).store(directory.path)

    def found(self) -> FoundTopic:
        with connected(self.broker) as topics:
            return topics.check_sink(self.topic, Stay(0, 0))

    def records(self, partitions: int, begin: Mapping[str, int]) -> Generator[Any]:
        """Yield the topic's records; see :func:`pipelines.sources.kafka_reader.read_to_end`."""
        return read_to_end(self.broker, str(self.topic), partitions, begin=begin)

    def send(self, documents: Iterable[Document], headers: Headers) -> dict[str, int]:
        """Send documents, the last one once all others are acknowledged; see :func:`send_all`."""
        last: list[Record] = []

        def others() -> Iterator[Record]:
            for document in documents:
                yield from last
                last[:] = [self._fitting(document, headers)]

        with producer_for(self.broker) as producer:
            ends = send_all(producer, str(self.topic), others())
            return ends | send_all(producer, str(self.topic), last)

    def _fitting(self, document: Document, headers: Headers) -> Record:
        key, value = document.record
        if len(key) + len(value) > LARGEST:
            raise BrokerError(
                f"a document has {len(value)} bytes, more than a record of {self.topic} may: "
                "look for fewer candidates"
            )
        return Record(key, value, headers)


class QuarantineTopic(_Published):
    """Publishes quarantine files, one after another, to a topic of quarantine.

    A file changes only if a pseudonym in it is forgotten. A file that was published in part is
    published again from its beginning, with the same keys.
    """

    kind = "quarantine"

    def __call__(self, generation: CommittedGeneration) -> None:
        """Publish the quarantine files that the state directory's note does not cover."""
        directory, manifest = generation.directory, generation.manifest
        note, topic = Note.load(directory, QUARANTINE_NOTE), str(self.topic)
        if note is not None and note.since(topic, note.id, manifest) == manifest.generation:
            return
        registry = generation.registry
        stay = Stay(registry.horizon, min(plan.retention for plan in registry.plans))
        with connected(self.broker) as topics:
            id = topics.check_sink(self.topic, stay).id
        since = 0 if note is None else note.since(topic, id, manifest)
        new = [entry for entry in manifest.quarantine if entry.generation > since]
        if new:
            with producer_for(self.broker) as producer:
                for entry in new:
                    send_all(producer, topic, _file_records(directory, manifest, entry))
                    self._note(directory, id, manifest, entry.generation)
        if since < manifest.generation:
            self._note(directory, id, manifest, manifest.generation)

    def _note(
        self, directory: StateDirectory, id: str, manifest: Manifest, generation: int
    ) -> None:
        note = Note(str(self.topic), id, generation, manifest.clock, manifest.digest(generation))
        note.store(directory.path, QUARANTINE_NOTE)


def _file_records(
    directory: StateDirectory, manifest: Manifest, entry: Quarantined
) -> Iterator[Record]:
    content = files.load(directory.files.quarantine(entry), quarantine.KIND)
    for number, reject in enumerate(quarantine.unpack(content)):
        yield quarantine_record(reject, manifest.state, key_of(entry.generation, number, reject))


class _TopicSink:
    """Sends records to a topic, however long its broker is away."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._open = ExitStack()
        self._producer: KafkaProducer | None = None
        self._outage = Outage()

    def _send(self, records: Sequence[Record]) -> None:
        """Send records and wait until the broker has acknowledged all."""
        while records:
            try:
                self._try(records)
            except BrokerError as error:
                self._outage.begin(f"what goes to {self._topic}", error)
                time.sleep(AWAY_SECONDS)
            else:
                self._outage.end()
                return

    def _try(self, records: Sequence[Record]) -> None:
        try:
            if self._producer is None:
                self._producer = self._open.enter_context(producer_for(self._broker))
            with _mapped():
                send_all(self._producer, self._topic, records)
        except BaseException:
            # A new producer sends all records again.
            self.close()
            raise

    def close(self) -> None:
        self._producer = None
        self._open.close()


class DocumentsSink(_TopicSink, Sink):
    """Writes documents to a compacted topic of estimates, whose consumers keep the newest."""

    @classmethod
    def open(cls, url: str, job: str = "") -> Self:
        """Return the sink of ``kafka://HOST:PORT/TOPIC``, a broker that asks for no name."""
        parts = urlsplit(url)
        topic = parts.path.removeprefix("/")
        if not parts.netloc or SinkTopic.parse(topic).kind != "estimates":
            raise ParameterError(
                "a topic of estimates is given as kafka://HOST:PORT/NAME-estimates"
            )
        require_client()
        return cls(Broker(parts.netloc), topic)

    def write(self, documents: Sequence[Document], progress: ReadTopic | None = None) -> Applied:
        """Send documents, and leave out those that are too large for any broker."""
        records = []
        for document in documents:
            key, value = document.record
            if len(key) + len(value) > LARGEST:
                _LOGGER.warning(
                    "a document has %d bytes, more than a record of %s may, and is left out: look "
                    "for fewer candidates",
                    len(value),
                    self._topic,
                )
            else:
                records.append(Record(key, value, ()))
        self._send(records)
        return Applied(len(records), refused=len(documents) - len(records))


class QuarantineSink(_TopicSink):
    """Writes a pipeline's packed rejects to a topic of quarantine, one record each."""

    def __init__(self, broker: Broker, topic: str, job: str) -> None:
        super().__init__(broker, topic)
        self._job = job

    def write(self, items: Sequence[bytes]) -> None:
        """Send rejects; see :class:`pipelines.sinks.base.RejectsSink`."""
        self._send(
            [
                quarantine_record(each, self._job)
                for item in items
                for each in quarantine.unpack(item)
            ]
        )


def send_all(producer: KafkaProducer, topic: str, records: Iterable[Record]) -> dict[str, int]:
    """Send records and return once the broker has acknowledged all; at most 16 MiB wait for that.

    Returns, by partition as text, the offset after the last record sent there. Raises KafkaError
    if the broker did not take a record, or not within ``PATIENCE`` seconds.
    """
    waiting: list[Any] = []
    size = 0
    ends: dict[str, int] = {}
    for record in records:
        key, value, headers, time, partition = record
        future = producer.send(
            topic, value, key, headers=list(headers), partition=partition, timestamp_ms=time
        )
        waiting.append(future)
        size += len(key or b"") + len(value)
        if size > _IN_FLIGHT:
            ends |= _acknowledged(waiting)
            waiting, size = [], 0
    return ends | _acknowledged(waiting)


def _acknowledged(waiting: Iterable[Any]) -> dict[str, int]:
    records = (future.get(timeout=PATIENCE) for future in waiting)
    return {str(record.partition): record.offset + 1 for record in records}


@contextmanager
def producer_for(
    broker: Broker, largest: int = MAX_DOCUMENT, advice: str = ""
) -> Iterator[KafkaProducer]:
    """Return a producer for the duration of a block."""
    producer = make_producer(broker, PATIENCE, batch=_BATCH, largest=largest)
    try:
        with _mapped(advice):
            yield producer
    finally:
        end_producer(producer)


@contextmanager
def _mapped(advice: str = "") -> Iterator[None]:
    """Raise errors of kafka-python as :class:`~sotto.errors.BrokerError`."""
    from kafka.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        reason = type(error).__name__
        raise BrokerError(f"the broker did not take a record ({reason}){advice}") from error
