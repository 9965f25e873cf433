"""The memory of a device, and the rules that hold between its parts.

One SQLite file, or the same in memory. Methods that take a connection belong in a transaction that
the caller has opened. Memory is up to date within a transaction; between transactions another
process may have changed the file.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Collection, Iterable
from sqlite3 import Connection
from time import monotonic

from clientsdk.diagnostics import drop_locals
from clientsdk.outcomes import Consent, Outcome, Refusal
from clientsdk.settings import Quota, lowered
from clientsdk.store import (
    accounts,
    claims,
    consent_groups,
    damaged_files,
    device_secrets,
    measures,
    outbox,
    rollback_guard,
    schema,
)
from clientsdk.store.accounts import Accounts
from clientsdk.store.database import (
    DURABLE,
    READ,
    WRITE,
    DeviceDatabase,
    Erasure,
    Transaction,
)
from clientsdk.store.device_secrets import Identity
from clientsdk.store.outbox import Outbox, Recording, StoredChain
from clientsdk.store.plans import Plans
from clientsdk.store.rollback_guard import ForeignGuardError, GuardRecord, RollbackGuard
from clientsdk.store.schema import NEVER
from mechanisms.frozen import replace
from mechanisms.randomness import Source
from sotto.clocks import BEGINNING
from sotto.errors import ParameterError, StoreError
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.ledger import Ledger
    from clientsdk.store.database import TransactionAccess

#: Seconds for which it may go unnoticed that another process was given consent, that one has noted
#: a withdrawal beside a file that it could not write (nothing is sent before that is looked for),
#: or that a clock was set back to before the plan expired.
FORGET_AFTER = 0.05
#: Recordings that a store in memory buffers: the tables need a tenth of the memory.
BUFFERED = 256
GIVEN, WITHDRAWN = Consent.GIVEN, Consent.WITHDRAWN


class Store:
    """A device's store; :func:`clientsdk.store.recovery.open_store` makes one ready for use.

    ``consent`` is withdrawn also where the guard beside the file notes it and the file does not
    yet; ``consents`` counts how often it was given or taken back: what was read under one number
    must not leave the device under another, since it may have been wiped in between. ``said`` is
    what was said of single groups of metrics. ``ceilings``
    are those pinned for all processes, ``own`` what this client may spend at most whatever is
    pinned. ``identity`` is of the current period, for reports under the plan that was opened.
    ``refusals``, by metric, are forgotten whenever they might no longer hold. ``lapsed`` counts
    chains of expired plans that were erased and not yet counted by a flush, and ``misdated``
    those of periods that had not come. ``withdrew`` says that
    a transaction that had something else to do wrote a withdrawal noted beside the file: then
    traces are to be erased, see :meth:`finish_erasure`.
    """

    def __init__(
        self,
        path: str | None,
        plan: CompiledPlan,
        own: Ceilings,
        source: Source,
        clock: Callable[[], int],
        quota: Quota | None = None,
    ) -> None:
        self.database: DeviceDatabase = DeviceDatabase(path)
        self.clock = clock
        self.path: str | None = self.database.path
        #: Whether recordings may wait in memory before they come into the tables.
        self.buffers = self.path is None
        self.accounts = Accounts()
        self.outbox = Outbox((quota or Quota()).bytes)
        self.erasure = Erasure(self.database)
        budget = rollback_guard.budget_of(plan.collector, plan.period)
        self.guard = RollbackGuard(self.path, budget)
        self.plans = Plans(plan)
        self.own = own
        self.refusals: dict[str, Refusal] = {}
        self.consent: Consent = Consent.NEVER_GIVEN
        self.consents: int = 0
        self.said: consent_groups.Said = {}
        self.ceilings: Ceilings = own
        self.identity = Identity(b"")
        self.panel: device_secrets.Panel
        #: The secret by which an experiment's arm is known; empty if there is none.
        self.arm_secret = b""
        self.buffer: list[Recording] = []
        #: States of the measures that have begun and may be added to, by tally.
        self.states: dict[str, bytes] = {}
        self.lapsed = self.misdated = 0
        self.withdrew: bool = False
        self.stop_number = self._done = 0
        self._requests = itertools.count(1)
        self._source = source
        self._budget = plan.collector, plan.period
        self._alone = consent_groups.alone(plan.plan)
        self._signed = plan.signed
        self._expires = plan.expires
        self._ready = False

    def transaction(self, access: TransactionAccess) -> Transaction:
        return Transaction(self.database, access)

    def close(self) -> None:
        self.database.close()

    @property
    def period(self) -> int:
        return self.accounts.period

    @property
    def consented(self) -> bool:
        return self.consent is GIVEN

    @property
    def waiting(self) -> bool:
        """Whether consent is given and something is still to be sent, as the file said last."""
        return self.consented and self.outbox.soonest < NEVER

    def agreed(self, group: str | None) -> bool:
        """Whether a metric of a group, or of none, may be recorded."""
        return self.consent is GIVEN and (
            not self.said or consent_groups.of(self.said, group or self._alone) is GIVEN
        )

    @property
    def agreed_to_any(self) -> bool:
        """Whether there may be a metric that consent is given to."""
        return self.consent is GIVEN and consent_groups.anything(self.said)

    @property
    def group_withdrawn(self) -> bool:
        """Whether consent to some group is withdrawn, apart from the whole."""
        return WITHDRAWN in self.said.values()

    # Stopping: at once and in memory, whatever becomes of the file.

    def stop(self) -> int:
        """Let nothing be recorded or sent until :meth:`withdrawn` is given the number returned."""
        self.stop_number = number = next(self._requests)
        return number

    def withdrawn(self, number: int) -> None:
        """Note that the withdrawal of that number, and any before it, is written."""
        self._done = max(self._done, number)

    @property
    def stopped(self) -> bool:
        """Whether a withdrawal is requested in this process and not yet written."""
        return self.stop_number > self._done

    def refresh(self, connection: Connection) -> None:
        """Read again what is kept in memory: the file may have changed, or be another."""
        if not self._ready:
            return
        try:
            self._check_identity(connection)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            # The file lacks the tables of a store.
            raise self.database.disown() from None
        try:
            self._read(connection)
            newest = self.guard.refresh(connection)
        except (TypeError, ValueError, AttributeError):
            raise schema.damaged(connection) from None
        if not newest:
            raise self.database.disown("an older copy of it")
        self.refusals.clear()
        self.states.clear()
        self.outbox.room = 0
        # Plans of which nothing was left may have something stored again.
        self.plans.go_back(connection)

    def write_buffered(self, connection: Connection) -> None:
        """Move the buffered recordings into the tables, none of them twice after an interrupt."""
        buffer = self.buffer
        if not buffer:
            return
        connection.execute("BEGIN IMMEDIATE")
        counted = [(each.tally, each.seen, each.cost) for each in buffer]
        new = accounts.write_counted(connection, buffer[0].chain.period, counted)
        outbox.insert(connection, list(itertools.compress([each.chain for each in buffer], new)))
        connection.execute("COMMIT")
        buffer.clear()

    def drop_buffered(self) -> None:
        """Forget what is only in memory: it is the parent process's."""
        self.buffer = []

    def apply_noted_withdrawal(self, connection: Connection, access: TransactionAccess) -> None:
        """Withdraw consent where the guard notes a withdrawal that the file does not have yet.

        A transaction that may only read takes consent as withdrawn, and leaves the file as it is.
        One that may write stores the withdrawal, too; if its commit fails, the note still stands.
        """
        if not self._ready or self.consent is WITHDRAWN:
            return
        try:
            noted = self.guard.withdrawal_noted()
        except StoreError:
            # Nothing can be sent while the guard fails; a withdrawal is stored all the same.
            if access is DURABLE and not self.stopped:
                raise
            return
        if not noted:
            self.database.look_again = monotonic() + FORGET_AFTER
        elif access is READ:
            self.consent = WITHDRAWN
            self.refusals.clear()
            # Memory differs from the file: read it again next time.
            self.database.version = None
        else:
            self.set_consent(connection, WITHDRAWN)
            self.withdrew = True

    def prepare_guard(self, connection: Connection) -> None:
        """Add the next guard record to a transaction whose commit survives a loss of power."""
        if self.path is not None:
            self.guard.upcoming = self.guard_record(connection)

    def write_guard(self) -> None:
        """Write that record beside the file, after the commit and while it is still locked."""
        try:
            self.guard.write()
        except ForeignGuardError:
            raise self.database.disown() from None

    def guard_record(self, connection: Connection) -> GuardRecord:
        """Begin another generation; return its record."""
        accounts = self.accounts
        lifetime, reserved = accounts.lifetime_reserved, accounts.reserved
        return self.guard.next_record(
            connection, accounts.period, lifetime, reserved, self.ceilings
        )

    def adopt(self, connection: Connection) -> None:
        """Learn what the file is pinned to, and register the plan that was opened."""
        (self.guard.identity,) = connection.execute("SELECT store FROM device").fetchone()
        self._ready = True
        self.refresh(connection)

    def _check_identity(self, connection: Connection) -> None:
        """Refuse a file that has taken the place of the one that was opened."""
        pinned = connection.execute("SELECT store, collector, period_ms FROM device").fetchone()
        agree = self.plans.agree(connection)
        if pinned != (self.guard.identity, *self._budget) or not agree:
            raise self.database.disown()

    def _read(self, connection: Connection) -> None:
        """Read what is kept in memory; a damaged file raises other errors than StoreError."""
        consent, *numbers = connection.execute(
            "SELECT consent, consents, ceiling_period, ceiling_lifetime, period,"
            " erasures_owed, erasures_done FROM device"
        ).fetchone()
        consents, *ceilings, period, owed, done = map(int, numbers)
        secret = device_secrets.read_secret(connection)
        panel = device_secrets.read_panel(connection)
        arm_secret = device_secrets.read_arm(connection)
        self.accounts.refresh(connection, period)
        self._identify(connection, secret)
        self.consent, self.ceilings = Consent(consent), Ceilings(*ceilings)
        self.said = consent_groups.read(connection)
        self.consents, self.panel, self.arm_secret = consents, panel, arm_secret
        self.erasure.owed, self.erasure.done = owed, done

    def _identify(self, connection: Connection, secret: bytes) -> None:
        period, signed = self.accounts.period, self._signed
        kept = outbox.identity(connection, period, signed=signed)
        self.outbox.named = kept is not None
        self.identity = kept or device_secrets.identity(
            self._budget[0], period, secret, signed=signed
        )

    def add_chain(self, connection: Connection, chain: StoredChain) -> None:
        """Store a chain of this period, which is charged in the same transaction."""
        self.plans.will_expire(self._expires)
        self.outbox.add(connection, self.database.cursor, chain, self.identity)

    @property
    def buffering(self) -> bool:
        """Whether a recording may be buffered: in memory, with nothing else to be written."""
        return (
            self.buffers
            and self.database.version is not None
            and self.outbox.named
            and self.outbox.room > 0
            and len(self.buffer) < BUFFERED
        )

    def add_buffered(self, tally: str, seen: int, cost: int, chain: StoredChain) -> bool:
        """Buffer a recording; False if that is not possible any more."""
        recording = Recording(tally, seen, cost, chain)
        # The count comes first: an interrupt in between can only have counted too much.
        self.outbox.count(chain)
        self.accounts.count(tally, seen, cost)
        self.plans.will_expire(self._expires)
        if self.database.version is None:
            # A signal handler has forked, and this is the child.
            return False
        self.buffer.append(recording)
        return True

    def deny(self, metrics: Iterable[CompiledMetric], outcome: Outcome) -> None:
        """Remember for a moment what becomes of values, so that not each one reads the file."""
        stale = monotonic() + FORGET_AFTER
        for metric in metrics:
            self.refusals[metric.name] = Refusal(outcome, metric.plain, None, 0, stale)

    def set_consent(self, connection: Connection, consent: Consent) -> None:
        """Write down what the person has said; if it is no, erase every chain and its traces."""
        connection.execute("UPDATE device SET consent = ?, consents = consents + 1", (consent,))
        self.consent = consent
        self.consents += 1
        self.refusals.clear()
        self.states.clear()
        if consent is not GIVEN:
            for table in ("chain", "pseudonym", "signing"):
                connection.execute(f"DELETE FROM {table}")
            consent_groups.forget(connection)
            self.forget_periods(connection)
            self.outbox.named = False
            self.erasure.schedule(connection)
        self.draw_arm(connection)
        if consent is WITHDRAWN:
            # No to everything leaves nothing to be said of single groups.
            self._say(connection, {})

    def draw_arm(self, connection: Connection) -> None:
        """Have a secret for an experiment's arm where consent is given and the plan has one."""
        if self.agreed_to_any and self.plans.opened.experiment is not None:
            self.arm_secret = device_secrets.prepare_arm(connection, self._source)

    def agree(self, connection: Connection, groups: Collection[str] | None, *, again: bool) -> None:
        """Write down that consent is given, to some groups or to all; see ``consent_groups``."""
        said = consent_groups.given(
            connection, self.plans, self.said, self.consent, groups, again=again
        )
        if said != self.said or self.consent is not GIVEN:
            self.set_consent(connection, GIVEN)
            self._say(connection, said)

    def withdraw_groups(self, connection: Connection, groups: Collection[str]) -> None:
        """Write down that the person says no to some groups, and erase what is stored of them."""
        said = consent_groups.withdrawn(connection, self.plans, self.said, groups)
        self.set_consent(connection, self.consent)
        if self.consent is not WITHDRAWN:
            self._say(connection, said)
        consent_groups.erase(connection, self.plans, groups)
        self.forget_periods(connection)
        self.erasure.schedule(connection)

    def _say(self, connection: Connection, said: consent_groups.Said) -> None:
        consent_groups.write(connection, said)
        self.said = said
        self.draw_arm(connection)

    def pin(self, connection: Connection, ceilings: Ceilings) -> None:
        if ceilings != self.ceilings:
            connection.execute(
                "UPDATE device SET ceiling_period = ?, ceiling_lifetime = ?",
                (ceilings.period, ceilings.lifetime),
            )
            self.ceilings = ceilings
            self.refusals.clear()

    def lowest_ceilings(self) -> Ceilings:
        return lowered(self.ceilings, self.own)

    @property
    def earliest(self) -> int:
        """The reading of the clock (ms) below which the store goes back to an earlier period."""
        # A store that has lost a file, or a part of its history, never goes back.
        lost = self.guard.damaged or self.guard.restored
        return BEGINNING if lost else (self.accounts.period - 1) * self._budget[1]

    def period_at(self, now: int) -> int:
        """Return the period that the store is to be in at a reading of the clock.

        If the clock reads a time in the period before the store's own, the store stays in its own:
        a clock that is set back a little changes nothing. If it reads an earlier time still, the
        clock was wrong before, and the store goes back.
        """
        read, current = now // self._budget[1], self.accounts.period
        if read == current:
            return current
        return read if read > current or BEGINNING < now < self.earliest else current

    def follow(self, connection: Connection, now: int) -> None:
        """Go on or back to the period of a reading of the clock; back only if a second agrees."""
        period = self.period_at(now)
        if period < self.accounts.period:
            # This process may have been stopped since the first reading.
            period = self.period_at(self.clock())
        if period < self.accounts.period:
            # Values recorded in periods that have not come yet have wrong times.
            self.misdated += outbox.erase_after(connection, period)
            self.plans.go_back(connection)
            measures.forget_first_uses(connection, period)
            self._enter(connection, period)
        else:
            self.advance(connection, period)

    def advance(self, connection: Connection, period: int) -> None:
        """Move on to ``period`` unless the store is there already or beyond."""
        if period > self.accounts.period:
            self._enter(connection, period)

    def _enter(self, connection: Connection, period: int) -> None:
        """Begin a period, or go on with one: what was reserved in it once stays reserved."""
        secret = device_secrets.read_secret(connection)
        self._answer_measures(connection, period, secret)
        with device_secrets.random_bytes():
            secret = device_secrets.advance(secret, self._source)
        connection.execute("UPDATE secret SET value = ?", (secret,))
        connection.execute("UPDATE device SET period = ?", (period,))
        connection.execute("DELETE FROM reservoir")
        claims.forget(connection, period)
        if not self.agreed_to_any:
            # Two arms under one pseudonym would show the withdrawal, so the arm stayed until now.
            device_secrets.erase_arm(connection)
            self.arm_secret = b""
        self.accounts.refresh(connection, period)
        self._identify(connection, secret)
        self.refusals.clear()
        self.forget_periods(connection)
        self.erasure.schedule(connection)
        self.erase_old_copies(connection, period * self._budget[1])

    def _answer_measures(self, connection: Connection, period: int, secret: bytes) -> None:
        """Erase what was measured in the period that is left, and draw from it for a later one."""
        self.states.clear()
        try:
            self._draw_answers(connection, period, secret)
        except BaseException as error:
            # Also an interrupt: no frame keeps what was measured.
            drop_locals(error)
            raise

    def _draw_answers(self, connection: Connection, period: int, secret: bytes) -> None:
        for row in measures.take(connection):
            try:
                plan = self.plans.get(connection, row.plan)
            except StoreError:
                continue
            if row.period >= period or plan.expired(period * plan.period):
                continue
            measures.metric_of(connection, plan, row)
            signed = plan.signed
            identity = outbox.identity(connection, row.period, signed=signed)
            identity = identity or device_secrets.identity(
                plan.collector, row.period, secret, signed=signed
            )
            try:
                chain = measures.answer(plan, row, identity.pseudonym, self._source)
            except ParameterError:
                raise schema.damaged(connection) from None
            outbox.remember(connection, row.period, identity)
            outbox.insert(connection, [chain])
            self.outbox.count(chain)
            self.plans.will_expire(plan.expires)

    def forget_periods(self, connection: Connection) -> bool:
        """Erase pseudonym, key and metrics of past periods without a chain; return if any were."""
        erased = outbox.forget(connection, self.accounts.period)
        return self.accounts.fold_other_periods(connection) or erased

    def moment(self, now: int) -> int:
        """Return the time that counts: at least the beginning of the period to be in."""
        return max(now, self.period_at(now) * self._budget[1])

    def expire(self, connection: Connection, now: int) -> int:
        """Erase all chains of expired plans; return how many. Permanent responses stay."""
        self.states.clear()
        moment = self.moment(now)
        erased = self.plans.erase_expired(connection, moment)
        if measures.erase_expired(connection, moment) or erased:
            # An erasure counts only once it is committed: the next call looks again.
            self.forget_periods(connection)
            self.erasure.schedule(connection)
        else:
            self.plans.have_expired(connection, moment)
        return erased

    def keep_up(self, now: int) -> None:
        if self.period_at(now) != self.period or now >= self.plans.next_expiry:
            with self.transaction(WRITE) as connection:
                owed = self.erasure.owed
                self.follow(connection, now)
                erased = self.expire(connection, now)
            self.lapsed += erased
            self.scrub_since(owed)

    def scrub_since(self, owed: int) -> None:
        """Clean the log if more than ``owed`` was scheduled for erasure since."""
        if self.erasure.owed > owed:
            self.erasure.scrub(compact=False)

    def finish_erasure(self) -> bool:
        return self.erasure.finish(self._erase_copies)

    def _erase_copies(self) -> bool:
        path = self.path if self.consent is WITHDRAWN or self.group_withdrawn else None
        return path is None or damaged_files.erase_all(path)

    def erase_old_copies(self, connection: Connection, now: int) -> None:
        """Erase damaged files in which nothing can be that an aggregator would take."""
        if self.path is not None:
            length = self._budget[1]
            damaged_files.erase_older(
                self.path, now, lambda: self.plans.longest_horizon(connection, length)
            )

    def remaining(self, now: int) -> int:
        """Return how many chains have a report that is due."""
        with self.transaction(READ) as connection:
            return outbox.count_due(connection, now)

    def next_due(self, after: int | None = None) -> int | None:
        """Return :meth:`soonest`, in a transaction of its own."""
        with self.transaction(READ) as connection:
            return self.soonest(connection, after)

    def soonest(self, connection: Connection, after: int | None) -> int | None:
        """Return when the next level is due, or a period ends in which something is measured."""
        due = outbox.next_due(connection, after)
        end = measures.next_end(connection, self._budget[1])
        if end is None or (after is not None and end <= after):
            return due
        return end if due is None else min(due, end)

    def ledger(self) -> Ledger:
        from clientsdk import ledger

        with self.transaction(READ) as connection:
            found = ledger.read(connection, self.plans.get)
            withdrawn = self.guard.withdrawal_noted()
        return replace(found, consent=WITHDRAWN) if withdrawn else found
