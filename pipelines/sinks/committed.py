"""The documents of a committed generation, for databases and topics, and what is published of them.

They are a function of the committed files. A process that is killed before it has noted how far it
has published publishes the same documents again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.published import NOTHING, PublishedWindow
from pipelines.aggregation.result_rows import Candidates, rows_of_windows
from pipelines.results.documents import (
    WINDOW_KEY,
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.results.fields import grouped
from pipelines.sinks.sql import Projection
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest, add_rows
from pipelines.storage.published import published_of, windows_of
from sotto.errors import BrokerError
from sotto.plan.registry import Registry

FORMAT = 2
#: The note of how far the topic of estimates is published.
NOTE = "published.json"
#: The header of records that names the generation which published them.
STAMP = "sotto-generation"


@dataclass(frozen=True)
class CommittedGeneration:
    """A state directory as it is committed, and the plans and strings of its documents."""

    directory: StateDirectory
    manifest: Manifest
    registry: Registry
    candidates: Candidates

    def projection(
        self, since: int, *, before: int | None = None, anew: bool = False
    ) -> Projection:
        """Return the documents that bring a sink from one generation to this one.

        They are of the windows that changed after ``since``, of all periods, of rejects, and last
        of the job's health. ``since``: the generation that the sink has, 0 for none. ``before``:
        the log's clock as of that generation, ms. ``anew``: whether a database is emptied first.
        """
        manifest = self.manifest
        return Projection(
            collector=self.registry.collector,
            state=manifest.state,
            generation=manifest.generation,
            clock=manifest.clock,
            documents=self._documents(since, before),
            lineage=manifest.digest(manifest.generation),
            anew=anew,
        )

    def _documents(self, since: int, before: int | None) -> Iterator[Document]:
        manifest, registry = self.manifest, self.registry
        job, revision = manifest.state, manifest.generation
        for changed, published in self._changed(since):
            windows, estimates = rows_of_windows(changed, registry, self.candidates, published)
            of_window = grouped(estimates, _key)
            segments = grouped((row for row in windows if row["segment"]), _key)
            for window in windows:
                if not window["segment"]:
                    key, end, renewed = _key(window), window["window_end"], window["revision"]
                    assert isinstance(end, int)
                    assert isinstance(renewed, int)
                    # A window has no estimates once all its reports were taken back.
                    shown = of_window.get(key, []) if window["n"] else []
                    rows = shown, renewed, _pane(end, before, manifest.clock), segments.get(key, [])
                    yield WindowDocument.of(job, window, *rows)
        for period in manifest.budgets(registry):
            yield PeriodDocument.of(job, period, revision)
        rejects = add_rows(manifest.expired, manifest.quarantine)
        requeued = {reason: manifest.requeued.get(reason, 0) for reason in rejects}
        yield RejectsDocument.of(job, registry.collector, rejects, revision, requeued)
        yield HealthDocument.of(job, registry.collector, manifest.health(), revision)

    def _changed(
        self, since: int
    ) -> Iterator[tuple[list[tuple[WindowKey, WindowCounts]], dict[WindowKey, PublishedWindow]]]:
        """Yield the windows that changed after a generation, and publications, page by page."""
        of = self.directory.files, self.manifest
        for page, generation in sorted(self.manifest.pages.items()):
            # A page has no publications if release 0.4.0 was interrupted in a run.
            last = self.manifest.published.get(page)
            if max(generation, last.generation if last else 0) <= since:
                continue
            published = published_of(*of, page, self.registry)
            changed = []
            for key, window in [
                *windows_of(*of, page, self.registry),
                *_former(published, self.registry),
            ]:
                renewed = published.get(key._replace(cell=0), NOTHING).revision
                if max(window.revision, renewed) > since:
                    changed.append((key, window))
            yield changed, published


def _former(
    published: Mapping[WindowKey, PublishedWindow], registry: Registry
) -> Iterator[tuple[WindowKey, WindowCounts]]:
    """Yield empty windows under the former names of windows."""
    for key, each in published.items():
        if each.superseded:
            mechanism = registry.by_fingerprint[key.fingerprint].metrics[key.metric].mechanism
            empty = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
            yield key, WindowCounts(each.revision, empty)


def _key(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in WINDOW_KEY)


def _pane(end: int, before: int | None, clock: int | None) -> str:
    if clock is None or clock < end:
        return "early"
    return "on_time" if before is None or before < end else "late"


@dataclass(frozen=True)
class Note:
    """How far a topic has been published."""

    topic: str  #: its name
    id: str  #: its id
    generation: int  #: the last generation that was published
    clock: int | None  #: the log's clock as of that generation, ms
    lineage: str | None  #: digest of that generation
    #: Partition, as text, to the offset after the last record that was sent.
    ends: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: StateDirectory, name: str = NOTE) -> Note | None:
        """Return a note in a state directory; None if it is missing or damaged."""
        return files.find_note(cls, directory.path / name, FORMAT)

    def store(self, path: Path, name: str = NOTE) -> None:
        """Store the note in a state directory, if the disk has room."""
        files.leave_note(self, path / name, FORMAT)

    def since(self, topic: str, id: str, manifest: Manifest) -> int:
        """Return the last committed generation that a topic has; 0 for none."""
        known = manifest.digest(self.generation)
        same = self.of_topic(topic, id) and known is not None and known == self.lineage
        return self.generation if same else 0

    def of_topic(self, topic: str, id: str) -> bool:
        return (self.topic, self.id) == (topic, id)


class Stamp(NamedTuple):
    """A generation of a state directory and its digest: the header of records that it published."""

    state: str
    generation: int
    digest: str


def stamp_of(manifest: Manifest) -> tuple[str, bytes]:
    """Return the header of the records that are published for a manifest."""
    digest = manifest.digest(manifest.generation)
    return STAMP, f"{manifest.state} {manifest.generation} {digest}".encode()


def check_stamps(records: Iterable[Any], manifest: Manifest, topic: str) -> None:
    """Raise BrokerError if a topic has a generation that the state directory has not committed.

    A directory that was restored from a copy does not know what was published after the copy was
    made. Its revisions would be lower than those in the topic, or mean something else, and
    consumers would keep what they have.

    ``records``: the topic's, as kafka-python returns them. Records of other jobs, or without a
    valid stamp, are ignored.
    """
    for record in records:
        for stamp in _stamps_in(record):
            known = manifest.digest(stamp.generation)
            # A digest is None if the lineage does not reach back so far.
            committed = stamp.generation <= manifest.generation and known in (None, stamp.digest)
            if stamp.state == manifest.state and not committed:
                raise BrokerError(
                    f"{topic} has a generation {stamp.generation} of these results that the state "
                    f"directory, at its generation {manifest.generation}, does not know: it was "
                    f"restored from a copy, or there are two; delete {topic}, create it again with "
                    "sotto topics create --sinks, and start sinks once with --replace"
                )


def _stamps_in(record: Any) -> Iterator[Stamp]:
    for name, value in record.headers:
        if name == STAMP:
            try:
                state, generation, digest = value.decode("ascii").split(" ")
                yield Stamp(state, int(generation), digest)
            except (AttributeError, ValueError):
                continue
