"""Consent: given, renewed, and withdrawn, as a client's user says."""

from __future__ import annotations

import math
from contextlib import suppress
from os.path import exists, realpath
from typing import TYPE_CHECKING

from clientsdk import complaints, mark, recovery
from clientsdk.arguments import checked_ceilings, tell_if_nothing_fits
from clientsdk.ledger import Consent
from clientsdk.mark import UnmarkedError
from clientsdk.parts import BEGINNING, Parts
from clientsdk.store import Store
from clientsdk.transactions import DURABLE, READ
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings

if TYPE_CHECKING:
    import sqlite3


class Consenting(Parts):
    """What a client does about consent."""

    @property
    def consent(self) -> Consent:
        """What the person has said, in whatever process, and however little of it could be written.

        Where the kill switch is on no file is read, and it is ``NEVER_GIVEN``.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        store = self._store
        with store.transaction(READ):
            said = store.consent
        return Consent.WITHDRAWN if store.stopped or store.withdrawal_noted() else said

    def give_consent(self, *, again: bool = False) -> bool:
        """Write down that the person agrees; from now on values are recorded.

        To be called where the person has said so, at every start if that is convenient. After a
        withdrawal it does nothing but to warn once: an app that calls it at every start must not
        undo what the person has said since.

        Parameters
        ----------
        again : bool
            Whether the person, having withdrawn, has agreed once more.

        Returns
        -------
        bool
            Whether consent is given now. It is not after a withdrawal, unless ``again``; nor where
            the kill switch is on, since no file may be touched then.

        Raises
        ------
        StoreError
            It could not be written; nothing is recorded.

        Notes
        -----
        Another process on the same file notices within a twentieth of a second. If the disk
        takes the consent and not the mark beside the file, that is no error: values are recorded,
        and sent once a mark can be written. After a withdrawal it is an error, since the mark may
        hold the note of that.
        """
        return self._agree(None, again)

    def renew_consent(self, ceilings: Ceilings | None = None, *, again: bool = False) -> bool:
        """Write down that the person agrees to other ceilings, higher ones included.

        Parameters
        ----------
        ceilings : Ceilings, optional
            In micro-epsilon; the plan's by default. Whatever they are, no more is spent than the
            plan's allow; and those of the settings and the environment are not exceeded, neither
            here nor by other clients whose own are lower. The ``ceilings`` that this client was
            made with give way to these.
        again : bool
            As for :meth:`give_consent`: without it a withdrawal stands, and no ceiling changes.

        Returns
        -------
        bool
            As for :meth:`give_consent`.

        Raises
        ------
        StoreError
            It could not be written; nothing has changed. A mark that cannot be written is no
            error, as for :meth:`give_consent`.
        """
        agreed = self.plan.ceilings if ceilings is None else checked_ceilings(ceilings)
        agreed = self.settings.lowered(agreed)
        given = self._agree(agreed, again)
        if given:
            tell_if_nothing_fits(self.plan, agreed)
        return given

    def _agree(self, ceilings: Ceilings | None, again: bool) -> bool:
        """Give consent, and pin ceilings if there are any, unless a withdrawal stands.

        A note of the withdrawal is erased only while the file says the same, in a commit that
        survives a loss of power. Whatever stops this in between leaves consent withdrawn.
        """
        if self._off:
            complaints.warn("switched off", _SWITCHED_OFF, quiet=math.inf)
            return False
        self._withdraw_if_owed()
        store = self._store
        note = mark.withdrawal(store.path) if store.path is not None else b""
        undone = None
        if self.consent is Consent.WITHDRAWN:
            if not again:
                return self._stay_withdrawn()
            with store.transaction(DURABLE):
                # What was noted alone is in the file now, and what it recorded is erased.
                undone = store.consents
        try:
            written = self._write_agreement(ceilings, note, undone)
        except UnmarkedError as error:
            if store.consented:
                complaints.warn("mark", "consent is given, and nothing can be sent: %s", str(error))
            return store.consented
        if not written and not again:
            return self._stay_withdrawn()
        return self.consent is Consent.GIVEN

    def _stay_withdrawn(self) -> bool:
        complaints.warn("consent", _WITHDRAWN, quiet=math.inf)
        self._keep_up(self._now())
        return False

    def _write_agreement(self, ceilings: Ceilings | None, note: bytes, undone: int | None) -> bool:
        """Write that consent is given, unless a withdrawal stands that was not to be undone.

        One may have come since it was asked for. Whether it may be undone is decided here, where
        none can come in between: by the number that the store gave to that which was seen.
        """
        store, owed, own = self._store, self._store.owed, self._store.own
        try:
            with store.transaction(DURABLE) as connection:
                owed = store.owed
                store.advance(connection, self.plan.period_of(self._now()))
                if store.consent is Consent.WITHDRAWN and store.consents != undone:
                    return False
                if ceilings is not None or not store.consented:
                    store.agree(connection, Consent.GIVEN)
                if ceilings is not None:
                    store.pin(connection, ceilings)
                    # What the app said when it made this client no longer holds; its settings do.
                    store.own = self.settings.lowered(self.plan.ceilings)
                if note and store.path is not None:
                    mark.lift_withdrawal(store.path, note)
                return True
        except BaseException as error:
            if not isinstance(error, UnmarkedError):
                store.own = own
            raise
        finally:
            if store.owed > owed:
                store.scrub(compact=False)

    def withdraw_consent(self) -> bool:
        """Stop at once, and erase every chain, sent or not, with the pseudonyms of past periods.

        What was reserved and spent stays in the ledger, so that agreeing again in the same
        period starts where it stopped.

        A flush under way in another thread or process hands its publisher no further message, nor
        does it ask it any more to sync. What may still go out is what that publisher has by then:
        the messages of one attempt, which are those since its last sync, of at most 4,096 reports,
        all of them charged. Of a publisher that sends each message before it takes the next, it is
        the one message that it is taking.

        First this client stops, in memory. Then the withdrawal is noted in bytes that the mark
        beside the file already has, which needs no space on the disk; the note holds for all
        processes and across restarts, until consent is given ``again``. Then the file is written.
        Where that fails, on a full disk for one, the note stands: whoever next opens the file,
        records or sends writes the withdrawal and erases first, and does nothing else before.

        Returns
        -------
        bool
            Whether no trace is left in the file. If not, because another process was reading
            it or it could not be written, erasing is tried again at each flush, at :meth:`close`
            and at the next start. Consent is withdrawn all the same.

        Raises
        ------
        StoreError
            Neither the file nor the mark could be written, as where both may only be read. This
            client records and sends nothing from now on and tries again at its next flush;
            another process, or a later one, knows nothing of it. Say so to the person.
        PlanError
            This client is switched off, and the file is of another collector or period length:
            what is withdrawn from that is for a client of its own to say. Nothing has changed.

        Notes
        -----
        The kill switch does not keep a person from withdrawing: then this alone opens the file,
        if there is one. A client that is switched off by its settings can therefore withdraw also
        where the disk is so full that no other can be made.
        """
        if self._off:
            return self._withdraw_though_off()
        store = self._store
        asked = store.stop()
        self._admission.counts.forget()
        noted = _noted(store.path)
        try:
            with store.transaction(DURABLE) as connection:
                self._write_withdrawal(connection)
            store.heed(asked)
        except UnmarkedError:
            # It is in the file, and an older copy of that might not be noticed: once more later.
            pass
        except StoreError as error:
            if not noted:
                raise
            complaints.warn("withdrawal", _ERASED_LATER, str(error))
            return False
        return store.settle()

    def _withdraw_though_off(self) -> bool:
        if self._file is None:
            return True
        path = realpath(self._file)
        if recovery.is_of_another(path, self.plan):
            raise PlanError("this device's store is pinned to another collector or period")
        noted = (exists(path) or exists(path + mark.SUFFIX)) and _noted(path)
        if not exists(path):
            # It may have been found damaged, and kept aside.
            return recovery.erase_aside(path)
        try:
            now = self._now_if_known()
            store = Store(path, self.plan, self._store.ceilings, now, self._source())
            try:
                with suppress(UnmarkedError), store.transaction(DURABLE) as connection:
                    store.agree(connection, Consent.WITHDRAWN)
                return store.settle()
            finally:
                store.close()
        except (StoreError, OSError) as error:
            # The second where the operating system gives no randomness.
            if noted:
                return False
            raise error if isinstance(error, StoreError) else StoreError(str(error)) from error

    def _withdraw_if_owed(self) -> None:
        """Write a withdrawal that could not be written, unless another thread has done it."""
        store = self._store
        if store.stopped:
            asked = store.asked
            try:
                with store.transaction(DURABLE) as connection:
                    asked = store.asked
                    if store.stopped:
                        self._write_withdrawal(connection)
            except StoreError:
                if store.stopped:
                    _noted(store.path)
                raise
            store.heed(asked)
            store.settle()

    def _write_withdrawal(self, connection: sqlite3.Connection) -> None:
        """Write it, whatever the clock or the operating system's randomness is good for now."""
        self._store.agree(connection, Consent.WITHDRAWN)
        # Without randomness the period cannot be advanced, which raises before anything changes.
        with suppress(StoreError):
            self._store.advance(connection, self.plan.period_of(self._now_if_known()))
        # An item that another thread was counting meanwhile goes too.
        self._admission.counts.forget()

    def _now_if_known(self) -> int:
        """Return the time by the app's clock, or where that raises one that moves nothing on."""
        try:
            return self._now()
        except Exception:
            return BEGINNING


def _noted(path: str | None) -> bool:
    """Note a withdrawal beside a state file, if there is one; return whether that is done."""
    with suppress(StoreError):
        if path is not None:
            mark.note_withdrawal(path)
            return True
    return False


_SWITCHED_OFF = "consent is not written: the SDK is switched off (SOTTO_DISABLED or its settings)"
_WITHDRAWN = (
    "consent was withdrawn and stays so: give_consent(again=True) if the person has agreed again"
)
_ERASED_LATER = "consent is withdrawn; what the store holds is erased when it can be written: %s"
