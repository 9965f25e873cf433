"""Backs up a state directory to one file, beside runs, and restores a directory from it.

Files of a state never change once they are committed, and the manifest names all of them. So a
backup locks the directory only as long as it takes to link them; if a run removes a file meanwhile,
the link stays. The copy is of what is committed at that moment. It lacks a run under way, which
will be done again, and files that can be made again: results, and notes of what is published.

The file is a tar archive; its first member, ``BACKUP.json``, has the size and the SHA-256 of all
others. The archive is read back before it gets its name, so a file of that name is whole.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from pipelines.maintenance.remembered import note, noted
from pipelines.storage import files
from pipelines.storage.directory import BACKUP_LINKS, StateDirectory, backup_lock
from pipelines.storage.files import AnyPath
from pipelines.storage.manifest import Manifest
from sotto.errors import AggregationError, FormatError
from sotto.plan.files import open_beside

#: A function that is called with how many bytes are done, and how many will be.
Progress: TypeAlias = Callable[[int, int], None]

FORMAT = 1
_INDEX, _MANIFEST = "BACKUP.json", "MANIFEST.json"
_FOLDERS = ("plans", "states", "logs", "counts", "published", "quarantine")
_MEMBER = re.compile(rf"MANIFEST\.json|({'|'.join(_FOLDERS)})/[0-9A-Za-z.\-]+")


class BackedUp(NamedTuple):
    """The contents of a backup."""

    state: str  #: random name of the state directory
    generation: int  #: the generation that was committed
    clock: int | None  #: the log's clock as of that generation, ms
    files: int  #: how many files it has
    size: int  #: bytes of the files


def backup(
    state_dir: str | os.PathLike[str],
    out: str | os.PathLike[str],
    progress: Progress = lambda done, total: None,
    *,
    wait: float = 0.0,
) -> BackedUp:
    """Write what is committed to a file, which must not exist; jobs may go on meanwhile.

    ``progress``: called with bytes. ``wait``: seconds to wait for a run that holds the directory.

    Raises AggregationError if ``out`` exists or lies in the state directory, if there is no state
    directory, or if a file of it is missing.
    """
    directory, target = StateDirectory(state_dir), Path(out)
    if target.exists():
        raise AggregationError(f"{target} exists already")
    directory.manifest()  # Raises if there is no state directory.
    if target.resolve().is_relative_to(directory.path.resolve()):
        raise AggregationError(f"{target} must be outside {state_dir}, which it is a copy of")
    partial = target.with_name(f"{target.name}.partial")
    links = directory.path / BACKUP_LINKS
    with ExitStack() as stack:
        stack.enter_context(_alone(directory.path))
        stack.callback(shutil.rmtree, links, ignore_errors=True)
        stack.callback(partial.unlink, missing_ok=True)
        with directory.lock(wait):
            manifest = directory.manifest()
            note(state_dir, manifest.state, manifest.forgotten)
            members = _linked(directory, manifest, links)
        total = sum(path.stat().st_size for path in members.values())
        index = {name: _digest(path) for name, path in members.items()}
        with open_beside(partial, target, 0o600) as file:
            _write(file, manifest, members, index, progress, total)
            file.flush()
            os.fsync(file.fileno())
        found = check(partial)
        os.rename(partial, target)
        files.sync_directory(target.absolute().parent)
    return found


@contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """Lock out a second backup, which would remove the links of this one."""
    with backup_lock(state_dir) as alone:
        if not alone:
            raise AggregationError(f"another backup of {state_dir} is being made")
        yield


def _linked(directory: StateDirectory, manifest: Manifest, links: Path) -> dict[str, Path]:
    """Link, or copy, the files that a manifest names; return the links by name."""
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir(mode=0o700)
    # A restored directory has its files in itself.
    (links / _MANIFEST).write_bytes(replace(manifest, files=None).to_json())
    members = {_MANIFEST: links / _MANIFEST}
    plans = sorted(path for path in (directory.path / "plans").iterdir() if path.is_file())
    for path in [*plans, *directory.files.named(manifest)]:
        name = f"{path.parent.name}/{path.name}"
        link = links / name
        link.parent.mkdir(exist_ok=True)
        with files.committed(path):
            _link(path, link)
        members[name] = link
    return members


def _link(path: AnyPath, link: Path) -> None:
    """Link a file; copy it if it is on another file system, or on one without links."""
    if not isinstance(path, Path):
        link.write_bytes(path.read_bytes())
        return
    try:
        os.link(path, link)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, link)


def _digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _write(
    file: IO[bytes],
    manifest: Manifest,
    members: dict[str, Path],
    index: dict[str, tuple[int, str]],
    progress: Progress,
    total: int,
) -> None:
    about = {
        "format": FORMAT,
        "state": manifest.state,
        "generation": manifest.generation,
        "clock": manifest.clock,
        "files": index,
    }
    content = files.dump_document(about)
    done = 0
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        first = tarfile.TarInfo(_INDEX)
        first.size, first.mode = len(content), 0o600
        archive.addfile(first, io.BytesIO(content))
        for name, path in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = index[name][0], 0o600
            with path.open("rb") as source:
                archive.addfile(entry, source)
            done += entry.size
            progress(done, total)


def check(file: str | os.PathLike[str]) -> BackedUp:
    """Read a whole backup and return its contents; AggregationError if it is damaged or none."""
    about: dict[str, object] = {}
    for _ in _members(Path(file), about):
        pass
    return _about(about)


def _about(about: dict[str, object]) -> BackedUp:
    index: dict[str, tuple[int, str]] = about["files"]  # type: ignore[assignment]
    size = sum(size for size, _ in index.values())
    return BackedUp(
        str(about["state"]),
        int(about["generation"]),  # type: ignore[call-overload]
        about["clock"],  # type: ignore[arg-type]
        len(index),
        size,
    )


def _members(path: Path, about: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    """Yield name and checked content of each file of a backup; put its index into ``about``."""
    damaged = f"{path} is damaged, or no backup"
    try:
        with tarfile.open(path, mode="r:") as archive:
            entries = iter(archive)
            first = next(entries, None)
            head = archive.extractfile(first) if first and first.name == _INDEX else None
            if head is None:
                raise AggregationError(f"{damaged}: it does not begin with {_INDEX}")
            about.update(files.load_document(head.read(), f"{path}: {_INDEX}", FORMAT))
            left = {name: tuple(found) for name, found in about["files"].items()}  # type: ignore[attr-defined]
            for entry in entries:
                body = archive.extractfile(entry) if entry.isreg() else None
                if body is None or entry.name not in left or not _MEMBER.fullmatch(entry.name):
                    raise AggregationError(f"{damaged}: {entry.name} does not belong to it")
                content = body.read()
                found = (len(content), hashlib.sha256(content).hexdigest())
                if found != left.pop(entry.name):
                    raise AggregationError(f"{damaged}: {entry.name} is not as it was written")
                yield entry.name, content
    except (tarfile.TarError, FormatError, EOFError) as error:
        raise AggregationError(f"{damaged}: {error}") from error
    if left:
        raise AggregationError(f"{damaged}: it lacks {len(left)} files, such as {min(left)}")


def restore(
    file: str | os.PathLike[str],
    state_dir: str | os.PathLike[str],
    progress: Progress = lambda done, total: None,
    *,
    forgotten: Path | None = None,
) -> BackedUp:
    """Make a state directory from a backup; return the backup's contents.

    ``forgotten``: a file that :mod:`pipelines.maintenance.remembered` wrote; the pseudonyms in it
    are forgotten before the directory gets its name, and noted beside it. With None, pseudonyms
    that were forgotten since the backup was made come back. ``progress``: called with bytes.

    If it is killed it leaves no state directory, and can be called again.

    Raises AggregationError if the backup is damaged, or the directory exists.
    """
    target = Path(state_dir)
    if target.exists():
        raise AggregationError(
            f"{target} exists already: a backup is restored to a new directory, on a mount point "
            "to one inside it"
        )
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    about: dict[str, object] = {}
    done = 0
    try:
        for name, content in _members(Path(file), about):
            path = partial / name
            path.parent.mkdir(exist_ok=True)
            files.create(path, [content])
            done += len(content)
            progress(done, os.stat(file).st_size)
        _check_whole(partial)
        if forgotten is not None:
            _forget(partial, target, noted(forgotten, str(about["state"])))
        for folder in [each for each in partial.iterdir() if each.is_dir()]:
            files.sync(folder.iterdir())
        files.sync([partial / _MANIFEST])
        os.rename(partial, target)
        files.sync_directory(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return _about(about)


def _forget(partial: Path, target: Path, tombstones: dict[str, int]) -> None:
    """Forget again the pseudonyms that were forgotten, and leave only files that a backup has."""
    # Importing Beam takes seconds, which only a restore spends.
    from pipelines.maintenance.forget import forget_again

    forget_again(partial, tombstones)
    for path in partial.iterdir():
        if path.name == "attempts":
            shutil.rmtree(path)
        elif path.name not in (*_FOLDERS, _MANIFEST):
            path.unlink()
    note(target, StateDirectory(partial).manifest().state, tombstones)


def _check_whole(partial: Path) -> None:
    """Raise AggregationError if a backup lacks a file that its manifest names."""
    directory = StateDirectory(partial)
    manifest = directory.manifest()
    for path in directory.files.named(manifest):
        if not Path(str(path)).exists():
            raise AggregationError(f"the backup lacks {path.parent.name}/{path.name}")
    for plan in manifest.plans:
        directory.plans.load(plan)
