"""Sends what is due: charge, then publish, then mark as delivered.

A rung is a release; of a chain that has several due at once, the newest alone is sent. It
supersedes the weaker ones, which would cost bytes and tell the aggregator nothing more, and the
charge is the same. Rungs therefore never leave a device out of order.

If the process dies between charge and delivery the same bytes are sent again, and nothing is
charged twice: what is charged belongs to the chain.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clientsdk import backoff, draws, spool
from clientsdk.database import Access
from clientsdk.errand import Errand
from clientsdk.outcomes import FlushResult, Lapses
from clientsdk.publishers import Buffered, Publisher, Revocable
from clientsdk.ratchet import Identity
from clientsdk.spool import Chain
from clientsdk.store import Store
from clientsdk.turns import ElsewhereError, Rest, Turn, Whose
from mechanisms.coins import shard_of
from mechanisms.randomness import SystemSource
from sotto.errors import PublishError, SottoError, StoreError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import GROUP, HEADER, MAX_MESSAGE, TRAILER, Row, encode_message, row_size
from sotto.wire.signatures import SEED_BYTES, Signer, require_signatures

BATCH = 4096
_NOBODY = Identity(b"")


class Report(NamedTuple):
    """A rung that is charged for: its chain as it now is in the store, plan, metric and row."""

    chain: Chain
    plan: CompiledPlan
    metric: CompiledMetric
    row: Row

    def __repr__(self) -> str:
        """Return what it is about, without the payload."""
        return f"Report({self.chain!r}, level={self.row.level})"


class Batch(NamedTuple):
    """What one transaction has charged for, and what it erased instead.

    Attributes
    ----------
    reports : list of Report
    lapses : Lapses
    consents : int
        The store's number of the consent under which the reports may leave.
    more : bool
        Whether more may be due.
    signers : dict of int to Signer
        Of the periods in which there are reports to be signed.
    """

    reports: list[Report]
    lapses: Lapses
    consents: int
    more: bool
    signers: dict[int, Signer]


class Sender:
    """Sends the due rungs of a store.

    Parameters
    ----------
    store : Store
    period_ms : int
        How long a budget period is, in milliseconds.
    publisher : Publisher
    age : int, optional
        Milliseconds after which a chain that could not be delivered is erased.
    """

    def __init__(
        self, store: Store, period_ms: int, publisher: Publisher, age: int | None = None
    ) -> None:
        self._store = store
        self._period_ms = period_ms
        self._publisher = publisher
        self._age = age
        self._turn = Turn(store.path)
        self._thread: int | None = None
        # Asking a protocol at each flush would cost more than the flush.
        self._buffered = publisher if isinstance(publisher, Buffered) else None
        self._unreadable: dict[int, StoreError] = {}

    def over(self, store: Store, publisher: Publisher) -> Sender:
        """Return a sender of another store that does as this one does."""
        return Sender(store, self._period_ms, publisher, self._age)

    def flush(self, now: int, errand: Errand) -> FlushResult:
        """Send the reports that are due at ``now``, in milliseconds since the epoch.

        Raises
        ------
        StoreError
            The store cannot even be read, or this is called in the middle of a flush, by its
            publisher or by a signal handler.
        """
        store = self._store
        store.check_process()
        if store.flushing and self._thread == threading.get_ident():
            raise StoreError("a flush of this store is under way in the same thread")
        try:
            if store.sending.acquire(timeout=min(errand.left, threading.TIMEOUT_MAX)):
                self._thread = threading.get_ident()
                return self._flush(now, errand)
        finally:
            # Without asking: an interrupt may have come right after it was acquired.
            with suppress(RuntimeError):
                store.sending.release()
        return self.unfinished(now, errand)

    def unfinished(self, now: int, errand: Errand) -> FlushResult:
        """Return the result of a flush that is not done in time.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        return FlushResult(errand.sent, self.remaining(now), errand.lapses, out_of_time())

    def _flush(self, now: int, errand: Errand) -> FlushResult:
        store = self._store
        try:
            store.flushing = True
            error: SottoError | None
            if self._turn.take(min(errand.patience, errand.left)):
                error = self._send(now, errand)
            else:
                error = ElsewhereError("another process is sending what is due")
            if errand.sent:
                store.clean()
            store.settle()
            remaining = self.remaining(now)
        finally:
            self._turn.give_back()
            store.flushing = False
        return FlushResult(
            errand.sent, remaining, errand.lapses, None if error is None else _bare(error)
        )

    def _send(self, now: int, errand: Errand) -> SottoError | None:
        """Send batch by batch; return what went wrong."""
        error: SottoError | None = None
        self._unreadable.clear()
        try:
            whose, more = self._choose(now, errand) if errand.alone else (None, True)
            while more and error is None:
                batch = self._charge(now, whose)
                errand.lapses += batch.lapses
                delivered, error = self._publish(batch, errand)
                self._mark_delivered(delivered)
                errand.sent += len(delivered)
                more = batch.more
        except SottoError as failure:
            error = failure
        return error or next(iter(self._unreadable.values()), None)

    def _choose(self, now: int, errand: Errand) -> tuple[Whose | None, bool]:
        """Return a pseudonym of which something is due, and whether anything may be sent now.

        While others rest it is the one that was chosen last; later the most urgent one or, if
        none is urgent, each is as likely as any other. If several are due, the others begin to
        rest before anything is sent: an attempt that seems to fail may have arrived. A pseudonym
        whose chains are all too late has nothing to send: they are erased, and nothing rests.
        """
        with self._store.transaction(Access.READ) as connection:
            due = self._due(connection, now)
            window = max([errand.window, *self._resolutions(connection, now)])
        slack = {whose: left for whose, left in due.items() if left is not None}
        for lapsed in sorted(due.keys() - slack.keys()):
            errand.lapses += self._charge(now, lapsed).lapses
        rest = self._turn.rest
        # Where the clock was set back, it would last too long.
        if rest is not None and rest.since <= now < rest.until:
            errand.rest = (rest.until - now) / 1000
            return rest.whose, rest.whose in slack or not due
        if not slack:
            return None, not due
        # Half of the time that is left is enough for all of them.
        windows = {whose: left // (2 * len(slack)) for whose, left in slack.items()}
        chosen = _first(windows, window)
        del windows[chosen]
        if windows:
            until = now + int(min(window, *windows.values()) * backoff.chance())
            self._turn.rest = Rest(chosen, now, until)
            errand.rest = (until - now) / 1000
        return chosen, True

    def _due(self, connection: sqlite3.Connection, now: int) -> dict[Whose, int | None]:
        """Return the pseudonyms with due chains, and how many milliseconds each still has.

        That is the time until its first chain is too late. Chains that already are too late do
        not count; a pseudonym that has no others has None.
        """
        moment = self._moment(now)
        oldest = -(2**63) if self._age is None else moment - self._age
        due: dict[Whose, int | None] = {}
        for period, number, metric, event, first in spool.due_events(connection, moment, oldest):
            plan = self._plan(connection, number)
            whose = Whose(period, plan is not None and plan.signed)
            before = due.setdefault(whose, None)
            left = -1 if plan is None or first is None else _time_left(plan, metric, event, moment)
            if self._age is not None and first is not None:
                left = min(left, first + self._age - moment)
            if left >= 0:
                due[whose] = left if before is None else min(before, left)
        return due

    def _resolutions(self, connection: sqlite3.Connection, now: int) -> list[int]:
        """Return the resolutions of the plans of what is due: other clients' may be coarser."""
        numbers = {number for _, number in spool.due_plans(connection, self._moment(now))}
        plans = (self._plan(connection, number) for number in sorted(numbers))
        return [plan.resolution for plan in plans if plan is not None]

    def _of_others(self, connection: sqlite3.Connection, whose: Whose, moment: int) -> set[int]:
        """Return the plans whose chains of that period go under its other pseudonym."""
        return {
            number
            for period, number in spool.due_plans(connection, moment)
            for plan in (self._plan(connection, number),)
            if period == whose.period and plan is not None and plan.signed is not whose.signed
        }

    def _moment(self, now: int) -> int:
        # A clock that was set back does not take the ledger's period back.
        return max(now, self._store.period * self._period_ms)

    def remaining(self, now: int) -> int:
        """Return how many reports are due.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        with self._store.transaction(Access.READ) as connection:
            return spool.count_due(connection, self._moment(now))

    def _charge(self, now: int, whose: Whose | None) -> Batch:
        """Charge for what is due, of all pseudonyms or one, and erase what has lapsed."""
        store = self._store
        reports: list[Report] = []
        lapsed: list[Chain] = []
        reasons: Counter[str] = Counter()
        signers: dict[int, Signer] = {}
        with store.transaction(Access.DURABLE) as connection:
            store.advance(connection, now // self._period_ms)
            if store.stopped or not store.consented:
                return Batch(reports, Lapses(), store.consents, False, signers)
            moment = self._moment(now)
            reasons["expired"] += store.expire(connection, now) if now >= store.expiry else 0
            others = set() if whose is None else self._of_others(connection, whose, moment)
            without, period = others.union(self._unreadable), whose and whose.period
            chains = spool.due(connection, moment, BATCH, without, period)
            names = spool.identities(connection) if chains else {}
            for chain in chains:
                plan = self._plan(connection, chain.plan)
                if plan is None:
                    continue
                name = names.get((chain.period, plan.signed), _NOBODY)
                reason = self._lapse(chain, plan, name, moment)
                if reason is None:
                    report = _newest_due(chain, plan, name.pseudonym, moment)
                    if name.seed is not None and chain.period not in signers:
                        signers[chain.period] = Signer(name.seed)
                    if self._pay(connection, chain, report):
                        reports.append(report)
                        continue
                    reason = "ceiling"
                reasons[reason] += 1
                lapsed.append(chain)
            spool.mark(connection, [report.chain for report in reports])
            if lapsed:
                # Rungs that were never released must not be left in the log either.
                spool.erase(connection, lapsed)
                store.forget_periods(connection)
                store.owe_erasure(connection)
        # With those that were erased before anything was to be sent.
        reasons["expired"] += store.lapsed
        store.lapsed = 0
        return Batch(reports, Lapses(**reasons), store.consents, len(chains) == BATCH, signers)

    def _lapse(self, chain: Chain, plan: CompiledPlan, name: Identity, moment: int) -> str | None:
        """Return why nothing of a chain may or need be sent any more, if that is so."""
        metric = _metric_of(chain, plan)
        if metric is None or not _is_whole(name):
            return "damaged"
        if plan.expired(moment):
            return "expired"
        if moment - chain.event > metric.horizon:
            return "late"
        if self._age is not None and moment - chain.due > self._age:
            return "overdue"
        return None

    def _plan(self, connection: sqlite3.Connection, number: int) -> CompiledPlan | None:
        """Return a plan, or None and remember why it cannot be read: its chains must wait."""
        if number in self._unreadable:
            return None
        try:
            plan = self._store.plan(connection, number)
            if plan.signed:
                require_signatures()
        except StoreError as error:
            self._unreadable[number] = error
            return None
        except ModuleNotFoundError as error:
            # A client of another plan has opened the file.
            self._unreadable[number] = StoreError(str(error))
            return None
        return plan

    def _pay(self, connection: sqlite3.Connection, before: Chain, report: Report) -> bool:
        """Charge for a report unless it has been paid; False if a lowered ceiling forbids it."""
        if report.chain.charged == before.charged:
            return True
        certified = report.metric.mechanism.certified
        cost = certified(report.chain.charged - 1)
        if before.charged:
            cost -= certified(before.charged - 1)
        degraded = report.metric.kind == "constant"
        return self._store.charge(connection, before.period, cost, degraded=degraded)

    def _publish(self, batch: Batch, errand: Errand) -> tuple[list[Report], PublishError | None]:
        """Publish reports; return those that the publisher has taken for good."""
        published: list[Report] = []
        error: PublishError | None = None
        try:
            for shard, message, contents in _messages(batch):
                if not self._may_leave(batch):
                    break
                if not errand.left:
                    error = out_of_time()
                    break
                with _its_own_errors():
                    self._publisher.publish(shard, message)
                published += contents
        except PublishError as failure:
            error = failure
        if published and self._buffered is not None:
            try:
                return self._synced(batch, published, self._buffered), error
            except PublishError as failure:
                return [], failure
        return published, error

    def _synced(self, batch: Batch, published: list[Report], buffered: Buffered) -> list[Report]:
        """Return what is safe: all of it, or nothing where consent was withdrawn meanwhile."""
        if self._may_leave(batch):
            with _its_own_errors():
                buffered.sync()
            return published
        if isinstance(buffered, Revocable):
            with _its_own_errors():
                buffered.discard()
        return []

    def _may_leave(self, batch: Batch) -> bool:
        """Whether consent stands, and has stood ever since the batch was read."""
        store = self._store
        with store.transaction(Access.READ):
            stands = store.consented and store.consents == batch.consents
        return stands and not store.stopped and not store.withdrawal_noted()

    def _mark_delivered(self, reports: list[Report]) -> None:
        """Erase the chains that are through; note of the others when their next rung is due."""
        if not reports:
            return
        through: list[Chain] = []
        waiting: list[tuple[Chain, int]] = []
        for chain, plan, metric, _ in reports:
            if chain.charged == metric.sent:
                through.append(chain)
            else:
                waiting.append((chain, due_time(chain, plan, metric.ladder[chain.charged].after)))
        with self._store.transaction(Access.WRITE) as connection:
            spool.postpone(connection, waiting)
            spool.erase(connection, through)
            if through:
                self._store.forget_periods(connection)


def _time_left(plan: CompiledPlan, metric: int, event: int, moment: int) -> int:
    """Return how many milliseconds a chain may still be sent, below 0 if it is too late."""
    if plan.expired(moment) or not 0 <= metric < len(plan.metrics):
        return -1
    return min(event + plan.metrics[metric].horizon, plan.expires) - moment


def _first(windows: dict[Whose, int], window: int) -> Whose:
    """Return the pseudonym that goes first.

    Parameters
    ----------
    windows : dict of Whose to int
        How long each may rest, in milliseconds. One that may not rest for ``window`` is urgent:
        the most urgent one goes first. If none is, each is as likely as any other.
    window : int
    """
    urgent = min(windows, key=windows.__getitem__)
    if windows[urgent] < window:
        return urgent
    return sorted(windows)[draws.below(SystemSource(), len(windows))]


def due_time(chain: Chain, plan: CompiledPlan, after: int) -> int:
    """Return when a rung released ``after`` so many milliseconds is due."""
    return chain.event + plan.resolution + chain.jitter + after


def _metric_of(chain: Chain, plan: CompiledPlan) -> CompiledMetric | None:
    """Return a chain's metric, None where the chain cannot be one that was drawn under it."""
    if not 0 <= chain.metric < len(plan.metrics):
        return None
    metric = plan.metrics[chain.metric]
    width = metric.mechanism.payload_width
    return metric if len(chain.payloads) == metric.sent * width else None


def _is_whole(name: Identity) -> bool:
    """Whether what the store has of a period could be a pseudonym and a seed."""
    return len(name.pseudonym) == 16 and (name.seed is None or len(name.seed) == SEED_BYTES)


@contextmanager
def _its_own_errors() -> Iterator[None]:
    """Make of whatever a publisher raises what its protocol lets it raise.

    No more of it than its name: its text and its frames may hold a message.
    """
    try:
        yield
    except PublishError:
        raise
    except Exception as error:
        raise PublishError(f"the publisher raised {type(error).__name__}") from None


def _bare(error: SottoError) -> SottoError:
    """Take from an error what leads to frames, where payloads are."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def out_of_time() -> PublishError:
    """Return the error of what was not done in the time that it was given."""
    return PublishError("the time was up before everything was sent")


def _newest_due(chain: Chain, plan: CompiledPlan, pseudonym: bytes, moment: int) -> Report:
    """Return the newest rung that is due."""
    metric = plan.metrics[chain.metric]
    start = due_time(chain, plan, 0)
    due = sum(start + after <= moment for after in metric.delays)
    # A rung that was charged for before a clock was set back is still the newest.
    level = max(due, chain.charged) - 1
    width = metric.mechanism.payload_width
    payload = chain.payloads[level * width : (level + 1) * width]
    row = Row(level, pseudonym, chain.id, chain.event, payload)
    return Report(chain._replace(charged=level + 1), plan, metric, row)


def _messages(batch: Batch) -> Iterator[tuple[int, bytes, list[Report]]]:
    """Yield shard, bytes and contents of messages, each of one pseudonym and one plan."""
    groups: dict[tuple[int, int], list[Report]] = {}
    for report in batch.reports:
        groups.setdefault((report.chain.period, report.chain.plan), []).append(report)
    for (period, _), group in groups.items():
        signer = batch.signers[period] if group[0].plan.signed else None
        group.sort(key=lambda report: report.metric.index)
        part: list[Report] = []
        least = HEADER.size + (0 if signer is None else TRAILER)
        size = least
        for report in group:
            row = row_size(len(report.row.payload))
            if size + GROUP.size + row > MAX_MESSAGE:
                yield _message(part, signer)
                part, size = [], least
            size += row
            if not part or part[-1].metric is not report.metric:
                size += GROUP.size
            part.append(report)
        yield _message(part, signer)


def _message(part: list[Report], signer: Signer | None) -> tuple[int, bytes, list[Report]]:
    plan = part[0].plan
    runs: dict[int, list[Row]] = {}
    for report in part:
        runs.setdefault(report.metric.index, []).append(report.row)
    shard = shard_of(part[0].row.pseudonym, plan.shards)
    return shard, encode_message(plan.fingerprint, shard, runs.items(), signer), part
