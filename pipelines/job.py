"""The Beam graph of one drain: adapters around decode, step and addition; no formula lives here.

::

    work items ─ Read ─► packed blocks ─ by period and part ─ Step ─► changes ─ sum by window
                  │                                             │                      │
                  └──► rejects, what was done ◄─────────────────┘                 ToPages
                                 │                                                     │
                                 └────────────── by file ─ WriteFiles ◄────────────────┘

Everything that a stage leaves behind goes to files of the drain's generation, under names that
depend on nothing else: a bundle that runs again writes the same. What they are is told to the
driver as one file too (:class:`~pipelines.written.Written`); nothing passes through Python lists.

Work items, not reports, go into the graph. Reports cross it as packed blocks. The runner is
named: Beam's ``DirectRunner`` would look for another engine to download. It runs in this
process, and keeps in memory what it groups: hence drains of bounded size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from pipelines import counts, files, quarantine
from pipelines.blocks import arrivals
from pipelines.commit import StateDirectory
from pipelines.counts import WindowKey
from pipelines.intent import Intent, WorkItem
from pipelines.lanes import Ranges
from pipelines.manifest import Manifest
from pipelines.parts import Parts
from pipelines.statefiles import StateFiles
from pipelines.written import Held, Tally, Written
from sotto.compiled import CompiledPlan
from sotto.decode import Reject
from sotto.registry import Registry

Keyed: TypeAlias = tuple[bytes, bytes]

_STATE_KEY = struct.Struct("<qH")
_PAGE_KEY = struct.Struct("<q")
_KEY_BYTES = 42
#: Name of the output beside the main one: parts of files, keyed by the file.
_PARTS = "parts"
_SUMMARY, _QUARANTINE, _PAGE = b"summary", b"quarantine", b"page"


@dataclass(frozen=True)
class Job:
    """What the stages of one drain need to know; crosses Beam pickled.

    Parameters
    ----------
    source : Ranges
        Where the reports are.
    state : str
        Path of the state directory.
    plans : tuple of bytes
        The compiled plans.
    generation : int
        The one being made.
    key : bytes
        Key of the hashes inside the states.
    first_open : int or None
        Rows of earlier budget periods are late, whatever their plan says: their state is gone.
    states : mapping
        (period, part) to the state that is to be gone on from.
    parts : Parts
        How periods are cut.
    pages : mapping
        Page of counts to the generation that is to be added to.
    """

    source: Ranges
    state: str
    plans: tuple[bytes, ...]
    generation: int
    key: bytes
    first_open: int | None
    states: Mapping[tuple[int, int], Held]
    parts: Parts
    pages: Mapping[int, int]

    @classmethod
    def of(
        cls, source: Ranges, state: Path, registry: Registry, manifest: Manifest, intent: Intent
    ) -> Job:
        """Return the job that goes on from a manifest by an intent."""
        return cls(
            source=source,
            state=str(state),
            plans=tuple(plan.to_json() for plan in registry.plans),
            generation=manifest.generation + 1,
            key=manifest.key,
            first_open=manifest.first_open,
            states=manifest.states,
            parts=manifest.parts_of(intent, registry.shards),
            pages=manifest.pages,
        )

    @property
    def registry(self) -> Registry:
        """The plans, built once a process."""
        return _registry(self.plans)

    @property
    def directory(self) -> StateDirectory:
        """Where state and results go."""
        return StateDirectory(self.state)

    @property
    def files(self) -> StateFiles:
        """Where the states are."""
        return StateFiles(self.directory, self.registry, self.key)


@lru_cache(maxsize=4)
def _registry(plans: tuple[bytes, ...]) -> Registry:
    return Registry([CompiledPlan.from_json(plan) for plan in plans])


def run(job: Job, items: Iterable[WorkItem]) -> Written:
    """Run the graph over work items; return what it has written."""
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    build(pipeline, job, items)
    pipeline.run().wait_until_finish()
    return Written.from_json(job.directory.summary(job.generation).read_bytes())


def build(pipeline: beam.Pipeline, job: Job, items: Iterable[WorkItem]) -> None:
    """Lay the graph of a drain into a pipeline."""
    read = (
        pipeline
        # Reshuffling would spread items over workers, of which there is one.
        | "Work items" >> beam.Create([tuple(item) for item in items], reshuffle=False)
        | "Read" >> beam.ParDo(Read(job)).with_outputs(_PARTS, main="blocks")
    )
    stepped = (
        read.blocks
        | "By period and part" >> beam.GroupByKey()
        | "Step" >> beam.ParDo(Step(job)).with_outputs(_PARTS, main="changes")
    )
    pages = (
        stepped.changes
        | "Sum by window" >> beam.CombinePerKey(AddCounts())
        | "To pages" >> beam.ParDo(ToPages(job))
    )
    _ = (
        (read[_PARTS], stepped[_PARTS], pages)
        | "Parts of files" >> beam.Flatten()
        | "By file" >> beam.GroupByKey()
        | "Write files" >> beam.ParDo(WriteFiles(job))
    )


class _Stage(beam.DoFn):
    """A stage that knows its job."""

    def __init__(self, job: Job) -> None:
        self.job = job


@beam.typehints.with_output_types(Keyed, parts=Keyed)
class Read(_Stage):
    """Work item to packed blocks, keyed by period and part."""

    def process(self, item: tuple[str, int, int, int]) -> Iterator[Any]:
        name, start, end, floor = item
        for block in self.job.source.lane(name).blocks(start, end, floor):
            found = arrivals(block, self.job.registry, self.job.first_open, self.job.parts)
            for rows in found.rows:
                yield _STATE_KEY.pack(rows.period, rows.shard), rows.to_bytes()
            yield from _parts(Written(tally=Tally(reports=found.reports)), found.rejects)


@beam.typehints.with_output_types(Keyed, parts=Keyed)
class Step(_Stage):
    """All blocks of a part of a period to the changes of its windows; writes the new state."""

    def process(self, element: tuple[bytes, Iterable[bytes]]) -> Iterator[Any]:
        key, blocks = element
        period, part = _STATE_KEY.unpack(key)
        before = self.job.states.get((period, part))
        stepped, held = self.job.files.step(period, part, before, blocks, self.job.generation)
        for window, changes in stepped.changes.items():
            yield window.to_bytes(), counts.pack_matrix(changes)
        written = Written(states={(period, part): held}, tally=stepped.tally)
        yield from _parts(written, stepped.rejects)


class AddCounts(beam.CombineFn):
    """Adds packed matrices of counts."""

    def create_accumulator(self) -> bytes:
        return b""

    def add_input(self, accumulator: bytes, changes: bytes) -> bytes:
        return self.merge_accumulators([accumulator, changes])

    def add_inputs(self, accumulator: bytes, changes: Iterable[bytes]) -> bytes:
        return self.merge_accumulators([accumulator, *changes])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        present = [accumulator for accumulator in accumulators if accumulator]
        return counts.add(present) if present else b""

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator


@beam.typehints.with_output_types(Keyed)
class ToPages(_Stage):
    """The changes of a window, as a part of the page that it is on."""

    def process(self, element: Keyed) -> Iterator[Keyed]:
        window, changes = element
        page = counts.page_of(WindowKey.from_bytes(window), self.job.registry.period)
        yield _PAGE + _PAGE_KEY.pack(page), window + changes
        yield _SUMMARY, Written(pages=frozenset([page])).to_json()


class WriteFiles(_Stage):
    """All parts of a file of the generation to that file."""

    def process(self, element: tuple[bytes, Iterable[bytes]]) -> None:
        key, parts = element
        directory, generation = self.job.directory, self.job.generation
        if key == _SUMMARY:
            whole = Written.sum(Written.from_json(part) for part in parts)
            files.write(directory.summary(generation), [whole.to_json()])
        elif key == _QUARANTINE:
            rejects = quarantine.combine(parts)
            files.store(directory.quarantine(generation), quarantine.KIND, rejects)
        else:
            (page,) = _PAGE_KEY.unpack(key.removeprefix(_PAGE))
            self._write_page(page, parts)

    def _write_page(self, page: int, parts: Iterable[bytes]) -> None:
        directory, generation = self.job.directory, self.job.generation
        before = {}
        if page in self.job.pages:
            path = directory.page(page, self.job.pages[page])
            before = counts.unpack_page(files.load(path, counts.KIND))
        changes = (
            (WindowKey.from_bytes(part[:_KEY_BYTES]), counts.unpack_matrix(part[_KEY_BYTES:]))
            for part in parts
        )
        merged = counts.pack_page(counts.merge(before, changes, generation))
        files.store(directory.page(page, generation), counts.KIND, merged)


def _parts(written: Written, rejects: list[Reject]) -> Iterator[beam.pvalue.TaggedOutput]:
    """Yield what a stage adds to the summary and to the quarantine."""
    written = replace(written, rejects=quarantine.numbers(rejects))
    yield beam.pvalue.TaggedOutput(_PARTS, (_SUMMARY, written.to_json()))
    if rejects:
        yield beam.pvalue.TaggedOutput(_PARTS, (_QUARANTINE, quarantine.pack(rejects)))
