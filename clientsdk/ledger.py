"""What a device has promised and released, for people and for audits."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from clientsdk import schema
from sotto.compiled import Ceilings, CompiledPlan
from sotto.errors import PlanError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


class Consent(StrEnum):
    """Whether the person has agreed; nothing is recorded or sent unless it is ``GIVEN``."""

    NEVER_GIVEN = "never given"
    GIVEN = "given"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class LedgerPeriod:
    """One budget period of the ledger; amounts in micro-epsilon.

    Attributes
    ----------
    number : int
        Periods count from the Unix epoch.
    start, end : int
        Half-open, in milliseconds since the epoch.
    pseudonym : str or None
        Hexadecimal; None once it has been erased, or before the first recording.
    reserved : int
        Sum of the certified epsilons of the strongest rungs of all chains recorded.
    spent : int
        Sum of the certified epsilons of the newest rungs that may have left the device.
    recordings : dict
        Values recorded a metric, by ``"plan/metric"``. For a reservoir, those that took part.
    """

    number: int
    start: int
    end: int
    pseudonym: str | None
    reserved: int
    spent: int
    recordings: dict[str, int]


@dataclass(frozen=True, slots=True)
class PendingChain:
    """A chain that still has rungs to release.

    Attributes
    ----------
    chain : str
        Its id, hexadecimal.
    metric : str
        ``"plan/metric"``.
    period, event, due : int
        Budget period; truncated time of the recording and time of the next release, in ms.
    charged, delivered : int
        Rungs charged for, and rungs that the publisher has taken, counted from the weakest; a
        rung skipped because a newer one went instead counts with it.
    levels : int
        Rungs in all.
    spent, reserved : int
        What it has cost so far and will have cost at its last rung, in micro-epsilon.
    """

    chain: str
    metric: str
    period: int
    event: int
    due: int
    charged: int
    delivered: int
    levels: int
    spent: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What one device has spent for one collector.

    Attributes
    ----------
    collector : str
        Budgets belong to it.
    consent : Consent
    ceilings : Ceilings
        As pinned in the store.
    period : int
        The budget period that the device is in.
    periods : tuple of LedgerPeriod
        Oldest first; those without a recording are absent.
    pending : tuple of PendingChain
        Earliest release first.
    """

    collector: str
    consent: Consent
    ceilings: Ceilings
    period: int
    periods: tuple[LedgerPeriod, ...]
    pending: tuple[PendingChain, ...]

    @property
    def reserved(self) -> int:
        """Micro-epsilon reserved over all periods; never more than the lifetime's ceiling."""
        return sum(period.reserved for period in self.periods)

    @property
    def spent(self) -> int:
        """Micro-epsilon spent over all periods."""
        return sum(period.spent for period in self.periods)


def lowered(first: Ceilings, second: Ceilings) -> Ceilings:
    """Return the lower ceilings of two, each amount for itself.

    Examples
    --------
    >>> lowered(Ceilings(3, 10), Ceilings(4, 8))
    Ceilings(period=3, lifetime=8)
    """
    return Ceilings(min(first.period, second.period), min(first.lifetime, second.lifetime))


def tally_name(plan: str, metric: str) -> str:
    """Return the name under which a metric's recordings are counted, whatever the version."""
    return f"{plan}/{metric}"


def read(
    connection: sqlite3.Connection,
    plan: Callable[[sqlite3.Connection, int], CompiledPlan] | None = None,
) -> Ledger:
    """Return the ledger in a device's store.

    Parameters
    ----------
    connection : sqlite3.Connection
        Inside a transaction, so that all parts are of one moment.
    plan : callable
        The plan that the store has under a number, as :func:`stored_plan`.
    """
    collector, period_ms, *ceilings, consent, period = connection.execute(
        "SELECT collector, period_ms, ceiling_period, ceiling_lifetime, consent, period FROM device"
    ).fetchone()
    return Ledger(
        collector,
        Consent(consent),
        Ceilings(*ceilings),
        period,
        _periods(connection, period_ms),
        _pending(connection, plan or stored_plan),
    )


def read_file(path: Path) -> Ledger:
    """Return the ledger in a device's file, which is not made if absent.

    What the file says does not change. If an app died and left its log beside the file, and no
    other process has it open, the log is moved into the file as at the app's next start.

    Raises
    ------
    StoreError
        There is no such file, or it is no device's.
    """
    try:
        with closing(_reader(path)) as connection:
            connection.execute("BEGIN")
            schema.check(connection)
            return read(connection)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read as a device's file: {error}") from error


def _reader(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    return connection


def stored_plan(connection: sqlite3.Connection, number: int) -> CompiledPlan:
    """Return the plan that a device's store has under ``number``.

    Raises
    ------
    StoreError
        This version cannot read it.
    """
    row = connection.execute(
        "SELECT fingerprint, body FROM plan WHERE id = ?", (number,)
    ).fetchone()
    if row is None:
        raise StoreError("a plan that chains were drawn under is not in the device's store")
    fingerprint, body = row
    try:
        plan = CompiledPlan.from_json(body)
    except PlanError as error:
        raise StoreError(f"a plan in the device's store cannot be read: {error}") from error
    if plan.fingerprint != fingerprint:
        raise StoreError("a plan in the device's store is not the one that chains were drawn under")
    return plan


def _periods(connection: sqlite3.Connection, period_ms: int) -> tuple[LedgerPeriod, ...]:
    rows = connection.execute(
        "SELECT ledger.period, lower(hex(value)), reserved, spent, tallies"
        " FROM ledger LEFT JOIN pseudonym USING (period) ORDER BY ledger.period"
    )
    return tuple(
        LedgerPeriod(
            number=number,
            start=number * period_ms,
            end=(number + 1) * period_ms,
            pseudonym=pseudonym or None,
            reserved=reserved,
            spent=spent,
            recordings=json.loads(tallies),
        )
        for number, pseudonym, reserved, spent, tallies in rows
    )


def _pending(
    connection: sqlite3.Connection, plan: Callable[[sqlite3.Connection, int], CompiledPlan]
) -> tuple[PendingChain, ...]:
    rows = connection.execute(
        "SELECT lower(hex(id)), plan, metric, period, event, due, charged, delivered"
        " FROM chain ORDER BY due, id"
    ).fetchall()
    pending = []
    for chain, number, index, period, event, due, charged, delivered in rows:
        recorded_under = plan(connection, number)
        if not 0 <= index < len(recorded_under.metrics):
            raise StoreError("a chain in the device's store does not fit its plan")
        metric = recorded_under.metrics[index]
        mechanism = metric.mechanism
        pending.append(
            PendingChain(
                chain=chain,
                metric=tally_name(recorded_under.plan, metric.name),
                period=period,
                event=event,
                due=due,
                charged=charged,
                delivered=delivered,
                levels=mechanism.levels,
                spent=mechanism.certified(charged - 1) if charged else 0,
                reserved=mechanism.certified(mechanism.levels - 1),
            )
        )
    return tuple(pending)
