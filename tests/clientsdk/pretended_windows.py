"""Makes this process, which must have loaded nothing of ours yet, see files as Windows has them.

Functions that Windows lacks are gone. Files must be opened as binary, and neither folders be opened
nor open files be renamed or removed. A file is locked by a byte, and of that nobody else may read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess  # noqa: F401, which takes a system with msvcrt for a whole Windows
import sys
from types import ModuleType

LACKING = """
    chown fchmod fchown fork forkpty fdatasync getegid geteuid getgid getuid killpg mkfifo pread
    preadv pwrite pwritev register_at_fork statvfs uname wait3 wait4 O_CLOEXEC O_DIRECTORY
    O_NOFOLLOW O_NONBLOCK O_SYNC
"""
O_BINARY, O_NOINHERIT = 1 << 28, 1 << 29

#: Descriptors with a locked byte, and where it is.
locked: dict[int, int] = {}


def _denied(path: object) -> PermissionError:
    return PermissionError(errno.EACCES, "Permission denied", path)


def _check_closed(path: str | os.PathLike[str]) -> None:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.path.samefile(f"/proc/self/fd/{descriptor}", path):
                raise _denied(path)
        except FileNotFoundError:
            continue


def _opening(path, flags, mode=0o777, real=os.open):  # type: ignore[no-untyped-def]
    if os.path.isdir(path):
        raise _denied(path)
    assert flags & O_BINARY, f"{path} would be opened as text"
    return real(path, flags & ~(O_BINARY | O_NOINHERIT), mode)


def _closing(descriptor, real=os.close):  # type: ignore[no-untyped-def]
    locked.pop(descriptor, None)
    real(descriptor)


def _renaming(source, target, real=os.replace):  # type: ignore[no-untyped-def]
    _check_closed(source)
    real(source, target)


def _removing(path, real=os.unlink, **options):  # type: ignore[no-untyped-def]
    _check_closed(path)
    real(path, **options)


def _forcing(descriptor, real=os.fsync, flags=fcntl.F_GETFL):  # type: ignore[no-untyped-def]
    if fcntl.fcntl(descriptor, flags) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    real(descriptor)


def _locking(descriptor: int, operation: int, size: int) -> None:
    """Lock bytes from where reading would go on, as ``msvcrt.locking`` does."""
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    assert size == 1
    assert place > os.fstat(descriptor).st_size
    if operation == 0:
        if locked.pop(descriptor, None) != place:
            raise _denied(None)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _denied(None) from None
    locked[descriptor] = place


def pretend() -> None:
    assert not {"clientsdk", "sotto", "mechanisms"} & sys.modules.keys()
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    msvcrt = ModuleType("msvcrt")
    msvcrt.locking = _locking  # type: ignore[attr-defined]
    msvcrt.LK_UNLCK, msvcrt.LK_NBLCK = 0, 2  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = msvcrt
    for name in LACKING.split():
        vars(os).pop(name, None)
    os.O_BINARY, os.O_NOINHERIT = O_BINARY, O_NOINHERIT  # type: ignore[attr-defined]
    os.open, os.close, os.fsync = _opening, _closing, _forcing
    os.replace = os.rename = _renaming  # type: ignore[assignment]
    os.unlink = os.remove = _removing
