"""Where documents and rejects go: topics of Kafka, or a database and a folder.

All of it is written at least once. Documents are idempotent by revision; of rejects a copy has the
key, or the file name, of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from pipelines import files, quarantine
from pipelines.beam.partitions import Cluster
from pipelines.published import parse
from pipelines.publishing import producer_for, send_all
from pipelines.quarantined import quarantine_record
from pipelines.sinkdatabase import SinkDatabase
from pipelines.sinktables import Keyed

if TYPE_CHECKING:
    from kafka import KafkaProducer


@dataclass(frozen=True)
class _ToTopic(beam.DoFn):
    """Writes what a bundle has, and waits until the broker has all of it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._producer: KafkaProducer | None = None
