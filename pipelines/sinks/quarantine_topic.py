"""Publishes what runs have put into quarantine, file by file, to a topic of its own.

A file never changes. One that was published in part, since the process was killed or the broker
went away, is published again from its beginning, with the same keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.aggregation import quarantine
from pipelines.aggregation.result_rows import Candidates
from pipelines.sinks.publication import Publication
from pipelines.sinks.publishing import producer_for, send_all
from pipelines.sinks.quarantine_records import key_of, quarantine_record
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest
from sotto.errors import ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker, require_client
from sotto.kafka.sinktopics import SinkTopic, Stay
from sotto.plan.registry import Registry

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: The note of how far that has been done.
NAME = "published-quarantine.json"


@dataclass
class QuarantineTopic:
    """A topic of quarantine to publish to.

    Parameters
    ----------
    broker : Broker
    topic : SinkTopic
        Of the kind ``quarantine``.

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
        if self.topic.kind != "quarantine":
            raise ParameterError(f"topic {self.topic} is not one of quarantine: its name ends so")
        require_client()

    def __call__(
        self,
        directory: StateDirectory,
        manifest: Manifest,
        registry: Registry,
        candidates: Candidates,
    ) -> None:
        """Publish the files of quarantine that the state directory's note does not cover.

        Raises
        ------
        BrokerError
            Not all could be published; it can be tried again.
        """
        note = Publication.of(directory, NAME)
        if (
            note is not None
            and note.since(str(self.topic), note.id, manifest) == manifest.generation
        ):
            return
        stay = Stay(registry.horizon, min(plan.retention for plan in registry.plans))
        with connected(self.broker) as topics:
            id = topics.check_sink(self.topic, stay).id
        since = 0 if note is None else note.since(str(self.topic), id, manifest)
        new = [entry.generation for entry in manifest.quarantine if entry.generation > since]
        if new:
            with producer_for(self.broker) as producer:
                for generation in new:
                    self._send(producer, directory, manifest.state, generation)
                    self._note(directory, id, manifest, generation)
        if since < manifest.generation:
            self._note(directory, id, manifest, manifest.generation)

    def _note(
        self, directory: StateDirectory, id: str, manifest: Manifest, generation: int
    ) -> None:
        lineage = manifest.digest(generation)
        done = Publication(str(self.topic), id, generation, manifest.clock, lineage)
        done.leave(directory.path, NAME)

    def _send(
        self, producer: KafkaProducer, directory: StateDirectory, job: str, generation: int
    ) -> None:
        """Send what a file holds and have all of it acknowledged."""
        content = files.load(directory.quarantine(generation), quarantine.KIND)
        records = (
            quarantine_record(reject, job, key_of(generation, number, reject))
            for number, reject in enumerate(quarantine.unpack(content))
        )
        send_all(
            producer,
            str(self.topic),
            ((record.key, record.value, list(record.headers)) for record in records),
        )
