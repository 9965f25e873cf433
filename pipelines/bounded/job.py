"""The Beam graph of one run: adapters around decode, step and addition; no formula lives here.

::

    work items ─ Read ─► packed blocks ─ by period and part ─ Step ─►  changes ─ sum by window
                  │                                              │                      │
                  ├──► rejects ◄─────────────────────────────────┤                to pages
                  │       └──────────── by file ─ WriteFiles ◄───│──────────────────────┘
                  └──► what was done ◄───────────────────────────┘   │
                          └──► together ─ WriteSummary ◄─────────────┘

Every stage writes its output to files in the folder of the driver's attempt, each under a name that
no other writer has, so that a part of the job may run again, or twice at the same time. The last
stage writes one more file, the summary (:class:`~pipelines.storage.output.JobOutput`): it says
which files count, and at which names. The output of a part depends on its input alone, in whatever
order that comes, so any runner makes the same files. A failure that no retry can mend, such as a
damaged state, is noted in the summary; if it were raised, an engine would retry it again and again.

Work items, not reports, go into the graph. Reports cross it as packed blocks. Grouped blocks are
kept in memory, and therefore runs have a bounded size.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam

from pipelines.aggregation import counts, quarantine
from pipelines.aggregation.counts import Matrix, WindowCounts, WindowKey
from pipelines.aggregation.decode import Parts, arrivals
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.step import Tally
from pipelines.beam.decoding import Grouped, Keyed, period_and_shard, shard_key
from pipelines.beam.plans import FixedPlans
from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.sources.base import LATEST, Range, Ranges
from pipelines.storage import files
from pipelines.storage.directory import StateFiles
from pipelines.storage.files import AnyPath, Buffer
from pipelines.storage.intent import Intent, WorkItem
from pipelines.storage.manifest import Manifest
from pipelines.storage.output import JobOutput
from pipelines.storage.states import StoredStates, Taken
from sotto.errors import AggregationError, BrokerError, FormatError, SottoError
from sotto.plan.registry import Registry
from sotto.wire.decode import Reject

_PAGE_KEY = struct.Struct("<q")
#: Names of the side outputs: parts of files, keyed by the file, and parts of the summary.
_PARTS, _DONE = "parts", "done"
_QUARANTINE, _PAGE = b"quarantine", b"page"
#: Kind and name of the summary's file.
_SUMMARY = "summary"
_ALONE = b""


class _InProcess(NamedTuple):
    """The source of a job in this process, and its rows by number.

    Beam then groups the numbers in place of packed rows, which it would copy four times.
    """

    source: Ranges
    rows: dict[bytes, Rows]


#: The jobs in this process, by attempt.
_HELD: dict[str, _InProcess] = {}
_numbers = itertools.count()
#: Seconds within which the driver must see the files that workers have written.
PATIENCE = 60.0


@dataclass(frozen=True)
class Job:
    """The facts that the stages of one run need; it crosses Beam pickled."""

    source: Ranges  #: the source of the reports
    files: StateFiles  #: the files of the state directory
    attempt: str  #: random name of the driver's attempt to make the generation
    plans: FixedPlans
    manifest: Manifest  #: what is committed; the job goes on from it
    parts: Parts  #: into how many parts periods are cut
    trusted: int  #: the latest append time, ms, that is believed
    here: bool = False  #: whether all stages run in this process

    @classmethod
    def of(
        cls,
        source: Ranges,
        state: StateFiles,
        registry: Registry,
        manifest: Manifest,
        intent: Intent,
    ) -> Job:
        plans = FixedPlans.of(registry.plans)
        parts = manifest.parts_of(intent, registry.shards)
        trusted = LATEST if intent.trusted is None else intent.trusted
        return cls(source, state, _random_name(), plans, manifest, parts, trusted)

    @property
    def generation(self) -> int:
        return self.manifest.generation + 1

    @property
    def registry(self) -> Registry:
        """The registry of the plans, which is built once in each process."""
        return self.plans.registry()

    def range(self, name: str) -> Range:
        """Return a range of reports."""
        source = _HELD[self.attempt].source if self.here else self.source
        return source.partition(name)

    def hold(self, rows: Rows) -> bytes:
        """Return the form in which Beam groups rows: packed, or a number for :meth:`step`."""
        if not self.here:
            return rows.to_bytes()
        number = str(next(_numbers)).encode()
        _HELD[self.attempt].rows[number] = rows
        return number

    def step(self, period: int, part: int, blocks: Iterable[bytes]) -> Taken:
        """Take rows into the committed state of a part of a period, or into a new one."""
        find = _HELD[self.attempt].rows.__getitem__ if self.here else Rows.from_bytes
        states = StoredStates(self.files, self.registry, self.manifest.key)
        stored = self.manifest.states.get((period, part))
        return states.step(period, part, stored, map(find, blocks), self.generation)

    def page(self, page: int) -> dict[WindowKey, WindowCounts]:
        """Return a committed page of counts, or an empty one."""
        if page not in self.manifest.pages:
            return {}
        path = self.files.page(page, self.manifest.pages[page])
        with files.committed(path):
            return counts.unpack_page(files.load(path, counts.KIND))

    def write(self, target: str, parts: Sequence[Buffer]) -> JobOutput:
        """Write a file of the attempt; the output says that it is to count at ``target``."""
        folder = self.files.attempt(self.attempt)
        name = f"{target.replace('/', '.')}.{_random_name()}"
        try:
            files.create(folder / name, parts)
        except FileNotFoundError as error:
            raise AggregationError(
                f"{folder} is not here: all workers must reach that under this name"
            ) from error
        return JobOutput(files={target: name})

    def write_page(self, page: int, changes: Iterable[tuple[WindowKey, Matrix]]) -> JobOutput:
        """Write a page of counts with changes added."""
        merged = counts.merge(self.page(page), changes, self.generation)
        content = files.with_checksum(counts.KIND, counts.pack_page(merged))
        written = self.write(f"counts/{page}.{self.generation}", content)
        return replace(written, pages=frozenset([page]))

    def write_quarantine(self, name: str, packed: bytes) -> JobOutput:
        """Write packed rejects to a file of quarantine."""
        return self.write(f"quarantine/{name}", files.with_checksum(quarantine.KIND, packed))

    def output(self, patience: float = 0.0) -> JobOutput:
        """Return the job's summary; wait up to ``patience`` seconds, since NFS shows files late."""
        folder, deadline = self.files.attempt(self.attempt), time.monotonic() + patience
        while (found := self._summary(folder)) is None:
            if time.monotonic() >= deadline:
                raise AggregationError(
                    f"the job has left nothing in {folder}: all workers must reach that under "
                    "this name"
                )
            time.sleep(1)
        if found.failed:
            raise AggregationError(found.failed)
        return found

    def _summary(self, folder: AnyPath) -> JobOutput | None:
        """Return a whole summary, if there is one.

        There are several files if the last stage ran twice, or died and ran again.
        """
        for path in files.listed(folder):
            if path.name.startswith(f"{_SUMMARY}."):
                with suppress(FormatError):
                    return JobOutput.from_json(bytes(files.load(path, _SUMMARY.encode())))
        return None


def _random_name() -> str:
    return os.urandom(8).hex()


def run(job: Job, items: Iterable[WorkItem], runner: Runner = EMBEDDED) -> JobOutput:
    """Run the graph over work items; return its output, whose files are still the attempt's."""
    files.make_folder(job.files.attempt(job.attempt))
    pipeline = runner.pipeline(f"sotto-aggregate-{job.generation}")
    job = replace(job, here=runner.in_process)
    build(pipeline, job, items, spread=not runner.embedded)
    _HELD[job.attempt] = _InProcess(job.source, {})
    try:
        runner.run(pipeline)
    finally:
        del _HELD[job.attempt]
    return job.output(0.0 if runner.embedded else PATIENCE)


def build(pipeline: beam.Pipeline, job: Job, items: Iterable[WorkItem], *, spread: bool) -> None:
    """Add the graph of a run to a pipeline; ``spread``: whether to spread items over workers."""
    read = (
        pipeline
        | "Work items" >> beam.Create([tuple(item) for item in items], reshuffle=spread)
        | "Read" >> beam.ParDo(Read(job)).with_outputs(_PARTS, _DONE, main="blocks")
    )
    stepped = (
        read.blocks
        | "By period and part" >> beam.GroupByKey()
        | "Step" >> beam.ParDo(CountBlocks(job)).with_outputs(_PARTS, _DONE, main="changes")
    )
    pages = (
        stepped.changes
        | "Sum by window" >> beam.CombinePerKey(counts.summed)
        | "To pages" >> beam.Map(to_page, job.registry.period)
    )
    filed = (
        (read[_PARTS], stepped[_PARTS], pages)
        | "Parts of files" >> beam.Flatten()
        | "By file" >> beam.GroupByKey()
        | "Write files" >> beam.ParDo(WriteFiles(job))
    )
    _ = (
        (read[_DONE], stepped[_DONE], filed)
        | "Parts of the summary" >> beam.Flatten()
        | "Together" >> beam.GroupByKey()
        | "Write summary" >> beam.ParDo(WriteSummary(job))
    )


class _Stage(beam.DoFn):
    """The base of stages: knows the job, and notes failures that no retry can mend."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(self, element: Any) -> Iterator[Any]:
        try:
            yield from self.work(element)
        except BrokerError:
            raise
        except SottoError as error:
            yield self.done(JobOutput(failed=str(error)))

    def work(self, element: Any) -> Iterator[Any]:
        """Yield the outputs of an element."""
        raise NotImplementedError

    def done(self, part: JobOutput) -> Any:
        """Return a part of the summary as an output."""
        return beam.pvalue.TaggedOutput(_DONE, (_ALONE, part.to_json()))

    def rejected(self, rejects: list[Reject]) -> Iterator[Any]:
        """Yield rejects as a part of the quarantine file, and their numbers for the summary."""
        if rejects:
            yield self.done(JobOutput(rejects=quarantine.numbers(rejects)))
            yield beam.pvalue.TaggedOutput(_PARTS, (_QUARANTINE, quarantine.pack(rejects)))


@beam.typehints.with_output_types(Keyed, parts=Keyed, done=Keyed)
class Read(_Stage):
    """Reads a work item, and yields packed blocks keyed by period and part."""

    def work(self, item: tuple[str, int, int, int]) -> Iterator[Any]:
        name, start, end, floor = item
        job, of = self.job, self.job.manifest
        for block in job.range(name).blocks(start, end, floor, job.trusted):
            found = arrivals(block, job.registry, of.first_open, job.parts, of.tombstones)
            for rows in found.rows:
                yield shard_key(rows.period, rows.shard), self.job.hold(rows)
            yield self.done(JobOutput(tally=Tally(reports=found.reports)))
            yield from self.rejected(found.rejects)


@beam.typehints.with_output_types(Keyed, parts=Keyed, done=Keyed)
class CountBlocks(_Stage):
    """Counts all blocks of a part of a period: writes its state, and yields changes of windows."""

    def work(self, element: Grouped) -> Iterator[Any]:
        key, blocks = element
        period, part = period_and_shard(key)
        stepped, stored, target, content = self.job.step(period, part, blocks)
        output = self.job.write(target, content)
        for window, changes in stepped.changes.items():
            yield window.to_bytes(), counts.pack_change(window, changes)
        states = {(period, part): stored}
        yield self.done(replace(output, states=states, tally=stepped.tally))
        yield from self.rejected(stepped.rejects)


def to_page(element: Keyed, period: int) -> Keyed:
    """Key the changes of a window by the page that it is on."""
    _, change = element
    window, _ = next(counts.unpack_changes(change))
    return _PAGE + _PAGE_KEY.pack(counts.page_of(window, period)), change


@beam.typehints.with_output_types(Keyed)
class WriteFiles(_Stage):
    """Writes all parts of the quarantine, or of a page of counts, to one file."""

    def work(self, element: Grouped) -> Iterator[Keyed]:
        key, parts = element
        if key == _QUARANTINE:
            packed = quarantine.combine(parts)
            yield self.done(self.job.write_quarantine(str(self.job.generation), packed))
        else:
            (page,) = _PAGE_KEY.unpack(key.removeprefix(_PAGE))
            changes = itertools.chain.from_iterable(map(counts.unpack_changes, parts))
            yield self.done(self.job.write_page(page, changes))

    def done(self, part: JobOutput) -> Keyed:
        """Return a part of the summary, which is this stage's only output."""
        return _ALONE, part.to_json()


class WriteSummary(beam.DoFn):
    """Writes the summary of all stages to a file."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(self, element: Grouped) -> None:
        _, parts = element
        whole = JobOutput.sum(JobOutput.from_json(part) for part in parts)
        # If the attempt's folder is gone, its driver is, and nothing needs the job any more. An
        # exception would make an engine retry it again and again, on slots that other jobs need.
        with suppress(AggregationError):
            self.job.write(_SUMMARY, files.with_checksum(_SUMMARY.encode(), whole.to_json()))
