"""Plan files: what they hold, and a folder of them that is looked at while a command runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sotto.errors import ParameterError, PlanError
from sotto.files import open_file
from sotto.plan.compiled import CompiledPlan, Plan
from sotto.plan.development import is_development

_ENDINGS = (".json", ".yaml", ".yml")
#: The first bytes of a device's state file, and of a file of results.
_DATABASE = b"SQLite format 3\0"


def plan_of(path: Path) -> Plan:
    """Read a plan: a compiled one if the file's name ends in ``.json``.

    Raises PlanError if it is none, OSError if the file cannot be read.
    """
    if path.is_dir():
        raise PlanError(f"{path} must be a plan's file; got a folder, which --plans takes")
    if path.suffix == ".json":
        return Plan(CompiledPlan.from_file(path), {}, {})
    # A compiled plan is read without pydantic.
    from sotto.plan.compile import load_plan

    return load_plan(path)


def plans_of(
    paths: Sequence[Path],
) -> tuple[list[CompiledPlan], dict[bytes, Mapping[str, tuple[str, ...]]]]:
    """Return the plans of files; candidates by fingerprint and string metric."""
    read = [plan_of(path) for path in paths]
    return [each.compiled for each in read], {
        each.compiled.fingerprint: each.candidates for each in read
    }


def checked_output(path: Path) -> Path:
    """Return the file that an output goes to, which it may replace; links are followed.

    Raises ParameterError for a folder, a device, a pipe or a database, which no output may replace,
    for a link to itself, and if there is no folder to hold the file.
    """
    followed = Path(os.path.realpath(path))
    if followed.is_symlink() or (path.exists() and not path.is_file()):
        raise ParameterError(f"{path} must be a file; got a folder, device, pipe or link to itself")
    if not followed.parent.is_dir():
        raise ParameterError(f"{path} cannot be written: there is no such folder; make it first")
    with suppress(FileNotFoundError, PermissionError), followed.open("rb") as file:
        if file.read(len(_DATABASE)) == _DATABASE:
            raise ParameterError(f"{path} is a database: name another file for the output")
    return followed


def open_beside(written: Path, path: Path, mode: int = 0o666) -> IO[bytes]:
    """Open a new file that is to replace another, for those alone who can read that one.

    It has that one's permissions and, as far as allowed, its owner; ``mode`` if there is none. What
    a run that was killed left is removed first; no link is followed. Raises OSError if that cannot
    be done.
    """
    written.unlink(missing_ok=True)
    before = path.stat() if path.exists() else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = open_file(written, flags, mode if before is None else 0o600)
    # Windows has no owners of this kind.
    if before is not None and hasattr(os, "fchown"):
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, before.st_mode & 0o777)
    return open(descriptor, "wb")


def write_output(output: Path, data: bytes) -> None:
    """Write a file so that nobody sees half; one that was there keeps its permissions.

    Raises ParameterError as :func:`checked_output`, OSError if it cannot be written.
    """
    path = checked_output(output)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open_beside(partial, path) as file:
            file.write(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class PlanFileFolder:
    """The plan files of a folder.

    A file that cannot be used is left out, with one warning a reason.

    Raises ParameterError if there is no such folder.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        if not path.is_dir():
            raise ParameterError(f"--plans {path}: there is no such folder")
        self._path = path
        self._warn = warn
        self._warned: dict[Path, str] = {}
        #: The stamp of each file when its plan was last used.
        self._used: dict[Path, tuple[int, int, int]] = {}

    def take(self, use: Callable[[Path, Plan], None], *, changed_only: bool = False) -> None:
        """Call ``use`` with each plan; one that it raises PlanError or ImportError for is left out.

        Development plans, which are written beside the real ones, come last. With ``changed_only``
        a file that is as it was when it was last used is skipped, even if the files of candidates
        that it names have changed.
        """
        loaded = []
        for path in self._files():
            try:
                stamp = stamp_of(path)
                if not (changed_only and self._used.get(path) == stamp):
                    loaded.append((path, stamp, plan_of(path)))
            except (ParameterError, UnicodeError, OSError, ImportError) as error:
                self._leave_out(path, error)
        for path, stamp, plan in sorted(loaded, key=lambda each: is_development(each[2].compiled)):
            try:
                use(path, plan)
            except (PlanError, ImportError) as error:
                self._leave_out(path, error)
            else:
                self._used[path] = stamp
                self._warned.pop(path, None)

    def _files(self) -> list[Path]:
        """Return the files, by name; none where the folder cannot be read now."""
        try:
            found = sorted(self._path.iterdir())
        except OSError as error:
            self._leave_out(self._path, error.strerror)
            return []
        self._warned.pop(self._path, None)
        return [path for path in found if path.suffix in _ENDINGS and not path.name.startswith(".")]

    def _leave_out(self, path: Path, why: object) -> None:
        """Warn that a file is not used, unless the last warning said the same."""
        if self._warned.get(path) != str(why):
            self._warned[path] = str(why)
            self._warn(f"{path} is left out: {why}")


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Return a stamp that is another once a file is written or replaced; ParameterError if gone."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ParameterError(f"{path}: {error.strerror}") from None
    return found.st_ino, found.st_mtime_ns, found.st_size
