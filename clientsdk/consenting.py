"""Consent: given, renewed, and withdrawn, as a client's user says."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from clientsdk import complaints, recovery
from clientsdk.arguments import checked_ceilings, tell_if_nothing_fits
from clientsdk.ledger import Consent
from clientsdk.mark import UnmarkedError
from clientsdk.parts import Parts
from clientsdk.publishers import MemoryPublisher
from clientsdk.settings import Settings
from clientsdk.transactions import DURABLE
from sotto.compiled import Ceilings


class Consenting(Parts):
    """What a client does about consent."""

    def give_consent(self) -> None:
        """Write down that the person agrees; from now on values are recorded.

        Raises
        ------
        StoreError
            It could not be written; nothing is recorded. Or the kill switch is on.

        Notes
        -----
        Another process on the same file notices within a twentieth of a second. If the disk
        takes the consent and not the mark beside the file, that is no error: values are recorded,
        and sent once a mark can be written.
        """
        self._refuse_if_off("consent cannot be written")
        with self._agreeing() as connection:
            if not self._store.consented:
                self._store.agree(connection, Consent.GIVEN)

    def renew_consent(self, ceilings: Ceilings | None = None) -> None:
        """Write down that the person agrees to other ceilings, higher ones included.

        Parameters
        ----------
        ceilings : Ceilings, optional
            In micro-epsilon; the plan's by default. Whatever they are, no more is spent than the
            plan's allow.

        Raises
        ------
        StoreError
            It could not be written; nothing has changed. Or the kill switch is on. A mark that
            cannot be written is no error, as for :meth:`give_consent`.
        """
        self._refuse_if_off("consent cannot be written")
        agreed = self.plan.ceilings if ceilings is None else checked_ceilings(ceilings)
        with self._agreeing() as connection:
            self._store.agree(connection, Consent.GIVEN)
            self._store.pin(connection, agreed)
        tell_if_nothing_fits(self.plan, agreed)

    @contextmanager
    def _agreeing(self) -> Iterator[sqlite3.Connection]:
        """Open the transaction in which something is agreed to.

        What a failing disk leaves unwritten of it may be the mark alone. Then the person has
        agreed, and nothing leaves the device before a later mark can be written.
        """
        self._withdraw_if_owed()
        store = self._store
        owed = store.owed
        try:
            with store.transaction(DURABLE) as connection:
                owed = store.owed
                store.advance(connection, self.plan.period_of(self._now()))
                yield connection
        except UnmarkedError as error:
            complaints.warn("mark", "consent is given, and nothing can be sent: %s", str(error))
        if store.owed > owed:
            store.scrub(compact=False)

    def withdraw_consent(self) -> bool:
        """Stop at once, and erase every chain, sent or not, with the pseudonyms of past periods.

        What was reserved and spent stays in the ledger, so that agreeing again in the same
        period starts where it stopped.

        A flush under way in another thread or process sends no further message. One that its
        publisher is taking when this returns may still go out; it was charged.

        Returns
        -------
        bool
            Whether no trace is left in the file. If not, because another process was reading
            it, erasing is tried again at each flush, at :meth:`close` and at the next start.

        Raises
        ------
        StoreError
            It, or the mark beside the file, could not be written. This client records and sends
            nothing from now on and tries again at its next flush.

        Notes
        -----
        The kill switch does not keep a person from withdrawing: then this alone opens the file,
        if there is one.
        """
        if self._off:
            return self._withdraw_though_off()
        asked = self._store.stop()
        self._admission.counts.forget()
        with self._store.transaction(DURABLE) as connection:
            self._write_withdrawal(connection)
        self._store.heed(asked)
        return self._store.settle()

    def _withdraw_though_off(self) -> bool:
        path = self._file
        if path is None:
            return True
        if not os.path.exists(path):
            # It may have been found damaged, and kept aside.
            return recovery.erase_aside(os.path.realpath(path))
        from clientsdk.client import Client

        woken = Settings(background=False)
        with Client(
            self.plan, state=path, publisher=MemoryPublisher(), clock=self._clock, settings=woken
        ) as client:
            return client.withdraw_consent()

    def _withdraw_if_owed(self) -> None:
        """Write a withdrawal that could not be written, unless another thread has done it."""
        store = self._store
        if store.stopped:
            with store.transaction(DURABLE) as connection:
                asked = store.asked
                if store.stopped:
                    self._write_withdrawal(connection)
            store.heed(asked)
            store.settle()

    def _write_withdrawal(self, connection: sqlite3.Connection) -> None:
        self._store.advance(connection, self.plan.period_of(self._now()))
        self._store.agree(connection, Consent.WITHDRAWN)
        # An item that another thread was counting meanwhile goes too.
        self._admission.counts.forget()
