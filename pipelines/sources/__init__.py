"""Sources of reports: the embedded log and Kafka topics."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pipelines.sources.base import BoundedSource
from pipelines.sources.kafka import KafkaTopics
from pipelines.sources.log import EmbeddedLog

#: Functions that make a source of a URL, by scheme. A new source is a module here and a line.
SOURCES: dict[str, Callable[[str], BoundedSource]] = {
    "file": EmbeddedLog.from_url,
    "kafka": KafkaTopics.from_url,
}


def source_of(log: str | os.PathLike[str] | BoundedSource) -> BoundedSource:
    """Return the source of a URL; of a path, the embedded log there; a source itself as it is."""
    if isinstance(log, str):
        make = SOURCES.get(log.partition(":")[0].lower())
        return EmbeddedLog(Path(log)) if make is None else make(log)
    return EmbeddedLog(Path(log)) if isinstance(log, os.PathLike) else log
