"""The plans that a store's chains follow, and when each expires.

Documents that differ only in what the fingerprint does not cover are stored side by side, so that
no later one prolongs what was promised of a chain.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection

from clientsdk.store.schema import NEVER, name_of
from mechanisms.digests import sha256
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Made = TypeVar("Made")


def made_once(plan: CompiledPlan, make: Callable[[CompiledPlan], Made]) -> Made:
    """Return what a function makes of a plan, made once for all clients that share the object."""
    kept: dict[object, Any] = vars(plan).setdefault("_made", {})
    made: Made | None = kept.get(make)
    if made is None:
        made = kept[make] = make(plan)
    return made


def stored_plan(connection: Connection, number: int) -> CompiledPlan:
    row = connection.execute("SELECT digest, body FROM plan WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise StoreError(f"a plan that chains were drawn under is not in {name_of(connection)}")
    digest, body = row
    try:
        plan = CompiledPlan.from_json(body)
    except PlanError as error:
        raise StoreError(f"a plan in {name_of(connection)} cannot be read: {error}") from error
    if sha256(body) != digest:
        raise StoreError(f"a plan in {name_of(connection)} is not the one chains were drawn under")
    return plan


class Plans:
    """The plans of one store. All methods with a connection belong in a transaction."""

    def __init__(self, plan: CompiledPlan) -> None:
        #: The plan that the store was opened with, and its number in the store.
        self.opened = plan
        self.number: int = 0
        #: When the next plan expires (ms): its chains are to be erased then.
        self.next_expiry: int = NEVER
        self._expired_until = -NEVER
        self._count = 0
        self._known: dict[int, CompiledPlan] = {}

    def add_opened(self, connection: Connection) -> None:
        plan = self.opened
        find = "SELECT id FROM plan WHERE digest = ?"
        row = connection.execute(find, (plan.digest,)).fetchone()
        if row is None:
            connection.execute(
                "INSERT INTO plan (digest, body, expires) VALUES (?, ?, ?)",
                (plan.digest, plan.to_json(), plan.expires),
            )
            row = connection.execute(find, (plan.digest,)).fetchone()
        self.number = int(row[0])
        self._known[self.number] = plan

    def copy(self) -> Plans:
        copy = Plans(self.opened)
        copy.number, copy._known = self.number, dict(self._known)
        return copy

    def get(self, connection: Connection, number: int) -> CompiledPlan:
        """Return the plan that the store has under ``number``; StoreError if it cannot be read."""
        if number not in self._known:
            self._known[number] = stored_plan(connection, number)
        return self._known[number]

    def by_fingerprint(self) -> dict[bytes, CompiledPlan]:
        return {plan.fingerprint: plan for plan in self._known.values()}

    def longest_horizon(self, connection: Connection, least: int) -> int:
        """Return the longest time for which reports of any plan are taken, at least ``least``."""
        ages = [least]
        for (number,) in connection.execute("SELECT id FROM plan").fetchall():
            try:
                ages.append(self.get(connection, number).horizon)
            except StoreError:
                continue
        return max(ages)

    def agree(self, connection: Connection) -> bool:
        """Whether the file has, under the same numbers, the plans that are in memory."""
        digests = dict(connection.execute("SELECT id, digest FROM plan").fetchall())
        if len(digests) != self._count:
            self._count = len(digests)
            self._read_next_expiry(connection)
        return all(digests.get(number) == plan.digest for number, plan in self._known.items())

    def erase_expired(self, connection: Connection, moment: int) -> int:
        """Erase the chains of expired plans; return how many."""
        numbers = connection.execute("SELECT id FROM plan WHERE expires <= ?", (moment,)).fetchall()
        return sum(
            connection.execute("DELETE FROM chain WHERE plan = ?", number).rowcount
            for number in numbers
        )

    def have_expired(self, connection: Connection, moment: int) -> None:
        """Note that nothing is left of the plans that have expired by a moment."""
        self._expired_until = max(self._expired_until, moment)
        self._read_next_expiry(connection)

    def will_expire(self, expires: int) -> None:
        """Note that something is stored of a plan that expires then.

        The plan may have expired already by a clock that leapt: it will expire once more.
        """
        self.next_expiry = min(self.next_expiry, expires)

    def go_back(self, connection: Connection) -> None:
        """Let plans expire once more: something may be stored of them again."""
        self._expired_until = -NEVER
        self._read_next_expiry(connection)

    def _read_next_expiry(self, connection: Connection) -> None:
        (soonest,) = connection.execute(
            "SELECT min(expires) FROM plan WHERE expires > ?", (self._expired_until,)
        ).fetchone()
        self.next_expiry = NEVER if soonest is None else soonest
