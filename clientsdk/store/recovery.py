"""Opens a device's store, and makes up for a file that is damaged, lost, or older than its guard.

Nothing is gained by damaging a file, by removing it, or by putting an older copy in its place: the
current budget period is full, the lifetime keeps what is known to be spent, none of the old chains
is sent, and consent has to be given again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from sqlite3 import Connection

from clientsdk import diagnostics
from clientsdk.outcomes import Consent
from clientsdk.settings import Quota, lowered
from clientsdk.store import damaged_files, device_secrets, outbox, rollback_guard, schema
from clientsdk.store.database import DURABLE, READ, WRITE
from clientsdk.store.rollback_guard import UNKNOWN, UNREADABLE, GuardRecord
from clientsdk.store.store import Store
from mechanisms.randomness import Source
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan

_LOST = "%s was damaged, lost, or of an earlier release: its budget period counts as spent"
_OLDER = (
    "%s is older than the rollback guard beside it, or was moved without that: its period counts "
    "as spent, and consent must be given once more, by give_consent(again=True); back up and move "
    "the state file and what is beside it, device.db and device.db-*, together"
)
_NO_STORE = "%s is not one, and is left as it is: remove that file, or name another one"
_ANOTHER = "%s, or the rollback guard beside it, is of another collector or period"
_MOST = UNKNOWN >> 1


def open_store(
    path: str | None,
    plan: CompiledPlan,
    ceilings: Ceilings,
    clock: Callable[[], int],
    source: Source,
    quota: Quota | None = None,
) -> Store:
    """Open a device's store, made if absent; a damaged or outdated file is set aside and replaced.

    ``path`` is None for a store in memory. A new one is pinned to the plan's collector and period
    length and to ``ceilings``, which lower those of an existing one, and starts in the budget
    period that ``clock`` says, which returns milliseconds since the epoch and raises nothing.
    Raises PlanError if the store belongs to another budget, and StoreError if the file cannot be
    used.
    """
    now = clock()
    for last in (False, True):
        store = Store(path, plan, ceilings, source, clock, quota)
        try:
            _open(store, plan, ceilings, now, source)
            break
        except schema.DamagedError:
            if last or store.path is None:
                raise
            with store.database.alone():
                another = is_of_another(store.path, plan)
            if another:
                raise PlanError(_ANOTHER % store.database.name) from None
            if not damaged_files.set_aside(store.path, store.database.place, now):
                raise StoreError(_NO_STORE % store.database.name) from None
        except StoreError:
            # Another process may have set a damaged file aside since it was opened.
            if last or not store.database.moved():
                raise
    return store


def is_of_another(path: str, plan: CompiledPlan) -> bool:
    """Whether a file is known to be of another budget, by its guard if it cannot be read."""
    from clientsdk import ledger

    try:
        with closing(ledger.reader(path)) as connection:
            pinned = connection.execute("SELECT collector, period_ms FROM device").fetchone()
        return pinned is not None and pinned != (plan.collector, plan.period)
    except schema.FAULTS:
        try:
            found = rollback_guard.read(path)
        except StoreError:
            return False
    if found is None or found == UNREADABLE:
        return False
    return found.budget != rollback_guard.budget_of(plan.collector, plan.period)


def _open(store: Store, plan: CompiledPlan, ceilings: Ceilings, now: int, source: Source) -> None:
    store.database.open(store)
    period = plan.period_of(now)
    try:
        with store.transaction(READ) as connection:
            new = schema.examine(connection) and _without_guard(store)
        # A new device has sent nothing that a loss of power could make it forget.
        with store.transaction(WRITE if new else DURABLE) as connection:
            fresh = schema.prepare(connection)
            if fresh:
                _create(connection, plan, ceilings, period, source)
            _check_pinned(connection, plan)
            store.adopt(connection)
            store.pin(connection, lowered(store.ceilings, ceilings))
            store.plans.add_opened(connection)
            _reconcile(store, connection, plan, period, fresh=fresh)
            _agree_on_withdrawal(store, connection)
            store.draw_arm(connection)
            store.follow(connection, now)
            store.expire(connection, now)
            store.erase_old_copies(connection, now)
            if store.forget_periods(connection):
                # A file of an older release may still hold past periods, and traces of them.
                store.erasure.schedule(connection)
            due = outbox.next_due(connection)
            store.outbox.soonest = schema.NEVER if due is None else due
        store.finish_erasure()
    except BaseException as error:
        if isinstance(error, schema.DamagedError):
            # The last to close a file removes log and index by name: no new file may have any yet.
            with suppress(StoreError), store.database.alone(anyway=True):
                store.close()
        # The interrupted call may still hold the store, until the interrupt has gone through.
        with suppress(StoreError):
            store.close()
        raise


def _without_guard(store: Store) -> bool:
    return store.path is None or rollback_guard.read(store.path) is None


def _create(
    connection: Connection, plan: CompiledPlan, ceilings: Ceilings, period: int, source: Source
) -> None:
    pinned = plan.collector, plan.period, ceilings.period, ceilings.lifetime
    connection.execute(
        "INSERT INTO device VALUES (1, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0)",
        (os.urandom(16), *pinned, Consent.NEVER_GIVEN, period),
    )
    connection.execute("INSERT INTO secret VALUES (1, ?)", (device_secrets.draw_secret(source),))
    device_secrets.create_panel(connection, source)


def _check_pinned(connection: Connection, plan: CompiledPlan) -> None:
    pinned = connection.execute("SELECT collector, period_ms FROM device").fetchone()
    if pinned is None:
        raise schema.damaged(connection)
    for what, have, want in zip(
        ("collector", "period"), pinned, (plan.collector, plan.period), strict=True
    ):
        if have != want:
            raise PlanError(
                f"{what} {want!r}: {schema.name_of(connection)} is pinned to {have!r}; another "
                "collector or period needs a state file of its own"
            )


def _agree_on_withdrawal(store: Store, connection: Connection) -> None:
    if store.path is not None:
        store.apply_noted_withdrawal(connection, DURABLE)
        noted = rollback_guard.group_noted(store.path)
        if noted and not store.group_withdrawn and store.consent is not Consent.WITHDRAWN:
            # The withdrawal was interrupted, or this file does not know it.
            store.set_consent(connection, Consent.WITHDRAWN)
        if store.group_withdrawn and not noted:
            with suppress(StoreError):
                rollback_guard.note_group(store.path)
        if store.consent is Consent.WITHDRAWN:
            with suppress(StoreError):
                if not store.guard.withdrawal_noted():
                    rollback_guard.note_withdrawal(store.path)


def _reconcile(
    store: Store, connection: Connection, plan: CompiledPlan, period: int, *, fresh: bool
) -> None:
    """Compare a store with its guard, in the transaction that opens it, and make up for a gap.

    ``fresh`` says whether the file was empty.
    """
    path = store.path
    if path is None:
        return
    guard = store.guard
    found = rollback_guard.read(path)
    if fresh:
        lost = found is not None and found.generation > 1
    elif found is None:
        # The first generation has recorded nothing, and its guard may not have come to the disk.
        lost = guard.generation > 1
    else:
        lost = found.store != guard.identity or found.generation > max(guard.generation, 1)
    if lost:
        known = found if found is not None and found.lifetime < UNKNOWN else None
        if fresh and known is not None and known.budget != guard.budget:
            raise PlanError(_ANOTHER % store.database.name)
        diagnostics.warn("lost store", _LOST if fresh else _OLDER, store.database.name)
        _make_up(store, path, connection, plan, period, found=known, fresh=fresh)
        guard.count_loss(connection, known, damaged=fresh)
        store.refusals.clear()
        if fresh or (found is not None and found.store != guard.identity):
            # The device may have had its turn in this cycle, with the lost file.
            device_secrets.begin_after(connection, store.period)
            store.panel = device_secrets.read_panel(connection)
    elif fresh and found is not None and found.budget == guard.budget:
        # Nothing was recorded yet; the ceilings in the guard go on to hold.
        store.pin(connection, _pinned(store, found))
    if lost or fresh or guard.generation == 0:
        # The guard is written before the commit: this loss must not be forgotten in its turn.
        record = store.guard_record(connection)
        rollback_guard.replace(path, record, durable=lost or not fresh)


def _make_up(
    store: Store,
    path: str,
    connection: Connection,
    plan: CompiledPlan,
    period: int,
    *,
    found: GuardRecord | None,
    fresh: bool,
) -> None:
    """Fill the current period, and carry over what the lifetime has paid or may have paid."""
    accounts, guard = store.accounts, store.guard
    began, reserved, own = accounts.period, accounts.reserved, accounts.lifetime_reserved
    if found is not None:
        store.pin(connection, _pinned(store, found))
        period = max(period, found.period)
    store.advance(connection, period)
    if not fresh:
        # A withdrawal that this file has not seen can only be noted in the store's own guard.
        known = found is not None and found.store == guard.identity
        known = known and rollback_guard.has_room_for_note(path)
        known = known and not rollback_guard.group_noted(path)
        known = known and store.consent is not Consent.WITHDRAWN
        store.set_consent(connection, Consent.NEVER_GIVEN if known else Consent.WITHDRAWN)
    elif found is None or not rollback_guard.has_room_for_note(path):
        # A withdrawal may have been in the file or the guard that is gone.
        store.set_consent(connection, Consent.WITHDRAWN)
    ceilings = store.ceilings
    if found is None:
        # The ceilings pinned last are not known: consent may have raised them to the plan's since
        # then.
        ceilings = Ceilings(
            max(ceilings.period, plan.ceilings.period),
            max(ceilings.lifetime, plan.ceilings.lifetime),
        )
    full = ceilings.period
    if found is not None:
        # If the guard is another store's, neither history counts what the other has spent.
        least = found.lifetime + (own if found.store != guard.identity else 0)
        lately = found.reserved if found.period == accounts.period else 0
        if found.period == accounts.period:
            # The ceilings of that time count, even if lower ones are pinned now: consent may raise
            # these again.
            full = max(full, lately, found.ceiling_period)
        most = least + max(0, ceilings.period - lately)
    elif fresh or period < began:
        # Without a clock, or with one behind the copy, no number of periods bounds what was spent.
        least = most = ceilings.lifetime
    else:
        # The periods since then could have cost this at most, and constant metrics once more.
        least = own
        most = own + (accounts.period - began + 1) * ceilings.period - reserved
        most += sum(each.permanent for each in plan.metrics if each.kind == "constant")
    # A lifetime is never more than full because of what is not known.
    total = min(max(least, min(most, ceilings.lifetime)), _MOST)
    accounts.fill(connection, full, max(0, total - accounts.lifetime_reserved))
    accounts.carry(connection, max(0, total - accounts.lifetime_reserved))


def _pinned(store: Store, found: GuardRecord) -> Ceilings:
    return lowered(store.ceilings, Ceilings(found.ceiling_period, found.ceiling_lifetime))
