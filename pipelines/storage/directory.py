"""The state directory: its layout, its lock, and the two writes on which a commit stands.

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
      BACKUP, backup/  the lock of a backup that is being made, and its links; those of a killed one
                     are removed by the next commit
      alerts.json    what sotto alerts and sotto serve keep of alerts; none of the job's
      last_run.json  how the last run went, for those who watch; nothing depends on it
      published.json up to where results are published; without it they are published again
      published-quarantine.json  the same of what was rejected

:class:`pipelines.bounded.driver.Driver` commits, and describes what a crash leaves.

A job may run on other machines, outlive its driver, and run the same part twice at the same time.
So no two writers ever have a name in common: each attempt of a driver has a folder, in it each
writer a random name, and only what the job's own summary lists is moved out, by the driver that
holds the lock. Files that the job of a killed driver goes on writing are read by nobody, and
removed.

Files that workers write and read (states, logs, counts, quarantine, attempts) may lie elsewhere, in
a folder or on one of Beam's file systems that all of them reach: FILES/STATE, STATE being the
random name of the state directory. Manifest, intent and lock stay in a local folder of the
driver's, whose rename, fsync and flock are what a commit stands on; a lease on an object store
would promise less. The two belong together: a state directory that is restored from a copy is
refused where there are files of generations that it does not know. That no copy is used beside the
original is the operator's duty.
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

#: By folder, the names of what a commit may leave behind. Nothing else is removed.
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
        """Return where a generation keeps rows that such a part has taken."""
        return self.root / "logs" / f"{period}.{part}.{generation}"

    def state(self, period: int, part: int, stored: StoredState) -> Iterator[AnyPath]:
        """Yield the files of such a part."""
        if stored.snapshot is not None:
            yield self.snapshot(period, part, stored.snapshot.generation)
        for log in stored.logs:
            yield self.log(period, part, log.generation)

    def page(self, page: int, generation: int) -> AnyPath:
        """Return where a generation keeps a page of counts."""
        return self.root / "counts" / f"{page}.{generation}"

    def published(self, page: int, generation: int) -> AnyPath:
        """Return where a generation keeps what is published of a page's windows."""
        return self.root / "published" / f"{page}.{generation}"

    def quarantine(self, entry: Quarantined) -> AnyPath:
        """Return where a generation keeps what it rejected."""
        return self.root / "quarantine" / entry.file

    def attempt(self, name: str) -> AnyPath:
        return self.root / "attempts" / name

    def open(self) -> None:
        # Pseudonyms are in it: its owner decides who else reads it, workers too.
        files.make_folder(self.root, mode=0o700)
        for folder in (*_LEFT_BY_JOBS, "attempts"):
            files.make_folder(self.root / folder)

    def place(self, attempt: str, written: Mapping[str, str]) -> None:
        """Move what an attempt wrote to where it counts; after an error the next starts over."""
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
        """Make durable what a manifest names of its own generation."""
        files.sync(p for p in self.named(manifest) if _generation(p) == manifest.generation)

    def collect(self, manifest: Manifest) -> None:
        """Remove what attempts have left, and the files that a manifest does not name.

        Raises AggregationError if there are files of generations that the manifest does not know:
        it is an old copy.
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
    """Hold a state directory against other backups; False if one is being made."""
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
    """A directory has files, and no manifest that says that they are ours."""


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
        """Hold the directory against every other run; wait so many seconds for one."""
        try:
            # Pseudonyms are in it: its owner decides who else reads it.
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
        """Return what is committed, after removing what is not; make a new one. Under :meth:`lock`.

        ``elsewhere``: folder or URI where jobs are to have their files, if not here; chosen once.
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
        """Refuse a directory with anything in it that only a manifest could explain."""
        # The first manifest is written before anything else.
        for name in ("plans", *_LEFT_BY_JOBS, "results.db"):
            path = self.path / name
            if any(path.iterdir()) if path.is_dir() else path.exists():
                raise NoManifestError(
                    f"{self.path} has {name} but MANIFEST.json is missing: it was lost, "
                    "or this is not a state directory"
                )

    def intent(self, manifest: Manifest) -> Intent | None:
        """Return what an interrupted run was to do on top of ``manifest``, if one was."""
        if not self._intent.exists():
            return None
        intent = Intent.from_json(self._intent.read_bytes())
        return intent if intent.generation == manifest.generation + 1 else None

    def begun(self, manifest: Manifest) -> int | None:
        """Return when a run on top of ``manifest`` began that is not finished, ms; None of none."""
        if self.intent(manifest) is None:
            return None
        return self._intent.stat().st_mtime_ns // 1_000_000

    def write_intent(self, intent: Intent, checkpoint: Checkpoint) -> None:
        files.replace(self._intent, intent.to_json(), checkpoint)

    def write_manifest(self, manifest: Manifest, checkpoint: Checkpoint) -> None:
        """Make a manifest durable, whose files are: this is the moment at which they count."""
        files.replace(self._manifest, manifest.to_json(), checkpoint)

    def collect(self, manifest: Manifest) -> None:
        """Remove the files of runs that the manifest does not name, and no others."""
        for folder, pattern in _LEFT_BEHIND.items():
            files.remove(_ours(self.path / folder, pattern))
        self._files(manifest).collect(manifest)
        if self._intent.exists() and self.intent(manifest) is None:
            files.remove([self._intent])
        self._remove_links()

    def _remove_links(self) -> None:
        """Remove what a backup that was killed has left: what a commit drops would stay in it."""
        links = self.path / BACKUP_LINKS
        if not links.exists():
            return
        with backup_lock(self.path) as alone:
            if alone:
                shutil.rmtree(links, ignore_errors=True)


class Problem(StrEnum):
    """Why a run failed, as far as a note says it."""

    DISK = "disk"
    BROKER = "broker"
    DATABASE = "database"
    UNPUBLISHED = "unpublished"
    OTHER = "other"


@dataclass(frozen=True)
class LastRun:
    """How the last run went, for those who watch: a note beside what is committed, no part of it.

    The wall clock is in it, and so it is not in the manifest, which is a function of what was
    aggregated. Nothing is decided by it; where it is lost, the next run writes it again.
    """

    FORMAT = 2
    NAME = "last_run.json"

    generation: int  #: the last one that was committed and projected
    #: When the log was last aggregated to its end, or a run of it finished, ms of the wall clock;
    #: 0 if that is not known.
    looked: int
    #: When that generation was, ms of the wall clock; None if by no run that left a note.
    finished: int | None = None
    #: How long its run took, from its intent to the projection of its results.
    seconds: float | None = None
    #: When a run after that failed, ms of the wall clock; None if the last one did not.
    failed: int | None = None
    problem: str = ""  #: why: a :class:`Problem`, and no text of an error
    future: int = 0  #: records from the future that all runs took together
    future_at: int | None = None  #: when the last of them were taken, ms of the wall clock
    future_in: str = ""  #: the partitions that they were in

    @classmethod
    def of(cls, state_dir: Path) -> LastRun | None:
        """Return the note in a state directory; one that is damaged is as good as none."""
        return files.find_note(cls, state_dir / cls.NAME, cls.FORMAT)

    def leave(self, state_dir: Path) -> None:
        """Leave the note, or none where a full disk does not take it: what is committed is so."""
        files.leave_note(self, state_dir / self.NAME, self.FORMAT)

    @classmethod
    def leave_failure(cls, state_dir: Path, problem: Problem) -> None:
        """Add to the note that a run has failed now."""
        last = cls.of(state_dir) or cls(0, 0)
        replace(last, failed=now_ms(), problem=problem).leave(state_dir)
