"""The client: what an app sees of Sotto."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from clientsdk import complaints, disabled
from clientsdk.admission import Admission
from clientsdk.arguments import (
    checked_ceilings,
    checked_path,
    checked_publisher,
    expected_plan,
    read_plan,
    tell_if_nothing_fits,
)
from clientsdk.background import Background
from clientsdk.database import Access
from clientsdk.forgetful import Forgetful
from clientsdk.inspecting import Inspecting
from clientsdk.ledger import Consent, lowered
from clientsdk.outcomes import Outcome
from clientsdk.publishers import Publisher
from clientsdk.quota import Quota
from clientsdk.sender import Sender
from clientsdk.sending import Sending
from clientsdk.settings import Settings, configured
from clientsdk.stats import Tally
from clientsdk.store import Store
from clientsdk.tracebacks import drop_locals
from sotto.clocks import now_ms
from sotto.errors import StoreError, UnknownMetricError
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.wire.signatures import require_signatures

if TYPE_CHECKING:
    from sotto.plan.metric import Symbol

#: As names of a module they are found sooner than as those of an Enum.
ACCEPTED, NO_CONSENT, STORE_FULL = Outcome.ACCEPTED, Outcome.NO_CONSENT, Outcome.STORE_FULL
GIVEN = Consent.GIVEN
_FORGETS = (
    "there is no state file (NO_LIFETIME_BOUND): no lifetime bound survives this process, nor does "
    "what is not sent"
)


class Client(Sending, Inspecting):
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
    state : path or NO_LIFETIME_BOUND
        The device's file, made if absent. One file belongs to one collector; several clients and
        processes may use it. ``NO_LIFETIME_BOUND`` instead keeps all in memory and warns once.
        Ceilings and consent then hold for this client alone: every other one, also in the same
        process, is a new device. None is an error.
    publisher : Publisher
        Takes the messages. The client never closes it, since several clients may share it.
    clock : callable
        Returns milliseconds since the epoch; fractions are cut off. Budget periods only advance:
        one reading far in the future, once used, moves the ledger there for good. Then every
        recording until that time counts as made then, and if it lies beyond the plan's
        ``expires``, nothing is recorded any more and what was to be sent lapses.
    ceilings : Ceilings, optional
        In micro-epsilon (``Ceilings.of_epsilon(3, 60)`` takes epsilons). The lowest of these, the
        settings', the environment's and the plan's are pinned in a new store. In an existing one
        each can lower what is pinned, and none can raise it (see :meth:`renew_consent`). Whatever
        another process's consent pins, this client records and sends no more than its own allow.
    background : bool, optional
        Whether reports are sent without being asked for. If not, call :meth:`flush`.
    quota : Quota, optional
        How much may wait for being sent, and for how long.
    settings : Settings, optional
        All that is not given above; by default what the environment's variables say, read now
        and never again. Whatever is given, of ``SOTTO_DISABLED`` and ``SOTTO_CEILING_*`` and the
        app's own the stricter holds.
    expect : str, optional
        The fingerprint of the plan that the app was made for, as ``sotto plan fingerprint`` prints
        it; another plan is refused. For plans that the app fetches.

    Raises
    ------
    PlanError
        The plan cannot be honoured, or is not the one expected, or the store belongs to another
        collector or period length.
    ParameterError
        The ceilings are below 1,000 micro-epsilon, or the period's exceeds the lifetime's.
        Or an argument or a setting is nothing that could serve as such.
        Or a variable about privacy cannot be understood.
    StoreError
        The state file cannot be used.
    ModuleNotFoundError
        The plan requires signatures, and the extra ``signatures`` is not installed.

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
    >>> from clientsdk import NO_LIFETIME_BOUND
    >>> from clientsdk.publishers import MemoryPublisher
    >>> from clientsdk.testing import FakeClock, small_plan
    >>> plan, clock, publisher = small_plan(), FakeClock(), MemoryPublisher()
    >>> with Client(
    ...     plan,
    ...     state=NO_LIFETIME_BOUND,
    ...     publisher=publisher,
    ...     clock=clock,
    ...     background=False,
    ... ) as client:
    ...     given = client.give_consent()
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
        state: str | os.PathLike[str] | Forgetful,
        publisher: Publisher,
        clock: Callable[[], int] = now_ms,
        ceilings: Ceilings | None = None,
        background: bool | None = None,
        quota: Quota | None = None,
        settings: Settings | None = None,
        expect: str | None = None,
    ) -> None:
        self.plan = expected_plan(read_plan(plan), expect)
        if self.plan.signed:
            require_signatures()
        publisher = checked_publisher(publisher)
        self.settings = configured(settings, background=background, quota=quota)
        if self.settings.log is not None:
            complaints.let_pass(self.settings.log)
        self._clock = clock
        self._metrics = {metric.name: metric for metric in self.plan.metrics}
        source = self._source()
        pinned = self.settings.lowered(self.plan.ceilings)
        if ceilings is not None:
            pinned = self.settings.lowered(lowered(checked_ceilings(ceilings), self.plan.ceilings))
        path = checked_path(state)
        self._off = self.settings.disabled
        self._file = path
        if self._off:
            path = None
        elif path is None:
            self._warn_that_it_forgets()
        quota = self.settings.quota
        self._store = Store(path, self.plan, pinned, self._now(), source, quota)
        tell_if_nothing_fits(self.plan, self._store.ceilings)
        self._refusals = disabled.refusals(self.plan) if self._off else self._store.refusals
        self._admission = Admission(self._store, self.plan, source)
        self._tally = Tally(self._metrics)
        self._became = self._tally.became
        self._sender = Sender(self._store, self.plan.period, publisher, quota.age)
        self._background = (
            Background(self._store, self.plan.resolution, self._now, self.next_due, self._do_errand)
            if self.settings.background and not self._off
            else None
        )

    def _warn_that_it_forgets(self) -> None:
        complaints.warn("memory", _FORGETS, quiet=math.inf)

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
        try:
            refusal = self._refusals.get(metric)
            if refusal is not None:
                outcome, plain, until, stale = refusal
                if type(value) not in plain:
                    # Only whether it is of the right type: what becomes of it is the same.
                    self._metrics[metric].encode(value)
                if (until is None or self._clock() < until) and (
                    stale is None or monotonic() < stale
                ):
                    self._became[outcome][metric] += 1
                    sender = self._background
                    if sender is not None and sender.idle and outcome is not NO_CONSENT:
                        # There may be older values to be sent.
                        sender.start()
                    return outcome
            known = self._metrics.get(metric)
            if known is None:
                # Not the name that was given: it may be a value in the wrong place.
                raise UnknownMetricError(
                    f"plan {self.plan.plan!r} has no such metric; it has {', '.join(self._metrics)}"
                )
            outcome = self._record(known, known.encode(value))
            self._became[outcome][metric] += 1
            sender = self._background
            if sender is not None:
                if sender.idle:
                    if outcome is not NO_CONSENT and outcome is not STORE_FULL:
                        # Whatever became of this value: there may be older ones to be sent.
                        sender.start()
                elif outcome is ACCEPTED:
                    sender.heed()
            return outcome
        except BaseException as error:
            # Also an interrupt: no frame that it came through keeps the value.
            del metric, value
            drop_locals(error)
            raise

    def _record(self, metric: CompiledMetric, symbol: Symbol) -> Outcome:
        now = self._now()
        try:
            refused = self._refused(now)
            outcome = self._admission.record(metric, symbol, now) if refused is None else refused
            if outcome is STORE_FULL:
                complaints.warn("quota", "values are refused: the quota is used up")
        except (StoreError, OSError) as error:
            # The second where the operating system gives no randomness.
            outcome = STORE_FULL
            complaints.warn("store", "values are refused: %s", str(error))
        if outcome is NO_CONSENT or outcome is Outcome.EXPIRED:
            self._keep_up(now)
        return outcome

    def _refused(self, now: int) -> Outcome | None:
        """Return why nothing can be recorded now, None if the store is to decide."""
        store = self._store
        if store.stopped or (store.consent is not GIVEN and not self._consented()):
            return NO_CONSENT
        if now >= self.plan.expires:
            store.deny(self.plan, Outcome.EXPIRED)
            return Outcome.EXPIRED
        return None

    def _consented(self) -> bool:
        """Look whether another process was given consent; if not, look again a while later."""
        store = self._store
        with store.transaction(Access.READ):
            if not store.consented:
                # While the store is locked: consent that this process is given comes later.
                store.deny(self.plan, NO_CONSENT)
            return store.consented
