"""Differences of Linux, macOS and Windows with files: all of it that a device needs.

Windows has neither positioned reads nor ``flock``, translates line ends unless told not to, and
cannot force a directory to disk. There a file that was just created, and not what is in it, may be
gone after a loss of power. macOS keeps what ``fsync`` writes in the disk's cache; ``F_FULLFSYNC``
empties that too.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sotto.errors import ParameterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    fcntl: Any
    msvcrt: Any
else:
    try:
        import fcntl
    except ImportError:
        import msvcrt

        fcntl = None

#: The byte that Windows locks, far behind the end of any file of ours: nobody else can read it.
_LOCKED_BYTE = 1 << 30
#: Flags of `os.open`: bytes are not translated, and child processes do not inherit the file.
_AS_IT_IS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: macOS's command to force a file through the disk's cache, which some file systems do not have.
_FULL = getattr(fcntl, "F_FULLFSYNC", None)
_LACKING = (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL)


def path_of(url: str) -> str:
    """Return the path of a ``file:`` URL, such as ``file:build/log`` or ``file:///var/log/sotto``.

    Raises ParameterError for a path on another host, and as :func:`log_folder`.
    """
    from urllib.request import url2pathname

    path = url.partition(":")[2]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise ParameterError("a file: URL must name this machine's folder, as file:///log does")
        path = slash + path
    return log_folder(url2pathname(path))


def log_folder(path: str) -> str:
    """Return the path of a log; ParameterError for none, or for a URL or ~ in place of one."""
    if not path or "://" in path or path.startswith(("~", "file:")):
        raise ParameterError("a log's folder must be a path without ~ and file:, such as build/log")
    return path


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file, as ``os.open`` does, of which bytes are read and written as they are."""
    return os.open(path, flags | _AS_IT_IS, mode)


def read_at(descriptor: int, size: int, place: int) -> bytes:
    """Read at most ``size`` bytes from a place; where to go on reading may change."""
    if fcntl is not None:
        return os.pread(descriptor, size, place)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes | memoryview, place: int) -> int:
    """Write to a place and return how many bytes were; where to go on writing may change."""
    if fcntl is not None:
        return os.pwrite(descriptor, data, place)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.write(descriptor, data)


def write_small(path: str, data: bytes) -> bool:
    """Write a small file in place of what it holds, never through a link; return whether it is."""
    with suppress(OSError):
        descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK)
        try:
            return write_at(descriptor, data, 0) == len(data)
        finally:
            os.close(descriptor)
    return False


def try_lock(descriptor: int) -> bool:
    """Lock a file for whoever opened it; False if it is locked.

    The lock ends with :func:`unlock`, or with the process, however that ends. Raises OSError where
    the file system has no locks.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_byte(descriptor, msvcrt.LK_NBLCK)
    except BlockingIOError:
        return False
    except PermissionError:
        if fcntl is not None:
            raise
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release a lock, also where the child of a fork has a copy of the descriptor."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    else:
        _lock_byte(descriptor, msvcrt.LK_UNLCK)


def _lock_byte(descriptor: int, operation: int) -> None:
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, operation, 1)
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)


def force(descriptor: int) -> None:
    """Have what was written survive a loss of power."""
    if _FULL is not None:
        try:
            fcntl.fcntl(descriptor, _FULL)
            return
        except OSError as error:
            if error.errno not in _LACKING:
                raise
    os.fsync(descriptor)


def force_folder(path: str | os.PathLike[str]) -> None:
    """Have the names of files in a folder survive a loss of power, where the system can do that."""
    if fcntl is not None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private(path: str) -> None:
    """Let only its owner read and write an existing file, on systems with such permissions.

    Raises OSError if it is no regular file: a device such as /dev/null keeps its permissions.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if fcntl is not None and stat.S_IMODE(mode) & 0o077:
        os.chmod(path, 0o600)
