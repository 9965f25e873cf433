"""The client: what an app sees of Sotto."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from clientsdk import complaints, disabled, recovery, schema, spool
from clientsdk.admission import Admission
from clientsdk.arguments import (
    checked_ceilings,
    checked_path,
    checked_publisher,
    checked_timeout,
    read_plan,
)
from clientsdk.aside import aside, awaited
from clientsdk.background import Background
from clientsdk.database import Access
from clientsdk.errand import Errand
from clientsdk.ledger import Consent, Ledger, lowered
from clientsdk.outcomes import FlushResult, Outcome
from clientsdk.publishers import MemoryPublisher, Publisher
from clientsdk.quota import Quota
from clientsdk.sender import Sender, out_of_time
from clientsdk.settings import Settings, configured
from clientsdk.stats import Stats, Tally
from clientsdk.store import NEVER, Store
from mechanisms.randomness import Source, SystemSource
from sotto.clocks import now_ms
from sotto.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.errors import StoreError, UnknownMetricError, ValueTypeError

if TYPE_CHECKING:
    from clientsdk.preview import Preview

_ETERNITY = 1 << 62
#: As names of a module they are found sooner than as those of an Enum.
ACCEPTED, NO_CONSENT, STORE_FULL = Outcome.ACCEPTED, Outcome.NO_CONSENT, Outcome.STORE_FULL
GIVEN = Consent.GIVEN


class Client:
    """Records values under a plan and sends what is due.

    Making one opens no connection and starts no thread. Unless ``background`` is false, the first
    recording starts one that sends each report when it is due, waits longer after each failure,
    and is given less than a second when the interpreter ends; what is not delivered then stays in
    the state file. Threads may share a client, signal handlers and event loops may call
    :meth:`record`, and a child of a fork goes on with a thread of its own.

    Parameters
    ----------
    plan : CompiledPlan, bytes or path
        The compiled plan, its canonical JSON, or a file that holds it.
    state : path or None
        The device's file, made if absent. One file belongs to one collector; several clients and
        processes may use it. None keeps everything in memory, for a device that forgets.
    publisher : Publisher
        Takes the messages. The client never closes it, since several clients may share it.
    clock : callable
        Returns milliseconds since the epoch; fractions are cut off. Budget periods only advance:
        one reading far in the future, once used, moves the ledger there for good. Then every
        recording until that time counts as made then, and if it lies beyond the plan's
        ``expires``, nothing is recorded any more and what was to be sent lapses.
    ceilings : Ceilings, optional
        In micro-epsilon. The lower of these and the plan's are pinned in a new store. In an
        existing one they can lower what is pinned, and so can the plan; neither can raise it
        (see :meth:`renew_consent`).
    background : bool, optional
        Whether reports are sent without being asked for. If not, call :meth:`flush`.
    quota : Quota, optional
        How much may wait for being sent, and for how long.
    settings : Settings, optional
        All that is not given above; by default what the environment's variables say, read now
        and never again.

    Raises
    ------
    PlanError
        The plan cannot be honoured, or the store belongs to another collector or period length.
    ParameterError
        The ceilings are not positive, or the period's exceeds the lifetime's.
        Or an argument or a setting is nothing that could serve as such.
        Or a variable about privacy cannot be understood.
    StoreError
        The state file cannot be used.

    Attributes
    ----------
    plan : CompiledPlan
    settings : Settings

    Privacy
    -------
    Nothing is recorded or sent before consent is given. What leaves the device in one budget
    period costs at most the ceiling; all plans of a collector share it. Number, metric and time
    (truncated to the plan's resolution) of recordings are not protected.

    Examples
    --------
    >>> from clientsdk.publishers import MemoryPublisher
    >>> from clientsdk.testing import FakeClock, small_plan
    >>> plan, clock, publisher = small_plan(), FakeClock(), MemoryPublisher()
    >>> with Client(
    ...     plan, state=None, publisher=publisher, clock=clock, background=False
    ... ) as client:
    ...     client.give_consent()
    ...     outcome = client.record("colour", "red")
    ...     clock.advance(days=2)
    ...     result = client.flush()
    >>> outcome, result.sent, len(publisher.messages)
    (<Outcome.ACCEPTED: 'accepted'>, 1, 1)
    """

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None,
        publisher: Publisher,
        clock: Callable[[], int] = now_ms,
        ceilings: Ceilings | None = None,
        background: bool | None = None,
        quota: Quota | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.plan = read_plan(plan)
        publisher = checked_publisher(publisher)
        self.settings = configured(settings, background=background, quota=quota)
        if self.settings.log is not None:
            complaints.let_pass(self.settings.log)
        self._clock = clock
        self._metrics = {metric.name: metric for metric in self.plan.metrics}
        source = self._source()
        pinned = self.settings.lowered(self.plan.ceilings)
        if ceilings is not None:
            pinned = lowered(checked_ceilings(ceilings), self.plan.ceilings)
        path = None if state is None else checked_path(state)
        self._off = self.settings.disabled
        self._file = path
        if self._off:
            path = None
        quota = self.settings.quota
        period = self.plan.period_of(self._now())
        self._store = Store(path, self.plan, pinned, period, source, quota)
        self._refusals = disabled.refusals(self.plan) if self._off else self._store.refusals
        self._admission = Admission(self._store, self.plan, source)
        self._tally = Tally(self._metrics)
        self._sender = Sender(self._store, self.plan.period, publisher, quota.age)
        self._background = (
            Background(self._store, self.plan.resolution, self._now, self.next_due, self._do_errand)
            if self.settings.background and not self._off
            else None
        )

    def record(self, metric: str, value: object) -> Outcome:
        """Randomize a value and store the outputs, or say why not.

        Parameters
        ----------
        metric : str
            Its name in the plan.
        value : object
            As the metric's type says. A number outside its range is clipped, a category outside
            its domain becomes what the plan says. Of a constant metric the first value ever is
            what all its reports are of; later ones only say that a period is to have a report. Of
            a top item a value is one occurrence, counted in memory until the period is over.

        Returns
        -------
        Outcome
            It never depends on the value. The value itself is forgotten before this returns.

        Raises
        ------
        UnknownMetricError
            The plan has no such metric.
        ValueTypeError
            The value has the wrong type. The message never contains it.
        """
        refusal = self._refusals.get(metric)
        if refusal is not None and type(value) in refusal.plain:
            outcome, _, until, stale = refusal
            if (until is None or self._clock() < until) and (stale is None or monotonic() < stale):
                self._tally.became[outcome][metric] += 1
                sender = self._background
                if sender is not None and sender.idle and outcome is not NO_CONSENT:
                    # There may be older values to be sent.
                    sender.start()
                return outcome
        known = self._metrics.get(metric)
        if known is None:
            # Not the name that was given: it may be a value in the wrong place.
            del metric, value
            raise UnknownMetricError(
                f"plan {self.plan.plan!r} has no such metric; it has {', '.join(self._metrics)}"
            )
        try:
            outcome = self._record(known, value)
        except ValueTypeError as error:
            # Neither this frame nor those that the error came through keep the value.
            del value
            error.__context__ = None
            raise error.with_traceback(None) from None
        self._tally.became[outcome][metric] += 1
        sender = self._background
        if sender is not None:
            if sender.idle:
                if outcome is not NO_CONSENT and outcome is not STORE_FULL:
                    # Whatever became of this value: there may be older ones to be sent.
                    sender.start()
            elif outcome is ACCEPTED:
                sender.heed()
        return outcome

    def _record(self, metric: CompiledMetric, value: object) -> Outcome:
        store = self._store
        now = self._now()
        try:
            if self._off:
                outcome = Outcome.DISABLED
            elif store.stopped or not self._consented(now):
                outcome = NO_CONSENT
            elif now >= self.plan.expires:
                outcome = Outcome.EXPIRED
            else:
                outcome = self._admission.record(metric, value, now)
                if outcome is STORE_FULL:
                    complaints.warn("quota", "values are refused: the quota is used up")
        except StoreError as error:
            outcome = STORE_FULL
            complaints.warn("store", "values are refused: %s", str(error))
        if outcome is not ACCEPTED:
            # A value of the wrong type is told of whatever became of it.
            metric.encode(value)
            if outcome is NO_CONSENT or outcome is Outcome.EXPIRED:
                self._keep_up(now)
        return outcome

    def _keep_up(self, now: int) -> None:
        """Let periods pass and old secrets go; if that fails now, it is tried again."""
        if not self._store.stopped:
            with suppress(StoreError):
                self._admission.counts.lapse(now)
                self._store.keep_up(self.plan.period_of(now))

    def _consented(self, now: int) -> bool:
        """Look whether another process was given consent; if not, look again a while later."""
        store = self._store
        if store.consent is GIVEN:
            return True
        with store.transaction(Access.READ):
            if not store.consented:
                # While the store is locked: consent that this process is given comes later.
                store.deny(self.plan, now)
            return store.consented

    def flush(self, timeout: float | None = None) -> FlushResult:
        """Send every report that is due now.

        Of a chain with several rungs due, the newest alone is sent. What is sent is charged
        first, in a commit that survives a loss of power. Of several processes on one file one
        sends at a time; the others wait for it up to ten seconds, or up to the timeout.

        Parameters
        ----------
        timeout : float, at least 0, optional
            Seconds after which this returns whatever the publisher does; no message is begun
            later. Without it, and one in the settings, the publisher's own limits are all there
            is.

        Returns
        -------
        FlushResult
            With the error that ended the flush early, if one did: a publisher that takes nothing
            and a full disk are no exceptions. What was not delivered is sent again, byte for
            byte, by a later flush.

        Raises
        ------
        StoreError
            The store cannot even be read.
        ParameterError
            The timeout is no number of seconds.

        Privacy
        -------
        A message never mixes pseudonyms, but whoever watches the transport can link messages
        sent in one flush. The sender in the background sends each at a time of its own; without
        it, flush when :meth:`next_due` says, rather than seldom and in bulk.
        """
        timeout = self.settings.flush_timeout if timeout is None else timeout
        if timeout is None:
            return self._do_errand(Errand(patience=schema.LOCK_PATIENCE))
        errand = Errand(checked_timeout(timeout), patience=math.inf)
        doing = aside(lambda: self._do_errand(errand))
        if doing is not None and doing.wait(timeout):
            return doing.result()
        return self._sender.unfinished(self._now(), errand)

    async def aflush(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`flush` does, while the event loop of asyncio goes on."""
        return await awaited(lambda: self.flush(timeout))

    def _do_errand(self, errand: Errand) -> FlushResult:
        if self._off:
            return FlushResult(0, 0)
        try:
            self._withdraw_if_owed()
            now = self._now()
            self._settle(now)
            result = self._sender.flush(now, errand)
        except Exception:
            self._tally.failed()
            raise
        self._tally.flushed(result, now)
        return result

    def next_due(self) -> int | None:
        """Return when the next report is due, in ms since the epoch, or None if there is none.

        Where items are being counted, that of their period is among them.
        """
        if self._off:
            return None
        self._settle(self._now())
        with self._store.transaction(Access.READ) as connection:
            due = spool.next_due(connection)
            counted = self._admission.counts.next_due()
            soonest = min((each for each in (due, counted) if each is not None), default=None)
            self._store.soonest = NEVER if soonest is None else soonest
        return soonest

    def give_consent(self) -> None:
        """Write down that the person agrees; from now on values are recorded.

        Raises
        ------
        StoreError
            It could not be written; nothing is recorded. Or the kill switch is on.
        """
        self._refuse_if_off("consent cannot be written")
        self._withdraw_if_owed()
        with self._store.transaction(Access.DURABLE) as connection:
            owed = self._store.owed
            self._store.advance(connection, self.plan.period_of(self._now()))
            if not self._store.consented:
                self._store.agree(connection, Consent.GIVEN)
        self._clean_since(owed)

    def withdraw_consent(self) -> bool:
        """Stop at once, and erase every chain, sent or not, with the pseudonyms of past periods.

        What was reserved and spent stays in the ledger, so that agreeing again in the same
        period starts where it stopped.

        A flush under way in another thread or process sends no further message. One that its
        publisher is taking when this returns may still go out; it was charged.

        Returns
        -------
        bool
            Whether no trace is left in the file. If not, because another process was reading
            it, erasing is tried again at each flush, at :meth:`close` and at the next start.

        Raises
        ------
        StoreError
            It could not be written. This client records and sends nothing from now on and tries
            again at its next flush.

        Notes
        -----
        The kill switch does not keep a person from withdrawing: then this alone opens the file,
        if there is one.
        """
        if self._off:
            return self._withdraw_though_off()
        asked = self._store.stop()
        self._admission.counts.forget()
        with self._store.transaction(Access.DURABLE) as connection:
            self._write_withdrawal(connection)
        self._store.heed(asked)
        return self._store.settle()

    def _withdraw_though_off(self) -> bool:
        path = self._file
        if path is None:
            return True
        if not os.path.exists(path):
            # It may have been found damaged, and kept aside.
            return recovery.erase_aside(os.path.realpath(path))
        woken = Settings(background=False)
        with Client(
            self.plan, state=path, publisher=MemoryPublisher(), clock=self._clock, settings=woken
        ) as client:
            return client.withdraw_consent()

    def _withdraw_if_owed(self) -> None:
        """Write a withdrawal that could not be written, unless another thread has done it."""
        store = self._store
        if store.stopped:
            with store.transaction(Access.DURABLE) as connection:
                asked = store.asked
                if store.stopped:
                    self._write_withdrawal(connection)
            store.heed(asked)
            store.settle()

    def _write_withdrawal(self, connection: sqlite3.Connection) -> None:
        self._store.advance(connection, self.plan.period_of(self._now()))
        self._store.agree(connection, Consent.WITHDRAWN)
        # An item that another thread was counting meanwhile goes too.
        self._admission.counts.forget()

    def _clean_since(self, owed: int) -> None:
        if self._store.owed > owed:
            self._store.scrub(compact=False)

    def _settle(self, now: int) -> None:
        """Draw from what was counted in periods that are over; if that fails, again later."""
        with suppress(StoreError):
            self._admission.counts.settle(now)

    def _now(self) -> int:
        # Further off no time, and no sum of two, would be a number that the file can hold.
        now = int(self._clock())
        return now if -_ETERNITY < now < _ETERNITY else _ETERNITY if now > 0 else -_ETERNITY

    def renew_consent(self, ceilings: Ceilings | None = None) -> None:
        """Write down that the person agrees to other ceilings, higher ones included.

        Parameters
        ----------
        ceilings : Ceilings, optional
            In micro-epsilon; the plan's by default. Whatever they are, no more is spent than the
            plan's allow.

        Raises
        ------
        StoreError
            It could not be written; nothing has changed. Or the kill switch is on.
        """
        self._refuse_if_off("consent cannot be written")
        agreed = self.plan.ceilings if ceilings is None else checked_ceilings(ceilings)
        self._withdraw_if_owed()
        with self._store.transaction(Access.DURABLE) as connection:
            owed = self._store.owed
            self._store.advance(connection, self.plan.period_of(self._now()))
            self._store.agree(connection, Consent.GIVEN)
            self._store.pin(connection, agreed)
        self._clean_since(owed)

    def ledger(self) -> Ledger:
        """Return what was reserved and spent, period by period, and the chains still to be sent.

        Raises
        ------
        StoreError
            The store cannot be read. Or the kill switch is on.
        """
        self._refuse_if_off("the ledger cannot be read")
        self._settle(self._now())
        return self._store.ledger()

    def stats(self) -> Stats:
        """Return what this client has done in this process, and what waits in its store.

        It raises nothing: of a store that cannot be read now it says so.
        :mod:`clientsdk.collectors` exposes the same to Prometheus.
        """
        now = self._now()
        found = None
        with suppress(StoreError), self._store.transaction(Access.READ) as connection:
            found = spool.totals(connection, max(now, self._store.period * self.plan.period))
        return self._tally.stats(found)

    def preview(self, at: int | None = None) -> Preview:
        """Return exactly what would be sent, if nothing more were recorded.

        Parameters
        ----------
        at : int, optional
            Milliseconds since the epoch: what one flush would send then. By default everything
            that is still to be sent, each report when it is due.

        Returns
        -------
        Preview
            The messages byte for byte, what is in them, and all of it in words. Nothing is sent,
            charged or changed. Of items that are being counted nothing is drawn yet, and nothing
            shown.

        Raises
        ------
        StoreError
            The store cannot be read. Or the kill switch is on.

        Privacy
        -------
        To be shown to the person at this device, and never logged.
        """
        from clientsdk.preview import preview

        self._refuse_if_off("what would be sent cannot be read")
        now = self._now()
        self._settle(now)
        moment = now if at is None else at
        return preview(self._store, self._sender, moment, once=at is not None)

    def _refuse_if_off(self, what: str) -> None:
        if self._off:
            disabled.refuse(what)

    def close(self, timeout: float | None = None) -> FlushResult:
        """Let go of the store; what is not delivered stays there. May be called again.

        The sender in the background, if there is one and its last attempt has not failed, first
        sends what is due of one pseudonym. Items counted in a period that is not over are lost;
        what they cost stays reserved, for another client to go on counting. From now on
        :meth:`record` answers ``store_full`` and all else raises StoreError.

        Parameters
        ----------
        timeout : float, at least 0, optional
            Seconds to wait at most for that sender, whatever its publisher does; by default what
            the settings say, one second.

        Returns
        -------
        FlushResult
            What was sent meanwhile, and what is due and still here; with an error if the sender
            could not be waited for to its end.

        Raises
        ------
        ParameterError
            The timeout is no number of seconds.
        """
        timeout = self.settings.close_timeout if timeout is None else timeout
        until = time.monotonic() + checked_timeout(timeout)
        sender, sent, error = self._background, 0, None
        if sender is not None:
            before = sender.sent
            sender.end(until)
            if not sender.wait(until):
                error = out_of_time()
            sent = sender.sent - before
        remaining = 0
        try:
            now = self._now()
            self._settle(now)
            with suppress(StoreError):
                self._admission.counts.release()
            with suppress(StoreError):
                remaining = self._sender.remaining(now)
            self._store.scrub(compact=False)
            self._store.settle()
        finally:
            self._store.close()
            self._store.refusals.clear()
        return FlushResult(sent, remaining, error=error)

    async def aclose(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`close` does, while the event loop of asyncio goes on."""
        return await awaited(lambda: self.close(timeout))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _source(self) -> Source:
        return SystemSource()
