"""Where documents and rejects go: topics of Kafka, or a database and a folder.

All of it is written at least once. Documents are idempotent by revision; of rejects a copy has the
key, or the file name, of the first.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import apache_beam as beam

from pipelines.aggregation import quarantine
from pipelines.sinks.database import SinkDatabase
from pipelines.sinks.documents import parse
from pipelines.sinks.publishing import LARGEST, producer_for, send_all
from pipelines.sinks.quarantine_records import quarantine_record
from pipelines.sinks.tables import Keyed
from pipelines.storage import files
from sotto.kafka.brokers import Broker

if TYPE_CHECKING:
    from kafka import KafkaProducer

_LOGGER = logging.getLogger(__name__)


class _ToTopic(beam.DoFn):
    """Sends what a bundle has, and waits until the broker has all of it."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def setup(self) -> None:
        self._open = ExitStack()
        self._producer: KafkaProducer | None = None

    def start_bundle(self) -> None:
        self._records: list[tuple[bytes, bytes, list[tuple[str, bytes]]]] = []

    def finish_bundle(self) -> None:
        if not self._records:
            return
        try:
            if self._producer is None:
                made = producer_for(self._broker)
                self._producer = self._open.enter_context(made)
            send_all(self._producer, self._topic, self._records)
        except BaseException:
            # The bundle is going to be made again, with a new producer.
            self._producer = None
            self._open.close()
            raise

    def teardown(self) -> None:
        self._open.close()


class DocumentsToTopic(_ToTopic):
    """Writes documents to a topic of estimates."""

    def process(self, element: tuple[bytes, bytes]) -> None:
        """Take a document's key and value; leave out what no broker takes, however often sent."""
        key, value = element
        if len(key) + len(value) > LARGEST:
            _LOGGER.warning(
                "a document has %d bytes, more than a record of %s may, and is left out: look for "
                "fewer candidates",
                len(value),
                self._topic,
            )
            return
        self._records.append((key, value, []))


class RejectsToTopic(_ToTopic):
    """Writes packed rejects to a topic of quarantine, one record each."""

    def __init__(self, broker: Broker, topic: str, job: str) -> None:
        super().__init__(broker, topic)
        self._job = job

    def process(self, element: bytes) -> None:
        """Take packed rejects."""
        for reject in quarantine.unpack(element):
            record = quarantine_record(reject, self._job)
            self._records.append((record.key, record.value, list(record.headers)))


class DocumentsToDatabase(beam.DoFn):
    """Writes documents to a database, a bundle in one transaction."""

    def __init__(self, database: str, job: str) -> None:
        self._database = database
        self._job = job

    def setup(self) -> None:
        self._open = ExitStack()
        self._held: SinkDatabase | None = None

    def start_bundle(self) -> None:
        self._documents: list[Keyed] = []

    def process(self, element: tuple[bytes, bytes]) -> None:
        """Take a document's key and value."""
        self._documents.append(Keyed(element[0], parse(*element)))

    def finish_bundle(self) -> None:
        if not self._documents:
            return
        if self._held is None:
            self._held = self._open.enter_context(SinkDatabase(self._database))
        self._held.add(self._job, self._documents)

    def teardown(self) -> None:
        self._open.close()


class RejectsToFolder(beam.DoFn):
    """Writes packed rejects to files, each named by its content."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, element: bytes) -> None:
        """Take packed rejects."""
        folder = Path(self._folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / hashlib.sha256(element).hexdigest()
        if not path.exists():
            # Of several attempts at a bundle each writes a file of its own.
            attempt = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
            files.create(attempt, files.with_checksum(quarantine.KIND, element))
            files.move([(attempt, path)])
