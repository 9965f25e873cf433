"""Sends what is due: charge, then publish, then note the delivery.

Several levels of a chain that are due at once are sent as the newest alone: it supersedes the
weaker ones, and the charge is the same. Levels therefore never leave a device out of order. If the
process dies between charge and delivery the same bytes are sent again, and nothing is charged
twice: what is charged belongs to the chain.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from math import inf
from operator import attrgetter
from sqlite3 import Connection
from time import monotonic

from clientsdk.outcomes import NO_LAPSES, FlushResult, Lapses
from clientsdk.publishers import is_buffered, is_revocable
from clientsdk.sending import backoff
from clientsdk.sending.lock import Pseudonym, Rest, SendLock, Wait
from clientsdk.sending.tasks import FlushTask, SentElsewhereError, out_of_time
from clientsdk.store import outbox
from clientsdk.store.database import DURABLE, READ, WRITE
from clientsdk.store.device_secrets import Identity
from clientsdk.store.outbox import StoredChain
from clientsdk.store.plans import made_once
from clientsdk.store.store import Store
from mechanisms.coins import shard_of
from mechanisms.frozen import NamedTuple
from mechanisms.randomness import SystemSource, uniform_below
from sotto.errors import PublishError, SottoError, StoreError
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.wire.format import GROUP, HEADER, MAX_MESSAGE, TRAILER, Row, encode_message, row_size
from sotto.wire.signatures import SEED_BYTES, Signer, require_signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.publishers import Buffered, Publisher

BATCH = 4096
#: Milliseconds after which the end of a wait counts as missed: the device slept, or was off.
MISSED = 60_000
#: Failures in a row beyond which no wait becomes longer.
MANY = 31
_NO_IDENTITY = Identity(b"")
_new = tuple.__new__
_period_and_plan = attrgetter("period", "plan")
_of_message = attrgetter("chain.period", "chain.plan", "chain.cell")
_by_metric = attrgetter("chain.metric")


class Report(NamedTuple):
    """A level that is charged for: its chain as it now is in the store, plan, metric and row."""

    chain: StoredChain
    plan: CompiledPlan
    metric: CompiledMetric
    row: Row

    def __repr__(self) -> str:
        return f"Report({self.chain!r}, level={self.row.level})"


class Due(NamedTuple):
    """How many ms are left until the first due chain of one pseudonym is too late."""

    left: int | None  #: Among all; None if all are too late already.
    untried: int | None  #: Among those due since the last attempt; None if there are none.


class ChargedBatch(NamedTuple):
    """The rows that one transaction has charged for, and those that it erased instead."""

    reports: list[Report]
    lapses: Lapses
    consents: int  #: The store's number of the consent under which the reports may leave.
    more: bool  #: Whether more may be due.
    signers: dict[int, Signer]  #: By period in which there are reports to be signed.


class Sender:
    """Sends the due levels of a store.

    ``age`` is how many milliseconds after its due time a chain that could not be delivered is
    erased.
    """

    def __init__(self, store: Store, publisher: Publisher, age: int | None = None) -> None:
        self._store = store
        self._publisher = publisher
        self._age = age
        self._lock = SendLock(store.path)
        self._thread: int | None = None
        # Asking a protocol at each flush would cost more than the flush.
        self._buffered = publisher if is_buffered(publisher) else None
        #: Closes the connection of a publisher that keeps one while a flush lasts.
        self._end_flush = getattr(publisher, "_end_flush", lambda: None)
        self._unreadable: dict[int, StoreError] = {}

    def over(self, store: Store, publisher: Publisher) -> Sender:
        return Sender(store, publisher, self._age)

    def flush(self, now: int, task: FlushTask) -> FlushResult:
        """Send the reports that are due at ``now``, in milliseconds since the epoch, or raise
        StoreError.
        """
        database = self._store.database
        database.check_process()
        if database.flushing and self._thread == threading.get_ident():
            raise StoreError("a flush of this store is under way in the same thread")
        try:
            if database.sending.acquire(timeout=min(task.left, threading.TIMEOUT_MAX)):
                self._thread = threading.get_ident()
                return self._flush(now, task)
        finally:
            # Released without a test of a flag: an interrupt may have come right after it was
            # acquired. There is no call before the release, since interrupts arrive at calls.
            try:  # noqa: SIM105
                database.sending.release()
            except RuntimeError:
                pass
        return self.unfinished(now, task)

    def unfinished(self, now: int, task: FlushTask) -> FlushResult:
        return FlushResult(task.sent, self._store.remaining(now), task.lapses, out_of_time())

    def _flush(self, now: int, task: FlushTask) -> FlushResult:
        store = self._store
        try:
            store.database.flushing = True
            error: SottoError | None
            if self._lock.take(min(task.patience, task.left)):
                error = self._send(now, task)
                self._end_flush()
            else:
                error = SentElsewhereError("another process is sending what is due")
            if task.sent:
                store.erasure.clean_log()
            store.finish_erasure()
            remaining = store.remaining(now)
        finally:
            try:
                self._lock.release()
            finally:
                store.database.flushing = False
        return FlushResult(
            task.sent, remaining, task.lapses, None if error is None else bare(error)
        )

    def _send(self, now: int, task: FlushTask) -> SottoError | None:
        error: SottoError | None = None
        attempt: Pseudonym | None = None
        begun = monotonic()
        self._unreadable.clear()
        try:
            only, more = self._choose(now, task) if task.one_pseudonym else (None, True)
            attempt = only
            while more and error is None:
                batch = self._charge(now, only, task.through)
                if batch.lapses is not NO_LAPSES:
                    task.lapses += batch.lapses
                delivered, error = self._publish(batch, task)
                self._note_delivery(delivered)
                task.sent += len(delivered)
                more = batch.more
        except SottoError as failure:
            error = failure
        if attempt is not None:
            self._conclude(attempt, now, 1000 * int(monotonic() - begun), task, error)
        return error or next(iter(self._unreadable.values()), None)

    def _choose(self, now: int, task: FlushTask) -> tuple[Pseudonym | None, bool]:
        """Return the pseudonym whose turn it is, or None, and whether to go on.

        A flush does not go on if all that is due has to wait. Pseudonyms with something that was
        not tried yet take turns, whatever became of others' attempts. While the others rest, the
        turn is that of the one chosen last; afterwards the most urgent one is chosen or, if none is
        urgent, any of them with the same probability. If several are due, the others begin to rest
        before anything is sent: an attempt that seems to fail may have arrived. A pseudonym whose
        attempt failed waits by itself, and takes no turn from another. If all chains of a pseudonym
        are too late, they are erased, and no other rests for it.
        """
        latest = self._latest_end(now)
        kept = {
            name: wait
            for name, wait in self._lock.waits.items()
            if wait.since <= now and wait.until <= latest
        }
        due, resolution = self._due(now, kept)
        window = max(task.window, resolution)
        slack = {name: each.left for name, each in due.items() if each.left is not None}
        for lapsed in sorted(due.keys() - slack.keys()):
            task.lapses += self._charge(now, lapsed).lapses
        # Turns go by what was not tried yet: the answer to one pseudonym must not move another.
        untried = {name: each.untried for name, each in due.items() if each.untried is not None}
        waits = {name: wait for name, wait in kept.items() if name in slack}
        chosen = self._turn(untried, now, window, task)
        if task.backs_off:
            self._delay_missed(waits, slack, now, window, alone=not untried and not task.rest)
        if chosen in waits:
            waits[chosen] = waits[chosen]._replace(since=now)
            if waits[chosen].until > now:
                chosen = None
        if chosen is None:
            ready = [pseudonym for pseudonym, wait in waits.items() if wait.until <= now]
            chosen = min(ready, key=lambda each: waits[each].until, default=None)
            if chosen is not None:
                # Reports that came due since have a turn of their own.
                task.through = waits[chosen].since
        self._keep_waits(waits, now, task)
        if chosen is not None:
            task.slack = slack[chosen]
        return chosen, chosen is not None or not due

    def _turn(
        self, untried: dict[Pseudonym, int], now: int, window: int, task: FlushTask
    ) -> Pseudonym | None:
        """Return the pseudonym with something untried whose turn it is; the others begin to rest.

        None is returned if there is none, or if it is the turn of one that has nothing untried.
        """
        rest = self._lock.rest
        # A rest would last too long if the clock was set back or the file is damaged.
        if rest is not None and rest.since <= now < rest.until <= self._latest_end(now):
            task.rest = (rest.until - now) / 1000
            return rest.pseudonym if rest.pseudonym in untried else None
        if not untried:
            return None
        # Half of the time that is left is enough for all of them.
        windows = {pseudonym: left // (2 * len(untried)) for pseudonym, left in untried.items()}
        chosen = _first(windows, window)
        del windows[chosen]
        if windows:
            until = now + int(min(window, *windows.values()) * backoff.chance())
            self._lock.rest = Rest(chosen, now, until)
            task.rest = (until - now) / 1000
        return chosen

    def _latest_end(self, now: int) -> int:
        """Return when a wait or a rest ends at the latest (ms): a damaged file may say more."""
        longest = max(int(1000 * backoff.LONGEST), self._store.plans.opened.resolution)
        return now + int(1000 * backoff.LONGEST_HINT) + longest

    def _delay_missed(
        self,
        waits: dict[Pseudonym, Wait],
        slack: dict[Pseudonym, int],
        now: int,
        window: int,
        *,
        alone: bool,
    ) -> None:
        """Draw new ends for waits whose ends were missed by far: they must not be sent together.

        If they are ``alone``, with nothing else that may be sent now, one of them keeps its end and
        is sent. Without that, an app that runs for moments at a time would miss every end.
        """
        ready = sum(wait.until <= now for wait in waits.values())
        missed = {name: slack[name] for name, wait in waits.items() if wait.until < now - MISSED}
        if missed and alone and ready == len(missed):
            del missed[_first(missed, 2 * window)]
        for name, left in missed.items():
            most = min(window, left // 2)
            waits[name] = waits[name]._replace(until=now + int(most * backoff.chance()))

    def _keep_waits(self, waits: dict[Pseudonym, Wait], now: int, task: FlushTask) -> None:
        if waits != self._lock.waits:
            self._lock.waits = waits
        task.again = min((max(0, each.until - now) / 1000 for each in waits.values()), default=inf)

    def _conclude(
        self, pseudonym: Pseudonym, begun: int, took: int, task: FlushTask, error: SottoError | None
    ) -> None:
        """Have a pseudonym wait if its attempt failed; others' turns do not depend on it.

        Reports that come due while an attempt lasts are no part of it.
        """
        now = begun + took
        waits = self._lock.waits
        if isinstance(error, PublishError):
            since, _, failures = waits.get(pseudonym, Wait(begun, begun, 0))
            failures = min(failures + 1, MANY)
            seconds = 0.0
            if task.backs_off:
                # A wait lasts as long as a turn may be put off: an outage brings no two together.
                longest = min(max(backoff.LONGEST, task.window / 1000), task.slack / 2000)
                longest = max(backoff.FIRST, longest)
                seconds = backoff.delay(failures, error.retry_after, longest)
            waits[pseudonym] = Wait(since, now + int(seconds * 1000), failures)
        elif error is None:
            waits.pop(pseudonym, None)
        self._keep_waits(waits, now, task)

    def _due(self, now: int, waits: dict[Pseudonym, Wait]) -> tuple[dict[Pseudonym, Due], int]:
        """Return how urgent each pseudonym with due chains is, and the coarsest resolution.

        The resolution is that of the plans of all that was not tried yet, 0 if there is nothing.
        """
        due: dict[Pseudonym, Due] = {}
        resolution = 0
        with self._store.transaction(READ) as connection:
            moment = self._store.moment(now)
            oldest = -(2**63) if self._age is None else moment - self._age
            rows = outbox.due_events(connection, now, oldest)
            tried = {name: wait.since for name, wait in waits.items()}
            renewed = self._renewed(connection, now, tried)
            for period, number, metric, event, first, newest in rows:
                plan = self._plan(connection, number)
                pseudonym = Pseudonym(period, plan is not None and plan.signed)
                before = due.setdefault(pseudonym, Due(None, None))
                if plan is None or first is None:
                    continue
                left = _time_left(plan, metric, event, moment)
                if self._age is not None:
                    left = min(left, first + self._age - moment)
                if left < 0:
                    continue
                untried = before.untried
                since = tried.get(pseudonym, -(2**63))
                if newest > since or (period, number, metric, event) in renewed:
                    resolution = max(resolution, plan.resolution)
                    untried = left if untried is None else min(untried, left)
                due[pseudonym] = Due(
                    left if before.left is None else min(before.left, left), untried
                )
        return due, resolution

    def _renewed(
        self, connection: Connection, now: int, tried: dict[Pseudonym, int]
    ) -> set[tuple[int, int, int, int]]:
        """Return period, plan, metric and event of chains of which a level came due since."""
        renewed = set()
        for (period, signed), since in tried.items():
            for number, index, event, jitter in outbox.due_jitters(connection, since, period):
                plan = self._plan(connection, number)
                if plan is None or plan.signed is not signed or not 0 <= index < len(plan.metrics):
                    continue
                delays, begun = plan.metrics[index].delays, event + plan.resolution + jitter
                if bisect_right(delays, now - begun) > bisect_right(delays, since - begun):
                    renewed.add((period, number, index, event))
        return renewed

    def _of_others(self, connection: Connection, pseudonym: Pseudonym, now: int) -> set[int]:
        """Return the plans whose chains of that period go by the period's other pseudonym."""
        numbers = outbox.due_plans(connection, now, pseudonym.period)
        plans = {number: self._plan(connection, number) for number in numbers}
        return {
            number
            for number, plan in plans.items()
            if plan is not None and plan.signed is not pseudonym.signed
        }

    def _charge(self, now: int, only: Pseudonym | None, through: int | None = None) -> ChargedBatch:
        """Charge for what is due, of all pseudonyms or one, and erase what has lapsed.

        Chains count as due that were due at ``through`` or, if that is None, at ``now``.
        """
        through = now if through is None else through
        store = self._store
        reports: list[Report] = []
        lapsed: list[StoredChain] = []
        reasons: list[str] = []
        signers: dict[int, Signer] = {}
        with store.transaction(DURABLE) as connection:
            store.follow(connection, now)
            if store.stopped or not store.consented:
                return ChargedBatch(reports, NO_LAPSES, store.consents, False, signers)
            moment = store.moment(now)
            if now >= store.plans.next_expiry:
                reasons += ["expired"] * store.expire(connection, now)
            others = set() if only is None else self._of_others(connection, only, now)
            without, period = others.union(self._unreadable), only and only.period
            chains = outbox.due(connection, through, BATCH, without, period)
            identities = outbox.identities(connection) if chains else {}
            ceilings = store.lowest_ceilings()
            plans = {n: self._plan(connection, n) for n in {chain.plan for chain in chains}}
            for (period, number), of_one in groupby(chains, _period_and_plan):
                plan = plans[number]
                if plan is None:
                    continue
                identity = identities.get((period, plan.signed), _NO_IDENTITY)
                whole = _is_whole(identity)
                if whole and identity.seed is not None and period not in signers:
                    signers[period] = Signer(identity.seed)
                found: list[tuple[StoredChain, Report]] = []
                for chain in of_one:
                    reason = self._lapse(chain, plan, moment) if whole else "damaged"
                    if reason is None:
                        report = _newest_due(chain, plan, identity.pseudonym, through)
                        if report.chain.charged:
                            found.append((chain, report))
                            continue
                        # The file has the chain as due, and none of its levels is.
                        reason = "damaged"
                    reasons.append(reason)
                    lapsed.append(chain)
                if self._pay(connection, period, found, ceilings):
                    reports += [report for _, report in found]
                    continue
                # A lowered ceiling forbids all of them together, perhaps not each.
                for chain, report in found:
                    if self._pay(connection, period, [(chain, report)], ceilings):
                        reports.append(report)
                    else:
                        reasons.append("ceiling")
                        lapsed.append(chain)
            outbox.write_charged(connection, [report.chain for report in reports])
            if lapsed:
                # Levels that were never released must not be left in the log either.
                outbox.erase(connection, lapsed)
                store.forget_periods(connection)
                store.erasure.schedule(connection)
        lapses = NO_LAPSES
        if reasons or store.lapsed or store.misdated:
            # Chains that the store erased since the last flush are counted here too.
            lapses = Lapses(**Counter(reasons)) + Lapses(expired=store.lapsed, clock=store.misdated)
            store.lapsed = store.misdated = 0
        return ChargedBatch(reports, lapses, store.consents, len(chains) == BATCH, signers)

    def _lapse(self, chain: StoredChain, plan: CompiledPlan, moment: int) -> str | None:
        if not 0 <= chain.metric < len(plan.metrics):
            return "damaged"
        metric = plan.metrics[chain.metric]
        width = metric.sent * metric.payload_width
        fits = len(chain.payloads) == width and 0 <= chain.cell < plan.cells
        if not (fits and 0 <= chain.charged <= metric.sent):
            # No chain that was drawn under the plan is like that.
            return "damaged"
        if moment >= plan.expires:
            return "expired"
        if moment - chain.event > metric.horizon:
            return "late"
        return "overdue" if self._age is not None and moment - chain.due > self._age else None

    def _plan(self, connection: Connection, number: int) -> CompiledPlan | None:
        """Return a plan, or None and remember why it cannot be read: its chains must wait."""
        if number in self._unreadable:
            return None
        try:
            plan = self._store.plans.get(connection, number)
            if plan.signed:
                require_signatures()
        except StoreError as error:
            self._unreadable[number] = error
            return None
        except ModuleNotFoundError as error:
            # This client was opened with another plan, whose reports are not signed.
            self._unreadable[number] = StoreError(str(error))
            return None
        return plan

    def _pay(
        self,
        connection: Connection,
        period: int,
        found: list[tuple[StoredChain, Report]],
        ceilings: Ceilings,
    ) -> bool:
        """Charge for the reports of a period that are not paid for yet; return whether it can.

        ``found`` has each report with its chain as it was before. Either all are charged for or,
        where a lowered ceiling forbids that, none.
        """
        paid, cost, degraded = True, 0, 0
        for before, report in found:
            after, costs = report.chain.charged, report.metric.costs
            if after != before.charged:
                added = costs[after - 1] - (costs[before.charged - 1] if before.charged else 0)
                paid, cost = False, cost + added
                if report.metric.kind == "constant":
                    degraded += added
        return paid or self._store.accounts.spend(connection, period, cost, ceilings, degraded)

    def _publish(
        self, batch: ChargedBatch, task: FlushTask
    ) -> tuple[list[Report], PublishError | None]:
        published: list[Report] = []
        error: PublishError | None = None
        try:
            for shard, message, contents in _messages(batch):
                if not self._may_leave(batch):
                    break
                if not task.left:
                    error = out_of_time()
                    break
                _publish_errors_only(self._publisher.publish, shard, message)
                published += contents
        except PublishError as failure:
            error = failure
        if published and self._buffered is not None:
            try:
                return self._synced(batch, published, self._buffered), error
            except PublishError as failure:
                return [], failure
        return published, error

    def _synced(
        self, batch: ChargedBatch, published: list[Report], buffered: Buffered
    ) -> list[Report]:
        """Return the reports that are handed over for good: all, or none without consent."""
        if self._may_leave(batch):
            _publish_errors_only(buffered.sync)
            return published
        if is_revocable(buffered):
            _publish_errors_only(buffered.discard)
        return []

    def _may_leave(self, batch: ChargedBatch) -> bool:
        """Whether consent stands, and has stood ever since the batch was read."""
        store = self._store
        with store.transaction(READ):
            stands = store.consented and store.consents == batch.consents
        return stands and not store.stopped and not store.guard.withdrawal_noted()

    def _note_delivery(self, reports: list[Report]) -> None:
        """Erase chains whose last level was sent; write when the others' next level is due."""
        if not reports:
            return
        through: list[StoredChain] = []
        waiting: list[tuple[StoredChain, int]] = []
        for report in reports:
            chain, plan, metric, _ = report
            if chain.charged == metric.sent:
                through.append(chain)
            else:
                waiting.append((chain, due_time(chain, plan, metric.delays[chain.charged])))
        with self._store.transaction(WRITE) as connection:
            outbox.postpone(connection, waiting)
            outbox.erase(connection, through)
            if through:
                self._store.forget_periods(connection)
        # There may be room for values again.
        self._store.refusals.clear()


def _time_left(plan: CompiledPlan, metric: int, event: int, moment: int) -> int:
    if plan.expired(moment) or not 0 <= metric < len(plan.metrics):
        return -1
    return min(event + plan.metrics[metric].horizon, plan.expires) - moment


def _first(windows: dict[Pseudonym, int], window: int) -> Pseudonym:
    """Return the pseudonym that goes first: the most urgent below ``window``, or any by chance."""
    urgent = min(windows, key=windows.__getitem__)
    if windows[urgent] < window:
        return urgent
    return sorted(windows)[uniform_below(len(windows), SystemSource())]


def due_time(chain: StoredChain, plan: CompiledPlan, after: int) -> int:
    return chain.event + plan.resolution + chain.jitter + after


def _is_whole(identity: Identity) -> bool:
    seed = identity.seed
    return len(identity.pseudonym) == 16 and (seed is None or len(seed) == SEED_BYTES)


def _publish_errors_only(call: Callable[..., object], *arguments: object) -> None:
    """Turn what a publisher raises, which may hold a message, into a PublishError without it."""
    try:
        answer = call(*arguments)
        refused = answer is False or 300 <= _http_status(answer) < 600
        if refused or hasattr(answer, "__await__"):
            raise PublishError(
                "the publisher's methods must return once they are done, and raise PublishError "
                "where they fail; one returned False or a response of failure, or is async"
            )
    except PublishError:
        raise
    except Exception as error:
        asked = ": does it take publish(shard, message)?" if isinstance(error, TypeError) else ""
        raise PublishError(f"the publisher raised {type(error).__name__}{asked}") from None


def _http_status(answer: object) -> int:
    """Return the status of an HTTP response, 0 for anything else."""
    try:
        status = getattr(answer, "status_code", None) or getattr(answer, "status", None)
    except Exception:
        # A queue's task may look its state up, and fail; it was handed over all the same.
        return 0
    return status if isinstance(status, int) else 0


def bare(error: SottoError) -> SottoError:
    """Remove from an error what leads to frames, which hold payloads."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _newest_due(chain: StoredChain, plan: CompiledPlan, pseudonym: bytes, now: int) -> Report:
    # Made without ``_replace``, and without a call of Python each: there may be thousands.
    period, due, id, number, index, event, jitter, before, delivered, payloads, cell = chain
    metric = plan.metrics[index]
    charged = bisect_right(metric.delays, now - event - plan.resolution - jitter)
    if charged < before:
        # A level that was charged for before a clock was set back is still the newest.
        charged = before
    width = metric.payload_width
    payload = payloads[(charged - 1) * width : charged * width]
    row = _new(Row, (charged - 1, pseudonym, id, event, payload))
    after = period, due, id, number, index, event, jitter, charged, delivered, payloads, cell
    return _new(Report, (_new(StoredChain, after), plan, metric, row))


def _messages(batch: ChargedBatch) -> Iterator[tuple[int, bytes, list[Report]]]:
    """Yield shard, bytes and contents of messages, each of one pseudonym, plan and cell."""
    groups: dict[tuple[int, int, int], list[Report]] = {}
    for report in batch.reports:
        groups.setdefault(_of_message(report), []).append(report)
    for (period, *_), group in groups.items():
        signer = batch.signers[period] if group[0].plan.signed else None
        group.sort(key=_by_metric)
        least = HEADER.size + (0 if signer is None else TRAILER)
        if least + len(group) * made_once(group[0].plan, _most_of_one) <= MAX_MESSAGE:
            yield _message(group, signer)
            continue
        part: list[Report] = []
        size = least
        for report in group:
            row = row_size(report.metric.payload_width)
            if size + GROUP.size + row > MAX_MESSAGE:
                yield _message(part, signer)
                part, size = [], least
            size += row
            if not part or part[-1].metric is not report.metric:
                size += GROUP.size
            part.append(report)
        yield _message(part, signer)


def _most_of_one(plan: CompiledPlan) -> int:
    """Return how many bytes one report of a plan adds to a message, at most."""
    return GROUP.size + row_size(max(metric.payload_width for metric in plan.metrics))


def _message(part: list[Report], signer: Signer | None) -> tuple[int, bytes, list[Report]]:
    plan = part[0].plan
    runs: dict[int, list[Row]] = {}
    for report in part:
        runs.setdefault(report.chain.metric, []).append(report.row)
    shard = shard_of(part[0].row.pseudonym, plan.shards)
    cell = part[0].chain.cell
    return shard, encode_message(plan.fingerprint, shard, runs.items(), signer, cell), part
