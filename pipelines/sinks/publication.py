"""What a run publishes of what it has committed, and the note of how far that has been done.

Documents are functions of what is committed. A run that is killed before it has left its note
publishes the same ones again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipelines.sinks.documents import (
    health_document,
    period_document,
    rejects_document,
    window_document,
)
from pipelines.sinks.fields import KEYS
from pipelines.sinks.results import Projection
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import dump_document, load_document
from pipelines.storage.manifest import Manifest
from sotto.errors import AggregationError

FORMAT = 2
NAME = "published.json"


@dataclass(frozen=True)
class Publication:
    """A note of what has been published.

    Parameters
    ----------
    topic, id : str
        Where to: name and id of the topic.
    generation : int
        Up to which.
    clock : int or None
        The log's as of then, ms.
    lineage : str or None
        Digest of that generation.
    ends : mapping
        Partition, as text, to the offset behind the last record that was sent.
    """

    topic: str
    id: str
    generation: int
    clock: int | None
    lineage: str | None
    ends: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: StateDirectory, name: str = NAME) -> Publication | None:
        """Return a note in a state directory; one that is damaged is as good as none."""
        try:
            value = load_document((directory.path / name).read_bytes(), name, FORMAT)
            return cls(**{each: value[each] for each in cls.__dataclass_fields__ if each in value})
        except (OSError, AggregationError, TypeError):
            return None

    def leave(self, path: Path, name: str = NAME) -> None:
        """Leave a note in a state directory, or none where the disk does not take it."""
        with suppress(OSError):
            files.replace(path / name, dump_document({"format": FORMAT, **asdict(self)}))

    def since(self, topic: str, id: str, manifest: Manifest) -> int:
        """Return from which generation on a topic lacks what is committed; 0 for all of it."""
        known = manifest.digest(self.generation)
        same = self.of_topic(topic, id) and known is not None and known == self.lineage
        return self.generation if same else 0

    def of_topic(self, topic: str, id: str) -> bool:
        """Tell whether this is of what was published to a topic."""
        return (self.topic, self.id) == (topic, id)


def documents_of(
    projection: Projection, collector: str, before: int | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the documents of what has changed: windows, then periods, then what was rejected.

    Parameters
    ----------
    projection : Projection
        Its windows are gone through once.
    collector : str
    before : int or None
        The log's clock as of what was published before, ms.
    """
    job, revision = projection.state, projection.generation
    for windows, estimates in projection.changed:
        of_window = defaultdict(list)
        for row in estimates:
            of_window[_key(row)].append(row)
        for window in windows:
            pane = _pane(_whole(window["window_end"]), before, projection.clock)
            found = of_window[_key(window)]
            yield window_document(job, window, found, _whole(window["revision"]), pane)
    for row in projection.periods:
        yield period_document(job, row, revision)
    rejects: Counter[str] = Counter()
    requeued: Counter[str] = Counter()
    for entry in projection.quarantine:
        rejects[str(entry["reason"])] += _whole(entry["rows"])
        requeued[str(entry["reason"])] += _whole(entry["requeued"])
    yield rejects_document(job, collector, rejects, revision, requeued)


def health_of(manifest: Manifest, collector: str) -> tuple[bytes, bytes]:
    """Return the document of how the job is as of what is committed."""
    held = manifest.states.values()
    health = {
        **manifest.tally._asdict(),
        "chains": sum(each.totals.chains for each in held),
        "pseudonyms": sum(each.totals.pseudonyms for each in held),
        "state_bytes": sum(each.size for each in held),
        "clock": manifest.clock,
        "offsets": dict(manifest.lanes),
    }
    return health_document(manifest.state, collector, health, manifest.generation)


def _key(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in KEYS["window"])


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _pane(end: int, before: int | None, clock: int | None) -> str:
    if clock is None or clock < end:
        return "early"
    return "on_time" if before is None or before < end else "late"
