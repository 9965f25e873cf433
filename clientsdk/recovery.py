"""What a device does about a file that is damaged, lost, or older than its mark says.

Nothing is won by damaging a file, by removing it, or by putting an older copy in its place: the
current budget period is full, what is known of the lifetime is carried over, nothing of the old
chains is sent, and consent has to be given again.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from clientsdk import complaints, ledger, mark, schema
from clientsdk.ledger import Consent, lowered
from clientsdk.mark import UNKNOWN, UNREADABLE, Mark
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan

if TYPE_CHECKING:
    from clientsdk.store import Store

#: How many damaged files are kept.
KEPT = 3

_LOST = "the device's store was damaged or lost: its budget period counts as spent"
_OLDER = (
    "the device's store is older than the mark beside it, or was moved without that: its period "
    "counts as spent, and consent must be given once more, by give_consent(again=True); back up "
    "and move the state file and what is beside it, device.db and device.db-*, together"
)
_MOST = UNKNOWN >> 1


def set_aside(path: str, place: tuple[int, int] | None, now: int) -> bool:
    """Rename a damaged file, with its log, unless another process has done it.

    Parameters
    ----------
    path : str
    place : tuple of int, optional
        Device and inode of the file that was found damaged.
    now : int
        Milliseconds since the epoch; kept as the time of the file's last change.

    Returns
    -------
    bool
        False if the file is not known to be a device's: then nothing has changed.

    Raises
    ------
    StoreError
        It could not be renamed.
    """
    if place is None or (mark.read(path) is None and not _labelled(path)):
        return False
    found = mark.read(path)
    if found is None:
        # That there was a store is not forgotten, whatever comes next.
        mark.replace(path, UNREADABLE)
    with mark.locked(path):
        there = os.stat(path)
        if (there.st_dev, there.st_ino) == place:
            _rename(path, now)
    return True


def is_of_another(path: str, plan: CompiledPlan) -> bool:
    """Whether a file, or where it cannot be read its mark, is known to be of another budget."""
    try:
        with closing(ledger.reader(path)) as connection:
            pinned = connection.execute("SELECT collector, period_ms FROM device").fetchone()
        return pinned is not None and pinned != (plan.collector, plan.period)
    except schema.FAULTS:
        try:
            found = mark.read(path)
        except StoreError:
            return False
    if found is None or found == UNREADABLE:
        return False
    return found.budget != mark.budget_of(plan.collector, plan.period)


def erase_old(path: str, now: int, age: int) -> None:
    """Overwrite and remove what was kept aside for longer than ``age`` milliseconds.

    Nothing is ever read from such a file. A clock that was set back since then makes it look as
    if it came from the future: then its time begins anew, so that it is kept no longer than the
    age once more. One that leaps forward makes it go early, which loses nothing but a file to look
    into. What cannot be erased now is tried again.
    """
    for file in _aside(path):
        with suppress(OSError):
            since = os.stat(file).st_mtime_ns // 1_000_000
            if since > now:
                _stamp(file, now)
            elif now - since > age:
                _erase(file)


def is_aside(path: str) -> bool:
    """Whether any file is kept aside."""
    return bool(_aside(path))


def erase_aside(path: str) -> bool:
    """Overwrite and remove the files that were kept aside; return whether none is left."""
    try:
        for file in _aside(path):
            _erase(file)
    except OSError:
        return False
    return True


def unheard_of(store: Store) -> bool:
    """Whether there is no mark, which an empty file would be lost by.

    Raises
    ------
    StoreError
        The mark cannot be read now.
    """
    return store.path is None or mark.read(store.path) is None


def reconcile(
    store: Store,
    connection: sqlite3.Connection,
    plan: CompiledPlan,
    period: int,
    *,
    fresh: bool,
    turns: bool,
) -> None:
    """Compare a store with its mark, in the transaction that opens it, and make up for a gap.

    Parameters
    ----------
    store : Store
        Read, and not yet moved on to the current period.
    connection : sqlite3.Connection
    plan : CompiledPlan
    period : int
        The budget period in which it is.
    fresh : bool
        Whether the file was empty.
    turns : bool
        Whether the secret of its turns in panels was drawn just now: it was empty, or made by a
        version that knew no panels.

    Raises
    ------
    PlanError
        The file is lost, and its mark belongs to another collector or period length.
    StoreError
        The mark cannot be used.
    """
    path = store.path
    if path is None:
        return
    found = mark.read(path)
    if fresh:
        lost = found is not None and found.generation > 1
    elif found is None:
        # The first generation has recorded nothing, and its mark may not have come to the disk.
        lost = store.generation > 1
    else:
        lost = found.store != store.identity or found.generation > max(store.generation, 1)
    if lost:
        known = found if found is not None and found.lifetime < UNKNOWN else None
        if fresh and known is not None and known.budget != store.budget:
            raise PlanError("the mark beside the device's store is of another collector or period")
        complaints.warn("lost store", _LOST if fresh else _OLDER)
        _make_up(store, path, connection, plan, period, found=known, fresh=fresh)
        store.count_loss(connection, known, damaged=fresh)
        if turns or (found is not None and found.store != store.identity):
            store.wait_for_a_cycle(connection)
    elif fresh and found is not None and found.budget == store.budget:
        # Nothing was recorded yet, and what it was pinned to holds.
        store.pin(connection, _pinned(store, found))
    if lost or fresh or store.generation == 0:
        # Before the commit: what it makes up for must not be forgotten again.
        mark.replace(path, store.seal(connection), durable=lost or not fresh)


def _make_up(
    store: Store,
    path: str,
    connection: sqlite3.Connection,
    plan: CompiledPlan,
    period: int,
    *,
    found: Mark | None,
    fresh: bool,
) -> None:
    """Fill the current period, and carry over what the lifetime has paid or may have paid."""
    began, reserved, own = store.period, store.reserved, store.lifetime_reserved
    if found is not None:
        store.pin(connection, _pinned(store, found))
        period = max(period, found.period)
    store.advance(connection, period)
    if not fresh:
        # A withdrawal that this file has not seen is noted in the store's own mark, if in any.
        known = found is not None and found.store == store.identity and mark.has_room(path)
        known = known and store.consent is not Consent.WITHDRAWN
        store.agree(connection, Consent.NEVER_GIVEN if known else Consent.WITHDRAWN)
    elif found is None:
        # A withdrawal may have been in what is gone.
        store.agree(connection, Consent.WITHDRAWN)
    ceilings = store.ceilings
    if found is None:
        # What was pinned last is not known: consent may have raised it to the plan's since then.
        ceilings = Ceilings(
            max(ceilings.period, plan.ceilings.period),
            max(ceilings.lifetime, plan.ceilings.lifetime),
        )
    full = ceilings.period
    if found is not None:
        # Two histories that do not know of each other, if it is another store's.
        least = found.lifetime + (own if found.store != store.identity else 0)
        lately = found.reserved if found.period == store.period else 0
        if found.period == store.period:
            # What was allowed then, whatever is pinned now: consent may raise that again.
            full = max(full, lately, found.ceiling_period)
        most = least + max(0, ceilings.period - lately)
    elif fresh:
        least = most = ceilings.lifetime
    else:
        # What the periods since then could have cost at most, and constant metrics once more.
        least = own
        most = own + (store.period - began + 1) * ceilings.period - reserved
        most += sum(each.permanent for each in plan.metrics if each.kind == "constant")
    # A full lifetime is full: what is not known adds nothing to it.
    total = min(max(least, min(most, ceilings.lifetime)), _MOST)
    store.fill(connection, full, max(0, total - store.lifetime_reserved))
    store.carry(connection, max(0, total - store.lifetime_reserved))


def _pinned(store: Store, found: Mark) -> Ceilings:
    return lowered(store.ceilings, Ceilings(found.ceiling_period, found.ceiling_lifetime))


def _labelled(path: str) -> bool:
    """Whether a damaged file still says that it is a device's."""
    with suppress(StoreError, *schema.FAULTS):
        connection = sqlite3.connect(schema.uri_of(path), uri=True, isolation_level=None)
        try:
            (found,) = connection.execute("PRAGMA application_id").fetchone()
            return bool(found == schema.APPLICATION)
        finally:
            connection.close()
    return False


def _aside(path: str) -> list[str]:
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError):
        found = sorted(os.listdir(folder or os.curdir))
        return [os.path.join(folder, each) for each in found if each.startswith(f"{name}-damaged-")]
    return []


def _rename(path: str, now: int) -> None:
    """Move a file and its log out of the way, both under the same new name."""
    taken = _aside(path)
    for number in range(1, KEPT + 1):
        target = f"{path}-damaged-{number}"
        if target not in taken:
            break
    else:
        target = ""
    for suffix in ("-wal", ""):
        with suppress(FileNotFoundError):
            if target:
                os.replace(path + suffix, target + suffix)
                _stamp(target + suffix, now)
            else:
                _erase(path + suffix)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-shm")


def _stamp(file: str, now: int) -> None:
    # A clock may be anywhere in time, and a file system holds some of it only.
    with suppress(OSError, OverflowError):
        os.utime(file, ns=(now * 1_000_000, now * 1_000_000))


def _erase(file: str) -> None:
    with open(file, "r+b", buffering=0) as opened:
        left = os.fstat(opened.fileno()).st_size
        while left > 0:
            left -= opened.write(bytes(min(left, 1 << 16)))
        os.fsync(opened.fileno())
    os.unlink(file)
