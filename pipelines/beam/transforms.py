"""The transforms of a pipeline, from messages to estimates; contract: ``docs/guides/beam.md``.

::

    ReadReports ─ messages ─► DecodeReports ─ rows by period and shard ─► CountReports
                                │                                           │
                    rejects ◄───┼───────────────────────────────────────────┤
                                └─ notes ─► ReportHealth ◄──────── notes ───┤
                                              │     EstimateWindows ◄─ changes
                                              │       │   AuditPeriods ◄─ audits
                                              │       │     │
                                              └───────┴─────┴─► documents

Each transform expands in one of two ways: with :class:`~apache_beam.GroupByKey` for a bounded
input, with state and timers for an unbounded one. The results are the same. The DoFns are in
:mod:`~pipelines.beam.reading`, :mod:`~pipelines.beam.decoding`, :mod:`~pipelines.beam.counting` and
:mod:`~pipelines.beam.documents`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows

from pipelines.beam.counting import AUDITS, CountByGroup, CountByState, period_and_size, to_part
from pipelines.beam.decoding import NOTES, REJECTED, Decode, Keyed, MessageBlock
from pipelines.beam.documents import (
    JobHealth,
    PeriodAudit,
    PublishByGroup,
    PublishByState,
    Subject,
    WindowEstimates,
)
from pipelines.beam.plans import PlanSource, expect
from pipelines.beam.reading import DiscoverPartitions, ListRanges, ReadPartitions, ReadRanges
from pipelines.beam.stream import stream_of
from pipelines.results.documents import parse
from pipelines.sinks.base import RejectsSink, Sink
from pipelines.sources.base import ReportSource

Messages: TypeAlias = "beam.PCollection[bytes | MessageBlock]"


class _UnderPlans(beam.PTransform):
    """The base of transforms that are given the plans."""

    def __init__(self, plans: PlanSource) -> None:
        super().__init__()
        self._plans = expect(plans, "registry", "plans: FixedPlans.of([...]) or PlansFolder(path)")


class ReadReports(_UnderPlans):
    """Reads one of Sotto's own sources; the output is blocks of messages.

    Parameters
    ----------
    source : ReportSource
    plans : PlanSource
        A record whose append time is ahead of now by more than the plans' grace is from the future.
    until_end : bool
        Whether to read all partitions up to where they end when the pipeline begins. Otherwise
        the pipeline goes on for ever, and finds partitions that are created meanwhile.
    """

    def __init__(self, source: ReportSource, plans: PlanSource, *, until_end: bool = False) -> None:
        super().__init__(plans)
        self._source = expect(source, "names", "a source of Sotto's, such as EmbeddedLog(path)")
        self._until_end = until_end

    def expand(self, begin: beam.pvalue.PBegin) -> Messages:
        start = begin | "Start" >> beam.Impulse()
        if self._until_end:
            return (
                start
                | "List ranges" >> beam.ParDo(ListRanges(self._source))
                | "Spread ranges" >> beam.Reshuffle()
                | "Read ranges" >> beam.ParDo(ReadRanges(self._source, self._plans))
            )
        stream = stream_of(begin.pipeline, self._plans)
        return (
            start
            | "Discover partitions" >> beam.ParDo(DiscoverPartitions(self._source))
            | "Spread partitions" >> beam.Reshuffle()
            | "Read partitions" >> beam.ParDo(ReadPartitions(stream, self._source))
        )


@beam.typehints.with_input_types(bytes | MessageBlock)
class DecodeReports(_UnderPlans):
    """From messages to packed rows, keyed by budget period and shard.

    The timestamp of a message is its append time. Outputs: ``rows``; ``rejected``, packed rejects;
    ``notes`` for :class:`ReportHealth`.

    Parameters
    ----------
    plans : PlanSource
    """

    def expand(self, messages: Messages) -> Any:
        if messages.windowing != Windowing(GlobalWindows()):
            messages |= "One window" >> beam.WindowInto(GlobalWindows())
        decode = beam.ParDo(Decode(self._plans))
        return messages | "Decode" >> decode.with_outputs(REJECTED, NOTES, main="rows")


@beam.typehints.with_input_types(Keyed)
class CountReports(_UnderPlans):
    """Packed rows to changes of counts, keyed by window.

    Outputs: ``changes``; ``audits`` of shards, keyed by budget period; ``rejected``, packed
    rejects; ``notes`` for :class:`ReportHealth`.

    Parameters
    ----------
    plans : PlanSource
    """

    def expand(self, rows: beam.PCollection[Keyed]) -> Any:
        if rows.is_bounded:
            sizes = rows | "Size" >> beam.Map(period_and_size) | "Sizes" >> beam.CombinePerKey(sum)
            rows |= "To parts" >> beam.Map(to_part, self._plans, beam.pvalue.AsDict(sizes))
            rows |= "By part" >> beam.GroupByKey()
            count = beam.ParDo(CountByGroup(self._plans))
        else:
            count = beam.ParDo(CountByState(stream_of(rows.pipeline, self._plans)))
        return rows | "Count" >> count.with_outputs(REJECTED, NOTES, AUDITS, main="changes")


class _Publish(_UnderPlans):
    """Changes to documents: keys, which name what a document is about, and JSON."""

    subject: type[Subject]

    def expand(self, changes: beam.PCollection[Keyed]) -> beam.PCollection[Keyed]:
        subject = self.subject(stream_of(changes.pipeline, self._plans))
        if changes.is_bounded:
            return (
                changes
                | "By key" >> beam.GroupByKey()
                | "Publish" >> beam.ParDo(PublishByGroup(subject))
            )
        return changes | "Publish" >> beam.ParDo(PublishByState(subject))


@beam.typehints.with_input_types(Keyed)
@beam.typehints.with_output_types(Keyed)
class EstimateWindows(_Publish):
    """Changes of counts to documents of windows, with their estimates."""

    subject = WindowEstimates


@beam.typehints.with_input_types(Keyed)
@beam.typehints.with_output_types(Keyed)
class AuditPeriods(_Publish):
    """Audits of shards to documents of budget periods."""

    subject = PeriodAudit


@beam.typehints.with_input_types(Keyed)
@beam.typehints.with_output_types(Keyed)
class ReportHealth(_Publish):
    """Notes of all stages to documents of what was rejected, and of the job's health."""

    subject = JobHealth


class Aggregated(NamedTuple):
    """The outputs of :class:`AggregateReports`."""

    documents: beam.PCollection[Keyed]
    rejected: beam.PCollection[bytes]


class AggregateReports(_UnderPlans):
    """Messages of a source, or of a tuple of them, to documents and rejects.

    Parameters
    ----------
    plans : PlanSource
    """

    def expand(self, sources: Messages | tuple[Messages, ...]) -> Aggregated:
        given = (sources,) if isinstance(sources, beam.PCollection) else sources
        return aggregated(given, self._plans)


def aggregated(sources: tuple[Messages, ...], plans: PlanSource) -> Aggregated:
    """Apply what :class:`AggregateReports` is made of, each under its own label.

    An engine names its stages by the outermost labels alone.
    """
    labels = ["Decode reports", *(f"Decode source {each}" for each in range(2, len(sources) + 1))]
    decoded = [
        messages | label >> DecodeReports(plans)
        for label, messages in zip(labels, sources, strict=True)
    ]
    counted = (
        [each.rows for each in decoded]
        | "All rows" >> beam.Flatten()
        | "Count reports" >> CountReports(plans)
    )
    notes = [counted[NOTES], *(each[NOTES] for each in decoded)] | "All notes" >> beam.Flatten()
    documents = (
        counted.changes | "Estimate windows" >> EstimateWindows(plans),
        counted[AUDITS] | "Audit periods" >> AuditPeriods(plans),
        notes | "Report health" >> ReportHealth(plans),
    )
    rejects = [counted[REJECTED], *(each[REJECTED] for each in decoded)]
    return Aggregated(
        documents | "All documents" >> beam.Flatten(),
        rejects | "All rejects" >> beam.Flatten(),
    )


class _Write(beam.DoFn):
    """Writes all elements to a sink, a bundle at a time."""

    def __init__(self, sink: Sink | RejectsSink) -> None:
        self._sink = expect(sink, "write", "a sink, such as open_sink(url, job) returns")

    def start_bundle(self) -> None:
        self._items: list[Any] = []

    def process(self, element: Any) -> None:
        self._items.append(element)

    def finish_bundle(self) -> None:
        if self._items:
            self._sink.write(self._items)

    def teardown(self) -> None:
        self._sink.close()


class _WriteDocuments(_Write):
    """The same of documents, given their keys and values."""

    def process(self, element: Keyed) -> None:
        self._items.append(parse(*element))


class _ToSink(beam.PTransform):
    """Writes all elements by a DoFn, and ends there."""

    def __init__(self, write: _Write) -> None:
        super().__init__()
        self._write = write

    def expand(self, items: beam.PCollection[Any]) -> beam.pvalue.PDone:
        _ = items | "Write" >> beam.ParDo(self._write)
        return beam.pvalue.PDone(items.pipeline)


@beam.typehints.with_input_types(Keyed)
class WriteEstimates(_ToSink):
    """Writes documents to a sink, each at least once: of one key the highest revision counts.

    Parameters
    ----------
    sink : Sink
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(_WriteDocuments(sink))


@beam.typehints.with_input_types(bytes)
class WriteRejects(_ToSink):
    """Writes packed rejects to a sink, each at least once.

    Parameters
    ----------
    sink : RejectsSink
    """

    def __init__(self, sink: RejectsSink) -> None:
        super().__init__(_Write(sink))
