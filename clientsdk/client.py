"""The client: what an app sees of Sotto."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from clientsdk import diagnostics
from clientsdk.clock import EARLIEST, if_known, plausible
from clientsdk.consent import ConsentKeeper
from clientsdk.diagnostics import drop_locals
from clientsdk.ledger import Consent, Ledger
from clientsdk.outcomes import FlushResult, Outcome, Refusal
from clientsdk.publishers import Publisher
from clientsdk.recorder import Recorder
from clientsdk.sending.sender import Sender, out_of_time
from clientsdk.sending.tasks import FlushTask, run_in_thread, start_call
from clientsdk.sending.worker import Worker
from clientsdk.settings import (
    Forgetful,
    Quota,
    Settings,
    checked_ceilings,
    checked_path,
    checked_publisher,
    checked_timeout,
    configured,
    lowered,
    read_plan,
    warn_if_nothing_fits,
)
from clientsdk.stats import Stats, Tally
from clientsdk.store import outbox
from clientsdk.store.database import READ
from clientsdk.store.recovery import open_store
from clientsdk.store.schema import LOCK_PATIENCE, NEVER
from mechanisms.randomness import Source, SystemSource
from sotto.clocks import now_ms
from sotto.errors import StoreError, UnknownMetricError
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.plan.metric import Symbol
from sotto.wire.signatures import require_signatures

if TYPE_CHECKING:
    from typing import Self

    from clientsdk.preview import Preview

#: As names of a module they are found sooner than as those of an Enum.
ACCEPTED, NO_CONSENT, STORE_FULL = Outcome.ACCEPTED, Outcome.NO_CONSENT, Outcome.STORE_FULL
_FORGETS = (
    "there is no state file (NO_LIFETIME_BOUND): no lifetime bound survives this process, nor does "
    "what is not sent"
)
_BAD_CLOCK = "values are being dropped: the clock says a time before 2020, or from 2100 on"
_DISABLED = "the SDK is switched off (SOTTO_DISABLED or its settings)"


class Client:
    """Records values under a plan and sends what is due.

    Making one opens no connection and starts no thread. Unless ``background`` is false, the first
    recording starts a thread that sends each report when it is due, waits longer after each
    failure, and has less than a second when the interpreter ends; what is not delivered then stays
    in the state file. Threads may share a client, signal handlers and event loops may call
    :meth:`record`, and a child of a fork goes on with a thread of its own.

    Parameters
    ----------
    plan : CompiledPlan, bytes or path
        The compiled plan, its canonical JSON, or a file that holds it.
    state : path or NO_LIFETIME_BOUND
        The device's file, made if absent. One file belongs to one collector; several clients and
        processes may use it. ``NO_LIFETIME_BOUND`` keeps all in memory and warns once: ceilings and
        consent then hold for this client alone, and every other one is a new device.
    publisher : Publisher
        Takes the messages. The client never closes it, since several clients may share it.
    clock : callable
        Returns milliseconds since the epoch. Before 2020 and from 2100 on it cannot be right:
        nothing is recorded or sent then. A clock that was ahead is followed back, and what was
        recorded meanwhile is erased; what was charged for it stays charged.
    ceilings : Ceilings, optional
        In micro-epsilon (``Ceilings.of_epsilon(3, 60)`` takes epsilons). The lowest of these, the
        settings', the environment's and the plan's are pinned in a new store. In an existing one
        they lower what is pinned and never raise it (see :meth:`renew_consent`). Whatever another
        process pins, this client records and sends no more than its own allow.
    background, quota : optional
        As in ``settings``, which they override. Without a thread call :meth:`flush`.
    settings : Settings, optional
        By default what the environment's variables say, read now and never again. Of
        ``SOTTO_DISABLED``, ``SOTTO_CEILING_*`` and the app's own the stricter holds.
    expect : str, optional
        The fingerprint of the plan that the app was made for, as ``sotto plan fingerprint`` prints
        it; another plan is refused. For plans that the app fetches.

    Raises
    ------
    PlanError
        The plan cannot be honoured, or is not the one expected, or the store is of another budget.
    ParameterError
        An argument, a setting or a variable about privacy is not as it should be.
    StoreError
        The state file cannot be used.
    ModuleNotFoundError
        The plan requires signatures, and the extra ``signatures`` is not installed.

    Privacy
    -------
    Nothing is recorded or sent before consent is given. What leaves the device in one budget period
    costs at most the ceiling; all plans of a collector share it. Number, metric and time (truncated
    to the plan's resolution) of recordings are not protected.

    Examples
    --------
    >>> from clientsdk import NO_LIFETIME_BOUND
    >>> from clientsdk.publishers import MemoryPublisher
    >>> from clientsdk.testing import FakeClock, small_plan
    >>> plan, clock, publisher = small_plan(), FakeClock(), MemoryPublisher()
    >>> with Client(plan, state=NO_LIFETIME_BOUND, publisher=publisher, clock=clock,
    ...             background=False) as client:
    ...     given = client.give_consent()
    ...     outcome = client.record("colour", "red")
    ...     clock.advance(days=2)
    ...     result = client.flush()
    >>> outcome, result.sent, len(publisher.messages)
    (<Outcome.ACCEPTED: 'accepted'>, 1, 1)
    """

    #: Before which reading of the clock it cannot be right (ms).
    _earliest = EARLIEST

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | Forgetful,
        publisher: Publisher,
        clock: Callable[[], int] = now_ms,
        ceilings: Ceilings | None = None,
        background: bool | None = None,
        quota: Quota | None = None,
        settings: Settings | None = None,
        expect: str | None = None,
    ) -> None:
        self.plan = read_plan(plan, expect)
        if self.plan.signed:
            require_signatures()
        publisher = checked_publisher(publisher)
        self.settings = configured(settings, background=background, quota=quota)
        if self.settings.log is not None:
            diagnostics.set_level(self.settings.log)
        self._clock, self._now = clock, plausible(clock, self._earliest)
        self._metrics = {metric.name: metric for metric in self.plan.metrics}
        source = self._source()
        pinned = self.settings.lowered(self.plan.ceilings)
        if ceilings is not None:
            pinned = self.settings.lowered(lowered(checked_ceilings(ceilings), self.plan.ceilings))
        self._file = path = checked_path(state)
        disabled, quota = self.settings.disabled, self.settings.quota
        if disabled:
            path = None
        elif path is None:
            self._warn_that_it_forgets()
        self._store = open_store(path, self.plan, pinned, if_known(self._now), source, quota)
        warn_if_nothing_fits(self.plan, self._store.ceilings)
        self._refusals = self._store.refusals
        if disabled:
            self._refusals = {
                each.name: Refusal(Outcome.DISABLED, each.plain, None, 0)
                for each in self.plan.metrics
            }
        self._recorder = Recorder(self._store, self.plan, source)
        self._consent = ConsentKeeper(
            self._store, self.plan, self.settings, self._recorder.counter, self._now
        )
        self._tally = Tally(self._metrics)
        self._outcomes = self._tally.outcomes
        self._sender = Sender(self._store, publisher, quota.age)
        self._worker = (
            Worker(self._store, self.plan.resolution, self._now, self.next_due, self._flush)
            if self.settings.background and not disabled
            else None
        )

    def _source(self) -> Source:
        return SystemSource()

    def _warn_that_it_forgets(self) -> None:
        diagnostics.warn("memory", _FORGETS, quiet=math.inf)

    def record(self, metric: str, value: object) -> Outcome:
        """Randomize a value and store the outputs, or return why not.

        The outcome never depends on the value, which is forgotten before this returns. A number
        outside its range is clipped, a category outside its domain becomes what the plan says. Of a
        constant metric the first value ever is what all its reports are of; later ones only say
        that a period is to have a report. Of a top item a value is one occurrence, counted in
        memory until the period is over. Raises UnknownMetricError, or ValueTypeError, whose message
        never contains the value.
        """
        try:
            refusal = self._refusals.get(metric)
            if refusal is not None:
                outcome, plain, since, until, stale = refusal
                if type(value) not in plain:
                    # Only whether it is of the right type: what becomes of it is the same.
                    self._metrics[metric].encode(value)
                if (since is None or since <= self._clock() < until) and (
                    stale is None or monotonic() < stale
                ):
                    self._outcomes[outcome][metric] += 1
                    worker = self._worker
                    if worker is not None and worker.idle and outcome is not NO_CONSENT:
                        # There may be older values to be sent.
                        worker.start()
                    return outcome
            known = self._metrics.get(metric)
            if known is None:
                # Not the name that was given: it may be a value in the wrong place.
                raise UnknownMetricError(
                    f"plan {self.plan.plan!r} has no such metric; it has {', '.join(self._metrics)}"
                )
            outcome = self._record(known, known.encode(value))
            self._outcomes[outcome][metric] += 1
            worker = self._worker
            if worker is not None:
                if worker.idle:
                    if outcome is not NO_CONSENT and outcome is not STORE_FULL:
                        # Whatever became of this value: there may be older ones to be sent.
                        worker.start()
                elif outcome is ACCEPTED:
                    worker.wake()
            return outcome
        except BaseException as error:
            # Also an interrupt: no frame that it came through keeps the value.
            del metric, value
            drop_locals(error)
            raise

    @property
    def consent(self) -> Consent:
        """What the person has said, in whatever process, and however little of it could be written.

        Where the kill switch is on no file is read, and it is ``NEVER_GIVEN``. Raises StoreError if
        the store cannot be read.
        """
        return self._consent.read()

    def give_consent(self, *, again: bool = False) -> bool:
        """Write down that the person agrees; return whether consent is given now.

        To be called where the person has said so, at every start if that is convenient. After a
        withdrawal it only warns, once: an app that calls it at every start must not undo what the
        person has said since. ``again`` says that the person, having withdrawn, has agreed once
        more. Where the kill switch is on no file is touched, and consent is not given.

        Another process on the same file notices within a twentieth of a second. If the disk takes
        the consent and not the rollback guard beside the file, values are recorded, and sent once
        the guard can be written; after a withdrawal, which the guard may note, that is an error.
        Raises StoreError if it could not be written; nothing is recorded then.
        """
        return self._consent.give(None, again)

    def renew_consent(self, ceilings: Ceilings | None = None, *, again: bool = False) -> bool:
        """Write down that the person agrees to other ceilings, higher ones included.

        In micro-epsilon, by default the plan's, which in any case bound what is spent, as do those
        of the settings and the environment, here and in other clients. The ``ceilings`` that this
        client was made with give way to these. The rest is as for :meth:`give_consent`; without
        ``again`` a withdrawal stands, and no ceiling changes.
        """
        return self._consent.renew(ceilings, again)

    def withdraw_consent(self) -> bool:
        """Stop at once, and erase every chain, sent or not, with the pseudonyms of past periods.

        What was reserved and spent stays in the ledger, so that agreeing again in the same period
        starts where it stopped. The kill switch does not keep a person from withdrawing: then this
        alone opens the file, if there is one, also where the disk is full.

        A flush under way in another thread or process hands its publisher no further message, nor
        does it ask it any more to sync. What may still go out is what that publisher has by then:
        the messages since its last sync, of at most 4,096 reports, all of them charged.

        First this client stops, in memory. Then the withdrawal is noted in bytes that the rollback
        guard beside the file already has, for all processes and across restarts, until consent is
        given ``again``. Then the file is written; where that fails, as on a full disk, the note
        stands, and whoever next opens the file, records or sends writes the withdrawal and erases
        first.

        Returns whether no trace is left in the file. If not, because another process was reading it
        or it could not be written, erasing is tried again at each flush, at :meth:`close` and at
        the next start. Raises StoreError if neither the file nor the guard could be written: this
        client then records and sends nothing from now on and tries again at its next flush, and
        another process, or a later one, knows nothing of it; say so to the person. Raises
        PlanError, and changes nothing, if this client is switched off and the file is of another
        budget.
        """
        if self.settings.disabled:
            return self._consent.withdraw_though_disabled(self._file, self._source())
        return self._consent.withdraw()

    def flush(self, timeout: float | None = None) -> FlushResult:
        """Send every report that is due now; of a chain with several levels due, the newest alone.

        What is sent is charged first, in a commit that survives a loss of power. Of several
        processes on one file one sends at a time; the others wait up to ten seconds, or up to
        ``timeout``: seconds after which this returns whatever the publisher does, and no message is
        begun later. Without it, and one in the settings, the publisher's own limits are all there
        is.

        The result says what ended the flush early: a publisher that takes nothing or raises what it
        should not, and a full disk are no exceptions. What was not delivered is sent again, byte
        for byte, by a later flush. Raises StoreError if the store cannot even be read.

        Privacy
        -------
        A message never mixes pseudonyms, but whoever watches the transport can link messages sent
        in one flush. The background thread sends each at a time of its own; without it, flush when
        :meth:`next_due` says, rather than seldom and in bulk.
        """
        timeout = self.settings.flush_timeout if timeout is None else timeout
        if timeout is None:
            return self._flush(FlushTask(patience=LOCK_PATIENCE))
        task = FlushTask(checked_timeout(timeout), patience=math.inf)
        call = start_call(lambda: self._flush(task))
        if call is not None and call.wait(timeout):
            return call.result()
        return self._sender.unfinished(self._now(), task)

    async def aflush(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`flush` does, while the event loop of asyncio goes on."""
        return await run_in_thread(lambda: self.flush(timeout))

    def close(self, timeout: float | None = None) -> FlushResult:
        """Close the store; what is not delivered stays there. May be called again.

        The background thread, if its last attempt has not failed, first sends what is due of one
        pseudonym. Items counted in a period that is not over are lost; what they cost stays
        reserved, for another client to go on counting. From now on :meth:`record` answers
        ``store_full`` and all else raises StoreError. ``timeout``, by default what the settings
        say, one second, is how many seconds to wait at most for that thread, whatever its publisher
        does; an error in the result says that it had not ended by then.
        """
        timeout = self.settings.close_timeout if timeout is None else timeout
        until = time.monotonic() + checked_timeout(timeout)
        worker, sent, error = self._worker, 0, None
        if worker is not None:
            before = worker.sent
            worker.end(until)
            if not worker.wait(until):
                error = out_of_time()
            sent = worker.sent - before
        remaining = 0
        try:
            now = self._now()
            self._settle(now)
            with suppress(StoreError):
                self._recorder.counter.release()
            with suppress(StoreError):
                remaining = self._sender.remaining(now)
            self._store.erasure.scrub(compact=False)
            self._store.finish_erasure()
        except BaseException:
            # What was interrupted may still hold the store, until the interrupt has gone through.
            with suppress(StoreError):
                self._store.close()
            raise
        else:
            self._store.close()
        finally:
            self._store.refusals.clear()
        return FlushResult(sent, remaining, error=error)

    async def aclose(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`close` does, while the event loop of asyncio goes on."""
        return await run_in_thread(lambda: self.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def next_due(self) -> int | None:
        """Return when the next report is due, in ms since the epoch, or None if there is none.

        Where items are being counted, that of their period is among them. Of a period that is over
        their chain is drawn and stored first, as by every call that looks at what waits.
        """
        if self.settings.disabled:
            return None
        self._settle(self._now())
        with self._store.transaction(READ) as connection:
            due = outbox.next_due(connection)
            counted = self._recorder.counter.next_due()
            soonest = min((each for each in (due, counted) if each is not None), default=None)
            self._store.outbox.soonest = NEVER if soonest is None else soonest
        return soonest

    def ledger(self) -> Ledger:
        """Return what was reserved and spent, period by period, and the chains still to be sent.

        Those of items counted in a period that is over are among them: they are drawn and stored
        first. Raises StoreError if the store cannot be read, or the kill switch is on.
        """
        self._refuse_if_disabled("the ledger cannot be read")
        self._settle(self._now())
        return self._store.ledger()

    def stats(self) -> Stats:
        """Return what this client has done in this process, and what waits in its store.

        It raises nothing. :mod:`clientsdk.prometheus` exposes the same to Prometheus.
        """
        now, totals = self._now(), None
        with suppress(StoreError), self._store.transaction(READ) as connection:
            totals = outbox.totals(connection, now)
        return self._tally.stats(totals)

    def preview(self, at: int | None = None) -> Preview:
        """Return exactly what would be sent, byte for byte, if nothing more were recorded.

        With ``at``, in milliseconds since the epoch, it is what one flush would send then; by
        default everything that is still to be sent, each report when it is due. Nothing is sent or
        charged. Items counted in a period that is over are drawn and stored first; of those still
        being counted nothing is drawn or shown. Raises StoreError as :meth:`ledger` does. To be
        shown to the person at this device, and never logged.
        """
        from clientsdk.preview import preview

        self._refuse_if_disabled("what would be sent cannot be read")
        now = self._now()
        self._settle(now)
        moment = now if at is None else at
        return preview(self._store, self._sender, moment, once=at is not None)

    def _flush(self, task: FlushTask) -> FlushResult:
        if self.settings.disabled:
            return FlushResult(0, 0)
        try:
            self._consent.finish_withdrawal()
            now = self._now()
            self._settle(now)
            result = self._sender.flush(now, task)
        except Exception:
            self._tally.failed()
            raise
        self._tally.flushed(result, now)
        return result

    def _record(self, metric: CompiledMetric, symbol: Symbol) -> Outcome:
        now = self._now()
        try:
            outcome = self._recorder.decisions.refused(now)
            if outcome is None:
                outcome = self._recorder.record(metric, symbol, now)
            if outcome is STORE_FULL:
                diagnostics.warn("quota", "values are being dropped: the quota is used up")
            elif outcome is Outcome.BAD_CLOCK:
                diagnostics.warn("clock", _BAD_CLOCK)
        except (StoreError, OSError) as error:
            # The second where the operating system gives no randomness.
            outcome = STORE_FULL
            diagnostics.warn("store", "values are being dropped: %s", str(error))
        if outcome is NO_CONSENT or outcome is Outcome.EXPIRED:
            self._consent.keep_up(now)
        return outcome

    def _settle(self, now: int) -> None:
        """Draw from what was counted in periods that are over; if that fails, again later."""
        with suppress(StoreError, OSError):
            self._recorder.counter.settle(now)
        if now >= self._store.plans.next_expiry:
            self._consent.keep_up(now)

    def _refuse_if_disabled(self, what: str) -> None:
        if self.settings.disabled:
            raise StoreError(f"{what}: {_DISABLED}")
