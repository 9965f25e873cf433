"""The mark beside a device's file: how far the ledger had come when something last left the device.

A file that is damaged, lost, or taken from an older copy has forgotten part of what was spent.
The mark has not: it is written after every commit that survives a loss of power, and so before
the first byte of whatever that commit has charged for. It holds sums and counts, no secret, no
pseudonym and no chain.

Behind these it has room for one note more: that consent is withdrawn. The room is written when the
mark is made, so that the note overwrites bytes that the file has already. On file systems that
overwrite in place this takes no space, and succeeds where the disk is full. Any byte in that room
that is not zero means that consent is withdrawn, so that a note that is written in part, or erased
in part, means so too.

A copy of file and mark together, as of a whole directory or disk, is not noticed here: the
aggregator's audit sees what both copies send.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clientsdk import schema
from mechanisms.digests import sha256
from sotto.errors import StoreError

try:
    import fcntl
except ImportError:  # pragma: no cover
    # Without it two processes may write at once, of which the later may know less.
    fcntl = None  # type: ignore[assignment]

#: What follows the name of the state file.
SUFFIX = "-mark"
#: A lifetime of which nothing is known, in micro-epsilon.
UNKNOWN = 1 << 62

_MAGIC = b"SOTTOMK1"
_FIELDS = struct.Struct("<8s16s16sQqQQQQQQ")
_SUM = 16
_SLOT = 128
#: Where the note of a withdrawal is, after both marks, and where the file ends.
_NOTE = 2 * _SLOT
_SIZE = _NOTE + _SLOT
_WITHDRAWN = b"SOTTOWD1"
#: What tells notes apart: process, two clocks, and a number within the process.
_OCCASION = struct.Struct("<QqqQ")
_occasions = itertools.count()


class UnmarkedError(StoreError):
    """What was to be written is in the device's file, and the mark beside it could not follow.

    Nothing leaves the device before it can: what is sent is charged in a commit with a mark.
    """


class ForeignError(StoreError):
    """The mark is another store's: the file was replaced."""


class Mark(NamedTuple):
    """What a device must not forget; amounts in micro-epsilon.

    Attributes
    ----------
    store : bytes
        The store's random identity, 16 bytes.
    budget : bytes
        What :func:`budget_of` says of collector and period length.
    generation : int
        How many commits that survive a loss of power the store has seen.
    period : int
        The budget period of the ledger.
    lifetime : int
        Reserved over all periods.
    reserved : int
        The part of it that was reserved in ``period``.
    ceiling_period, ceiling_lifetime : int
        As pinned.
    damaged, restored : int
        How often the store was found damaged or lost, and older than its mark.
    """

    store: bytes
    budget: bytes
    generation: int
    period: int
    lifetime: int
    reserved: int
    ceiling_period: int
    ceiling_lifetime: int
    damaged: int
    restored: int


#: What a mark says that is there and cannot be read.
UNREADABLE = Mark(bytes(16), bytes(16), UNKNOWN, -UNKNOWN, UNKNOWN, 0, UNKNOWN, UNKNOWN, 0, 0)


def budget_of(collector: str, period_ms: int) -> bytes:
    """Return what tells the budgets of collectors and period lengths apart: 16 bytes."""
    return sha256(b"sotto.mark\0%d\0" % period_ms + collector.encode())[:16]


def read(path: str) -> Mark | None:
    """Return the mark beside a state file, None if there is none, :data:`UNREADABLE` if damaged.

    Raises
    ------
    StoreError
        The file cannot be read now.
    """
    try:
        with open(_beside(path), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(error) from error
    found = _parsed(content)
    # Nothing but zeros is what a loss of power leaves of one that had not come to the disk.
    return found[1] if found is not None else (UNREADABLE if content[:_NOTE].strip(b"\0") else None)


def withdrawal(path: str) -> bytes:
    """Return the note of a withdrawal beside a state file, nothing if there is none.

    Raises
    ------
    StoreError
        The file cannot be read now.
    """
    try:
        with open(_beside(path), "rb", buffering=0) as file:
            file.seek(_NOTE)
            note = file.read(_SLOT) or b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unusable(error) from error
    return note if note.strip(b"\0") else b""


def has_room(path: str) -> bool:
    """Whether the mark beside a state file has the room for a note: older versions made none."""
    try:
        return os.path.getsize(_beside(path)) >= _SIZE
    except OSError:
        return False


def note_withdrawal(path: str) -> None:
    """Note that consent is withdrawn, in place; the note survives a loss of power.

    If the mark is gone it is made. No two notes are the same. What makes them differ is no secret
    and is not drawn: a withdrawal must hold also where the operating system gives no randomness.

    Raises
    ------
    StoreError
        It could not be written.
    """
    with locked(path, anyway=True) as descriptor:
        made = os.fstat(descriptor).st_size == 0
        _put(descriptor, _NOTE, (_WITHDRAWN + _occasion()).ljust(_SLOT, b"\0"))
        os.fsync(descriptor)
        if made and os.name == "posix":
            _sync_folder(os.path.dirname(path))


def lift_withdrawal(path: str, note: bytes) -> None:
    """Erase the note of a withdrawal, unless there is another by now.

    Raises
    ------
    StoreError
        It could not be erased.
    """
    with locked(path) as descriptor:
        os.lseek(descriptor, _NOTE, os.SEEK_SET)
        if os.read(descriptor, _SLOT) == note:
            _put(descriptor, _NOTE, bytes(len(note)))


def advance(path: str, mark: Mark) -> None:
    """Write a mark unless one of a later generation is there.

    Raises
    ------
    StoreError
        It could not be written, or the mark there is another store's: the file was replaced.
    """
    with locked(path) as descriptor:
        content = os.read(descriptor, 2 * _SLOT)
        found = _parsed(content)
        if found is not None and found[1].store != mark.store:
            raise ForeignError("another file has taken the place of the device's store")
        if found is None or found[1].generation < mark.generation:
            _write(path, descriptor, found, mark)


def replace(path: str, mark: Mark, *, durable: bool = True) -> None:
    """Write a mark, whatever is there; it survives a loss of power if it is to be ``durable``.

    Raises
    ------
    StoreError
        It could not be written.
    """
    with locked(path) as descriptor:
        found = _parsed(os.read(descriptor, 2 * _SLOT))
        _write(path if durable else None, descriptor, found, mark)


@contextmanager
def locked(path: str, *, anyway: bool = False) -> Iterator[int]:
    """Open the mark of a state file, made if absent, for one process at a time.

    If the lock cannot be had, within :data:`~clientsdk.schema.PATIENCE` or on this file system,
    what follows is done ``anyway`` or not at all.

    Raises
    ------
    StoreError
        It cannot be opened, locked or, in what follows, written.
    """
    try:
        descriptor = os.open(_beside(path), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor, anyway)
            yield descriptor
        finally:
            try:
                # Before it is closed: a child that was forked meanwhile has a copy.
                if fcntl is not None:
                    with suppress(OSError):
                        fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise _unusable(error) from error


def _occasion() -> bytes:
    """Return 16 bytes that no other note of this device has."""
    occasion = os.getpid(), time.time_ns(), time.monotonic_ns(), next(_occasions)
    return sha256(b"sotto.withdrawal\0" + _OCCASION.pack(*occasion))[:16]


def _beside(path: str) -> str:
    return f"{path}{SUFFIX}"


def _lock(descriptor: int, anyway: bool) -> None:
    deadline = time.monotonic() + schema.PATIENCE
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            # Some file systems have no locks, or have run out of them.
            if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                if anyway:
                    break
                raise
            time.sleep(schema.PAUSE)


def _parsed(content: bytes) -> tuple[int, Mark] | None:
    """Return the newest mark and its place, None if there is none."""
    found = None
    for place in range(2):
        slot = content[place * _SLOT : (place + 1) * _SLOT]
        body, check = slot[: _FIELDS.size], slot[_FIELDS.size : _FIELDS.size + _SUM]
        if len(check) == _SUM and body[:8] == _MAGIC and _checksum(body) == check:
            mark = Mark(*_FIELDS.unpack(body)[1:])
            if found is None or mark.generation > found[1].generation:
                found = place, mark
    return found


def _write(path: str | None, descriptor: int, found: tuple[int, Mark] | None, mark: Mark) -> None:
    """Write to the other place: whatever happens meanwhile, one of them can be read."""
    place = 0 if found is None else 1 - found[0]
    body = _FIELDS.pack(_MAGIC, *mark)
    _put(descriptor, place * _SLOT, (body + _checksum(body)).ljust(_SLOT, b"\0"))
    if found is not None and found[1].generation >= mark.generation:
        _put(descriptor, found[0] * _SLOT, bytes(_SLOT))
    size = os.fstat(descriptor).st_size
    if size < _SIZE:
        # A mark that is new, or older than notes of withdrawals.
        _put(descriptor, max(size, _NOTE), bytes(_SIZE - max(size, _NOTE)))
    if path is not None:
        os.fsync(descriptor)
        # A new store makes its mark without forcing the name to disk.
        if (found is None or found[1].generation <= 1) and os.name == "posix":
            _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    """Let the name of a file that was made survive a loss of power too."""
    descriptor = os.open(folder or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(descriptor: int, place: int, content: bytes) -> None:
    os.lseek(descriptor, place, os.SEEK_SET)
    if os.write(descriptor, content) < len(content):
        raise OSError("it was written in part")


def _checksum(body: bytes) -> bytes:
    return sha256(body)[:_SUM]


def _unusable(error: OSError) -> StoreError:
    return StoreError(f"the mark beside the device's store cannot be used: {error}")
