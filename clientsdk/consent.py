"""Consent of the person at the device: given, renewed, and withdrawn."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import Connection

from clientsdk import diagnostics
from clientsdk.clock import if_known
from clientsdk.disabled import NO_PLAN
from clientsdk.item_counter import ItemCounter
from clientsdk.ledger import Consent
from clientsdk.settings import Settings, checked_ceilings, warn_if_nothing_fits
from clientsdk.store import damaged_files, recovery, rollback_guard
from clientsdk.store.database import DURABLE, READ
from clientsdk.store.rollback_guard import GuardError
from clientsdk.store.store import Store
from mechanisms.randomness import Source
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan

_SWITCHED_OFF = (
    "consent is not written: the SDK is switched off (SOTTO_DISABLED or its settings), or disabled "
    "by an error"
)
_WITHDRAWN = (
    "consent was withdrawn and stays so: give_consent(again=True) if the person has agreed again"
)
_ERASED_LATER = "consent is withdrawn; what the store holds is erased when it can be written: %s"


class ConsentKeeper:
    """Writes consent for one client, which documents it; ``now`` returns ms since the epoch."""

    def __init__(
        self,
        store: Store,
        plan: CompiledPlan,
        settings: Settings,
        counter: ItemCounter,
        now: Callable[[], int],
    ) -> None:
        self._store = store
        self._plan = plan
        self._settings = settings
        self._counter = counter
        self._now = now
        self._now_if_known = if_known(now)

    def read(self) -> Consent:
        store = self._store
        with store.transaction(READ):
            said = store.consent
        return Consent.WITHDRAWN if store.stopped or store.guard.withdrawal_noted() else said

    def give(self, ceilings: Ceilings | None, again: bool) -> bool:
        """Give consent, and pin ceilings if there are any, unless a withdrawal stands.

        A note of the withdrawal is erased only while the file says the same, in a durable commit:
        whatever stops this in between leaves consent withdrawn.
        """
        if self._settings.disabled:
            diagnostics.warn("switched off", _SWITCHED_OFF, quiet=math.inf)
            return False
        self.finish_withdrawal()
        store = self._store
        note = rollback_guard.withdrawal(store.path) if store.path is not None else b""
        undone = None
        if self.read() is Consent.WITHDRAWN:
            if not again:
                return self._stay_withdrawn()
            with store.transaction(DURABLE):
                # What was noted alone is in the file now, and what it recorded is erased.
                undone = store.consents
        try:
            written = self._write_agreement(ceilings, note, undone)
        except GuardError as error:
            if store.consented:
                diagnostics.warn(
                    "guard", "consent is given, and nothing can be sent: %s", str(error)
                )
            return store.consented
        if not written and not again:
            return self._stay_withdrawn()
        return self.read() is Consent.GIVEN

    def renew(self, ceilings: Ceilings | None, again: bool) -> bool:
        agreed = self._plan.ceilings if ceilings is None else checked_ceilings(ceilings)
        agreed = self._settings.lowered(agreed)
        given = self.give(agreed, again)
        if given:
            warn_if_nothing_fits(self._plan, agreed)
        return given

    def _stay_withdrawn(self) -> bool:
        diagnostics.warn("consent", _WITHDRAWN, quiet=math.inf)
        self.keep_up(self._now())
        return False

    def _write_agreement(self, ceilings: Ceilings | None, note: bytes, undone: int | None) -> bool:
        """Write that consent is given, unless a withdrawal stands other than the ``undone`` one."""
        store, owed, own = self._store, self._store.erasure.owed, self._store.own
        try:
            with store.transaction(DURABLE) as connection:
                owed = store.erasure.owed
                store.follow(connection, self._now())
                if store.consent is Consent.WITHDRAWN and store.consents != undone:
                    return False
                if ceilings is not None or not store.consented:
                    store.set_consent(connection, Consent.GIVEN)
                if ceilings is not None:
                    store.pin(connection, ceilings)
                    # What the app said when it made this client no longer holds; its settings do.
                    store.own = self._settings.lowered(self._plan.ceilings)
                if note and store.path is not None:
                    rollback_guard.lift_withdrawal(store.path, note)
                return True
        except BaseException as error:
            if not isinstance(error, GuardError):
                store.own = own
            raise
        finally:
            store.scrub_since(owed)

    def withdraw(self) -> bool:
        store = self._store
        stop_number = store.stop()
        self._counter.forget()
        noted = store.guard.note_withdrawal()
        try:
            with store.transaction(DURABLE) as connection:
                self._write_withdrawal(connection)
            store.withdrawn(stop_number)
        except GuardError:
            # It is in the file, and an older copy of that might not be noticed: once more later.
            pass
        except StoreError as error:
            # A consent given again meanwhile may have lifted the note: then it is written anew.
            if not noted or (_is_lifted(store) and not store.guard.note_withdrawal()):
                raise
            diagnostics.warn("withdrawal", _ERASED_LATER, str(error))
            return False
        return store.finish_erasure()

    def withdraw_though_disabled(self, file: str | os.PathLike[str] | None, source: Source) -> bool:
        if file is None:
            return True
        path = os.path.realpath(file)
        exists = os.path.exists
        known = self._plan is not NO_PLAN
        if known and recovery.is_of_another(path, self._plan):
            raise PlanError("this device's store is pinned to another collector or period")
        noted = False
        if exists(path) or exists(path + rollback_guard.SUFFIX):
            with suppress(StoreError):
                rollback_guard.note_withdrawal(path)
                noted = True
        if not exists(path):
            # It may have been found damaged, and set aside.
            return damaged_files.erase_all(path)
        if not known:
            # Whoever opens the file next writes the withdrawal, and erases.
            if not noted:
                raise StoreError("the withdrawal could not be noted beside the device's store")
            return False
        try:
            ceilings = self._store.ceilings
            store = recovery.open_store(path, self._plan, ceilings, self._now_if_known, source)
            try:
                with suppress(GuardError), store.transaction(DURABLE) as connection:
                    store.set_consent(connection, Consent.WITHDRAWN)
                return store.finish_erasure()
            finally:
                # What was interrupted may still hold it, until the interrupt has gone through.
                with suppress(StoreError):
                    store.close()
        except (StoreError, OSError) as error:
            # The second where the operating system gives no randomness.
            if noted:
                return False
            raise error if isinstance(error, StoreError) else StoreError(str(error)) from error

    def finish_withdrawal(self) -> None:
        """Write a withdrawal that could not be written, unless another thread has done it."""
        store = self._store
        if store.stopped:
            stop_number = store.stop_number
            try:
                with store.transaction(DURABLE) as connection:
                    stop_number = store.stop_number
                    if store.stopped:
                        self._write_withdrawal(connection)
            except StoreError:
                if store.stopped:
                    store.guard.note_withdrawal()
                raise
            store.withdrawn(stop_number)
            store.finish_erasure()

    def keep_up(self, now: int) -> None:
        store = self._store
        if not store.stopped:
            with suppress(StoreError, OSError):
                self._counter.lapse(now)
                store.keep_up(now)
        if store.withdrew:
            store.withdrew = False
            store.finish_erasure()

    def _write_withdrawal(self, connection: Connection) -> None:
        """Write it, whatever the clock or the operating system's randomness is good for now."""
        self._store.set_consent(connection, Consent.WITHDRAWN)
        # Without randomness the period cannot be advanced, which raises before anything changes.
        with suppress(StoreError):
            self._store.follow(connection, self._now_if_known())
        # An item that another thread was counting meanwhile goes too.
        self._counter.forget()


def _is_lifted(store: Store) -> bool:
    with suppress(StoreError):
        return not store.guard.withdrawal_noted()
    return False
