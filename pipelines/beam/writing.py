"""Writing documents and rejects to a sink, a bundle at a time."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from pipelines.sinks.base import Sink


class Write(beam.DoFn):
    """Writes all elements to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def start_bundle(self) -> None:
        self._items: list[Any] = []

    def process(self, element: Any) -> None:
        """Keep an element until the bundle ends."""
        self._items.append(element)

    def finish_bundle(self) -> None:
        if self._items:
            self._sink.write(self._items)

    def teardown(self) -> None:
        self._sink.close()
