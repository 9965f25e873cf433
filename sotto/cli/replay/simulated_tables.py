"""The tables of a simulated device's store, as dictionaries.

They are what :mod:`sotto.cli.replay.statements` reads and changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, TypeAlias

#: The place of a column in the table ``chain``.
PERIOD, DUE, ID, PLAN, METRIC, EVENT = range(6)
CHARGED, DELIVERED, PAYLOADS, CELL = range(7, 11)
#: Due time and id of a chain.
Key: TypeAlias = tuple[int, bytes]


class Result(list[Any]):
    """The rows that a statement returns, as of a cursor of SQLite."""

    rowcount = -1

    def fetchone(self) -> Any:
        """Return the first row, None if there is none."""
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self


class Changed(Result):
    """What a statement returns that changes rows: how many."""

    def __init__(self, rowcount: int) -> None:
        super().__init__()
        self.rowcount = rowcount


class Chains:
    """The chains of one budget period, in the order of due time and id."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        #: By key, with the columns of the table ``chain``.
        self.rows: dict[Key, list[Any]] = {}

    def add(self, row: list[Any]) -> None:
        key = row[DUE], row[ID]
        self.rows[key] = row
        insort(self.keys, key)

    def remove(self, key: Key) -> None:
        del self.rows[key]
        del self.keys[bisect_left(self.keys, key)]

    def move(self, key: Key, to: Key) -> None:
        keys = self.keys
        self.rows[to] = self.rows.pop(key)
        del keys[bisect_left(keys, key)]
        insort(keys, to)

    def count_due(self, moment: int) -> int:
        return bisect_left(self.keys, (moment + 1, b""))


class Tables:
    """The tables of one device, as ``clientsdk.store.schema`` describes them."""

    def __init__(self) -> None:
        self.store = self.secret = self.arm = b""
        self.collector = self.consent = ""
        self.period = self.period_ms = self.consents = 0
        self.ceilings: tuple[int, ...] = ()
        self.panel: tuple[bytes, int] | None = None
        #: By period: reserved, spent, tallies.
        self.ledger: dict[int, list[Any]] = {}
        #: Periods whose tallies may still name single metrics.
        self.unfolded: set[int] = set()
        self.degraded: dict[int, list[int]] = {}
        self.pseudonyms: dict[int, bytes] = {}
        self.signing: dict[int, tuple[bytes, bytes]] = {}
        #: By number: digest, document, expiry.
        self.plans: dict[int, tuple[bytes, bytes, int]] = {}
        self.chains: dict[int, Chains] = {}
        #: By tally: due time, chain, cost.
        self.reservoirs: dict[str, tuple[int, bytes, int]] = {}
        #: By binding: tally, cost, response.
        self.permanent: dict[bytes, tuple[str, int, bytes]] = {}
        #: By period and tally: holder, cost, last period.
        self.counting: dict[tuple[int, str], tuple[bytes, int, int]] = {}
        self.said: dict[str, str] = {}

    def of_period(self, period: int) -> Chains:
        """Return the chains of a period, for others to be added."""
        found = self.chains.get(period)
        if found is None:
            found = self.chains[period] = Chains()
        return found

    def remove(self, period: int, key: Key) -> None:
        chains = self.chains[period]
        chains.remove(key)
        if not chains.keys:
            del self.chains[period]

    def find(self, period: int, due: int, chain: bytes) -> list[Any] | None:
        try:
            return self.chains[period].rows[due, chain]
        except KeyError:
            return None

    def named(self) -> list[tuple[int, Chains]]:
        """Return the periods with a pseudonym and chains, oldest first, and their chains."""
        pseudonyms = self.pseudonyms
        return sorted(each for each in self.chains.items() if each[0] in pseudonyms)

    def next_due(self, after: int) -> int | None:
        soonest = None
        for period, each in self.chains.items():
            due = next((key[0] for key in each.keys if key[0] > after), None)
            if due is not None and (soonest is None or due < soonest) and period in self.pseudonyms:
                soonest = due
        return soonest

    def count_due(self, moment: int) -> int:
        pseudonyms = self.pseudonyms
        return sum([c.count_due(moment) for each, c in self.chains.items() if each in pseudonyms])
