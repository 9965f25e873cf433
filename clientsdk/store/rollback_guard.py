"""The rollback guard: a small file that knows how far the ledger had come when something was sent.

A state file that is damaged, lost, or taken from an older copy has forgotten part of what was
spent. The guard beside it has not: it is written after every commit that survives a loss of power,
and so before the first byte of whatever that commit has charged for. It holds sums and counts, no
secret, no pseudonym and no chain. A copy of both files together is not noticed here: the
aggregator's audit sees what both copies send.

Behind two slots for guard records the file has room for a note that consent is withdrawn, which
overwrites bytes that the file has already and so succeeds where the disk is full (on file systems
that overwrite in place). Any byte in that room that is not zero means that consent is withdrawn, so
that a note that is written in part, or erased in part, means so too.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clientsdk.diagnostics import store_name
from mechanisms.digests import sha256
from mechanisms.frozen import NamedTuple
from sotto.errors import StoreError
from sotto.files import force, force_folder, open_file, try_lock, unlock
from sotto.plan.compiled import Ceilings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: The suffix of the state file's name.
SUFFIX = "-mark"
#: A lifetime of which nothing is known, in micro-epsilon.
UNKNOWN = 1 << 62

_MAGIC = b"SOTTOMK1"
_FIELDS = struct.Struct("<8s16s16sQqQQQQQQ")
_CHECKSUM = 16
_SLOT = 128
#: Place of a withdrawal's note, after both slots, and the end of the file.
_NOTE = 2 * _SLOT
_SIZE = _NOTE + _SLOT
_WITHDRAWN = b"SOTTOWD1"
#: A file goes on behind that once consent to a group was withdrawn on the device: any byte there
#: that is not zero says that the store has a withdrawn group.
_GROUPS = _SIZE
#: Fields that make notes differ: process, two clocks, and a number within the process.
_OCCASION = struct.Struct("<QqqQ")
_occasions = itertools.count()


class GuardError(StoreError):
    """The device's file was written, but its rollback guard was not."""


class ForeignGuardError(StoreError):
    """The guard is another store's: the file was replaced."""


class GuardRecord(NamedTuple):
    """The facts that a device must not forget; amounts in micro-epsilon."""

    store: bytes  #: The store's random identity, 16 bytes.
    budget: bytes  #: From :func:`budget_of`.
    generation: int  #: How many commits that survive a loss of power the store has seen.
    period: int  #: The budget period of the ledger.
    lifetime: int  #: Reserved over all periods.
    reserved: int  #: The part of it that was reserved in ``period``.
    ceiling_period: int  #: As pinned.
    ceiling_lifetime: int
    damaged: int  #: How often the store was found damaged or lost.
    restored: int  #: How often it was found older than its guard.


#: The record of a guard that is there and cannot be read.
UNREADABLE = GuardRecord(
    bytes(16), bytes(16), UNKNOWN, -UNKNOWN, UNKNOWN, 0, UNKNOWN, UNKNOWN, 0, 0
)


def budget_of(collector: str, period_ms: int) -> bytes:
    """Return 16 bytes that differ for the budgets of other collectors and period lengths."""
    return sha256(b"sotto.mark\0%d\0" % period_ms + collector.encode())[:16]


class RollbackGuard:
    """The guard of one open store. Methods with a connection belong in a transaction."""

    def __init__(self, path: str | None, budget: bytes) -> None:
        self.path = path
        self.budget = budget
        #: The store's, 16 random bytes; set once it has been read.
        self.identity = b""
        #: How many commits that survive a loss of power there were, and how often the file was
        #: found damaged or lost, and older than its guard.
        self.generation = self.damaged = self.restored = 0
        self._confirmed = 0
        self.upcoming: GuardRecord  #: The number of the commit that is about to be made.

    def refresh(self, connection: Connection) -> bool:
        """Read the generation again; False if the file is an older copy than what was open."""
        self.generation, self.damaged, self.restored = map(
            int, connection.execute("SELECT generation, damaged, restored FROM mark").fetchone()
        )
        newer = self.generation >= self._confirmed
        if newer:
            self._confirmed = self.generation
        return newer

    def next_record(
        self, connection: Connection, period: int, lifetime: int, reserved: int, ceilings: Ceilings
    ) -> GuardRecord:
        """Begin another generation and return its record."""
        self.generation += 1
        connection.execute("UPDATE mark SET generation = ?", (self.generation,))
        (degraded,) = connection.execute(
            "SELECT coalesce(sum(reserved), 0) FROM degraded WHERE period = ?", (period,)
        ).fetchone()
        budgets = period, lifetime, reserved - degraded, ceilings.period, ceilings.lifetime
        losses = self.damaged, self.restored
        return GuardRecord(self.identity, self.budget, self.generation, *budgets, *losses)

    def write(self) -> None:
        if self.path is not None:
            self._confirmed = self.upcoming.generation
            try:
                advance(self.path, self.upcoming)
            except ForeignGuardError:
                raise
            except StoreError as error:
                raise GuardError(f"it is written, but {error}") from error

    def count_loss(
        self, connection: Connection, known: GuardRecord | None, *, damaged: bool
    ) -> None:
        """Count one more file that was damaged or lost, or older; go on where the guard is."""
        if known is not None:
            self.generation = max(self.generation, known.generation)
            self.damaged = max(self.damaged, known.damaged)
            self.restored = max(self.restored, known.restored)
        # A guard of the first generation is one of a store of which nothing is known to be lost.
        self.generation = max(self.generation, 1)
        self.damaged += damaged
        self.restored += not damaged
        connection.execute(
            "UPDATE mark SET generation = ?, damaged = ?, restored = ?",
            (self.generation, self.damaged, self.restored),
        )

    def withdrawal_noted(self) -> bool:
        return self.path is not None and bool(withdrawal(self.path))

    def note_withdrawal(self) -> bool:
        with suppress(StoreError):
            if self.path is not None:
                note_withdrawal(self.path)
                return True
        return False


# The file itself. All of these raise StoreError if it cannot be read or written now.


def read(path: str) -> GuardRecord | None:
    """Return the record beside a state file, None if absent, :data:`UNREADABLE` if damaged."""
    content = _content(path)
    found = _parsed(content)
    # Nothing but zeros is what a loss of power leaves of one that had not come to the disk.
    return found[1] if found is not None else (UNREADABLE if content[:_NOTE].strip(b"\0") else None)


def withdrawal(path: str) -> bytes:
    """Return the note of a withdrawal beside a state file, nothing if there is none."""
    return _noted(path, _NOTE)


def _noted(path: str, place: int) -> bytes:
    note = _content(path)[place : place + _SLOT]
    return note if note.strip(b"\0") else b""


def _content(path: str) -> bytes:
    """Return what the guard beside a state file holds, nothing if there is none."""
    try:
        with open(f"{path}{SUFFIX}", "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unusable(path, error) from error


def has_room_for_note(path: str) -> bool:
    try:
        return os.path.getsize(f"{path}{SUFFIX}") >= _SIZE
    except OSError:
        return False


def note_withdrawal(path: str) -> None:
    """Note that consent is withdrawn, in place; the note survives a loss of power.

    No two notes are the same, and nothing is drawn for that: it must hold without randomness.
    """
    with locked(path, anyway=True) as descriptor:
        made = os.fstat(descriptor).st_size == 0
        _put(descriptor, _NOTE, (_WITHDRAWN + _occasion()).ljust(_SLOT, b"\0"))
        force(descriptor)
        if made:
            force_folder(os.path.dirname(path) or os.curdir)


def lift_withdrawal(path: str, note: bytes) -> None:
    """Erase the note of a withdrawal, unless there is another by now."""
    with locked(path) as descriptor:
        os.lseek(descriptor, _NOTE, os.SEEK_SET)
        if os.read(descriptor, _SLOT) == note:
            _put(descriptor, _NOTE, bytes(len(note)))


def group_noted(path: str) -> bool:
    """Whether it is noted beside a state file that consent to some group is withdrawn."""
    return bool(_noted(path, _GROUPS))


def note_group(path: str) -> None:
    """Note that consent to some group is withdrawn; the note survives a loss of power.

    In a transaction that writes the withdrawal, before its commit: a store without one beside such
    a note is an older copy, or was interrupted.
    """
    with locked(path) as descriptor:
        _put(descriptor, _GROUPS, _WITHDRAWN.ljust(_SLOT, b"\0"))
        force(descriptor)


def lift_group(path: str) -> None:
    """Erase that note."""
    with locked(path) as descriptor:
        _put(descriptor, _GROUPS, bytes(_SLOT))


def advance(path: str, record: GuardRecord) -> None:
    """Write a record unless a later one is there; ForeignGuardError if that is another store's."""
    with locked(path) as descriptor:
        found = _parsed(os.read(descriptor, 2 * _SLOT))
        if found is not None and found[1].store != record.store:
            raise ForeignGuardError("another file has taken the place of the device's store")
        if found is None or found[1].generation < record.generation:
            _write(path, descriptor, found, record)


def replace(path: str, record: GuardRecord, *, durable: bool = True) -> None:
    """Write a record, whatever is there; a ``durable`` one survives a loss of power."""
    with locked(path) as descriptor:
        overwrite(path if durable else None, descriptor, record)


def overwrite(path: str | None, descriptor: int, record: GuardRecord) -> None:
    """Write a record to a locked guard; if the path is given it survives a loss of power."""
    _write(path, descriptor, _parsed(os.read(descriptor, 2 * _SLOT)), record)


@contextmanager
def locked(path: str, *, anyway: bool = False) -> Iterator[int]:
    """Open the guard of a state file, made if absent, for one process at a time.

    If the lock cannot be had in time, what follows is done ``anyway`` or not at all.
    """
    try:
        descriptor = open_file(f"{path}{SUFFIX}", os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor, anyway)
            yield descriptor
        finally:
            try:
                # Before it is closed: a child that was forked meanwhile has a copy.
                with suppress(OSError):
                    unlock(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise _unusable(path, error) from error


def _occasion() -> bytes:
    occasion = os.getpid(), time.time_ns(), time.monotonic_ns(), next(_occasions)
    return sha256(b"sotto.withdrawal\0" + _OCCASION.pack(*occasion))[:16]


def _lock(descriptor: int, anyway: bool) -> None:
    # Whoever reads a guard alone has no use for SQLite.
    from clientsdk.store import schema

    deadline = time.monotonic() + schema.PATIENCE
    try:
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise BlockingIOError(errno.EAGAIN, "another process holds its lock")
            time.sleep(schema.PAUSE)
    except OSError:
        # A file system may have no locks, or have run out of them.
        if not anyway:
            raise


def _parsed(content: bytes) -> tuple[int, GuardRecord] | None:
    found = None
    for slot in range(2):
        content_of_slot = content[slot * _SLOT : (slot + 1) * _SLOT]
        body = content_of_slot[: _FIELDS.size]
        check = content_of_slot[_FIELDS.size : _FIELDS.size + _CHECKSUM]
        if len(check) == _CHECKSUM and body[:8] == _MAGIC and _checksum(body) == check:
            record = GuardRecord(*_FIELDS.unpack(body)[1:])
            if found is None or record.generation > found[1].generation:
                found = slot, record
    return found


def _write(
    path: str | None, descriptor: int, found: tuple[int, GuardRecord] | None, record: GuardRecord
) -> None:
    """Write to the other slot: whatever happens meanwhile, one of them can be read."""
    slot = 0 if found is None else 1 - found[0]
    body = _FIELDS.pack(_MAGIC, *record)
    _put(descriptor, slot * _SLOT, (body + _checksum(body)).ljust(_SLOT, b"\0"))
    if found is not None and found[1].generation >= record.generation:
        _put(descriptor, found[0] * _SLOT, bytes(_SLOT))
    size = os.fstat(descriptor).st_size
    if size < _SIZE:
        # A guard that is new, or older than notes of withdrawals.
        _put(descriptor, max(size, _NOTE), bytes(_SIZE - max(size, _NOTE)))
    if path is not None:
        force(descriptor)
        # A new store makes its guard without forcing the name to disk.
        if found is None or found[1].generation <= 1:
            force_folder(os.path.dirname(path) or os.curdir)


def _put(descriptor: int, place: int, content: bytes) -> None:
    os.lseek(descriptor, place, os.SEEK_SET)
    if os.write(descriptor, content) < len(content):
        raise OSError("it was written in part")


def _checksum(body: bytes) -> bytes:
    return sha256(body)[:_CHECKSUM]


def _unusable(path: str, error: OSError) -> StoreError:
    what = error.strerror or str(error)
    return StoreError(f"the rollback guard beside {store_name(path)} cannot be used: {what}")
