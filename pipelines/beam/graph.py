"""The graph of a streaming pipeline.

::

    Discover ─ partitions ─► Read ─ packed rows, by period and shard ─► Count
                              │                                           │
               rejects ◄──────┼───────────────────────────────────────────┤
                              │                                           ├─ changes ─► Windows ─┐
                              └─ notes ─► Health ◄─ notes ────────────────┤                      │
                                            │                             └─ audits ──► Periods ─┤
                                            └─────────────── documents ◄─────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import apache_beam as beam

from pipelines.beam.counting import AUDITS, Count
from pipelines.beam.documents import Health, Periods, Windows
from pipelines.beam.reading import NOTES, REJECTED, discover_dofn, read_dofn
from pipelines.beam.stream import Stream
from pipelines.sources.base import Source

Keyed: TypeAlias = tuple[bytes, bytes]


def build(
    pipeline: beam.Pipeline, stream: Stream, sources: Sequence[Source]
) -> tuple[beam.PCollection[Keyed], beam.PCollection[bytes]]:
    """Lay the graph into a pipeline; return documents (keys and values) and packed rejects."""
    read = [
        pipeline
        | f"Start with {source.label}" >> beam.Impulse()
        | f"Discover partitions of {source.label}" >> beam.ParDo(discover_dofn(stream, source))
        | f"Spread partitions of {source.label}" >> beam.Reshuffle()
        | f"Read {source.label}"
        >> beam.ParDo(read_dofn(stream, source)).with_outputs(REJECTED, NOTES, main="rows")
        for source in sources
    ]
    counted = (
        [each.rows for each in read]
        | "All rows" >> beam.Flatten()
        | "Rows by shard" >> _Apart(stream.bounded)
        | "Count reports"
        >> beam.ParDo(Count(stream)).with_outputs(REJECTED, NOTES, AUDITS, main="changes")
    )
    documents = (
        counted.changes
        | "Changes by window" >> _Apart(stream.bounded)
        | "Documents of windows" >> beam.ParDo(Windows(stream)).with_output_types(Keyed),
        counted[AUDITS]
        | "Audits by period" >> _Apart(stream.bounded)
        | "Documents of periods" >> beam.ParDo(Periods(stream)).with_output_types(Keyed),
        (counted[NOTES], *(each[NOTES] for each in read))
        | "All notes" >> beam.Flatten()
        | "Notes of the job" >> _Apart(stream.bounded)
        | "Documents of the job" >> beam.ParDo(Health(stream)).with_output_types(Keyed),
    )
    rejects = (
        (counted[REJECTED], *(each[REJECTED] for each in read))
        | "All rejects" >> beam.Flatten()
        | "Rejects" >> beam.Map(_same).with_output_types(bytes)
    )
    return documents | "All documents" >> beam.Flatten(), rejects


class _Apart(beam.PTransform):
    """Keeps what is keyed as it is, before a stage that has state.

    The embedded runner takes such a stage together with those before it, and lets its event-time
    timers fire although these have not read everything; a shuffle is in its way.
    """

    def __init__(self, bounded: bool) -> None:
        super().__init__()
        self._bounded = bounded

    def expand(self, elements: beam.PCollection[Keyed]) -> beam.PCollection[Keyed]:
        if self._bounded:
            elements |= beam.Reshuffle()
        return elements | "Keep" >> beam.Map(_same).with_output_types(Keyed)


def _same(element):  # type: ignore[no-untyped-def]
    return element


class Sink(Protocol):
    """Where documents and rejects go; crosses Beam pickled, and connects when it first writes.

    Everything is written at least once. Documents are idempotent by revision; a reject that comes
    again has the same key or file name.
    """

    def write(self, items: Sequence[Any]) -> None:
        """Return once all items are durable; after an error all of them are written again."""

    def close(self) -> None:
        """Close connections; they are opened again when needed."""


class Write(beam.DoFn):
    """Writes all elements to a sink, a bundle at a time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def start_bundle(self) -> None:
        self._items: list[Any] = []

    def process(self, element: Any) -> None:
        self._items.append(element)

    def finish_bundle(self) -> None:
        if self._items:
            self._sink.write(self._items)

    def teardown(self) -> None:
        self._sink.close()
