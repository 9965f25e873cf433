"""The state directory: its layout, its lock, and the two writes that make a commit.

::

    STATE/
      LOCK           held by the one run
      MANIFEST.json  all that is committed, and keyed hashes of forgotten pseudonyms; files that it
                     does not name do not count
      intent.json    what a run under way takes from the log
      plans/         the plans seen, FINGERPRINT.json, and the candidates of their strings
      states/        PERIOD.PART.GENERATION, snapshots
      logs/          PERIOD.PART.GENERATION, rows taken since
      counts/        PAGE.GENERATION
      published/     PAGE.GENERATION, what is published of the counts
      quarantine/    GENERATION; GENERATION.LATER once a later one has taken a forgotten pseudonym's
                     bytes out
      attempts/      what a job writes before it is moved to the five above: ATTEMPT/NAME.RANDOM
      results.db     the default database; a projection of all this, which can be made again
      BACKUP, backup/  the lock of a backup that is being made, and its links; the next commit
                     removes the links of a backup that was killed
      alerts.json    what sotto alerts and sotto serve keep of alerts; the job does not use it
      last_run.json  how the last run went, for the exporter and pages; nothing depends on it
      published.json up to where results are published; without it they are published again
      published-quarantine.json  the same for the quarantine

:class:`pipelines.bounded.driver.Driver` commits, and describes what a crash leaves.

A job may run on other machines, outlive its driver, and run the same part twice at the same time.
So no two writers use the same name: each attempt of a driver has a folder, in which each writer
takes a random name. The driver, which holds the lock, moves out only the files that the job's own
summary lists. The job of a killed driver may go on writing files; these are never read, and the
next commit removes them.

Files that workers write and read (states, logs, counts, quarantine, attempts) may lie elsewhere, in
a folder or on one of Beam's file systems that all workers reach: at FILES/STATE, where STATE is the
random name of the state directory. Manifest, intent and lock stay in a local folder of the driver,
since a commit relies on its rename, fsync and flock; a lease on an object store would promise less.
Both places belong together: a state directory that was restored from a copy is refused if there are
files of generations that it does not know. The operator must never use a copy beside the original.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from mechanisms.randomness import SystemSource
from pipelines.aggregation.table import new_key
from pipelines.storage import files
from pipelines.storage.files import AnyPath, Checkpoint
from pipelines.storage.intent import Intent
from pipelines.storage.manifest import Manifest, Quarantined
from pipelines.storage.output import StoredState
from pipelines.storage.plans import StoredPlans
from sotto.clocks import now_ms
from sotto.errors import AggregationError
from sotto.files import open_file, try_lock

#: The folder of a backup's links to what it copies, while it does.
BACKUP_LINKS = "backup"

#: By folder, patterns of the names of files that a commit may leave behind. No others are removed.
_LEFT_BEHIND = {
    "": r"(MANIFEST|intent|last_run|published(-quarantine)?)\.json\.new|drain\.json",
    "plans": r"[0-9a-f]{64}\.(json|candidates)\.new",
}
_LEFT_BY_JOBS = {
    "states": r"-?\d+\.\d+\.\d+",
    "logs": r"-?\d+\.\d+\.\d+",
    "counts": r"-?\d+\.\d+",
    "published": r"-?\d+\.\d+",
    "quarantine": r"\d+(\.\d+)?",
}


@dataclass(frozen=True)
class StateFiles:
    """The files of a state that jobs write and read; crosses Beam pickled."""

    #: A folder, or one of another file system, that all workers reach under this name.
    root: AnyPath

    def snapshot(self, period: int, part: int, generation: int) -> AnyPath:
        """Return where a generation keeps the snapshot of a part of a budget period's state."""
        return self.root / "states" / f"{period}.{part}.{generation}"

    def log(self, period: int, part: int, generation: int) -> AnyPath:
        """Return where a generation keeps the rows that a part of a period's state has taken."""
        return self.root / "logs" / f"{period}.{part}.{generation}"

    def state(self, period: int, part: int, stored: StoredState) -> Iterator[AnyPath]:
        """Yield the files that keep a part of a budget period's state."""
        if stored.snapshot is not None:
            yield self.snapshot(period, part, stored.snapshot.generation)
        for log in stored.logs:
            yield self.log(period, part, log.generation)

    def page(self, page: int, generation: int) -> AnyPath:
        """Return where a generation keeps a page of counts."""
        return self.root / "counts" / f"{page}.{generation}"

    def published(self, page: int, generation: int) -> AnyPath:
        """Return where a generation keeps the publications of a page's windows."""
        return self.root / "published" / f"{page}.{generation}"

    def quarantine(self, entry: Quarantined) -> AnyPath:
        """Return where a generation keeps what it rejected."""
        return self.root / "quarantine" / entry.file

    def attempt(self, name: str) -> AnyPath:
        return self.root / "attempts" / name

    def open(self) -> None:
        # It has pseudonyms, so only its owner may read it, and give others access, workers too.
        files.make_folder(self.root, mode=0o700)
        for folder in (*_LEFT_BY_JOBS, "attempts"):
            files.make_folder(self.root / folder)

    def place(self, attempt: str, written: Mapping[str, str]) -> None:
        """Move the files of an attempt to their places; after an error the next one starts over.

        ``written``: folder and name at which a file is to count, to its name in the attempt.
        """
        folder = self.attempt(attempt)
        moves = []
        for target, name in sorted(written.items()):
            place, _, last = target.partition("/")
            moves.append((folder / name, self.root / place / last))
        files.move(moves)

    def named(self, manifest: Manifest) -> Iterator[AnyPath]:
        """Yield the files that a manifest names."""
        for key, stored in manifest.states.items():
            yield from self.state(*key, stored)
        for page, generation in manifest.pages.items():
            yield self.page(page, generation)
        for page, (generation, _) in manifest.published.items():
            yield self.published(page, generation)
        for entry in manifest.quarantine:
            yield self.quarantine(entry)

    def sync(self, manifest: Manifest) -> None:
        """Make the files durable that a manifest names and its own generation wrote."""
        files.sync(p for p in self.named(manifest) if _generation(p) == manifest.generation)

    def collect(self, manifest: Manifest) -> None:
        """Remove the files that attempts have left, and those that a manifest does not name.

        Raises AggregationError if there are files of generations that the manifest does not know:
        then the manifest is an old copy.
        """
        named, left = set(self.named(manifest)), []
        for folder, pattern in _LEFT_BY_JOBS.items():
            left += [path for path in _ours(self.root / folder, pattern) if path not in named]
        newest = max(map(_generation, left), default=0)
        if newest > manifest.generation + 1:
            raise AggregationError(
                f"{self.root} has files of generation {newest}, but the manifest only knows "
                f"{manifest.generation}: it was restored from a copy, or there are two"
            )
        files.remove(left)
        files.remove_folder(self.root / "attempts")


@contextmanager
def backup_lock(state_dir: Path) -> Iterator[bool]:
    """Lock a state directory against other backups; yields False if one is being made."""
    descriptor = open_file(state_dir / "BACKUP", os.O_RDWR | os.O_CREAT)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def _generation(path: AnyPath) -> int:
    return int(path.name.rpartition(".")[2])


def _ours(folder: AnyPath, pattern: str) -> list[AnyPath]:
    ours = re.compile(pattern, re.ASCII)
    return [path for path in files.listed(folder) if ours.fullmatch(path.name)]


class NoManifestError(AggregationError):
    """A directory has files of a state directory, but no manifest."""


class StateDirectory:
    """The directory in which aggregation runs keep their state."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.plans = StoredPlans(self.path / "plans")
        self._manifest = self.path / "MANIFEST.json"
        self._intent = self.path / "intent.json"

    @cached_property
    def files(self) -> StateFiles:
        return self._files(self.manifest())

    @contextmanager
    def lock(self, wait: float = 0.0) -> Iterator[None]:
        """Lock the directory against every other run; wait up to ``wait`` seconds for the lock."""
        try:
            # It has pseudonyms, so only its owner may read it, and give others access.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise AggregationError(f"{self.path}: {error.strerror}") from error
        try:
            if not files.lock_within(descriptor, wait):
                raise AggregationError(f"another run holds {self.path}")
            yield
        finally:
            os.close(descriptor)

    def manifest(self) -> Manifest:
        """Return what is committed."""
        try:
            return Manifest.from_json(self._manifest.read_bytes())
        except FileNotFoundError as error:
            raise AggregationError(
                f"{self.path} holds no run: there is no MANIFEST.json, which sotto aggregate writes"
            ) from error

    def open(self, elsewhere: str | None = None) -> Manifest:
        """Return what is committed, after removing other files; make a new directory if need be.

        The caller holds :meth:`lock`. ``elsewhere``: the folder or URI for files of jobs, if these
        are not to lie here; it is chosen when the directory is made.
        """
        if elsewhere is not None:
            elsewhere = str(files.place_of(elsewhere))
        if not self._manifest.exists():
            self._check_unused()
            name = SystemSource().bits(128)
            first = Manifest(state=f"{name:032x}", key=new_key(), files=elsewhere)
            files.replace(self._manifest, first.to_json())
        manifest = self.manifest()
        if elsewhere not in (None, manifest.files):
            raise AggregationError(
                f"{self.path} has its files in {manifest.files or 'itself'}, not in {elsewhere}: "
                "that is chosen once, when a state directory is made"
            )
        (self.path / "plans").mkdir(exist_ok=True)
        self._files(manifest).open()
        self.collect(manifest)
        return manifest

    def _files(self, manifest: Manifest) -> StateFiles:
        if manifest.files is None:
            return StateFiles(self.path.absolute())
        return StateFiles(files.place_of(manifest.files) / manifest.state)

    def _check_unused(self) -> None:
        """Raise NoManifestError if a directory without a manifest has files of runs."""
        # The first manifest is written before anything else.
        for name in ("plans", *_LEFT_BY_JOBS, "results.db"):
            path = self.path / name
            if any(path.iterdir()) if path.is_dir() else path.exists():
                raise NoManifestError(
                    f"{self.path} has {name} but MANIFEST.json is missing: it was lost, "
                    "or this is not a state directory"
                )

    def intent(self, manifest: Manifest) -> Intent | None:
        """Return the intent of an interrupted run on top of ``manifest``, if there was one."""
        if not self._intent.exists():
            return None
        intent = Intent.from_json(self._intent.read_bytes())
        return intent if intent.generation == manifest.generation + 1 else None

    def begun(self, manifest: Manifest) -> int | None:
        """Return when the unfinished run on top of ``manifest`` began, ms, if there is one."""
        if self.intent(manifest) is None:
            return None
        return self._intent.stat().st_mtime_ns // 1_000_000

    def write_intent(self, intent: Intent, checkpoint: Checkpoint) -> None:
        files.replace(self._intent, intent.to_json(), checkpoint)

    def write_manifest(self, manifest: Manifest, checkpoint: Checkpoint) -> None:
        """Make a manifest durable; its files must be already, and count from now on."""
        files.replace(self._manifest, manifest.to_json(), checkpoint)

    def collect(self, manifest: Manifest) -> None:
        """Remove files of runs that the manifest does not name, an old intent, and old links."""
        for folder, pattern in _LEFT_BEHIND.items():
            files.remove(_ours(self.path / folder, pattern))
        self._files(manifest).collect(manifest)
        if self._intent.exists() and self.intent(manifest) is None:
            files.remove([self._intent])
        self._remove_links()

    def _remove_links(self) -> None:
        """Remove the links of a backup that was killed, which keep files that a commit drops."""
        links = self.path / BACKUP_LINKS
        if not links.exists():
            return
        with backup_lock(self.path) as alone:
            if alone:
                shutil.rmtree(links, ignore_errors=True)


class FullDiskError(AggregationError):
    """A run could not be finished, since its disk is full; it can be once there is room."""


class Problem(StrEnum):
    """The kind of a run's failure, as a note has it."""

    DISK = "disk"
    BROKER = "broker"
    DATABASE = "database"
    UNPUBLISHED = "unpublished"
    OTHER = "other"


@dataclass(frozen=True)
class LastRun:
    """A note of how the last run went, for the exporter and pages; it is no part of a commit.

    It has times of the wall clock, and the manifest has none, since that is a function of what was
    aggregated. Nothing is decided by the note; if it is lost, the next run writes it again.
    """

    FORMAT = 2
    NAME = "last_run.json"

    generation: int  #: the last one that was committed and projected
    #: When the log was last aggregated to its end, or a run of it finished, ms of the wall clock;
    #: 0 if that is not known.
    looked: int
    #: When that generation was finished, ms of the wall clock; None if its run left no note.
    finished: int | None = None
    #: How long its run took, s, from its intent to the projection of its results.
    seconds: float | None = None
    #: When a run after that failed, ms of the wall clock; None if the last run did not fail.
    failed: int | None = None
    problem: str = ""  #: why it failed: a :class:`Problem`, and no text of an error
    future: int = 0  #: how many records from the future all runs together have taken
    future_at: int | None = None  #: when the last of these were taken, ms of the wall clock
    future_in: str = ""  #: the partitions that these last ones were in

    @classmethod
    def of(cls, state_dir: Path) -> LastRun | None:
        """Return the note in a state directory; None if it is missing or damaged."""
        return files.find_note(cls, state_dir / cls.NAME, cls.FORMAT)

    def leave(self, state_dir: Path) -> None:
        """Write the note, if the disk has room for it; the commit stands without it."""
        files.leave_note(self, state_dir / self.NAME, self.FORMAT)

    @classmethod
    def leave_failure(cls, state_dir: Path, problem: Problem) -> None:
        """Add to the note that a run has failed now."""
        last = cls.of(state_dir) or cls(0, 0)
        replace(last, failed=now_ms(), problem=problem).leave(state_dir)
