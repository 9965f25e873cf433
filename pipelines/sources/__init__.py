"""Sources of reports: the embedded log and Kafka topics."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pipelines.sources.base import BoundedSource
from pipelines.sources.kafka import KafkaTopics
from pipelines.sources.log import EmbeddedLog

#: Makes a source of a URL, by its scheme. A new source is a module of this folder and a line here.
SOURCES: dict[str, Callable[[str], BoundedSource]] = {
    "file": EmbeddedLog.from_url,
    "kafka": KafkaTopics.from_url,
}


def source_of(log: str | os.PathLike[str] | BoundedSource) -> BoundedSource:
    """Return the source at a URL; a path is an embedded log's, and a source is itself."""
    if isinstance(log, str):
        make = SOURCES.get(log.partition(":")[0].lower())
        return EmbeddedLog(Path(log)) if make is None else make(log)
    return EmbeddedLog(Path(log)) if isinstance(log, os.PathLike) else log
