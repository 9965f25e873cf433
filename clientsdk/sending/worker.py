"""The background thread that sends what is due while the app does something else.

It starts when it is first needed, sleeps until the next report is due, and sends the reports of one
pseudonym at a time. Each has a time of its own: the chains' jitters are independent, and after an
outage, when many are due at once, a random pause separates them, of up to the plan's resolution as
those jitters are. A pseudonym whose attempt failed waits by itself, so that a receiver that puts
one off learns of no other. A restart and other processes respect both
(:mod:`clientsdk.sending.lock`).
It is a daemon, and no process waits for it longer than :data:`clientsdk.lifecycle.SENDERS`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from clientsdk import diagnostics, lifecycle
from clientsdk.outcomes import FlushResult, Outcome
from clientsdk.sending import backoff
from clientsdk.sending.tasks import FlushTask, SentElsewhereError
from clientsdk.store.schema import NEVER
from clientsdk.store.store import Store
from mechanisms.frozen import frozen
from sotto.errors import PublishError, SottoError

#: Seconds at most: before the first round, and between two looks at the file, which other
#: processes change and whose clock may be set.
SETTLING = 5.0
WATCH = 600.0
#: Seconds during which a failure to send that was logged is not logged again.
QUIET = 3600.0

NAME = "sotto-sender"

#: The workers of this process whose threads run.
_running: set[Worker] = set()


@frozen
class Pause:
    seconds: float
    interruptible: bool = False


class Worker(lifecycle.Forkable):
    """The background thread of one client; not ``idle`` once it is started."""

    idle: bool
    sent: int

    def __init__(
        self,
        store: Store,
        resolution: int,
        now: Callable[[], int],
        next_due: Callable[[int | None], int | None],
        flush: Callable[[FlushTask], FlushResult],
    ) -> None:
        self._store = store
        self._resolution = resolution
        self._now = now
        self._next_due = next_due
        self._flush = flush
        self._renew()
        lifecycle.watch_forks(self)

    def _renew(self) -> None:
        self.idle = True
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        # Releasing this lock wakes the thread. A signal handler may record, and so release it while
        # the same thread is about to: an Event could deadlock then, and queue loads four modules.
        self._call = threading.Lock()
        self._call.acquire(blocking=False)
        self._asleep_until = -NEVER
        #: Failures in a row of the device itself.
        self._broken = self.sent = 0
        self._quiet = False
        self._task = FlushTask()
        self._until = math.inf
        self._ending = False

    def start(self) -> None:
        """Start the thread unless it runs; if none can be started, a later call tries again."""
        if self._process != os.getpid():
            self._renew()
        if not self.idle or self._ending or lifecycle.exiting():
            return
        lifecycle.attend_exit()
        # There is no lock, which an interrupt could leave held: if two threads are started at once,
        # the one that was not noted last ends at once.
        try:
            self._thread = thread = threading.Thread(target=self._run, name=NAME, daemon=True)
            thread.start()
        except RuntimeError:
            diagnostics.warn("thread", "no thread can be started to send: what is recorded is kept")

    def recorded(self, outcome: Outcome) -> None:
        """Start or wake the thread where a recording gives a reason to."""
        if self.idle:
            if outcome is not Outcome.NO_CONSENT and outcome is not Outcome.STORE_FULL:
                # Even if this value is not accepted, older ones may be there to be sent.
                self.start()
        elif outcome is Outcome.ACCEPTED:
            self.wake()

    def wake(self) -> None:
        """Wake the thread if something was recorded that is due before it would wake."""
        # The recording has just made the store check which process this is.
        if self._process != self._store.database.process:
            self.start()
        elif self._store.outbox.soonest < self._asleep_until:
            self._asleep_until = -NEVER
            self._call_it()

    def end(self, until: float) -> None:
        """Ask the thread to send what it can until then, on the monotonic clock, and to end."""
        self._until = min(self._until, until)
        self._ending = True
        self._task.end_by(until)
        self._call_it()

    def _call_it(self) -> None:
        # The lock may be released already: one call is enough.
        with suppress(RuntimeError):
            self._call.release()

    def wait(self, until: float) -> bool:
        """Wait for the thread to end, no longer than until then; return whether it has."""
        thread = self._thread
        if thread is None or self._process != os.getpid() or not thread.is_alive():
            return True
        if thread is not threading.current_thread():
            thread.join(max(0.0, min(until, self._until) - time.monotonic()))
        return not thread.is_alive()

    def after_fork_in_child(self) -> None:
        _running.discard(self)
        self._renew()

    def _run(self) -> None:
        self.idle = False
        _running.add(self)
        try:
            pause = Pause(self._scale(SETTLING) * backoff.chance())
            while self._sleep(pause):
                pause = self._step()
            if self._mine and not self._broken and time.monotonic() < self._until and self._due():
                # The client may have been closed before the thread looked for what is due next.
                with suppress(SottoError):
                    self._round()
        finally:
            if self._mine:
                _running.discard(self)
                self.idle = not self._ending

    @property
    def _mine(self) -> bool:
        return self._thread is threading.current_thread()

    def _sleep(self, pause: Pause) -> bool:
        """Sleep for so long, or until there is a reason to wake; return whether to go on."""
        end = time.monotonic() + pause.seconds
        while self._mine and not self._ending:
            called = self._call.acquire(timeout=max(0.0, end - time.monotonic()))
            if pause.interruptible or not called:
                break
        self._asleep_until = -NEVER
        return self._mine and not self._ending

    def _step(self) -> Pause:
        try:
            while True:
                due = self._next_due(None)
                now = self._now()
                if due is not None and due <= now:
                    return self._round()
                self._asleep_until = due = NEVER if due is None else due
                # Something may have been recorded while this thread was looking.
                if self._store.outbox.soonest >= due:
                    _say_how_long(due, now)
                    return Pause(min(WATCH, (due - now) / 1000), interruptible=True)
        except Exception as error:
            return self._failed(_known(error))

    def _due(self) -> bool:
        with suppress(Exception):
            due = self._next_due(None)
            return due is not None and due <= self._now()
        return False

    def _round(self) -> Pause:
        self._task = task = FlushTask(one_pseudonym=True, window=self._resolution, backs_off=True)
        # An `end` called just now may have changed the task before this one.
        task.end_by(self._until)
        try:
            result = self._flush(task)
        except (Exception, SystemExit) as error:
            # A publisher that calls sys.exit would end this thread, and nobody would see why.
            return self._failed(_known(error))
        self.sent += result.sent
        if isinstance(result.error, SentElsewhereError):
            return Pause(SETTLING * (1 + backoff.chance()))
        if result.error is None:
            self._quiet = False
        elif task.again < math.inf and isinstance(result.error, PublishError):
            # The pseudonym waits. How long this thread waits does not depend on the answer.
            self._warn(result.error)
        else:
            return self._failed(result.error)
        self._broken = 0
        again = min(task.again, task.rest or math.inf)
        if result.remaining and again < math.inf:
            return self._until_due(again)
        return Pause(0.0 if result.sent or result.lapsed else SETTLING * backoff.chance())

    def _until_due(self, seconds: float) -> Pause:
        """Sleep so long, or until something is due that has not been tried yet."""
        now = self._now()
        due = self._next_due(now)
        self._asleep_until = until = min(now + int(seconds * 1000), NEVER if due is None else due)
        # Something may have been recorded while this thread was looking.
        until = min(until, self._store.outbox.soonest)
        return Pause(min(WATCH, max(0, until - now) / 1000), interruptible=True)

    def _failed(self, error: SottoError) -> Pause:
        """Wait after a failure of the device itself, such as a file that cannot be read."""
        self._broken += 1
        self._warn(error)
        return Pause(backoff.delay(self._broken))

    def _warn(self, error: SottoError) -> None:
        again, self._quiet = self._quiet, True
        if not self._ending:
            quiet = QUIET if again else diagnostics.QUIET
            diagnostics.warn(
                "sending", "reports are kept, to be sent later: %s", str(error), quiet=quiet
            )

    def _scale(self, seconds: float) -> float:
        return min(seconds, self._resolution / 1000)


def _known(error: BaseException) -> SottoError:
    """Return an error of Sotto's; for another, as of the app's clock, one that names its type."""
    if isinstance(error, SottoError):
        return error
    # The text may hold a message to be sent.
    return PublishError(f"a flush raised {type(error).__name__}")


def _say_how_long(due: int, now: int) -> None:
    if due == NEVER:
        diagnostics.debug("nothing waits to be sent")
        return
    left = -(-(due - now) // 1000)
    # The time is coarse: chance decides when a report leaves, and nobody is to know in advance.
    for unit, seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if left >= 2 * seconds or seconds == 1:
            diagnostics.debug("the next report is due in about %d %s", -(-left // seconds), unit)
            return


def _end_all(until: float) -> None:
    ending = list(_running)
    for each in ending:
        each.end(until)
    for each in ending:
        each.wait(until)


lifecycle.at_exit(_end_all, lifecycle.SENDERS)
