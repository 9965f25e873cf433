"""A preview of what would be sent: a copy of the store is sent into memory.

The sender works on the copy, so that the messages are the very ones, byte for byte, that it would
publish. The store itself is only read.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from clientsdk import ledger
from clientsdk.publishers import MemoryPublisher
from clientsdk.sending.sender import Sender
from clientsdk.sending.tasks import FlushTask
from clientsdk.store import measures, rollback_guard, schema
from clientsdk.store.database import READ, WRITE
from clientsdk.store.plans import stored_plan
from clientsdk.store.store import Store
from mechanisms.randomness import SystemSource
from sotto.clocks import minute
from sotto.columns import epsilon
from sotto.errors import StoreError
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.plan.segments import cell_label
from sotto.wire.format import Row, decode_message

_HIDDEN = (
    "To be sent, times in UTC: randomized answers. Noise hides the true values, which this device "
    "has not stored with them."
)
_MEASURED = (
    "This device stores the following, a true value unless it says otherwise, until it draws one "
    "randomized answer from each, at the first use after the time that is named:"
)
_REMEMBERED = (
    "This device also stores in which period it was first used, until consent is withdrawn, for"
)


@dataclass(frozen=True, slots=True)
class PreviewedReport:
    """One report as it would be sent; what identifies and what it says is in no ``repr``.

    ``metric`` is ``"plan/metric"``; ``level`` counts from 1, and all that is sent of the value up
    to it costs ``epsilon``, in micro-epsilon. The value was recorded at ``event``, truncated, and
    this is sent when it is ``due``, in milliseconds since the epoch. ``meaning`` is what the
    payload says, in words: a randomized output, not the value. ``description`` is what the plan
    says of the metric, empty where it says nothing. ``segment`` is what is sent with it in the
    clear, such as ``os=linux``, empty where the plan has no segments.
    """

    metric: str
    level: int
    levels: int
    epsilon: int
    event: int
    due: int
    meaning: str = field(repr=False)
    pseudonym: bytes = field(repr=False)
    chain: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    description: str = ""
    segment: str = ""

    def in_words(self) -> str:
        """Return it in a sentence; times are in UTC."""
        what = f" ({self.description})" if self.description else ""
        beside = f"; sent with it in the clear: {self.segment}" if self.segment else ""
        return (
            f"{minute(self.due)}: {self.metric}{what} of about {minute(self.event)}, release "
            f"{self.level} of {self.levels} (epsilon {epsilon(self.epsilon)} in all), randomized "
            f"answer: {self.meaning}{beside}"
        )


@dataclass(frozen=True, slots=True)
class PreviewedMessage:
    """One message as it would be published, ``due`` in milliseconds since the epoch."""

    due: int
    shard: int
    data: bytes = field(repr=False)
    reports: tuple[PreviewedReport, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """Reports to come if nothing more were recorded: messages in their order.

    An answer to what is ``measured`` is not drawn before the budget period is over, so that no
    report of it is shown. ``ages`` are metrics for which the device remembers its first use.
    """

    messages: tuple[PreviewedMessage, ...]
    measured: tuple[ledger.MeasureUnderWay, ...] = ()
    ages: tuple[str, ...] = ()

    @property
    def reports(self) -> tuple[PreviewedReport, ...]:
        return tuple(report for message in self.messages for report in message.reports)

    def in_words(self) -> str:
        """Return all of it in sentences that a user can be shown."""
        lines = ["Nothing is to be sent."]
        if self.messages:
            lines = [_HIDDEN, *(each.in_words() for each in self.reports)]
        if self.measured:
            lines += [_MEASURED, *map(_measured_in_words, self.measured)]
        if self.ages:
            lines.append(f"{_REMEMBERED} {', '.join(self.ages)}.")
        return "\n".join(lines)

    __str__ = in_words


def preview(store: Store, original: Sender, now: int) -> Preview:
    """Return what flushes would send, one now and one whenever something is due."""
    # The copy is opened before the transaction: a fork keeps new stores away while it waits for
    # transactions.
    copy = _blank(store.plans.opened, store.own, store.clock)
    try:
        with store.transaction(READ) as connection:
            if store.stopped or not store.consented:
                return Preview(())
            connection.backup(copy.database.connected())
            copy.plans = store.plans.copy()
        with copy.transaction(READ) as memory:
            copy.adopt(memory)
        publisher = MemoryPublisher()
        return _played(copy, original.over(copy, publisher), publisher, now)
    finally:
        # The interrupted call may hold the copy until the interrupt has gone through.
        with suppress(StoreError):
            copy.close()


def preview_file(path: str | os.PathLike[str], now: int) -> Preview:
    """Return all that is still to be sent from a device's file, which is read and not changed.

    Values that an app's quota lets lapse before they are due are shown too: the file does not say
    what quota the app has. Raises StoreError if there is no such file, or it is no device's.
    """
    copy: Store | None = None
    try:
        with closing(ledger.reader(path)) as connection:
            schema.check(connection)
            ceilings = connection.execute(
                "SELECT ceiling_period, ceiling_lifetime FROM device"
            ).fetchone()
            numbers = connection.execute("SELECT id FROM plan ORDER BY id DESC").fetchall()
            if not numbers or rollback_guard.withdrawal(os.path.realpath(path)):
                return Preview(())
            plan = stored_plan(connection, int(numbers[0][0]))
            copy = _blank(plan, Ceilings(*ceilings), lambda: now)
            connection.backup(copy.database.connected())
        # A file of an earlier release may lack tables.
        schema.prepare(copy.database.connected())
        with copy.transaction(READ) as memory:
            copy.adopt(memory)
        if not copy.consented:
            return Preview(())
        publisher = MemoryPublisher()
        return _played(copy, Sender(copy, publisher), publisher, now)
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise StoreError(f"{os.fspath(path)} cannot be read as a device's file: {error}") from error
    finally:
        if copy is not None:
            copy.close()


def _blank(plan: CompiledPlan, own: Ceilings, clock: Callable[[], int]) -> Store:
    """Return an empty store in memory, into which another store's content can be copied."""
    copy = Store(None, plan, own, SystemSource(), clock)
    copy.database.open(copy)
    return copy


def _played(copy: Store, sender: Sender, publisher: MemoryPublisher, now: int) -> Preview:
    """Send what a copy of a store holds, into memory, and return what that was."""
    messages: list[PreviewedMessage] = []
    moment = now
    with copy.transaction(WRITE) as memory:
        measured = ledger.under_way(memory, copy.plans.get)
        ages = tuple(name for (name,) in memory.execute("SELECT tally FROM first_use ORDER BY 1"))
        # A measure's answer is drawn once, and not for a preview.
        measures.erase(memory)
    while True:
        sender.flush(moment, FlushTask())
        plans = copy.plans.by_fingerprint()
        messages += [_read(*each, moment, plans) for each in publisher.messages]
        publisher.messages.clear()
        following = copy.next_due(moment)
        if following is None:
            return Preview(tuple(messages), measured, ages)
        moment = following


def meaning(metric: CompiledMetric, row: Row) -> str:
    """Return what a payload says, a randomized output, in words that its device can show."""
    return metric.mechanism.describe(row.payload, row.chain, row.pseudonym, metric.context())


def _measured_in_words(measure: ledger.MeasureUnderWay) -> str:
    return (
        f"{minute(measure.end)}: {measure.metric}, {measure.measure} (epsilon "
        f"{epsilon(measure.reserved)} in all)"
    )


def _read(shard: int, data: bytes, due: int, plans: dict[bytes, CompiledPlan]) -> PreviewedMessage:
    message = decode_message(data)
    plan = plans[message.fingerprint]
    reports = [
        PreviewedReport(
            metric=f"{plan.plan}/{metric.name}",
            level=row.level + 1,
            levels=metric.sent,
            epsilon=metric.mechanism.certified(row.level),
            event=row.event,
            due=due,
            meaning=meaning(metric, row),
            pseudonym=row.pseudonym,
            chain=row.chain,
            payload=row.payload,
            description=metric.description or "",
            segment=cell_label(plan.attributes, message.cell),
        )
        for run in message.groups
        for metric in (plan.metrics[run.metric],)
        for row in run.rows
    ]
    return PreviewedMessage(due, shard, data, tuple(reports))
