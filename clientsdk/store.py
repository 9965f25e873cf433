"""What a device must remember, and the rules that hold between its parts.

Consent, pinned ceilings, the ratchet's secret, the ledger, the chains and what was sent of them,
and the plans that they follow: one SQLite file, or the same in memory. What is admitted is decided
in :mod:`clientsdk.admission` and what is sent in :mod:`clientsdk.sender`; all methods here that
say "in a transaction" belong to one that the caller has opened.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import suppress
from time import monotonic

from clientsdk import (
    claims,
    ledger,
    mark,
    panels,
    permanent,
    pins,
    ratchet,
    recovery,
    schema,
)
from clientsdk.booking import Booking
from clientsdk.contents import DAMAGED, NEVER
from clientsdk.ledger import Consent, Ledger
from clientsdk.losses import Losses
from clientsdk.outcomes import Outcome, Refusal
from clientsdk.quota import Quota
from clientsdk.transactions import DURABLE, READ, WRITE, Access
from mechanisms.frozen import replace
from mechanisms.randomness import Source
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan

#: Seconds for which it may go unnoticed that another process was given consent, that one has noted
#: a withdrawal beside a file that it could not write (nothing is sent before that is looked for),
#: or that a clock was set back to before the plan expired.
FORGET_AFTER = 0.05
#: As a name of a module it is found sooner than as one of an Enum.
WITHDRAWN = Consent.WITHDRAWN


class Store(Booking, Losses):
    """A device's store.

    Parameters
    ----------
    path : str or None
        The file, made if absent and readable by its owner alone; None keeps all in memory.
    plan : CompiledPlan
        A new store is pinned to its collector and period length.
    ceilings : Ceilings
        Pinned in a new store; they lower those of an existing one and never raise them.
    now : int
        Milliseconds since the epoch; a new store starts in the budget period of that time.
    source : Source
        Draws the secret of a new store, and the fresh bytes that each later period's is made with.
    quota : Quota

    Raises
    ------
    StoreError
        The file cannot be used.
    PlanError
        The store belongs to another collector or another period length.

    Its attributes are those of :class:`~clientsdk.contents.Contents`.
    """

    def __init__(
        self,
        path: str | None,
        plan: CompiledPlan,
        ceilings: Ceilings,
        now: int,
        source: Source,
        quota: Quota | None = None,
    ) -> None:
        self.refusals = {}
        self.soonest = NEVER
        self._source = source
        self._quota = Quota() if quota is None else quota
        self.room = 0
        self._collector = plan.collector
        self._signed = plan.signed
        self._period_ms = plan.period
        self.budget = mark.budget_of(plan.collector, plan.period)
        self.own = ceilings
        self.expires = plan.expires
        self._requests = itertools.count(1)
        self.asked = self._heeded = 0
        for attempt in (1, 2):
            try:
                self._begin_life(path, plan, ceilings, now)
                break
            except schema.DamagedError:
                if attempt == 2 or self.path is None:
                    raise
                if not recovery.set_aside(self.path, self._place, now):
                    raise

    def _begin_life(
        self, path: str | None, plan: CompiledPlan, ceilings: Ceilings, now: int
    ) -> None:
        """Open the file, make what is not there, and make up for what it does not know."""
        super().__init__(path)
        period = plan.period_of(now)
        self.expiry, self._swept, self._numbered, self.lapsed = NEVER, -NEVER, 0, 0
        self._ready = False
        self.erased = False
        self._plans: dict[int, CompiledPlan] = {}
        self._vouched = 0
        try:
            with self.transaction(READ) as connection:
                new = schema.examine(connection) and recovery.unheard_of(self)
            # Nothing has left a new device that a loss of power could make it forget.
            with self.transaction(WRITE if new else DURABLE) as connection:
                fresh = schema.prepare(connection)
                if fresh:
                    pins.create(connection, plan, ceilings, period, self._source)
                turns = panels.prepare(connection, self._source)
                self._adopt(connection, plan, ceilings)
                recovery.reconcile(self, connection, plan, period, fresh=fresh, turns=turns)
                if self.path is not None:
                    self._agree_with_mark(connection, self.path)
                self.advance(connection, period)
                self.expire(connection, now)
                self._erase_old_aside(connection, now)
                if self.forget_periods(connection):
                    # Of a file from before they were forgotten.
                    self.owe_erasure(connection)
            self.settle()
        except BaseException:
            # What was interrupted may still hold the store, until the interrupt has gone through.
            with suppress(StoreError):
                self.close()
            raise

    def _adopt(
        self, connection: sqlite3.Connection, plan: CompiledPlan, ceilings: Ceilings
    ) -> None:
        pinned = connection.execute("SELECT collector, period_ms FROM device").fetchone()
        if pinned is None:
            raise schema.DamagedError(DAMAGED)
        for what, have, want in zip(
            ("collector", "period"), pinned, (plan.collector, plan.period), strict=True
        ):
            if have != want:
                raise PlanError(f"{what} {want!r}: this device's store is pinned to {have!r}")
        (self.identity,) = connection.execute("SELECT store FROM device").fetchone()
        self._ready = True
        self._refresh(connection)
        self.pin(connection, ledger.lowered(self.ceilings, ceilings))
        self.plan_id = pins.number_of(connection, plan)
        self._plans[self.plan_id] = plan

    # Stopping: at once and in memory, whatever becomes of the file.

    def stop(self) -> int:
        """Let nothing be recorded or sent until :meth:`heed` is given the number returned."""
        self.asked = number = next(self._requests)
        return number

    def heed(self, number: int) -> None:
        """Note that the withdrawal of that number, and any before it, is written."""
        self._heeded = max(self._heeded, number)

    # Consent, ceilings, periods: in a transaction.

    def agree(self, connection: sqlite3.Connection, consent: Consent) -> None:
        """Write down what the person has said; if it is no, erase every chain and its traces."""
        connection.execute("UPDATE device SET consent = ?, consents = consents + 1", (consent,))
        self.consent = consent
        self.consents += 1
        self.refusals.clear()
        if consent is not Consent.GIVEN:
            for table in ("chain", "pseudonym", "signing"):
                connection.execute(f"DELETE FROM {table}")
            # That a reservoir or a count was used in this period is not forgotten.
            connection.execute("UPDATE reservoir SET due = 0, chain = x'', cost = 0")
            claims.abandon(connection)
            permanent.erase(connection)
            self.forget_periods(connection)
            self._named = False
            self.owe_erasure(connection)

    def _honour(self, connection: sqlite3.Connection, access: Access) -> None:
        """Withdraw consent where the mark says that it is withdrawn, and the file does not yet.

        A transaction that may not write only takes it as withdrawn; so do all that cannot, since
        what they write is lost.
        """
        if not self._ready or self.path is None or self.consent is WITHDRAWN:
            return
        try:
            noted = self.withdrawal_noted()
        except StoreError:
            # Nothing can be sent while the mark cannot be written; a withdrawal is, all the same.
            if access is DURABLE and not self.stopped:
                raise
            return
        if not noted:
            self._look_again = monotonic() + FORGET_AFTER
        elif access is READ:
            self.consent = Consent.WITHDRAWN
            self.refusals.clear()
            # To be read again: the file says something else.
            self.version = None
        else:
            self.agree(connection, Consent.WITHDRAWN)
            self.erased = True

    def _agree_with_mark(self, connection: sqlite3.Connection, path: str) -> None:
        """Let file and mark both say it, where either says that consent is withdrawn."""
        self._honour(connection, DURABLE)
        if self.consent is Consent.WITHDRAWN:
            with suppress(StoreError):
                if not mark.withdrawal(path):
                    mark.note_withdrawal(path)

    def withdrawal_noted(self) -> bool:
        """Whether the mark says, at this moment, that consent is withdrawn.

        Raises
        ------
        StoreError
            The mark cannot be read now.
        """
        return self.path is not None and bool(mark.withdrawal(self.path))

    def deny(self, plan: CompiledPlan, outcome: Outcome) -> None:
        """Remember for a moment what becomes of every value, so that not each asks anew.

        That is where there is no consent, and where the plan has expired. In a transaction, what
        this process is given or deprived of later holds at once.
        """
        stale = monotonic() + FORGET_AFTER
        for metric in plan.metrics:
            self.refusals[metric.name] = Refusal(outcome, metric.plain, None, stale)

    def pin(self, connection: sqlite3.Connection, ceilings: Ceilings) -> None:
        """Pin other ceilings."""
        if ceilings != self.ceilings:
            connection.execute(
                "UPDATE device SET ceiling_period = ?, ceiling_lifetime = ?",
                (ceilings.period, ceilings.lifetime),
            )
            self.ceilings = ceilings
            self.refusals.clear()

    def advance(self, connection: sqlite3.Connection, period: int) -> bool:
        """Move on to ``period`` unless the store is there already or beyond; return whether moved.

        The secret is hashed forward, together with fresh randomness, over the old one; pseudonyms,
        and the keys of those that have one, are kept only for the chains of past periods that are
        still to be sent under them. Of several processes on a file one moves on, and the others
        read what it has written.
        """
        if period <= self.period:
            return False
        (secret,) = connection.execute("SELECT value FROM secret").fetchone()
        try:
            secret = ratchet.advance(secret, self._source)
        except (OSError, NotImplementedError) as error:
            raise StoreError(f"the operating system gives no random bytes: {error}") from error
        connection.execute("UPDATE secret SET value = ?", (secret,))
        connection.execute("UPDATE device SET period = ?", (period,))
        connection.execute("DELETE FROM reservoir")
        claims.forget(connection, period)
        self.period = period
        self.name = self._identity(period, secret)
        self.reserved, self._named = 0, False
        self._tally({})
        self.refusals.clear()
        self.forget_periods(connection)
        self.owe_erasure(connection)
        self._erase_old_aside(connection, period * self._period_ms)
        return True

    def expire(self, connection: sqlite3.Connection, now: int) -> int:
        """Erase all chains of plans that have expired; return how many there were.

        That is what the sender does with each when it is due; here none waits for that. Permanent
        responses stay: the plan's next version goes on with them, and would otherwise draw, and
        charge for, others.
        """
        moment = max(now, self.period * self._period_ms)
        plans = connection.execute("SELECT id FROM plan WHERE expires <= ?", (moment,)).fetchall()
        gone = sum(
            connection.execute("DELETE FROM chain WHERE plan = ?", number).rowcount
            for number in plans
        )
        if gone:
            # Until this is committed it is not done: it is looked once more next time.
            self.forget_periods(connection)
            self.owe_erasure(connection)
        else:
            self._swept = max(self._swept, moment)
            self._note_expiries(connection)
        return gone

    def _erase_old_aside(self, connection: sqlite3.Connection, now: int) -> None:
        """Erase the files kept aside in which nothing can be that an aggregator would take."""
        if self.path is None:
            return
        # Of a folder that cannot be listed now it is tried again.
        with suppress(OSError):
            if recovery.is_aside(self.path):
                ages = [self._period_ms]
                for (number,) in connection.execute("SELECT id FROM plan").fetchall():
                    with suppress(StoreError):
                        ages.append(self.plan(connection, number).horizon)
                recovery.erase_old(self.path, now, max(ages))

    def keep_up(self, now: int) -> None:
        """Let periods begin and plans expire, where nothing else is to be done.

        Outside any transaction.

        Raises
        ------
        StoreError
            It could not be written.
        """
        period = now // self._period_ms
        if period > self.period or now >= self.expiry:
            with self.transaction(WRITE) as connection:
                owed = self.owed
                self.advance(connection, period)
                gone = self.expire(connection, now)
            self.lapsed += gone
            if self.owed > owed:
                self.scrub(compact=False)

    def plan(self, connection: sqlite3.Connection, number: int) -> CompiledPlan:
        """Return the plan that the store has under ``number``.

        Raises
        ------
        StoreError
            This version cannot read it.
        """
        if number not in self._plans:
            self._plans[number] = ledger.stored_plan(connection, number)
        return self._plans[number]

    def ledger(self) -> Ledger:
        """Return what was reserved and spent, at one moment."""
        with self.transaction(READ) as connection:
            found = ledger.read(connection, self.plan)
            withdrawn = self.withdrawal_noted()
        return replace(found, consent=Consent.WITHDRAWN) if withdrawn else found
