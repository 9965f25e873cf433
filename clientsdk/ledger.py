"""Promises and releases of a device, for people and for audits."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from os.path import realpath
from sqlite3 import Connection

from clientsdk.outcomes import Consent
from clientsdk.store import rollback_guard, schema
from clientsdk.store.accounts import ALL_METRICS as ALL_METRICS
from clientsdk.store.accounts import tally_name
from clientsdk.store.plans import stored_plan
from mechanisms.exact import MICRO
from mechanisms.frozen import NamedTuple, frozen, replace, shown
from sotto.clocks import day, minute
from sotto.columns import epsilon
from sotto.errors import StoreError
from sotto.plan.compiled import Ceilings, CompiledPlan
from sotto.plan.segments import cell_label

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable

_CONSENT = {
    "given": "You have agreed that randomized answers are sent to {collector}.",
    "withdrawn": "You have withdrawn your consent: nothing is recorded for {collector}, or sent.",
    "never given": "You have not agreed to anything: nothing is recorded for {collector}, or sent.",
}
_CARRIED_OVER = "SELECT carried, damaged, restored FROM mark"
_CARRIED = (
    "Of that, {} may have been spent before this file was damaged, lost or replaced by an older "
    "one, and counts as spent."
)
_REPLACED = (
    "This file was damaged, lost or replaced by an older one: the period in which that was found "
    "counts as spent."
)


class PermanentCharge(NamedTuple):
    """The cost of permanent responses of one metric (``"plan/metric"``), mechanism and levels.

    ``cost``, in micro-epsilon, is charged to the lifetime: the last level's, for each response ever
    drawn. A response is ``held`` unless consent was withdrawn and none has been drawn since.
    """

    metric: str
    cost: int
    held: bool


class MeasureUnderWay(NamedTuple):
    """A measure that the device's file has a state of; ``metric`` is ``"plan/metric"``.

    That is the true value, or of ``used`` a randomized response. One answer is drawn from it at the
    first use from ``end`` on, in ms since the epoch, which costs ``reserved`` micro-epsilon at its
    last level; ``measure`` says in words what it is.
    """

    metric: str
    measure: str
    end: int
    reserved: int


@frozen
class LedgerPeriod:
    """One budget period, ``[start, end)`` in ms since the epoch; amounts in micro-epsilon.

    The pseudonyms, of unsigned and of signed messages, are hexadecimal, and None once erased or
    before the first recording; a device that records under plans of both kinds has both.
    ``reserved`` sums the certified epsilons of the strongest levels of all chains recorded,
    ``spent`` those of the newest levels that may have left the device. The part of them that was
    drawn from permanent responses is ``degraded``: it counts in the period, and the lifetime has
    been charged for the responses instead. ``recordings`` counts the values recorded by
    ``"plan/metric"``: for a reservoir those that took part, for a top item how often counting was
    begun. Once a period is over and nothing of it waits any more, it is one number for all, by
    :data:`ALL_METRICS`.
    """

    number: int
    start: int
    end: int
    pseudonym: str | None
    reserved: int
    spent: int
    recordings: dict[str, int]
    degraded_reserved: int = 0
    degraded_spent: int = 0
    signed_pseudonym: str | None = None

    def __repr__(self) -> str:
        return shown(self, "pseudonym", "signed_pseudonym")


@frozen
class PendingChain:
    """A chain that still has levels to release; ``metric`` is ``"plan/metric"``.

    ``period`` is its budget period, ``event`` the truncated time of the recording and ``due`` that
    of the next release, in ms. So many of the ``levels`` sent in all, counted from the weakest, are
    ``charged`` for and ``delivered`` to the publisher; one skipped because a newer one went instead
    counts with it. In micro-epsilon it has ``spent`` so much, will have cost ``reserved`` at the
    last level, and ``costs`` once each is released. ``segment`` is what is sent with it in the
    clear, such as ``os=linux``, empty where the plan has no segments.
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
    costs: tuple[int, ...] = ()
    segment: str = ""

    def __repr__(self) -> str:
        return shown(self, "chain")


@frozen
class Ledger:
    """The spending of one device for one collector.

    ``ceilings`` are those pinned in the store, and ``period`` is the one that the device is in.
    ``periods``, oldest first, leaves out those without a recording; ``pending`` begins with the
    earliest release. ``permanent`` is what constant metrics have cost, once, for all periods, and
    ``carried`` the micro-epsilon of the lifetime that were spent, or may have been, before the file
    was found damaged or lost (``damaged`` times), or older than it should be (``restored`` times).
    ``groups`` is what was said of single groups of metrics, sorted; ``"plan/"`` stands for a plan
    without groups, ``"*"`` for all that is not named. It counts only while ``consent`` is given.
    """

    collector: str
    consent: Consent
    ceilings: Ceilings
    period: int
    periods: tuple[LedgerPeriod, ...]
    pending: tuple[PendingChain, ...]
    permanent: tuple[PermanentCharge, ...] = ()
    carried: int = 0
    damaged: int = 0
    restored: int = 0
    groups: tuple[tuple[str, Consent], ...] = ()
    #: The measures of which the device's file has true values, whose cost is reserved.
    measured: tuple[MeasureUnderWay, ...] = ()

    @property
    def reserved(self) -> int:
        """Micro-epsilon reserved over all periods, but for what permanent responses have paid."""
        return self._once + sum(p.reserved - p.degraded_reserved for p in self.periods)

    @property
    def spent(self) -> int:
        """Micro-epsilon spent over all periods; a permanent response is as soon as it is drawn."""
        return self._once + sum(p.spent - p.degraded_spent for p in self.periods)

    def in_words(self) -> str:
        """Return all of it in sentences that a user can be shown; times are in UTC."""
        lines = [
            _CONSENT[self.consent].format(collector=self.collector) + self._of_groups(),
            f"What is sent about one period costs at most epsilon {epsilon(self.ceilings.period)}, "
            f"and {epsilon(self.ceilings.lifetime)} in this device's life. The lower, the less can "
            "be learnt.",
            f"So far {epsilon(self.spent)} is spent, of {epsilon(self.reserved)} that is set "
            "aside.",
        ]
        if self.carried:
            lines.append(_CARRIED.format(epsilon(self.carried)))
        elif self.damaged or self.restored:
            lines.append(_REPLACED)
        lines += [_period_in_words(each) for each in self.periods]
        lines += [
            f"{each.metric}: {epsilon(each.cost)} once for all periods, for an answer that "
            f"{'is kept' if each.held else 'was kept and is erased'} here."
            for each in self.permanent
        ]
        if self.measured:
            lines.append(f"Measured here and not drawn yet: {_listed(self.measured)}.")
        if self.pending:
            lines += ["Still to be sent:", *(f"  {_chain_in_words(each)}" for each in self.pending)]
        else:
            lines.append("Nothing is left to be sent.")
        return "\n".join(lines)

    __str__ = in_words

    def _of_groups(self) -> str:
        if self.consent is not Consent.GIVEN or not self.groups:
            return ""
        named = [
            ("all others" if name == "*" else name.removesuffix("/"), said)
            for name, said in reversed(self.groups)
        ]
        yes = [name for name, said in named if said is Consent.GIVEN]
        no = [name for name, said in named if said is not Consent.GIVEN]
        agreed = f" You agree to: {', '.join(yes)}." if yes else ""
        return f"{agreed} You do not agree to: {', '.join(no)}." if no else agreed

    @property
    def _once(self) -> int:
        return self.carried + sum(charge.cost for charge in self.permanent)


def read(
    connection: Connection, plan: Callable[[Connection, int], CompiledPlan] | None = None
) -> Ledger:
    """Return the ledger in a device's store, inside a transaction, or raise StoreError."""
    schema.check(connection)
    try:
        collector, period_ms, *ceilings, consent, period = connection.execute(
            "SELECT collector, period_ms, ceiling_period, ceiling_lifetime, consent, period"
            " FROM device"
        ).fetchone()
        carried, damaged, restored = connection.execute(_CARRIED_OVER).fetchone()
        ledger = Ledger(
            collector,
            Consent(consent),
            Ceilings(*ceilings),
            period,
            _periods(connection, period_ms),
            _pending(connection, plan or stored_plan),
            _charges(connection),
            carried,
            damaged,
            restored,
            _groups(connection),
            under_way(connection, plan or stored_plan),
        )
        # Amounts and counts of a damaged row are no numbers.
        sum(each.reserved + each.spent + sum(each.recordings.values()) for each in ledger.periods)
        return ledger
    except (AttributeError, TypeError, ValueError):
        raise schema.damaged(connection) from None


def _groups(connection: Connection) -> tuple[tuple[str, Consent], ...]:
    rows = connection.execute("SELECT name, consent FROM consent_group ORDER BY name")
    return tuple((name, Consent(said)) for name, said in rows)


def read_file(path: str | os.PathLike[str]) -> Ledger:
    """Return the ledger in a device's file; StoreError if there is none, or it is no device's.

    If an app died and left its log beside the file, and no other process has it open, the log is
    moved into the file as at the app's next start.
    """
    try:
        with closing(reader(path)) as connection:
            connection.execute("BEGIN")
            ledger = read(connection)
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be read as a device's file: {error}; name the file that the app passes "
            "as state"
        ) from error
    # It may be that the file could not be written.
    withdrawn = rollback_guard.withdrawal(realpath(path))
    return replace(ledger, consent=Consent.WITHDRAWN) if withdrawn else ledger


def reader(path: str | os.PathLike[str]) -> Connection:
    uri = schema.uri_of(realpath(path))
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _periods(connection: Connection, period_ms: int) -> tuple[LedgerPeriod, ...]:
    rows = connection.execute(
        "SELECT ledger.period, lower(hex(value)), reserved, spent, tallies"
        " FROM ledger LEFT JOIN pseudonym USING (period) ORDER BY ledger.period"
    )
    found = connection.execute("SELECT * FROM degraded")
    degraded = {period: (reserved, spent) for period, reserved, spent in found}
    signed = dict(connection.execute("SELECT period, lower(hex(pseudonym)) FROM signing"))
    return tuple(
        LedgerPeriod(
            number,
            number * period_ms,
            (number + 1) * period_ms,
            pseudonym or None,
            reserved,
            spent,
            json.loads(tallies),
            *degraded.get(number, (0, 0)),
            signed.get(number),
        )
        for number, pseudonym, reserved, spent, tallies in rows
    )


def _pending(
    connection: Connection, plan: Callable[[Connection, int], CompiledPlan]
) -> tuple[PendingChain, ...]:
    rows = connection.execute(
        "SELECT lower(hex(id)), plan, metric, period, event, due, charged, delivered, cell"
        " FROM chain ORDER BY due, id"
    ).fetchall()
    plans: dict[int, CompiledPlan] = {}
    pending = []
    for chain, number, index, period, event, due, charged, delivered, cell in rows:
        if number not in plans:
            plans[number] = plan(connection, number)
        recorded_under = plans[number]
        known = 0 <= index < len(recorded_under.metrics)
        if not known or not 0 <= charged <= recorded_under.metrics[index].sent:
            raise StoreError(f"a chain in {schema.name_of(connection)} does not fit its plan")
        metric = recorded_under.metrics[index]
        name, costs = tally_name(recorded_under.plan, metric.name), metric.costs
        spent, done = costs[charged - 1] if charged else 0, (charged, delivered, metric.sent)
        pending.append(
            PendingChain(
                *(chain, name, period, event, due, *done, spent, costs[-1], costs),
                cell_label(recorded_under.attributes, cell),
            )
        )
    return tuple(pending)


def _charges(connection: Connection) -> tuple[PermanentCharge, ...]:
    rows = connection.execute(
        "SELECT tally, cost, response <> x'' FROM permanent ORDER BY tally, binding"
    )
    return tuple(PermanentCharge(tally, cost, bool(held)) for tally, cost, held in rows)


def under_way(
    connection: Connection, plan: Callable[[Connection, int], CompiledPlan]
) -> tuple[MeasureUnderWay, ...]:
    """Return what is measured now; StoreError if it does not fit its plan."""
    if schema.check(connection) < schema.VERSION:
        # The file was last opened by a release without measures.
        return ()
    query = "SELECT tally, period, plan, metric FROM measure ORDER BY tally"
    found = []
    for tally, period, number, index in connection.execute(query).fetchall():
        of = plan(connection, number)
        if not 0 <= index < len(of.metrics) or (measure := of.metrics[index].measure) is None:
            raise StoreError(f"a measure in {schema.name_of(connection)} does not fit its plan")
        words, metric = measure.in_words(), of.metrics[index]
        if metric.holds_response:
            last = metric.mechanism.certified()
            words += f", as a response randomized at epsilon {last / MICRO:g}"
        found.append(MeasureUnderWay(tally, words, (period + 1) * of.period, metric.cost))
    return tuple(found)


def _period_in_words(period: LedgerPeriod) -> str:
    count = sum(period.recordings.values())
    return (
        f"{day(period.start)} to {day(period.end)}: {count} value{'s' * (count != 1)} recorded; "
        f"spent {epsilon(period.spent)} of {epsilon(period.reserved)} set aside."
    )


def _listed(measured: tuple[MeasureUnderWay, ...]) -> str:
    return ", ".join(f"{each.metric} (epsilon {epsilon(each.reserved)})" for each in measured)


def _chain_in_words(chain: PendingChain) -> str:
    levels = [f"{epsilon(cost)} ({_state(chain, level)})" for level, cost in enumerate(chain.costs)]
    beside = f", sent with {chain.segment}" if chain.segment else ""
    return (
        f"{chain.metric}, recorded about {minute(chain.event)}{beside}: epsilon "
        f"{', '.join(levels)}; next at {minute(chain.due)}"
    )


def _state(chain: PendingChain, level: int) -> str:
    """Return what became of a level; a device does not keep which went before the newest."""
    if level >= chain.charged:
        return "not sent yet"
    if level < chain.charged - 1:
        return "sent or passed over"
    return "sent" if chain.delivered == chain.charged else "on its way"
