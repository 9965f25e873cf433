"""What a committed generation is to databases and topics: rows, documents, and who made them.

All of it is a function of the committed files. A process that is killed before it has noted how
far it has published publishes the same documents again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.aggregation.counts import Window, WindowKey
from pipelines.aggregation.published import NOTHING, PublishedWindow
from pipelines.aggregation.result_rows import Candidates, rows_of_windows
from pipelines.results import documents
from pipelines.sinks.sql import Projection
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest
from pipelines.storage.published import published_of, windows_of
from sotto.errors import BrokerError
from sotto.plan.registry import Registry

FORMAT = 2
#: The note of how far the topic of estimates is published.
NOTE = "published.json"
#: The header of records that names the generation which published them.
STAMP = "sotto-generation"


def projection(
    directory: StateDirectory,
    manifest: Manifest,
    registry: Registry,
    candidates: Candidates,
    since: int,
    *,
    anew: bool = False,
) -> Projection:
    """Return what brings a database from one generation to the committed one.

    Windows that changed after ``since``, the generation that the database has, are estimated; 0 is
    for none. ``anew``: whether the database is emptied first.
    """
    return Projection(
        collector=registry.collector,
        state=manifest.state,
        generation=manifest.generation,
        clock=manifest.clock,
        changed=(
            _rows(*page, registry, candidates)
            for page in _changed(directory, manifest, registry, since)
        ),
        periods=list(_periods(manifest, registry)),
        quarantine=list(_quarantine(manifest, registry.collector)),
        lineage=manifest.digest(manifest.generation),
        anew=anew,
    )


def _rows(
    windows: list[tuple[WindowKey, Window]],
    published: Mapping[WindowKey, PublishedWindow],
    registry: Registry,
    candidates: Candidates,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of windows; no estimates of those whose reports were all taken back."""
    alive = {key[:3] for key, window in windows if window.counts.any()}
    full = [(key, window) for key, window in windows if key[:3] in alive]
    empty = [(key, window) for key, window in windows if key[:3] not in alive]
    rows, estimates = rows_of_windows(full, registry, candidates, published)
    return rows + rows_of_windows(empty, registry, candidates, published)[0], estimates


def _changed(
    directory: StateDirectory, manifest: Manifest, registry: Registry, since: int
) -> Iterator[tuple[list[tuple[WindowKey, Window]], dict[WindowKey, PublishedWindow]]]:
    """Yield what changed after a generation, page by page: windows, and what is published."""
    for page, generation in sorted(manifest.pages.items()):
        # A state of release 0.4.0 has none where a run of it was interrupted.
        last = manifest.published.get(page)
        if max(generation, last.generation if last else 0) <= since:
            continue
        published = published_of(directory.files, manifest, page, registry)
        windows = windows_of(directory.files, manifest, page, registry)
        changed = []
        for key, window in [*windows, *_former(published, registry)]:
            renewed = published.get(key._replace(cell=0), NOTHING).revision
            if max(window.revision, renewed) > since:
                changed.append((key, window))
        yield changed, published


def _former(
    published: Mapping[WindowKey, PublishedWindow], registry: Registry
) -> Iterator[tuple[WindowKey, Window]]:
    """Yield empty windows under the names that windows no longer have."""
    for key, each in published.items():
        if each.superseded:
            mechanism = registry.by_fingerprint[key.fingerprint].metrics[key.metric].mechanism
            empty = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
            yield key, Window(each.revision, empty)


def _periods(manifest: Manifest, registry: Registry) -> Iterator[dict[str, object]]:
    for period, totals in sorted(manifest.audit().items()):
        yield {
            "collector": registry.collector,
            "period_start": period * registry.period,
            "period_end": (period + 1) * registry.period,
            "closed": manifest.first_open is not None and period < manifest.first_open,
            **asdict(totals),
        }


def _quarantine(manifest: Manifest, collector: str) -> Iterator[dict[str, object]]:
    kept = []
    for each in manifest.quarantine:
        again: Counter[str] = Counter()
        for reason, _, rows in each.requeued:
            again[reason] += rows
        kept.append((each.generation, each.rows, again))
    gone = Counter(manifest.requeued)
    for _, _, requeued in kept:
        gone.subtract(requeued)
    for generation, rejected, requeued in [(0, manifest.expired, gone), *kept]:
        for reason, number in rejected.items():
            yield {
                "collector": collector,
                "generation": generation,
                "reason": reason,
                "rows": number,
                "requeued": requeued[reason],
            }


def documents_of(
    projection: Projection, collector: str, before: int | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield what changed since the log's clock was ``before``: windows, periods, rejects."""
    job, revision = projection.state, projection.generation
    for windows, estimates in projection.changed:
        of_window, segments = defaultdict(list), defaultdict(list)
        for row in estimates:
            of_window[_key(row)].append(row)
        for row in windows:
            if row["segment"]:
                segments[_key(row)].append(row)
        for window in windows:
            if window["segment"]:
                continue
            pane = _pane(_int(window["window_end"]), before, projection.clock)
            found, of_segment = of_window[_key(window)], segments[_key(window)]
            revision_of = _int(window["revision"])
            yield documents.window_document(job, window, found, revision_of, pane, of_segment)
    for row in projection.periods:
        yield documents.period_document(job, row, revision)
    rejects: Counter[str] = Counter()
    requeued: Counter[str] = Counter()
    for entry in projection.quarantine:
        rejects[str(entry["reason"])] += _int(entry["rows"])
        requeued[str(entry["reason"])] += _int(entry["requeued"])
    yield documents.rejects_document(job, collector, rejects, revision, requeued)


def health_of(manifest: Manifest, collector: str) -> tuple[bytes, bytes]:
    """Return the document of the job's health as of what is committed."""
    held = manifest.states.values()
    health = {
        **manifest.tally._asdict(),
        "chains": sum(each.totals.chains for each in held),
        "pseudonyms": sum(each.totals.pseudonyms for each in held),
        "state_bytes": sum(each.size for each in held),
        "clock": manifest.clock,
        "offsets": dict(manifest.positions),
    }
    return documents.health_document(manifest.state, collector, health, manifest.generation)


def _key(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in documents.WINDOW_KEY)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _pane(end: int, before: int | None, clock: int | None) -> str:
    if clock is None or clock < end:
        return "early"
    return "on_time" if before is None or before < end else "late"


@dataclass(frozen=True)
class Note:
    """How far a topic has been published."""

    topic: str  #: its name
    id: str  #: its id
    generation: int  #: the last one published
    clock: int | None  #: the log's as of then, ms
    lineage: str | None  #: digest of that generation
    #: Partition, as text, to the offset after the last record that was sent.
    ends: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: StateDirectory, name: str = NOTE) -> Note | None:
        """Return a note in a state directory; None if it is missing or damaged."""
        return files.find_note(cls, directory.path / name, FORMAT)

    def store(self, path: Path, name: str = NOTE) -> None:
        """Store the note in a state directory, if the disk takes it."""
        files.leave_note(self, path / name, FORMAT)

    def since(self, topic: str, id: str, manifest: Manifest) -> int:
        """Return the last generation that a topic has of what is committed; 0 for none."""
        known = manifest.digest(self.generation)
        same = self.of_topic(topic, id) and known is not None and known == self.lineage
        return self.generation if same else 0

    def of_topic(self, topic: str, id: str) -> bool:
        return (self.topic, self.id) == (topic, id)


class Stamp(NamedTuple):
    """A generation of a state directory, and its digest: a header of what it published."""

    state: str
    generation: int
    digest: str


def stamp_of(manifest: Manifest) -> tuple[str, bytes]:
    """Return the header of what is published of a manifest."""
    digest = manifest.digest(manifest.generation)
    return STAMP, f"{manifest.state} {manifest.generation} {digest}".encode()


def check_stamps(records: Iterable[Any], manifest: Manifest, topic: str) -> None:
    """Refuse to publish where a topic has a generation that a state directory has not committed.

    A directory that was restored from a copy knows nothing of what was published after the copy
    was made. Its revisions would be lower than those in the topic, or mean something else, and
    consumers would keep what they have.

    ``records``: of the topic, as kafka-python returns them. Those of other jobs and without a valid
    stamp are ignored.

    Raises BrokerError, which says what to do, if it has.
    """
    for record in records:
        for stamp in _stamps_in(record):
            known = manifest.digest(stamp.generation)
            # Digests are kept of the last generations only.
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
