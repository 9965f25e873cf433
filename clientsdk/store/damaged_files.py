"""Damaged state files: set aside under another name, and erased in time.

Nothing is ever read from such a file. Beside a state file ``device.db`` they are named
``device.db-damaged-1`` and so on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from clientsdk.store import rollback_guard, schema
from clientsdk.store.rollback_guard import UNREADABLE
from sotto.files import force

#: How many damaged files are kept.
KEPT = 3


def set_aside(path: str, place: tuple[int, int] | None, now: int) -> bool:
    """Rename a damaged file, with its log, unless another process has done it.

    ``place`` is device and inode of the file that was found damaged; ``now`` becomes the time of
    its last change. False if the file is not known to be a device's. StoreError if it cannot be
    renamed.
    """
    if place is None or (rollback_guard.read(path) is None and not _was_a_store(path)):
        return False
    with rollback_guard.locked(path) as descriptor:
        there = None
        with suppress(FileNotFoundError):
            there = os.stat(path)
        if there is not None and (there.st_dev, there.st_ino) == place:
            if rollback_guard.read(path) is None:
                # The guard says from now on that there was a store, even if all else fails.
                rollback_guard.overwrite(path, descriptor, UNREADABLE)
            _rename(path, now)
    return True


def found(path: str) -> list[str]:
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError):
        names = sorted(os.listdir(folder or os.curdir))
        return [os.path.join(folder, each) for each in names if each.startswith(f"{name}-damaged-")]
    return []


def erase_older(path: str, now: int, age: Callable[[], int]) -> None:
    """Overwrite and remove files that were set aside more than ``age()`` milliseconds ago.

    A clock that was set back since then makes a file look as if it came from the future: then its
    time begins anew. A file that cannot be erased or listed now is tried again.
    """
    files: list[str] = []
    with suppress(OSError):
        files = found(path)
    for file in files:
        with suppress(OSError):
            since = os.stat(file).st_mtime_ns // 1_000_000
            if since > now:
                _set_time(file, now)
            elif now - since > age():
                _erase(file)


def erase_all(path: str) -> bool:
    """Overwrite and remove the files that were set aside; return whether none is left."""
    try:
        for file in found(path):
            _erase(file)
    except OSError:
        return False
    return True


def _was_a_store(path: str) -> bool:
    """Whether an unreadable file without a guard is a device's; any other is left as it is.

    It is if another file beside it shows so, if it has the label or the tables of a store, or if
    nothing is in it but zeros, as after a loss of power.
    """
    from clientsdk.sending import lock

    if os.path.exists(path + lock.SUFFIX) or found(path):
        return True
    for suffix in ("", "-wal"):
        with suppress(OSError), open(path + suffix, "rb") as file:
            content = file.read()
            if schema.LABEL in content[:100] or schema.TABLE in content or not content.strip(b"\0"):
                return True
    return False


def _rename(path: str, now: int) -> None:
    taken = found(path)
    names = (f"{path}-damaged-{number}" for number in range(1, KEPT + 1))
    # The file keeps its inode: a new store that got the same would be taken for the damaged file.
    target = next((name for name in names if name not in taken), f"{path}-damaged-{KEPT}")
    for suffix in ("-wal", ""):
        with suppress(FileNotFoundError):
            _erase(target + suffix)
        with suppress(FileNotFoundError):
            os.replace(path + suffix, target + suffix)
            _set_time(target + suffix, now)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-shm")


def _set_time(file: str, now: int) -> None:
    # A clock may say any time, and a file system can only hold some.
    with suppress(OSError, OverflowError):
        os.utime(file, ns=(now * 1_000_000, now * 1_000_000))


def _erase(file: str) -> None:
    with open(file, "r+b", buffering=0) as opened:
        left = os.fstat(opened.fileno()).st_size
        while left > 0:
            left -= opened.write(bytes(min(left, 1 << 16)))
        force(opened.fileno())
    os.unlink(file)
