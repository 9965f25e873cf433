"""What of a store is kept in memory, and read again whenever the file has changed."""

from __future__ import annotations

import itertools
import json
import sqlite3
from functools import lru_cache
from typing import NoReturn

from clientsdk import panels, permanent, ratchet, schema, spool
from clientsdk.database import Database
from clientsdk.ledger import Consent
from clientsdk.outcomes import Refusal
from clientsdk.ratchet import Identity
from mechanisms.randomness import Source
from sotto.errors import StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan

quoted = lru_cache(maxsize=1024)(json.dumps)
DAMAGED = "the device's store cannot be used: it is damaged"
#: Later than any report is due, in milliseconds since the epoch.
NEVER = 1 << 63


class Contents(Database):
    """A store as memory has it.

    It is up to date within a transaction; between transactions another process may have changed
    the file.

    Attributes
    ----------
    consent : Consent
        Withdrawn also where the file does not say so yet, and the mark beside it does.
    ceilings : Ceilings
        As pinned: what any process may spend.
    own : Ceilings
        What this client may at most, whatever another has pinned: its plan's, lowered to what its
        settings and its app say.
    period : int
        The budget period of the ledger; never goes back.
    name : Identity
        What the device goes by in that period, in reports under the plan that was opened.
    panel : Panel
        In which periods the device answers.
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
    expires : int
        When the plan expires that was opened (ms).
    expiry : int
        When the next plan of the store expires (ms), whose chains are to be erased then.
    lapsed : int
        Chains that were erased so, and not yet told of by a flush.
    erased : bool
        Whether a withdrawal that was noted beside the file was found and written, by a transaction
        that had something else to do: then traces are to be erased, see :meth:`Erasing.settle`.
    """

    consent: Consent
    ceilings: Ceilings
    own: Ceilings
    period: int
    name: Identity
    panel: panels.Panel
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
    _ready: bool
    erased: bool
    expires: int
    expiry: int
    lapsed: int
    _swept: int
    _numbered: int
    _source: Source
    _collector: str
    _period_ms: int
    _plans: dict[int, CompiledPlan]
    _vouched: int
    _requests: itertools.count[int]
    _heeded: int
    _named: bool
    _signed: bool
    _pieces: dict[str, str]
    identity: bytes
    budget: bytes
    generation: int
    damaged: int
    restored: int

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
            raise schema.DamagedError(DAMAGED) from None
        self.refusals.clear()
        self.room = 0

    def _note_expiries(self, connection: sqlite3.Connection) -> None:
        """Note when the next plan expires of which chains may be here."""
        (soonest,) = connection.execute(
            "SELECT min(expires) FROM plan WHERE expires > ?", (self._swept,)
        ).fetchone()
        self.expiry = NEVER if soonest is None else soonest

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read what is kept in memory; of a damaged file something else than StoreError comes."""
        consent, *numbers = connection.execute(
            "SELECT consent, consents, ceiling_period, ceiling_lifetime, period,"
            " erasures_owed, erasures_done FROM device"
        ).fetchone()
        consents, *ceilings, period, owed, done = map(int, numbers)
        (secret,) = connection.execute("SELECT value FROM secret").fetchone()
        self.panel = panels.read(connection)
        row = connection.execute(
            "SELECT reserved, tallies FROM ledger WHERE period = ?", (period,)
        ).fetchone() or (0, "{}")
        tallies = {name: int(seen) for name, seen in json.loads(row[1]).items()}
        kept = spool.identity(connection, period, signed=self._signed)
        self.name = kept or self._identity(period, secret)
        self._named = kept is not None
        self.consent, self.ceilings = Consent(consent), Ceilings(*ceilings)
        self.consents, self.period, self.owed, self._done = consents, period, owed, done
        self.reserved = int(row[0])
        self._tally(tallies)
        self.lifetime_reserved, self.lifetime_spent = permanent.lifetime(connection)

    def _identity(self, period: int, secret: bytes) -> Identity:
        return ratchet.identity(self._collector, period, secret, signed=self._signed)

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
        plans = dict(connection.execute("SELECT id, digest FROM plan").fetchall())
        if len(plans) != self._numbered:
            self._numbered = len(plans)
            self._note_expiries(connection)
        if pinned != (self.identity, self._collector, self._period_ms) or any(
            plans.get(number) != plan.digest for number, plan in self._plans.items()
        ):
            self._disown()

    def _disown(self, what: str = "another file") -> NoReturn:
        self._unusable = f"{what} has taken its place"
        raise StoreError(f"the device's store cannot be used: {self._unusable}")

    def _tally(self, tallies: dict[str, int]) -> None:
        """Begin with other tallies, also as they are written."""
        self.tallies = tallies
        self._pieces = {name: f"{quoted(name)}:{seen}" for name, seen in tallies.items()}

    def _tallied(self) -> str:
        """Return the tallies as JSON; each was put into words when it changed."""
        return "{" + ",".join(self._pieces.values()) + "}"

    def _add_up(self, connection: sqlite3.Connection) -> None:
        self.lifetime_reserved, self.lifetime_spent = permanent.lifetime(connection)

    @property
    def consented(self) -> bool:
        """Whether anything may be recorded or sent."""
        return self.consent is Consent.GIVEN

    @property
    def erasure_owed(self) -> bool:
        """Whether deleted rows may have left traces in the file."""
        return self.owed > self._done

    @property
    def stopped(self) -> bool:
        """Whether a withdrawal is asked for in this process and not yet written."""
        return self.asked > self._heeded
