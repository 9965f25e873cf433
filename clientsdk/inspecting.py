"""What a client shows: the ledger, what would be sent and when, and what it has done."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from clientsdk import spool
from clientsdk.contents import NEVER
from clientsdk.parts import Parts
from clientsdk.transactions import READ
from sotto.errors import StoreError

if TYPE_CHECKING:
    from clientsdk.ledger import Ledger
    from clientsdk.preview import Preview
    from clientsdk.stats import Stats


class Inspecting(Parts):
    """What a client shows of itself."""

    def next_due(self) -> int | None:
        """Return when the next report is due, in ms since the epoch, or None if there is none.

        Where items are being counted, that of their period is among them. Of a period that is over
        their chain is drawn and stored first, as by every call that looks at what waits.
        """
        if self._off:
            return None
        self._settle(self._now())
        with self._store.transaction(READ) as connection:
            due = spool.next_due(connection)
            counted = self._admission.counts.next_due()
            soonest = min((each for each in (due, counted) if each is not None), default=None)
            self._store.soonest = NEVER if soonest is None else soonest
        return soonest

    def ledger(self) -> Ledger:
        """Return what was reserved and spent, period by period, and the chains still to be sent.

        Among those are the chains of items counted in a period that is over: they are drawn and
        stored first, if they were not yet.

        Raises
        ------
        StoreError
            The store cannot be read. Or the kill switch is on.
        """
        self._refuse_if_off("the ledger cannot be read")
        self._settle(self._now())
        return self._store.ledger()

    def stats(self) -> Stats:
        """Return what this client has done in this process, and what waits in its store.

        It raises nothing: of a store that cannot be read now it says so.
        :mod:`clientsdk.collectors` exposes the same to Prometheus.
        """
        now = self._now()
        found = None
        with suppress(StoreError), self._store.transaction(READ) as connection:
            found = spool.totals(connection, max(now, self._store.period * self.plan.period))
        return self._tally.stats(found)

    def preview(self, at: int | None = None) -> Preview:
        """Return exactly what would be sent, if nothing more were recorded.

        Parameters
        ----------
        at : int, optional
            Milliseconds since the epoch: what one flush would send then. By default everything
            that is still to be sent, each report when it is due.

        Returns
        -------
        Preview
            The messages byte for byte, what is in them, and all of it in words. Nothing is sent
            or charged. Items counted in a period that is over are drawn and stored first, as by
            the next flush; of those that are still being counted nothing is drawn or shown.

        Raises
        ------
        StoreError
            The store cannot be read. Or the kill switch is on.

        Privacy
        -------
        To be shown to the person at this device, and never logged.
        """
        from clientsdk.preview import preview

        self._refuse_if_off("what would be sent cannot be read")
        now = self._now()
        self._settle(now)
        moment = now if at is None else at
        return preview(self._store, self._sender, moment, once=at is not None)
