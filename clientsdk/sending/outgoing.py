"""Flushing and closing one client, and when its next report is due."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from clientsdk import diagnostics
from clientsdk.consent import ConsentKeeper
from clientsdk.lifecycle import NoFork
from clientsdk.outcomes import FlushResult
from clientsdk.recorder import Recorder
from clientsdk.sending.tasks import BackgroundCall, FlushTask, out_of_time
from clientsdk.sending.worker import Worker
from clientsdk.store import idle, outbox
from clientsdk.store.database import READ
from clientsdk.store.schema import LOCK_PATIENCE, NEVER
from clientsdk.store.store import Store
from sotto.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.sending.sender import Sender
    from clientsdk.settings import Opening


class Outgoing:
    """Puts a client's store, sender and counts in order."""

    def __init__(
        self, given: Opening, store: Store, recorder: Recorder, consent: ConsentKeeper
    ) -> None:
        self._store = store
        self._sends = given.publisher, given.settings.quota.age_ms
        self._sender: Sender | None = None
        self._recorder = recorder
        self._counter = recorder.counter
        self._consent = consent
        self._tally = given.tally
        self._now = given.now

    @property
    def sender(self) -> Sender:
        """The sender, loaded when something may be due: in most runs of a tool nothing is."""
        if self._sender is None:
            # No fork may come in the middle of the import: its child would wait for it for ever.
            with NoFork():
                from clientsdk.sending.sender import Sender

                self._sender = self._sender or Sender(self._store, *self._sends)
        return self._sender

    def flush(self, task: FlushTask) -> FlushResult:
        try:
            self._consent.finish_withdrawal()
            now = self._now()
            self.settle(now)
            result = self.sender.flush(now, task)
        except Exception:
            self._tally.failed()
            raise
        self._tally.flushed(result, now)
        diagnostics.debug(
            "sent %d reports; %d are due and remain; %d lapsed",
            result.sent,
            result.remaining,
            result.lapsed,
        )
        return result

    def in_background(self, resolution: int) -> Worker:
        """Return a thread that sends what is due, started if something waits.

        No attribute keeps it: that would be a cycle, and a client that is dropped would stay alive
        with its file open.
        """
        store = self._store
        worker = Worker(store, resolution, self._now, self.next_due, self.flush)
        if store.waiting or (store.consented and store.plans.opened.measured):
            worker.start()
        return worker

    def flush_within(self, seconds: float | None) -> FlushResult:
        """Flush, and return in time whatever the publisher does."""
        if seconds is None:
            return self.flush(FlushTask(patience=LOCK_PATIENCE))
        task = FlushTask(seconds, patience=math.inf)
        try:
            call = BackgroundCall(lambda: self.flush(task))
        except RuntimeError:
            # No thread can be started: nothing is sent now.
            return self.sender.unfinished(self._now(), task)
        if call.wait(seconds):
            result: FlushResult = call.result()
            return result
        return self.sender.unfinished(self._now(), task)

    def next_due(self, after: int | None = None) -> int | None:
        self.settle(self._now())
        with self._store.transaction(READ) as connection:
            soonest, counted = self._store.soonest(connection, after), self._counter.next_due()
            # A period that could not be settled, such as on a full disk, stays due.
            if counted is not None and (after is None or counted > after):
                soonest = counted if soonest is None else min(soonest, counted)
            self._store.outbox.soonest = NEVER if soonest is None else soonest
        return soonest

    def totals(self) -> tuple[int, int, int] | None:
        """Return chains, bytes and reports due in the store; None if it cannot be read now."""
        now = self._now()
        with suppress(StoreError), self._store.transaction(READ) as connection:
            return outbox.totals(connection, now)
        return None

    def settle(self, now: int) -> None:
        """Draw from what was counted in periods that are over, and begin the measures of this one.

        If the draw fails, a later call tries again.
        """
        self._recorder.attend(now)
        if self._counter.begun:
            with suppress(StoreError, OSError):
                self._counter.settle(now)
        if now >= self._store.plans.next_expiry:
            self._consent.keep_up(now)

    def close(self, worker: Worker | None, seconds: float) -> FlushResult:
        """End the worker in time, and close the store with all that is left in it."""
        until = time.monotonic() + seconds
        sent, error = 0, None
        if worker is not None:
            before = worker.sent
            worker.end(until)
            if not worker.wait(until):
                error = out_of_time()
            sent = worker.sent - before
        remaining, store = 0, self._store
        try:
            now = self._now()
            self._recorder.attend(now, closing=True)
            self.settle(now)
            with suppress(StoreError):
                self._counter.release()
            with suppress(StoreError):
                remaining = store.remaining(now)
            store.erasure.scrub(compact=False)
            store.finish_erasure()
            note = idle.note_of(store, now)
        except BaseException:
            # The interrupted call may hold the store until the interrupt has gone through.
            with suppress(StoreError):
                store.close()
            raise
        else:
            store.close()
            if store.path is not None:
                idle.leave(store.path, note)
        finally:
            store.refusals.clear()
        return FlushResult(sent, remaining, error=error)
