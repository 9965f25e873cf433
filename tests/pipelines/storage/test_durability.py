"""A state directory after a loss of power: a commit forces to disk what it stands on.

A recorder follows the system calls of a run that decide what survives: ``fsync`` of files and of
directories, renames and removals. It knows what the disk is sure to have at each instant and
checks it wherever a commit relies on it. Without any one kind of ``fsync`` it finds a violation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from crashes import MAX_REPORTS
from report_logs import faulty, honest, write
from run_child import SHORT
from step_plans import plans

from pipelines.bounded.run import aggregate
from pipelines.storage import states as storedstates
from pipelines.storage.directory import StateFiles
from pipelines.storage.manifest import Manifest

FORCED = (
    *("MANIFEST.json.new", "intent.json.new", "."),
    *("states", "logs", "counts", "published", "quarantine"),
)


class Disk:
    """Files of a directory that surely survive a loss of power, and uses of files that may not.

    Parameters
    ----------
    root : Path
        The state directory.
    lost : callable
        Says whether an ``fsync`` does nothing, by its path.
    """

    def __init__(self, root: Path, lost: Callable[[str], bool] = lambda path: False) -> None:
        self.root = root
        self.violations: list[str] = []
        self.forced: set[str] = set()
        self._lost = lost
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._manifest: bytes | None = None
        self._open: list[BinaryIO] = []

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Follow the calls of this process."""
        with monkeypatch.context() as patch:
            for name in ("fsync", "replace", "unlink"):
                patch.setattr(os, name, self._following(name, getattr(os, name)))
            yield
        for file in self._open:
            file.close()

    def _following(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        before = {"replace": self._replacing, "unlink": self._unlinking}.get(name)

        def call(first: object, *rest: object, **more: object) -> None:
            if name == "fsync":
                assert isinstance(first, int)
                self._fsync(Path(os.readlink(f"/proc/self/fd/{first}")))
            elif before is not None:
                before(Path(str(first)), *rest)
            real(first, *rest, **more)

        return call

    def _fsync(self, path: Path) -> None:
        if not path.is_relative_to(self.root):
            return
        said = str(path.relative_to(self.root))
        self.forced.add(said)
        if self._lost(said):
            return
        if path.is_dir():
            self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
            if path == self.root and (path / "MANIFEST.json").exists():
                self._manifest = self._content_of(path / "MANIFEST.json")
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()
            # As long as it is open, no other file has its number.
            self._open.append(open(path, "rb"))  # noqa: SIM115

    def _content_of(self, path: Path) -> bytes | None:
        """Return what the disk is sure to have under a name."""
        return self._contents.get(self._names.get(path.parent, {}).get(path.name, -1))

    def _replacing(self, source: Path, target: object, *_: object) -> None:
        if not source.is_relative_to(self.root) or not source.name.endswith(".new"):
            return
        if self._contents.get(source.stat().st_ino) != source.read_bytes():
            self.violations.append(f"{source.name} is renamed before it is on the disk")
        if Path(str(target)).name == "MANIFEST.json":
            for path in _named(self.root, Manifest.from_json(source.read_bytes())):
                if self._content_of(path) != path.read_bytes():
                    self.violations.append(f"{path.name} is named before it is on the disk")

    def _unlinking(self, path: Path, *_: object) -> None:
        if self._manifest is not None and path in _named(
            self.root, Manifest.from_json(self._manifest)
        ):
            self.violations.append(f"{path.name} is removed while the manifest on disk names it")

    def check_intent(self, step: str) -> None:
        """As a checkpoint: a run that has begun can be begun again after a loss of power."""
        path = self.root / "intent.json"
        if step == "begun" and self._content_of(path) != path.read_bytes():
            self.violations.append("a run has begun whose intent is not on the disk")
        if step == "committed" and self._manifest != (self.root / "MANIFEST.json").read_bytes():
            self.violations.append("a commit counts that is not on the disk")


def _named(root: Path, manifest: Manifest) -> set[Path]:
    return {Path(str(path)) for path in StateFiles(root).named(manifest)}


@pytest.fixture(autouse=True)
def _(monkeypatch):
    """Let runs write both snapshots and logs."""
    monkeypatch.setattr(storedstates, "SHORT", SHORT)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("durability") / "log", honest(10, 3, 11) + faulty(12))


def test_a_commit_forces_all_that_it_stands_on_and_each_kind_of_fsync_is_needed(
    log, tmp_path, monkeypatch
):
    """Without that of a file, of a folder, or of all files in a folder, it would not hold."""
    state = tmp_path / "state"
    kinds = [*FORCED, *(f"{name}/" for name in FORCED[3:])]
    sound, *faulty_ones = disks = [
        Disk(state),
        *(Disk(state, partial(_lost, kind)) for kind in kinds),
    ]
    with ExitStack() as watching:
        for disk in disks:
            watching.enter_context(disk.watched(monkeypatch))
        done = aggregate(
            log,
            state,
            plans(),
            max_reports=MAX_REPORTS,
            checkpoint=lambda step: [disk.check_intent(step) for disk in disks],
        )
    assert done.runs >= 2
    assert sound.violations == []
    assert {path.partition("/")[0] for path in sound.forced} >= set(FORCED)
    assert all(disk.violations for disk in faulty_ones)


def _lost(kind: str, path: str) -> bool:
    return path == kind or (kind.endswith("/") and path.startswith(kind))
