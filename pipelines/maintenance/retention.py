"""Removes files that are of no more use: old segments of the log, and quarantine after retention.

Every run removes states of closed budget periods, and quarantine whose retention is over by the
log's clock. This module removes the rest: segments of the embedded log; and quarantine by the
machine's clock, for a log to which no report has come for long, so that its clock stands still.

A segment is removed if all of it is counted, a later segment follows, and that one's first record
was appended more than ``keep`` ago, by the log's clock. So a state directory that is restored from
a copy that is not older finds in the log all that came since. Segments are removed oldest first, so
that a log is left even if the process is killed.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from pipelines.bounded.run import Progress, opened
from pipelines.sources.log import EmbeddedLog
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest, expired
from sotto.clocks import now_ms
from sotto.errors import ParameterError
from sotto.log.reader import first_append, partitions, segments
from sotto.plan.durations import duration_text
from sotto.plan.registry import Registry


@dataclass(frozen=True)
class Removable:
    """Files that are of no more use."""

    segments: tuple[Path, ...] = ()  #: segments of the log, those of a partition oldest first
    size: int = 0  #: bytes of the segments
    #: Generations whose quarantine is over its retention, and how many reports are in it.
    generations: tuple[int, ...] = ()
    rejects: int = 0


def retain(
    state_dir: str | os.PathLike[str],
    log: str | os.PathLike[str] | None = None,
    keep: int | None = None,
    database: str | URL | None = None,
    progress: Progress = lambda done, total: None,
    *,
    dry_run: bool = False,
    wait: float = 0.0,
    clock: Callable[[], int] = now_ms,
) -> Removable:
    """Remove files that are of no more use; return them. With ``dry_run`` none is removed.

    ``log``: an embedded log, whose counted segments are removed. ``keep``: how old these are at
    least, ms; by default the plans' horizon, which is also the least. ``database``, ``progress``:
    as for :func:`pipelines.bounded.run.aggregate`; progress is in bytes. ``wait``: seconds to wait
    for a run that holds the directory. ``clock``: returns the current time, ms, for quarantine.

    Raises AggregationError if it cannot go on, ParameterError if ``keep`` is too short.
    """
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()  # Refuses what no run has made.
    if dry_run:
        return _removable(manifest, directory.plans.with_given((), {})[0], log, keep, clock())
    with opened(state_dir, (), None, database, lambda step: None, wait=wait) as (driver, _):
        now = clock()
        found = _removable(driver.manifest, driver.registry, log, keep, now)
        if found.generations:
            driver.own_interrupted(None)
            driver.expire(now)
        remove_segments(found, progress)
        return found


class HourlyRetention:
    """Removes segments of a log that are counted and older than an age, once an hour."""

    def __init__(
        self,
        state: str | os.PathLike[str],
        log: str | os.PathLike[str] | None,
        age: int | None,
        database: str | URL | None,
        wait: float,
    ) -> None:
        self._state, self._log, self._age = state, log, age
        self._database, self._wait = database, wait
        self._next = 0.0

    def look(self) -> int:
        """Remove what is due, if an age is given; return how many segments were removed."""
        if self._age is None or time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + 3600
        found = retain(self._state, self._log, self._age, self._database, wait=self._wait)
        return len(found.segments)


def remove_segments(found: Removable, progress: Progress = lambda done, total: None) -> None:
    """Remove segments of a log, durably, those of a partition oldest first."""
    done = 0
    for path in found.segments:
        done += path.stat().st_size
        path.unlink()
        # Each removal is durable before the next one, so that no gap is left after a crash.
        files.sync_directory(path.parent)
        progress(done, found.size)


def _removable(
    manifest: Manifest,
    registry: Registry,
    log: str | os.PathLike[str] | None,
    keep: int | None,
    now: int,
) -> Removable:
    found = () if log is None else tuple(old_segments(Path(log), manifest, registry, keep))
    over = expired(manifest, registry, now)
    return Removable(
        segments=found,
        size=sum(path.stat().st_size for path in found),
        generations=tuple(each.generation for each in over),
        rejects=sum(sum(each.rows.values()) for each in over),
    )


def old_segments(
    log: Path, manifest: Manifest, registry: Registry, keep: int | None = None
) -> Iterator[Path]:
    """Yield the segments of a log that are counted and old; parameters as of :func:`retain`."""
    keep = registry.horizon if keep is None else keep
    if keep < registry.horizon:
        raise ParameterError(
            f"segments must be kept for at least {duration_text(registry.horizon)}, for which "
            f"plans take reports, not {duration_text(keep)}"
        )
    EmbeddedLog(log).open(None)
    for partition in partitions(log):
        last = manifest.last.get(partition.name)
        if last is None or manifest.clock is None:
            continue
        found = segments(partition)
        for segment, following in itertools.pairwise(found):
            # The last counted record stays, since it identifies the partition.
            if following.base > last.position:
                break
            begun = first_append(following)
            if begun is None or begun + keep > manifest.clock:
                break
            yield segment.path
