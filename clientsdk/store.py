"""What a device must remember, and the rules that hold between its parts.

Consent, pinned ceilings, the ratchet's secret, the ledger, the chains and what was sent of them,
and the plans that they follow: one SQLite file, or the same in memory. What is admitted is decided
in :mod:`clientsdk.admission` and what is sent in :mod:`clientsdk.sender`; all methods here that
say "in a transaction" belong to one that the caller has opened.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from contextlib import suppress
from functools import lru_cache
from typing import NoReturn

from clientsdk import (
    claims,
    ledger,
    mark,
    permanent,
    pins,
    ratchet,
    recovery,
    schema,
    spool,
)
from clientsdk.database import Access, Database
from clientsdk.ledger import Consent, Ledger
from clientsdk.notes import MOST, Note
from clientsdk.outcomes import Outcome, Refusal
from clientsdk.quota import Quota
from clientsdk.spool import Chain
from mechanisms.randomness import Source
from sotto.compiled import Ceilings, CompiledPlan
from sotto.errors import PlanError, StoreError

_quoted = lru_cache(maxsize=1024)(json.dumps)
_BOOK = (
    "INSERT INTO ledger (reserved, tallies, period, spent) VALUES (?1, ?2, ?3, 0)"
    " ON CONFLICT (period) DO UPDATE SET reserved = ?1, tallies = ?2"
)
_DAMAGED = "the device's store cannot be used: it is damaged"
#: Later than any report is due, in milliseconds since the epoch.
NEVER = 1 << 63
#: Milliseconds for which consent that another process was given may go unnoticed.
FORGET_AFTER = 50


class Store(Database):
    """A device's store.

    Parameters
    ----------
    path : str or None
        The file, made if absent and readable by its owner alone; None keeps all in memory.
    plan : CompiledPlan
        A new store is pinned to its collector and period length.
    ceilings : Ceilings
        Pinned in a new store; they lower those of an existing one and never raise them.
    period : int
        The budget period in which a new store starts.
    source : Source
        Draws the secret of a new store.
    quota : Quota

    Raises
    ------
    StoreError
        The file cannot be used.
    PlanError
        The store belongs to another collector or another period length.

    Attributes
    ----------
    consent : Consent
    ceilings : Ceilings
    period : int
        The budget period of the ledger; never goes back.
    pseudonym : bytes
        Of that period.
    reserved : int
        Micro-epsilon, of that period.
    lifetime_reserved, lifetime_spent : int
        Micro-epsilon over all periods: what is drawn from a permanent response is left out, and
        the response counted instead.
    tallies : dict of str to int
        Recordings of that period.
    consents : int
        How often consent was given or taken back. What was read under one number must not leave
        the device under another: it may have been wiped in between.
    owed : int
        How often something was deleted that must leave no trace in the file.
    plan_id : int
        The number of ``plan`` in the store.
    asked : int
        The number of the latest request to stop, see :meth:`stop`.
    refusals : dict of str to Refusal
        By metric; forgotten whenever they might no longer hold.
    room : int
        Bytes that may be added before the file is measured again.
    soonest : int
        When the first report that this process knows of is due (ms): never later than that.
    identity, budget : bytes
        What the store is told apart by, and what its collector and period length are.
    generation : int
        How many commits that survive a loss of power there were, see :mod:`clientsdk.mark`.
    damaged, restored : int
        How often the file was found damaged or lost, and older than its mark.

    They are up to date within a transaction; between transactions another process may have
    changed the file.
    """

    consent: Consent
    ceilings: Ceilings
    period: int
    pseudonym: bytes
    reserved: int
    lifetime_reserved: int
    lifetime_spent: int
    tallies: dict[str, int]
    consents: int
    owed: int
    plan_id: int
    asked: int
    _done: int
    refusals: dict[str, Refusal]
    soonest: int
    room: int

    def __init__(
        self,
        path: str | None,
        plan: CompiledPlan,
        ceilings: Ceilings,
        period: int,
        source: Source,
        quota: Quota | None = None,
    ) -> None:
        self.refusals = {}
        self.soonest = NEVER
        self._quota = Quota() if quota is None else quota
        self.room = 0
        self._collector = plan.collector
        self._period_ms = plan.period
        self.budget = mark.budget_of(plan.collector, plan.period)
        self._requests = itertools.count(1)
        self.asked = self._heeded = 0
        for attempt in (1, 2):
            try:
                self._begin_life(path, plan, ceilings, period, source)
                break
            except schema.DamagedError:
                if attempt == 2 or self.path is None:
                    raise
                if not recovery.set_aside(self.path, self._place):
                    raise

    def _begin_life(
        self, path: str | None, plan: CompiledPlan, ceilings: Ceilings, period: int, source: Source
    ) -> None:
        """Open the file, make what is not there, and make up for what it does not know."""
        super().__init__(path)
        self._ready = False
        self._plans: dict[int, CompiledPlan] = {}
        self._vouched = 0
        try:
            with self.transaction(Access.READ) as connection:
                new = schema.examine(connection) and recovery.unheard_of(self)
            # Nothing has left a new device that a loss of power could make it forget.
            with self.transaction(Access.WRITE if new else Access.DURABLE) as connection:
                fresh = schema.prepare(connection)
                if fresh:
                    pins.create(connection, plan, ceilings, period, source)
                self._adopt(connection, plan, ceilings)
                recovery.reconcile(self, connection, plan, period, fresh=fresh)
                self.advance(connection, period)
            self.settle()
        except BaseException:
            self.close()
            raise

    def _adopt(
        self, connection: sqlite3.Connection, plan: CompiledPlan, ceilings: Ceilings
    ) -> None:
        pinned = connection.execute("SELECT collector, period_ms FROM device").fetchone()
        if pinned is None:
            raise schema.DamagedError(_DAMAGED)
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

    def _refresh(self, connection: sqlite3.Connection) -> None:
        if not self._ready:
            return
        try:
            self._check_identity(connection)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            # It has no such tables.
            self._disown()
        try:
            self._read(connection)
            self._read_mark(connection)
        except (TypeError, ValueError, AttributeError):
            raise schema.DamagedError(_DAMAGED) from None
        self.refusals.clear()
        self.room = 0

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read what is kept in memory; of a damaged file something else than StoreError comes."""
        consent, *numbers = connection.execute(
            "SELECT consent, consents, ceiling_period, ceiling_lifetime, period,"
            " erasures_owed, erasures_done FROM device"
        ).fetchone()
        consents, *ceilings, period, owed, done = map(int, numbers)
        (secret,) = connection.execute("SELECT value FROM secret").fetchone()
        row = connection.execute(
            "SELECT reserved, tallies FROM ledger WHERE period = ?", (period,)
        ).fetchone() or (0, "{}")
        tallies = {name: int(seen) for name, seen in json.loads(row[1]).items()}
        self.pseudonym = ratchet.pseudonym(self._collector, period, secret)
        self.consent, self.ceilings = Consent(consent), Ceilings(*ceilings)
        self.consents, self.period, self.owed, self._done = consents, period, owed, done
        self.reserved = int(row[0])
        self._tally(tallies)
        self.lifetime_reserved, self.lifetime_spent = permanent.lifetime(connection)
        named = connection.execute("SELECT 1 FROM pseudonym WHERE period = ?", (self.period,))
        self._named = named.fetchone() is not None

    def _read_mark(self, connection: sqlite3.Connection) -> None:
        self.generation, self.damaged, self.restored = map(
            int,
            connection.execute("SELECT generation, damaged, restored FROM mark").fetchone(),
        )
        if self.generation < self._vouched:
            self._disown("an older copy of it")
        self._vouched = self.generation

    def _check_identity(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that has taken the place of the one that was opened.

        Chains, plans and pseudonyms that are in memory belong to that one; in another, the same
        numbers may stand for other plans, and its consent is for something else.
        """
        pinned = connection.execute("SELECT store, collector, period_ms FROM device").fetchone()
        plans = dict(connection.execute("SELECT id, fingerprint FROM plan").fetchall())
        if pinned != (self.identity, self._collector, self._period_ms) or any(
            plans.get(number) != plan.fingerprint for number, plan in self._plans.items()
        ):
            self._disown()

    def _disown(self, what: str = "another file") -> NoReturn:
        self._unusable = f"{what} has taken its place"
        raise StoreError(f"the device's store cannot be used: {self._unusable}")

    @property
    def consented(self) -> bool:
        """Whether anything may be recorded or sent."""
        return self.consent is Consent.GIVEN

    @property
    def erasure_owed(self) -> bool:
        """Whether deleted rows may have left traces in the file."""
        return self.owed > self._done

    # Stopping: at once and in memory, whatever becomes of the file.

    @property
    def stopped(self) -> bool:
        """Whether a withdrawal is asked for in this process and not yet written."""
        return self.asked > self._heeded

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
            for table in ("chain", "pseudonym"):
                connection.execute(f"DELETE FROM {table}")
            # That a reservoir or a count was used in this period is not forgotten.
            connection.execute("UPDATE reservoir SET due = 0, chain = x'', cost = 0")
            claims.abandon(connection)
            permanent.erase(connection)
            self._named = False
            self.owe_erasure(connection)

    def deny(self, plan: CompiledPlan, now: int) -> None:
        """Remember for a moment that there is no consent, so that not every value asks the file.

        In that moment nothing else can change what becomes of a value but consent, which this
        process hears of at once and another only then, or a period's end.
        """
        until = min(now + FORGET_AFTER, (plan.period_of(now) + 1) * plan.period)
        stale = time.monotonic() + FORGET_AFTER / 1000
        for metric in plan.metrics:
            self.refusals[metric.name] = Refusal(Outcome.NO_CONSENT, metric.plain, until, stale)

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

        The secret is hashed forward over the old one; pseudonyms are kept only for the chains of
        past periods that are still to be sent under them.
        """
        if period <= self.period:
            return False
        (secret,) = connection.execute("SELECT value FROM secret").fetchone()
        secret = ratchet.advance(secret, period - self.period)
        connection.execute("UPDATE secret SET value = ?", (secret,))
        connection.execute("UPDATE device SET period = ?", (period,))
        connection.execute("DELETE FROM reservoir")
        claims.forget(connection, period)
        self.period = period
        self.pseudonym = ratchet.pseudonym(self._collector, period, secret)
        self.reserved, self._named = 0, False
        self._tally({})
        self.refusals.clear()
        self.forget_pseudonyms(connection)
        self.owe_erasure(connection)
        return True

    def keep_up(self, period: int) -> None:
        """Move on to ``period`` where nothing else is to be done, outside any transaction.

        Raises
        ------
        StoreError
            It could not be written.
        """
        if period > self.period:
            with self.transaction(Access.WRITE) as connection:
                self.advance(connection, period)
            self.scrub(compact=False)

    def forget_pseudonyms(self, connection: sqlite3.Connection) -> None:
        """Erase the pseudonyms of past periods that have no chain left."""
        connection.execute(
            "DELETE FROM pseudonym WHERE period < ? AND NOT EXISTS"
            " (SELECT 1 FROM chain WHERE chain.period = pseudonym.period)",
            (self.period,),
        )

    def owe_erasure(self, connection: sqlite3.Connection) -> None:
        """Note that rows deleted in this transaction must leave no trace in the file."""
        if self.path is not None:
            connection.execute("UPDATE device SET erasures_owed = erasures_owed + 1")
            self.owed += 1

    def settle(self) -> bool:
        """Erase the traces that are owed, outside any transaction; return whether none is left.

        What another process comes to owe while this one erases stays owed.
        """
        owed = self.owed
        if not self.erasure_owed:
            return True
        if not self.scrub(compact=True):
            return False
        path = self.path if self.consent is Consent.WITHDRAWN else None
        if path is not None and not recovery.erase_aside(path):
            # A file that was kept aside has chains too.
            return False
        try:
            with self.transaction(Access.WRITE) as connection:
                connection.execute(
                    "UPDATE device SET erasures_done = max(erasures_done, ?)", (owed,)
                )
                self._done = max(self._done, owed)
                return not self.erasure_owed
        except StoreError:
            # The traces are gone; that they are could not be written and is tried again.
            return False

    def clean(self) -> None:
        """Erase what delivered chains left in the log; if that fails now, owe it."""
        if not self.scrub(compact=False):
            with suppress(StoreError), self.transaction(Access.WRITE) as connection:
                self.owe_erasure(connection)

    # Losses: in a transaction.

    def fill(self, connection: sqlite3.Connection, ceiling: int, room: int) -> None:
        """Count the current period as spent, all of it, and of the lifetime at most ``room``."""
        full = max(self.reserved, ceiling)
        unpaid = full - self.reserved - room
        connection.execute(
            "INSERT INTO ledger (period, reserved, spent, tallies) VALUES (?1, ?2, ?2, ?3)"
            " ON CONFLICT (period) DO UPDATE SET reserved = ?2, spent = ?2",
            (self.period, full, self._tallied()),
        )
        self.reserved = full
        if unpaid > 0:
            permanent.reserve(connection, self.period, unpaid)
            permanent.spend(connection, self.period, unpaid)
        self._add_up(connection)

    def carry(self, connection: sqlite3.Connection, amount: int) -> None:
        """Count ``amount`` micro-epsilon more as spent, of the lifetime and of no period."""
        connection.execute("UPDATE mark SET carried = carried + ?", (amount,))
        self._add_up(connection)

    def count_loss(
        self, connection: sqlite3.Connection, known: mark.Mark | None, *, damaged: bool
    ) -> None:
        """Count one more file that was damaged or lost, or older; go on where the mark is."""
        if known is not None:
            self.generation = max(self.generation, known.generation)
            self.damaged = max(self.damaged, known.damaged)
            self.restored = max(self.restored, known.restored)
        # A mark of the first generation is one of a store of which nothing is known to be lost.
        self.generation = max(self.generation, 1)
        self.damaged += damaged
        self.restored += not damaged
        connection.execute(
            "UPDATE mark SET generation = ?, damaged = ?, restored = ?",
            (self.generation, self.damaged, self.restored),
        )
        self.refusals.clear()

    def _add_up(self, connection: sqlite3.Connection) -> None:
        self.lifetime_reserved, self.lifetime_spent = permanent.lifetime(connection)

    def seal(self, connection: sqlite3.Connection) -> mark.Mark:
        """Begin another generation; return what its mark says."""
        self.generation += 1
        connection.execute("UPDATE mark SET generation = ?", (self.generation,))
        (degraded,) = connection.execute(
            "SELECT coalesce(sum(reserved), 0) FROM degraded WHERE period = ?", (self.period,)
        ).fetchone()
        return mark.Mark(
            self.identity,
            self.budget,
            self.generation,
            self.period,
            self.lifetime_reserved,
            self.reserved - degraded,
            self.ceilings.period,
            self.ceilings.lifetime,
            self.damaged,
            self.restored,
        )

    def _seal(self, connection: sqlite3.Connection) -> None:
        if self.path is not None:
            self._sealed = self.seal(connection)

    def vouch(self) -> None:
        if self.path is not None:
            self._vouched = self._sealed.generation
            try:
                mark.advance(self.path, self._sealed)
            except mark.ForeignError:
                self._disown()
            except StoreError as error:
                raise mark.UnmarkedError(f"it is written, but {error}") from error

    # Recording: in a transaction.

    def full(self, connection: sqlite3.Connection) -> bool:
        """Whether the quota is used up."""
        if self.room <= 0:
            self.room = self._quota.bytes - spool.size(connection)
        return self.room <= 0

    def keep(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Store a chain of this period, which :meth:`book` charges in the same transaction."""
        self._expect(chain)
        if not self._named:
            spool.remember(connection, self.period, self.pseudonym)
            self._named = True
        spool.insert(self.cursor, chain)

    def _expect(self, chain: Chain) -> None:
        self.room -= len(chain.payloads) + spool.ROW
        if chain.due < self.soonest:
            self.soonest = chain.due

    def book(
        self,
        connection: sqlite3.Connection,
        tally: str,
        seen: int,
        cost: int,
        lifetime: int | None = None,
    ) -> None:
        """Reserve ``cost`` micro-epsilon, with the ``seen``-th recording under ``tally``.

        Of the lifetime the same, unless ``lifetime`` says how much: what is drawn from a
        permanent response costs nothing beyond that response.
        """
        if lifetime is None:
            self._reserve(tally, seen, cost, cost)
        else:
            permanent.reserve(connection, self.period, cost)
            self._reserve(tally, seen, cost, lifetime)
            self.lifetime_spent += lifetime
        tallies = ",".join(self._pieces.values())
        self.cursor.execute(_BOOK, (self.reserved, f"{{{tallies}}}", self.period))

    def _reserve(self, tally: str, seen: int, cost: int, lifetime: int) -> None:
        self.reserved += cost
        self.lifetime_reserved += lifetime
        self.tallies[tally] = seen
        self._pieces[tally] = f"{_quoted(tally)}:{seen}"

    @property
    def noting(self) -> bool:
        """Whether a recording may be noted, while the store is held: :meth:`note`.

        Only in memory, where no other process reads it, and only where nothing else is to be
        written: the first of a period goes into the tables.
        """
        return (
            self.path is None
            and self.version is not None
            and self._named
            and self.room > 0
            and len(self.notes) < MOST
        )

    def note(self, tally: str, seen: int, cost: int, chain: Chain) -> bool:
        """Note a recording in memory; False if it cannot be noted any more.

        Charge and chain are one entry. What is counted in memory comes first: an interrupt in
        between can only have counted too much.
        """
        note = Note(tally, seen, cost, chain)
        self._expect(chain)
        self._reserve(tally, seen, cost, cost)
        if self.version is None:
            # A signal handler has forked, and this is the child.
            return False
        self.notes.append(note)
        return True

    def _tally(self, tallies: dict[str, int]) -> None:
        """Begin with other tallies, also as they are written."""
        self.tallies = tallies
        self._pieces = {name: f"{_quoted(name)}:{seen}" for name, seen in tallies.items()}

    def _tallied(self) -> str:
        """Return the tallies as JSON; each was put into words when it changed."""
        return "{" + ",".join(self._pieces.values()) + "}"

    def incumbent_cost(self, connection: sqlite3.Connection, tally: str) -> int | None:
        """Return what the chain in a reservoir has reserved, None if it was not used so far.

        Zero once its chain was wiped: what that had reserved stays reserved.
        """
        row = connection.execute("SELECT cost FROM reservoir WHERE tally = ?", (tally,)).fetchone()
        return None if row is None else int(row[0])

    def displace(self, connection: sqlite3.Connection, tally: str, chain: Chain, cost: int) -> None:
        """Erase the chain in a reservoir, if any, and put ``chain`` there, which cost ``cost``."""
        erased = connection.execute(
            "DELETE FROM chain WHERE (period, due, id) IN"
            " (SELECT ?, due, chain FROM reservoir WHERE tally = ?)",
            (chain.period, tally),
        )
        connection.execute(
            "INSERT OR REPLACE INTO reservoir VALUES (?, ?, ?, ?)",
            (tally, chain.due, chain.id, cost),
        )
        if erased.rowcount:
            self.owe_erasure(connection)

    # Sending: in a transaction.

    def charge(
        self, connection: sqlite3.Connection, period: int, cost: int, *, degraded: bool = False
    ) -> bool:
        """Add to what was spent in ``period``, unless a ceiling lowered since then forbids it.

        What is ``degraded`` from a permanent response adds nothing to the lifetime.
        """
        lifetime = 0 if degraded else cost
        if self.lifetime_spent + lifetime > self.ceilings.lifetime:
            return False
        charged = connection.execute(
            "UPDATE ledger SET spent = spent + ?1"
            " WHERE period = ?2 AND spent + ?1 <= min(reserved, ?3)",
            (cost, period, self.ceilings.period),
        )
        if charged.rowcount == 0:
            return False
        if degraded:
            permanent.spend(connection, period, cost)
        self.lifetime_spent += lifetime
        return True

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
        with self.transaction(Access.READ) as connection:
            return ledger.read(connection, self.plan)
