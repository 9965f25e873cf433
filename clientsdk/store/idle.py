"""A note beside a store in which nothing waits, with which a client need not open the store.

Opening a store is most of what a run of a command line tool pays. So the client that closes it last
leaves a note beside it, if nothing waits in it, and later clients go by the note until they record.
There is no note while reports wait that are not due yet: a client that lives on sends them when
they are due, and finds that time only in the store. A note holds for one generation of the store,
which ends when somebody opens it, and only while there is no log, which a process that is killed
leaves behind. If the note is missing, damaged or old, the store is opened. A commit that another
process makes just when the note is written may go unseen until :data:`LONGEST` is over.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from clientsdk.outcomes import Consent
from clientsdk.store import rollback_guard
from mechanisms.digests import sha256
from mechanisms.frozen import frozen
from sotto.errors import StoreError
from sotto.files import write_small
from sotto.plan.compiled import Ceilings, CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.store.store import Store

#: The suffix of the state file's name.
SUFFIX = "-idle"
#: Milliseconds after which a store is opened all the same.
LONGEST = 86_400_000
_FIELDS = struct.Struct("<QqB")
_SAID = (*Consent,)


@frozen
class IdleNote:
    generation: int  #: The store's when it was closed.
    until: int  #: When there may be something to do in it, in ms since the epoch.
    said: Consent  #: Consent as a whole.


def note_of(store: Store, now: int) -> IdleNote | None:
    """Return the note to leave when a store is closed; None if there is something to do in it."""
    with suppress(StoreError):
        if store.path is not None and store.next_due() is None:
            noted = store.guard.withdrawal_noted() == (store.consent is Consent.WITHDRAWN)
            if noted and not store.stopped and not store.erasure.pending:
                until = min(now + LONGEST, store.plans.next_expiry)
                return IdleNote(store.guard.generation, until, store.consent)
    return None


def leave(path: str, note: IdleNote | None) -> None:
    """Leave a note beside a store that was closed, or remove it, unless others have it open."""
    if not os.path.exists(path + "-wal"):
        if note is None:
            with suppress(OSError):
                os.unlink(path + SUFFIX)
            return
        content = _FIELDS.pack(note.generation, note.until, _SAID.index(note.said))
        write_small(path + SUFFIX, content + sha256(content))


def said(path: str, plan: CompiledPlan, own: Ceilings, now: int) -> Consent | None:
    """Return the consent at a device whose store need not be opened; None if it has to be.

    ``own`` are the ceilings that the client would pin; ``now`` is in ms since the epoch.
    """
    path = os.path.realpath(path)
    try:
        with open(path + SUFFIX, "rb") as file:
            content = file.read()
        fields, checksum = content[: _FIELDS.size], content[_FIELDS.size :]
        guard, withdrawn = rollback_guard.read(path), rollback_guard.withdrawal(path)
        there = os.path.exists(path) and not os.path.exists(path + "-wal")
    except (OSError, StoreError):
        return None
    if guard is None or not there or sha256(fields) != checksum:
        return None
    generation, until, number = _FIELDS.unpack(fields)
    consent = _SAID[number]
    known = generation == guard.generation and bool(withdrawn) == (consent is Consent.WITHDRAWN)
    ours = guard.budget == rollback_guard.budget_of(plan.collector, plan.period)
    low = guard.ceiling_period <= own.period and guard.ceiling_lifetime <= own.lifetime
    in_time = guard.period == plan.period_of(now) and now < min(until, plan.expires)
    return consent if known and ours and low and in_time else None
