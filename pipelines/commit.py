"""The state directory of the embedded deployment: one drain at a time, committed whole or not.

::

    STATE/
      LOCK           held by the one drain
      MANIFEST.json  all that is committed; what it does not name does not count
      intent.json    what a drain under way takes from the log
      plans/         the plans seen, FINGERPRINT.json, and the candidates of their strings
      states/        PERIOD.PART.GENERATION, snapshots
      logs/          PERIOD.PART.GENERATION, rows taken since
      counts/        PAGE.GENERATION
      quarantine/    GENERATION
      results.db     the default database; a projection of all this, which can be made again
      drain.json     how the last drain went, for those who watch; nothing depends on it
      published.json up to where results are published; without it they are published again
      published-quarantine.json  the same of what was rejected

A commit is: the files of a generation, made durable; then the manifest, renamed; then what is no
longer named is removed. A crash before the rename leaves the last commit, one after it the new.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mechanisms.randomness import SystemSource
from pipelines import files
from pipelines.files import Checkpoint
from pipelines.intent import Intent
from pipelines.keyed import new_key
from pipelines.manifest import Manifest
from pipelines.storedplans import StoredPlans
from pipelines.written import Held
from sotto.errors import DrainError

#: Seconds between two looks at whether a lock is free.
_LOOK = 0.05
_FOLDERS = ("plans", "states", "logs", "counts", "quarantine")

#: By folder, the names that drains give to what a commit may leave behind. Nothing else is removed.
_LEFT_BEHIND = {
    "": r"(MANIFEST|intent|published(-quarantine)?)\.json\.new(\.tmp)?|drain\.json\.tmp"
    r"|summary\.\d+\.tmp(\.tmp)?",
    "plans": r"[0-9a-f]{64}\.(json|candidates)\.new(\.tmp)?",
    "states": r"-?\d+\.\d+\.\d+(\.tmp)?",
    "logs": r"-?\d+\.\d+\.\d+(\.tmp)?",
    "counts": r"-?\d+\.\d+(\.tmp)?",
    "quarantine": r"\d+(\.tmp)?",
}


class StateDirectory:
    """Where the embedded deployment keeps its state between drains.

    Parameters
    ----------
    path : path
        Made by :meth:`open` where there is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def state(self, period: int, part: int, generation: int) -> Path:
        """Return where a generation keeps the snapshot of a part of a budget period's state."""
        return self.path / "states" / f"{period}.{part}.{generation}"

    def log(self, period: int, part: int, generation: int) -> Path:
        """Return where a generation keeps the rows that such a part has taken."""
        return self.path / "logs" / f"{period}.{part}.{generation}"

    def page(self, page: int, generation: int) -> Path:
        """Return where a generation keeps a page of counts."""
        return self.path / "counts" / f"{page}.{generation}"

    def quarantine(self, generation: int) -> Path:
        """Return where a generation keeps what it rejected."""
        return self.path / "quarantine" / str(generation)

    def pieces(self, period: int, part: int, held: Held) -> Iterator[Path]:
        """Yield the files of a state."""
        if held.snapshot is not None:
            yield self.state(period, part, held.snapshot.generation)
        for log in held.logs:
            yield self.log(period, part, log.generation)

    @property
    def plans(self) -> StoredPlans:
        """The plans that the directory has had."""
        return StoredPlans(self.path / "plans")

    def summary(self, generation: int) -> Path:
        """Return where the job of a generation says what it has written."""
        return self.path / f"summary.{generation}.tmp"

    @property
    def _manifest(self) -> Path:
        return self.path / "MANIFEST.json"

    @property
    def _intent(self) -> Path:
        return self.path / "intent.json"

    @contextmanager
    def lock(self, wait: float = 0.0) -> Iterator[None]:
        """Hold the directory against every other drain, in this process and in others.

        Parameters
        ----------
        wait : float
            Seconds to wait for another drain.

        Raises
        ------
        DrainError
            Another drain holds it, or it cannot be made.
        """
        try:
            # Pseudonyms are in it: who else is to read it is for its owner to say.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DrainError(f"{self.path}: {error.strerror}") from error
        try:
            self._hold(descriptor, time.monotonic() + wait)
            yield
        finally:
            os.close(descriptor)

    def _hold(self, descriptor: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise DrainError(f"another drain holds {self.path}") from error
            time.sleep(_LOOK)

    def manifest(self) -> Manifest:
        """Return what is committed.

        Raises
        ------
        DrainError
            Nothing is, or the manifest is damaged.
        """
        try:
            return Manifest.from_json(self._manifest.read_bytes())
        except FileNotFoundError as error:
            raise DrainError(f"{self.path} holds no drain: there is no MANIFEST.json") from error

    def open(self) -> Manifest:
        """Return what is committed, after removing what is not; make a new directory's first.

        To be called under :meth:`lock`.

        Raises
        ------
        DrainError
            There is something but no manifest, or the manifest is damaged.
        """
        if not self._manifest.exists():
            self._check_unused()
        for folder in _FOLDERS:
            (self.path / folder).mkdir(exist_ok=True)
        if not self._manifest.exists():
            name = SystemSource().bits(128)
            first = Manifest(state=f"{name:032x}", key=new_key())
            files.replace(self._manifest, first.to_json())
        manifest = self.manifest()
        self.collect(manifest)
        return manifest

    def _check_unused(self) -> None:
        """Refuse a directory with anything in it that only a manifest could explain."""
        # The first manifest is written before anything else.
        for name in (*_FOLDERS, "results.db"):
            path = self.path / name
            if any(path.iterdir()) if path.is_dir() else path.exists():
                raise DrainError(
                    f"{self.path} has {name} but MANIFEST.json is missing: it was lost, "
                    "or this is not a state directory"
                )

    def intent(self, manifest: Manifest) -> Intent | None:
        """Return what an interrupted drain had undertaken on top of ``manifest``, if any did."""
        if not self._intent.exists():
            return None
        intent = Intent.from_json(self._intent.read_bytes())
        return intent if intent.generation == manifest.generation + 1 else None

    def begin(self, intent: Intent, checkpoint: Checkpoint) -> None:
        """Undertake an intent; from here on a restart does the same."""
        files.replace(self._intent, intent.to_json(), checkpoint)
        checkpoint("begun")

    def commit(self, manifest: Manifest, checkpoint: Checkpoint) -> None:
        """Commit a generation whose files are written: this is the moment at which it counts.

        Raises
        ------
        OSError
            The last commit is intact.
        """
        files.sync(path for path in self._named(manifest) if self._is_of(path, manifest.generation))
        checkpoint("synced")
        files.replace(self._manifest, manifest.to_json(), checkpoint)
        checkpoint("committed")

    def collect(self, manifest: Manifest) -> None:
        """Remove the files of drains that the manifest does not name, and no others."""
        named = set(self._named(manifest))
        for folder, pattern in _LEFT_BEHIND.items():
            ours = re.compile(pattern, re.ASCII)
            present = [path for path in (self.path / folder).iterdir() if path not in named]
            files.remove(path for path in present if ours.fullmatch(path.name))
        if self._intent.exists() and self.intent(manifest) is None:
            files.remove([self._intent])

    def _named(self, manifest: Manifest) -> Iterator[Path]:
        for key, held in manifest.states.items():
            yield from self.pieces(*key, held)
        for page, generation in manifest.pages.items():
            yield self.page(page, generation)
        for entry in manifest.quarantine:
            yield self.quarantine(entry.generation)

    @staticmethod
    def _is_of(path: Path, generation: int) -> bool:
        return path.name.rpartition(".")[2] == str(generation)
