"""Consent of the person at the device: given, renewed, and withdrawn."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from sqlite3 import Connection

from clientsdk import diagnostics
from clientsdk.diagnostics import store_name
from clientsdk.disabled import NO_PLAN
from clientsdk.item_counter import ItemCounter
from clientsdk.outcomes import Consent
from clientsdk.settings import GivenCeilings, checked_ceilings
from clientsdk.store import consent_groups, damaged_files, recovery, rollback_guard
from clientsdk.store.database import DURABLE, READ
from clientsdk.store.plans import made_once
from clientsdk.store.rollback_guard import GuardError
from clientsdk.store.store import Store
from sotto.clocks import if_known
from sotto.errors import ParameterError, PlanError, SottoError, StoreError, did_you_mean, wrong_type
from sotto.plan.compiled import Ceilings, CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.settings import Opening

_SWITCHED_OFF = (
    "consent is not written: the SDK is switched off (by a variable such as SOTTO_DISABLED, or its "
    "settings), or disabled by an error"
)
_WITHDRAWN = (
    "consent was withdrawn and stays so: give_consent(again=True) if the person has agreed again"
)
_STAYS_PARTLY = (
    "consent to some groups was withdrawn and stays so: give_consent(groups=..., again=True) if "
    "the person has agreed again"
)
_ALL_INSTEAD = "consent to a group could not be withdrawn alone, and is withdrawn as a whole: %s"
_ERASED_LATER = "consent is withdrawn; what the store holds is erased when it can be written: %s"


class ConsentKeeper:
    """Writes consent for one client, whose methods document it.

    A client that is disabled has neither a store nor a counter here. It is asked for nothing but a
    withdrawal, and a store is opened to write that.
    """

    def __init__(self, given: Opening, store: Store | None, counter: ItemCounter | None) -> None:
        self._store: Store = store  # type: ignore[assignment]
        self._counter: ItemCounter = counter  # type: ignore[assignment]
        self._opening = given
        self._plan, self._settings, self._now = given.plan, given.settings, given.now
        self._now_if_known = if_known(given.now)
        #: Whether nobody knows where the file is: the app gave no path that could be one.
        self.file_unknown = False
        self._owed = False

    def read(self) -> Consent:
        store = self._store
        with store.transaction(READ):
            said = store.consent
        return Consent.WITHDRAWN if store.stopped or store.guard.withdrawal_noted() else said

    def groups(self) -> dict[str, Consent]:
        """Return the consent to each group; a yes counts only while consent as a whole is given."""
        whole = self.read()
        said = {name: consent_groups.of(self._store.said, name) for name, _ in self._plan.groups}
        if whole is Consent.GIVEN:
            return said
        gone = Consent.WITHDRAWN
        return {name: gone if each is gone else whole for name, each in said.items()}

    def named(self, groups: Iterable[str] | None) -> frozenset[str] | None:
        """Return the groups that an app names, None for all; ParameterError for others."""
        if groups is None:
            return None
        known = [name for name, _ in self._plan.groups]
        several = isinstance(groups, Iterable) and not isinstance(groups, str)
        listed = [*groups] if several else [None]
        if not all(isinstance(each, str) for each in listed):
            raise wrong_type("groups", "a list of names, or None for all", groups)
        found = frozenset(map(str, listed))
        unknown = sorted(found.difference(known))
        if unknown and self._plan is not NO_PLAN:
            raise ParameterError(
                f"groups {', '.join(map(repr, unknown))}: plan {self._plan.plan!r} has "
                f"{', '.join(known) or 'no groups'}{did_you_mean(unknown[0], known)}"
            )
        return found

    def give(
        self, ceilings: Ceilings | None, again: bool, groups: Iterable[str] | None = None
    ) -> bool:
        """Give consent, and pin ceilings if there are any, unless a withdrawal stands.

        The note of a withdrawal is erased in a durable commit, and only while the file says the
        same as the note: if anything stops this in between, consent stays withdrawn.
        """
        named = self.named(groups)
        if not isinstance(again, bool):
            raise wrong_type("again", "True or False", again)
        if self._settings.disabled:
            diagnostics.warn("switched off", _SWITCHED_OFF, quiet=math.inf)
            return False
        if named is not None and not named:
            # The person has agreed to no group.
            return False
        self.finish_withdrawal()
        store = self._store
        note = rollback_guard.withdrawal(store.path) if store.path is not None else b""
        undone = None
        withdrawn = self.read() is Consent.WITHDRAWN
        if withdrawn and not again:
            return self._stay_withdrawn()
        if again:
            with store.transaction(DURABLE if withdrawn else READ):
                # A withdrawal that was only noted has now been written, and what it covers erased.
                undone = store.consents
        try:
            written = self._write_agreement(ceilings, note, undone, named)
        except GuardError as error:
            if store.consented:
                diagnostics.warn(
                    "guard", "consent is given, and nothing can be sent: %s", str(error)
                )
            return store.consented
        if not written and not again:
            return self._stay_withdrawn()
        return self._given(named) if ceilings is None else bool(self.read())

    def _given(self, groups: Collection[str] | None) -> bool:
        """Whether consent is given to all that was asked for; warn if some group has none."""
        if not self.read():
            return False
        asked = consent_groups.names(self._plan) if groups is None else groups
        given = all(consent_groups.of(self._store.said, name) for name in asked)
        if not given:
            diagnostics.warn("consent to groups", _STAYS_PARTLY, quiet=math.inf)
        return given

    def renew(self, ceilings: GivenCeilings | None, again: bool) -> bool:
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

    def _write_agreement(
        self,
        ceilings: Ceilings | None,
        note: bytes,
        undone: int | None,
        groups: Collection[str] | None,
    ) -> bool:
        """Write that consent is given, unless a withdrawal other than ``undone`` stands."""
        store, owed, own = self._store, self._store.erasure.owed, self._store.own
        try:
            with store.transaction(DURABLE) as connection:
                owed = store.erasure.owed
                store.follow(connection, self._now())
                if store.consent is Consent.WITHDRAWN and store.consents != undone:
                    return False
                if ceilings is None or not store.consented:
                    store.agree(connection, groups, again=store.consents == undone)
                else:
                    store.set_consent(connection, Consent.GIVEN)
                if ceilings is not None:
                    store.pin(connection, ceilings)
                    # The ceilings that the app gave to this client no longer hold; its settings do.
                    store.own = self._settings.lowered(self._plan.ceilings)
                if note and store.path is not None:
                    rollback_guard.lift_withdrawal(store.path, note)
                self._note_groups(store)
                return True
        except BaseException as error:
            if not isinstance(error, GuardError):
                store.own = own
            raise
        finally:
            store.scrub_since(owed)

    def _note_groups(self, store: Store) -> None:
        """Note beside the file whether some group is withdrawn, before the commit that writes it.

        If anything stops this in between, one group stays withdrawn or all are: see ``recovery``.
        """
        if store.path is not None:
            noted = rollback_guard.group_noted(store.path)
            if store.group_withdrawn and not noted:
                rollback_guard.note_group(store.path)
            elif noted and not store.group_withdrawn:
                rollback_guard.lift_group(store.path)

    def withdraw_groups(self, groups: Collection[str]) -> bool:
        """Withdraw consent to some groups; as a whole where that alone cannot be written.

        A note beside the store says before the commit that a group is withdrawn: an older copy of
        the file that is put back counts as withdrawn altogether.
        """
        if not groups:
            return True
        try:
            self._write_group_withdrawal(self._store, groups)
        except StoreError as error:
            # A guard that could not be written counts too: an older copy might not be noticed.
            diagnostics.warn("withdrawal", _ALL_INSTEAD, str(error))
            return self.withdraw()
        self._counter.forget_lost()
        return self._store.finish_erasure()

    def _write_group_withdrawal(self, store: Store, groups: Collection[str]) -> None:
        with store.transaction(DURABLE) as connection:
            store.withdraw_groups(connection, groups)
            self._note_groups(store)

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
            # The file has it, but an older copy might not be noticed: it is written again later.
            pass
        except StoreError as error:
            # A consent given again since may have lifted the note: then the note is written anew.
            if not noted or (_is_lifted(store) and not store.guard.note_withdrawal()):
                raise
            diagnostics.warn("withdrawal", _ERASED_LATER, str(error))
            return False
        return store.finish_erasure()

    def withdraw_though_disabled(self, groups: Collection[str] | None) -> bool:
        """Withdraw in the file of a client that is switched off; if that fails, it is owed."""
        if self.file_unknown:
            raise StoreError("the withdrawal cannot be written: state is not the path of a file")
        self._owed = True
        erased = self._withdraw_in_file(self._opening.file, groups)
        self._owed = False
        return erased

    def withdraw_if_owed(self) -> None:
        if self._owed:
            with suppress(SottoError):
                self.withdraw_though_disabled(None)

    def _withdraw_in_file(self, file: str | None, groups: Collection[str] | None) -> bool:
        if file is None or (groups is not None and not groups):
            return True
        path = os.path.realpath(file)
        known = self._plan is not NO_PLAN
        if known and recovery.is_of_another(path, self._plan):
            raise PlanError(f"{store_name(path)} is pinned to another collector or period")
        if known and groups is not None and _exists(path):
            with suppress(StoreError, OSError), self._opened(path) as store:
                self._write_group_withdrawal(store, groups)
                return store.finish_erasure()
        noted = False
        if _exists(path) or _exists(path + rollback_guard.SUFFIX):
            with suppress(StoreError):
                rollback_guard.note_withdrawal(path)
                noted = True
        if not _exists(path):
            # The file may have been found damaged, and set aside.
            return damaged_files.erase_all(path)
        if not known:
            # The next client that opens the file writes the withdrawal, and erases.
            if not noted:
                raise StoreError(f"the withdrawal could not be noted beside {store_name(path)}")
            return False
        try:
            with self._opened(path) as store:
                with suppress(GuardError), store.transaction(DURABLE) as connection:
                    store.set_consent(connection, Consent.WITHDRAWN)
                return store.finish_erasure()
        except (StoreError, OSError) as error:
            # An OSError comes if the operating system gives no randomness.
            if noted:
                return False
            raise error if isinstance(error, StoreError) else StoreError(str(error)) from error

    @contextmanager
    def _opened(self, path: str) -> Iterator[Store]:
        given, now = self._opening, self._now_if_known
        store = recovery.open_store(path, given.plan, given.ceilings, now, given.source)
        try:
            yield store
        finally:
            # The interrupted call may hold the store until the interrupt has gone through.
            with suppress(StoreError):
                store.close()

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
        """Write a withdrawal, even if the clock or the system's randomness fails now."""
        self._store.set_consent(connection, Consent.WITHDRAWN)
        # Without randomness the period cannot be advanced, which raises before anything changes.
        with suppress(StoreError):
            self._store.follow(connection, self._now_if_known())
        # Items that another thread has counted since are forgotten too.
        self._counter.forget()


def warn_if_nothing_fits(plan: CompiledPlan, ceilings: Ceilings) -> None:
    """Warn that no value of a plan can be recorded under the ceilings that are pinned."""
    least, least_in_life = made_once(plan, _least_costs)
    if least > ceilings.period or least_in_life > ceilings.lifetime:
        from sotto.columns import epsilon

        diagnostics.warn(
            "ceilings",
            "nothing can be recorded: one value costs epsilon %s or more, and the pinned ceilings "
            "are %s a period and %s a lifetime, which only renew_consent can raise",
            *map(epsilon, (least, ceilings.period, ceilings.lifetime)),
        )


def _least_costs(plan: CompiledPlan) -> tuple[int, int]:
    """Return what one value costs, at the least, of a period and of the lifetime."""
    costs = [(metric.cost // metric.limit, metric.permanent) for metric in plan.metrics]
    return min(cost for cost, _ in costs), min(map(max, costs))


def _exists(path: str) -> bool:
    """Whether there is such a file; StoreError where a folder may not be searched for it."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise StoreError(f"{store_name(path)} cannot be found: {what}") from error
    return True


def _is_lifted(store: Store) -> bool:
    with suppress(StoreError):
        return not store.guard.withdrawal_noted()
    return False
