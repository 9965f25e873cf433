"""The client: what an app sees of Sotto."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from clientsdk import diagnostics, disabled
from clientsdk.diagnostics import drop_locals
from clientsdk.lifecycle import NoFork, Unshared
from clientsdk.outcomes import CLOSED, Consent, FlushResult, Outcome
from clientsdk.settings import (
    LONGEST,
    Forgetful,
    Opening,
    Quota,
    Settings,
    checked_clock,
    checked_path,
    checked_publisher,
    checked_segments,
    configured,
    read_plan,
)
from clientsdk.stats import OutcomeTally, Stats
from sotto.clocks import EARLIEST, if_known, now_ms, plausible
from sotto.errors import (
    SottoError,
    StoreError,
    UnknownMetricError,
    ValueTypeError,
    seconds_of,
    type_of,
)
from sotto.plan.compiled import Ceilings, CompiledPlan, check

# The modules that record and send are imported when a client first needs them: a client that is
# switched off costs the run of a tool a quarter of what another one does. All modules that every
# client imports do without typing: type checkers take any TYPE_CHECKING for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any, Literal, Self, Unpack

    from clientsdk.consent import ConsentKeeper
    from clientsdk.ledger import Ledger
    from clientsdk.outcomes import Refusal
    from clientsdk.preview import Preview
    from clientsdk.publishers import Publisher
    from clientsdk.sending.worker import Worker
    from clientsdk.settings import ClientOptions
    from mechanisms.randomness import Source
    from sotto.plan.compiled import CompiledMetric

#: As names of a module they are found sooner than as one of an Enum.
NO_CONSENT, _CLOSED = Outcome.NO_CONSENT, Outcome.CLOSED
#: With these there is nothing that a thread might send.
QUIET = (NO_CONSENT, _CLOSED)
#: With these nothing is recorded.
UNGIVEN = (Consent.NEVER_GIVEN, Consent.WITHDRAWN)
#: Seconds after which consent is looked for again, where another process may give it.
_LOOK = 0.05
_FORGETS = (
    "there is no state file (NO_LIFETIME_BOUND): no lifetime bound survives this process, nor does "
    "what is not sent"
)
#: Attributes that :meth:`Client._open` makes.
_PARTS = ("_store", "_recorder", "_consent", "_outgoing")
_SHOWN = ("plan", "settings")
_STOPS = "withdraw_consent() stops a client, and Settings(disabled=True) makes one that is off"


class Client(Unshared):
    """Records values under a plan and sends what is due.

    Making one opens no connection. Unless ``background`` is false, a thread sends each report when
    it is due. It starts with the first recording, or at once if consent is given and something
    waits, waits longer after each failure, and has less than a second when the interpreter ends;
    what is not delivered then stays in the state file. Threads may share a client, signal handlers
    and event loops may call :meth:`record`, and a child of a fork goes on with a thread of its own.

    One state file is one device. On a server the installation is the device, and its operator
    consents: visitors who share a client share its one answer. Randomize a visitor's answer in the
    visitor's browser: a server that randomizes it has already seen it.

    Parameters
    ----------
    plan : CompiledPlan, bytes or path
        The compiled plan, its canonical JSON, or a file that holds it.
    state : path or NO_LIFETIME_BOUND
        The device's file, made when it is first needed, at the latest by consent. One file belongs
        to one collector; several clients and processes may use it. ``NO_LIFETIME_BOUND`` keeps all
        in memory and warns once: ceilings and consent then hold for this client alone, and every
        other one is a new device.
    publisher : Publisher or str
        Takes the messages. The client never closes it, since several clients may share it. The
        client closes one that it makes itself, of the URL of a collector
        (``"https://telemetry.example"``), of an embedded log (``"file:build/log"``) or of a Kafka
        topic in the clear (``"kafka://broker:9092/reports-e1-p8"``).
    clock : callable
        Returns seconds since the epoch, as ``time.time`` does. Before 2020 and from 2100 on it
        cannot be right: nothing is recorded or sent then. A clock that was ahead is followed back,
        and what was recorded meanwhile is erased; what was charged for it stays charged.
    ceilings : (float, float), optional
        Epsilons of a period and of a lifetime, such as ``(3, 60)``. The lowest of these, the
        settings', the environment's and the plan's are pinned in a new store. In an existing one
        they lower what is pinned and never raise it (see :meth:`renew_consent`). Whatever another
        process pins, this client records and sends no more than its own allow.
    background, quota : optional
        As in ``settings``, which they override. Without a thread call :meth:`flush`.
    settings : Settings, optional
        By default what the environment's variables say, read now and never again. The stricter
        holds of the app's own and the switches (such as ``SOTTO_DISABLED``, ``DO_NOT_TRACK`` and,
        unless ``in_ci``, those of continuous integration) and ``SOTTO_CEILING_*``.
    expect : str, optional
        What pins the plan that the app was made for, as ``sotto plan fingerprint`` prints it: its
        fingerprint, or with ``--document`` the digest of all of it; another plan is refused.
    segments : mapping of str to str, optional
        What this device is, by the plan's segments, such as ``{"os": "linux"}``: public, and sent
        in the clear. See :meth:`set_segments`.

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
    Nothing is recorded or sent before consent is given. All that leaves the device in one budget
    period costs at most the ceiling; all plans of a collector share it. Number, metric and time
    (truncated to the plan's resolution) of recordings are not protected.

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
    _own_publisher: Publisher | None = None
    #: Whether the device is nobody's: no wish of a person's and no CI switches it off, and what it
    #: forgets is nobody's loss.
    _simulated = False
    _asleep = _unchecked = _held_back = False
    _segments: Mapping[str, str | None] = {}

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | Forgetful,
        publisher: Publisher | str,
        clock: Callable[[], float] = time.time,
        ceilings: tuple[float, float] | Ceilings | None = None,
        background: bool | None = None,
        quota: Quota | None = None,
        settings: Settings | None = None,
        expect: str | None = None,
        segments: Mapping[str, str | None] | None = None,
    ) -> None:
        settings = configured(
            settings, simulated=self._simulated, background=background, quota=quota
        )
        path = checked_path(state)
        self._unchecked = not (isinstance(plan, CompiledPlan) or settings.disabled)
        plan = read_plan(plan, expect, honoured=False)
        self._segments = {} if segments is None else checked_segments(plan, segments)
        if plan.signed:
            from sotto.wire.signatures import require_signatures

            require_signatures()
        sink = checked_publisher(publisher)
        pinned = settings.pinned(plan, ceilings)
        if path is not None and not settings.disabled:
            # A device at which nobody has agreed to anything needs no store before somebody does,
            # unless it has ceilings to pin.
            given = ceilings, settings.ceiling_period, settings.ceiling_lifetime
            unused = given == (None, None, None) and disabled.is_unused(path)
            self._asleep = unused or os.path.exists(path)
        self._set_up(plan, settings, checked_clock(clock), pinned, path, sink)
        self._own_publisher = None if sink is publisher else sink

    def _set_up(
        self,
        plan: CompiledPlan,
        settings: Settings,
        clock: Callable[[], int],
        ceilings: Ceilings,
        path: str | None,
        publisher: Publisher,
        why: str | None = None,
    ) -> None:
        self.plan, self.settings, self._file = plan, settings, path
        if settings.log is not None:
            diagnostics.set_level(settings.log)
        self._clock, self._now = clock, plausible(clock, self._earliest)
        self._metrics = {metric.name: metric for metric in plan.metrics}
        self._measured = frozenset(metric.name for metric in plan.measured)
        self._tally = OutcomeTally(self._metrics)
        self._outcomes = self._tally.outcomes
        self._worker: Worker | None = None
        self._to_open, self._closed = (ceilings, publisher), False
        self._refusals: dict[str, Refusal] = {}
        off = settings.disabled and why is None
        if settings.disabled:
            why = why or disabled.switched_off(settings, simulated=self._simulated)
            self._refusals = disabled.refusals(plan, Outcome.DISABLED)
        self._errors = disabled.ErrorPolicy(self._tally, why, off)
        if not settings.disabled and self._sleeps() is None:
            if path is None and not self._simulated:
                diagnostics.warn("memory", _FORGETS, quiet=math.inf)
            self._open()
            self._attend()

    def _open(self) -> None:
        with NoFork():
            # A child of a fork in the middle of an import would wait for its end for ever.
            from clientsdk.sending.parts import open_parts

            if self._is_open:
                return
            if self._closed:
                raise StoreError(f"the device's store cannot be used: {CLOSED}")
            if self._unchecked:
                check(self.plan)
                self._unchecked = False
            parts = open_parts(self._opening())
            if self._is_open:
                # A signal handler has opened it meanwhile.
                parts.store.close()
                return
            self._recorder, self._consent = parts.recorder, parts.consent
            self._outgoing = parts.outgoing
            if not self.settings.disabled:
                self._recorder.segments = self._segments
                self._recorder.held_back = self._held_back
                if not self._held_back:
                    self._refusals = parts.store.refusals
                if self.settings.background:
                    self._worker = self._outgoing.in_background(self.plan.resolution)
            self._store, self._asleep = parts.store, False

    def _wakes(self) -> bool:
        """Open the store for a recording; if that fails, say so and return False."""
        try:
            self._open()
        except (SottoError, OSError) as error:
            diagnostics.warn("store", "values are being dropped: %s", str(error))
        return self._is_open

    def _sleeps(self) -> Consent | None:
        """Return what was said at a device whose store need not be opened, None if it has to be.

        The store is opened when it is first needed, and stays open.
        """
        if not self._asleep or self._closed or self._file is None:
            return None
        said = disabled.said(self._file, self.plan, self._to_open[0], if_known(self._now))
        # Each period in which a client runs is measured, whether or not anything is recorded.
        return None if said is Consent.GIVEN and self.plan.measured else said

    def _attend(self) -> None:
        """Begin the plan's measures, at a use that records nothing."""
        if self.plan.measured and self._is_open and not self.settings.disabled:
            self._outgoing.settle(if_known(self._now)())
            if self._worker is not None and self._store.consented:
                self._worker.recorded(Outcome.ACCEPTED)

    def _opening(self) -> Opening:
        given = self.plan, self.settings, self._file, *self._to_open
        return Opening(*given, self._now, self._source(), self._tally)

    @property
    def _is_open(self) -> bool:
        return "_store" in vars(self)

    if not TYPE_CHECKING:  # Type checkers are to refuse names that a client does not have.

        def __getattr__(self, name):
            """Make what a client that is switched off works with when needed, in memory."""
            if name not in _PARTS or "_to_open" not in vars(self):
                has = [*_SHOWN, *(each for each in dir(Client) if each[0] != "_")]
                raise AttributeError(f"a client has no {name!r}; it has {', '.join(has)}")
            if name == "_consent" and self.settings.disabled:
                from clientsdk.sending.parts import consent_of

                # A withdrawal is noted also where no store can be made.
                self._consent = consent_of(self._opening())
            else:
                self._open()
            return vars(self)[name]

        def __setattr__(self, name, value):
            """Refuse what would change nothing, such as ``disabled``, a switch of other SDKs."""
            known = name in _SHOWN or name.startswith("_") or hasattr(Client, name)
            # A class of an app's own may have attributes of its own.
            if (name in _SHOWN and name in vars(self)) or (type(self) is Client and not known):
                raise AttributeError(f"{name!r} cannot be set: {_STOPS}")
            super().__setattr__(name, value)

    @staticmethod
    def open(
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | Forgetful,
        publisher: Publisher | str,
        on_error: Literal["disable", "raise"] = "disable",
        **options: Unpack[ClientOptions],
    ) -> Client:
        """Make a client that never stops its app, whatever is wrong with disk, plan or environment.

        This logs one line and returns a disabled client in all cases in which :class:`Client` would
        raise: every outcome is ``disabled``, and ``stats().disabled`` says why. One that could be
        made counts what :meth:`record` would raise as ``invalid``, and only
        :meth:`withdraw_consent`, :meth:`ledger` and :meth:`preview` raise where the store fails.
        With ``on_error="raise"``, or ``SOTTO_ON_ERROR=raise`` in the environment, it is
        :class:`Client` as it is, whose other arguments are the ``options``.
        """
        raises = disabled.raises(on_error)
        try:
            disabled.check_options(options, Client.__init__.__kwdefaults__ or ())
            client = Client(plan, state=state, publisher=publisher, **options)
        except Exception as error:
            if raises:
                raise
            client = Client.__new__(Client)
            client._disable(disabled.reason_of(error), plan, state)
        client._errors.lenient = not raises
        return client

    def _disable(self, reason: str, plan: Any, state: Any) -> None:
        text = "telemetry is disabled: %s; SOTTO_ON_ERROR=raise in the environment raises the error"
        diagnostics.warn("disabled", text, reason)
        known = disabled.if_usable(lambda: read_plan(plan, None), disabled.NO_PLAN)
        path = disabled.if_usable(lambda: checked_path(state), None)
        off = Settings(disabled=True)
        from clientsdk.publishers import MemoryPublisher

        self._set_up(known, off, now_ms, known.ceilings, path, MemoryPublisher(), reason)
        if path is None and state is not Forgetful.NO_LIFETIME_BOUND:
            self._consent.file_unknown = True

    def _source(self) -> Source:
        from mechanisms.randomness import SystemSource

        return SystemSource()

    def record(self, metric: str, value: object) -> Outcome:
        """Randomize a value and store the outputs, or return why not.

        The outcome never depends on the value, which is forgotten before this returns. A number
        outside its range is clipped, a category outside its domain becomes what the plan says. All
        reports of a constant metric are of the first value ever recorded; later ones only say that
        a period is to have a report. A value of a top item is one occurrence, counted in memory
        until the period is over. Raises UnknownMetricError, or ValueTypeError, whose message never
        contains the value.
        """
        try:
            refusal = self._refusals.get(metric)
            if refusal is not None and metric not in self._measured:
                outcome, plain, since, until, stale = refusal
                if type(value) not in plain:
                    # Only whether it is of the right type: what becomes of it is the same.
                    self._metrics[metric].encode(value)
                if (since is None or since <= self._clock() < until) and (
                    stale is None or monotonic() < stale
                ):
                    self._outcomes[outcome][metric] += 1
                    if outcome is _CLOSED:
                        diagnostics.warn("closed", "values are being dropped: %s", CLOSED)
                    worker = self._worker
                    if worker is not None and worker.idle and outcome not in QUIET:
                        # There may be older values to be sent.
                        worker.start()
                    return outcome
            known = self._metrics.get(metric)
            if known is None and isinstance(value, str) and value in self._metrics:
                raise UnknownMetricError("metric and value are swapped: pass record(metric, value)")
            if self._measured and (known is None or metric in self._measured):
                return self._feed("record", metric, value)
            known = known or self.plan.metric(metric)
            return self._take(known, known.encode(value))
        except BaseException as error:
            # Also an interrupt: no frame that it came through keeps the value.
            name = disabled.counted_under(metric, error)
            kind, unhashable = type_of(metric), metric.__hash__ is None
            del metric, value
            drop_locals(error)
            if self._errors.lenient and isinstance(error, Exception):
                return self._errors.count_invalid(name, disabled.reason_of(error))
            if not (unhashable and isinstance(error, TypeError)):
                raise
        raise ValueTypeError(f"metric must be the name of one, a str; got {kind}")

    def _count(self, outcome: Outcome, metric: CompiledMetric) -> Outcome:
        """Count an outcome and return it; none of a measure, whose value may be how many it had."""
        return outcome if metric.measure else self._tally.count(outcome, metric.name)

    def _take(self, metric: CompiledMetric, symbol: Any) -> Outcome:
        if self._asleep:
            if self._sleeps() in UNGIVEN:
                diagnostics.info_once(disabled.NOT_RECORDED)
                # All values are refused until consent is to be looked for again.
                self._refusals = disabled.refusals(self.plan, NO_CONSENT, monotonic() + _LOOK)
                return self._count(NO_CONSENT, metric)
            if not self._wakes():
                return self._count(Outcome.STORE_FULL, metric)
        outcome = self._recorder.attempt(metric, symbol, self._now(), self._consent)
        self._count(outcome, metric)
        if self._worker is not None:
            self._worker.recorded(outcome)
        return outcome

    def count(self, event: str, times: int = 1) -> Outcome:
        """Count an event for the plan's measures of it, ``count``, ``days`` and ``used``.

        The device keeps the count in its file, as the plan says (``stored: true``), and draws one
        answer from it at the first use after the budget period. The outcome is the same whatever
        was counted: it is accepted as soon as one of the measures takes it. A use is noted in
        memory, and written at fixed times, the last of which is :meth:`close`. Raises
        UnknownMetricError if nothing in the plan counts the event, and ValueTypeError if ``times``
        is no int; below one it counts nothing.
        """
        try:
            return self._feed("count", event, times)
        except BaseException as error:
            name = disabled.counted_under(event, error)
            del event, times
            return self._unfed(name, error)

    def reach(self, metric: str, step: str) -> Outcome:
        """Note that a step was reached, for a metric that measures the ``furthest`` in a period.

        A step that the plan does not list changes nothing. The rest is as for :meth:`count`.
        """
        try:
            return self._feed("reach", metric, step)
        except BaseException as error:
            name = disabled.counted_under(metric, error)
            del metric, step
            return self._unfed(name, error)

    def _feed(self, method: str, name: str, value: object) -> Outcome:
        """Add a value to all measures that a method feeds under a name."""
        fed = self.plan.fed(method, name)
        amounts = [metric.amount(value) for metric in fed]
        found = []
        for metric, each in zip(fed, amounts, strict=True):
            refusal = self._refusals.get(metric.name)
            if refusal is not None and refusal.holds(self._clock):
                found.append(refusal.outcome)
            elif metric.holds_response:
                # In memory: neither opens the store nor wakes the thread.
                noted = NO_CONSENT
                if self._is_open:
                    noted = self._recorder.note_use(metric, each, self._now())
                found.append(noted)
            else:
                found.append(self._take(metric, each))
        return Outcome.ACCEPTED if Outcome.ACCEPTED in found else found[0]

    def _unfed(self, name: str, error: BaseException) -> Outcome:
        """Count what should not have been counted, or raise its error without the value."""
        drop_locals(error)
        if self._errors.lenient and isinstance(error, Exception):
            return self._errors.count_invalid(name, disabled.reason_of(error))
        raise error

    def set_segments(self, segments: Mapping[str, str | None]) -> None:
        """Say what this device is from now on, by the plan's segments: all of it, each time.

        Everything recorded from now on is sent with it; what is recorded already keeps the segment
        that it has. A segment that is not named, and a value that the plan does not list, is
        ``other``. Raises ParameterError if the plan has no such segment, or one is no text.

        Privacy
        -------
        A segment is sent in the clear, with every report, and counts as public: it is what a
        server sees anyway, such as the version of an app. Never compute it from a value that is
        recorded, or from anything else that is to be protected.
        """
        if self.settings.disabled:
            return
        try:
            self._segments = checked_segments(self.plan, segments)
            if self._is_open:
                self._recorder.segments = self._segments
        except SottoError as error:
            if not self._errors.lenient:
                raise
            diagnostics.warn("segments", "segments are left as they are: %s", str(error))

    def arm(self, experiment: str) -> str | None:
        """Return the arm of the plan's experiment that this device is in; None if in none.

        It follows from a secret that the device draws when consent is given, and is sent with each
        report. Without consent a device is in no arm. The secret is erased when the budget period
        of a withdrawal is over: a person who agrees again within it is in the same arm, later the
        arm is drawn again. Raises ParameterError if the plan has no such experiment, and
        StoreError if the store cannot be read.
        """
        if self.settings.disabled:
            return None
        return self._errors.attempt(lambda: self._recorder.arm(experiment), lambda error: None)

    @property
    def consent(self) -> Consent:
        """The person's answer, in whatever process, and however little of it could be written.

        A client whose kill switch is on reads no file, and says ``NEVER_GIVEN``. Raises StoreError
        if the store cannot be read.
        """
        never = Consent.NEVER_GIVEN
        said = never if self.settings.disabled else self._sleeps()
        if said is None:
            said = self._errors.attempt(lambda: self._consent.read(), lambda error: never)
        return said

    @property
    def consented(self) -> bool:
        """Whether ``consent`` is given, to all or to some group; errors are as of ``consent``.

        The person's last answer, also while :func:`clientsdk.ask` waits for one to a changed
        document, and nothing is recorded.
        """
        return bool(self.consent)

    @property
    def group_consent(self) -> dict[str, Consent]:
        """The person's answer about each of the plan's groups; errors are as of ``consent``."""
        nothing = dict.fromkeys((name for name, _ in self.plan.groups), Consent.NEVER_GIVEN)
        said = Consent.NEVER_GIVEN if self.settings.disabled else self._sleeps()
        if said in UNGIVEN:
            return dict.fromkeys(nothing, said)
        return self._errors.attempt(lambda: self._consent.groups(), lambda error: nothing)

    def give_consent(self, *, groups: Iterable[str] | None = None, again: bool = False) -> bool:
        """Write down that the person agrees, and return whether what was asked for is given now.

        To be called where the person has said so, at every start if that is convenient. With
        ``groups`` the person agrees to these, and to no others unless they did before. After a
        withdrawal it only warns, once, unless ``again`` says that the person has agreed once more.
        A client whose kill switch is on touches no file and gives no consent.

        Another process on the same file notices within a twentieth of a second. While the rollback
        guard beside the file cannot be written, values are recorded and not sent; after a
        withdrawal that is an error. Raises StoreError, and records nothing, if it was not written.
        """
        return self._agreed(lambda consent: consent.give(None, again, groups))

    def _hold_back(self) -> None:
        """Record nothing until consent is given here: the person is to be asked first."""
        self._held_back = True
        if self._is_open:
            self._recorder.held_back = True
        self._refusals = disabled.refusals(self.plan, NO_CONSENT)

    def _agreed(self, write: Callable[[ConsentKeeper], bool]) -> bool:
        """Write down what the person agrees to, and return whether it is given now."""
        given = self._errors.attempt(lambda: write(self._resumed()), lambda error: False)
        self._attend()
        return given

    def _resumed(self) -> ConsentKeeper:
        """Record again what the person agrees to; return what writes that down."""
        if not self.settings.disabled:
            self._refusals = self._store.refusals
            self._held_back = self._recorder.held_back = False
        return self._consent

    def renew_consent(
        self, ceilings: tuple[float, float] | Ceilings | None = None, *, again: bool = False
    ) -> bool:
        """Write down that the person agrees to other ceilings, higher ones included.

        Epsilons of a period and of a lifetime, by default the plan's, which in any case bound what
        is spent, as do those of the settings and the environment, here and in other clients. The
        ``ceilings`` that this client was made with give way to these. The rest is as for
        :meth:`give_consent`, but what is said of groups stays; without ``again`` a withdrawal
        stands, and no ceiling changes.
        """
        return self._agreed(lambda consent: consent.renew(ceilings, again))

    def withdraw_consent(self, *, groups: Iterable[str] | None = None) -> bool:
        """Stop at once, and erase every chain, sent or not, with the pseudonyms of past periods.

        With ``groups`` of these alone, or of everything where that cannot be written now. Amounts
        reserved and spent stay in the ledger, so that agreeing again in the same period starts
        where it stopped. The kill switch does not keep a person from withdrawing. A flush under way
        elsewhere hands its publisher no further message; what that has by then may still go out:
        the messages since its last sync, of at most 4,096 reports, all of them charged.

        It is noted first, for all processes and across restarts, in bytes that the rollback guard
        beside the file already has. The note stands if the file cannot be written, as on a full
        disk, and whoever next opens the file, records or sends writes and erases first.

        Returns whether no trace is left in the file. If not, because another process was reading it
        or it could not be written, erasing is tried again at each flush, at :meth:`close` and at
        the next start. Raises StoreError if neither the file nor the guard could be written: this
        client then records and sends nothing and tries again at its next flush, and no other
        process knows of it; say so to the person. Raises PlanError, and changes nothing, if this
        client is switched off and the file is of another budget.
        """
        named = self._consent.named(groups)
        if self.settings.disabled:
            return self._consent.withdraw_though_disabled(named)
        return self._consent.withdraw() if named is None else self._consent.withdraw_groups(named)

    def flush(self, timeout: float | timedelta | None = None) -> FlushResult:
        """Send every report that is due now; of a chain with several levels due, the newest alone.

        Each report is charged before it is sent, in a commit that survives a loss of power. One of
        several processes on one file sends at a time; the others wait up to ten seconds, or up to
        ``timeout``: seconds, or a timedelta, of at most ten minutes, after which this returns
        whatever the publisher does, and no message is begun later. Without it the publisher's own
        limits are all there is.

        The result says what ended the flush early: a publisher that takes nothing or raises what it
        should not, and a full disk are no exceptions. A later flush sends again, byte for byte,
        what was not delivered. Raises StoreError if the store cannot even be read.

        Privacy
        -------
        A message never mixes pseudonyms, but whoever watches the transport can link messages sent
        in one flush. The background thread sends each at a time of its own; without it, flush when
        :meth:`next_due` says, rather than seldom and in bulk.
        """
        wait = None if timeout is None else seconds_of("timeout", timeout, 0, LONGEST)
        self._withdraw_if_owed()
        if self.settings.disabled or self._sleeps() is not None:
            return FlushResult(0, 0)
        from clientsdk.sending.sender import bare

        return self._errors.attempt(
            lambda: self._outgoing.flush_within(wait),
            lambda error: FlushResult(0, 0, error=bare(error)),
        )

    def _withdraw_if_owed(self) -> None:
        if "_consent" in vars(self):
            self._consent.withdraw_if_owed()

    async def aflush(self, timeout: float | timedelta | None = None) -> FlushResult:
        """Do what :meth:`flush` does, while the event loop of asyncio goes on."""
        from clientsdk.sending.tasks import run_in_thread

        return await run_in_thread(lambda: self.flush(timeout))

    def close(self, timeout: float | timedelta | None = None) -> FlushResult:
        """Close the store; what is not delivered stays there. May be called again.

        The background thread, if its last attempt has not failed, first sends what is due of one
        pseudonym. Items counted in a period that is not over are lost; what they cost stays
        reserved, for another client to go on counting. From now on :meth:`record` answers
        ``closed`` and all else raises StoreError. ``timeout``, by default what the settings
        say, one second, is how many seconds, at most 600, to wait at most for that thread, whatever
        its publisher does; an error in the result says that it had not ended by then.
        """
        timeout = self.settings.close_timeout if timeout is None else timeout
        wait = seconds_of("timeout", timeout, 0, LONGEST)
        self._withdraw_if_owed()
        try:
            self._closed = self._closed or not self._is_open
            result = (
                self._outgoing.close(self._worker, wait) if self._is_open else FlushResult(0, 0)
            )
            if not self.settings.disabled:
                self._refusals = disabled.refusals(self.plan, Outcome.CLOSED)
            return result
        finally:
            if self._own_publisher is not None:
                self._own_publisher.close()

    async def aclose(self, timeout: float | timedelta | None = None) -> FlushResult:
        """Do what :meth:`close` does, while the event loop of asyncio goes on."""
        from clientsdk.sending.tasks import run_in_thread

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

        The end of the period in which items are being counted is among them. A chain of items whose
        period is over is drawn and stored first, as by every call that looks at what waits.
        """
        if self.settings.disabled or self._sleeps() is not None:
            return None
        return self._errors.attempt(lambda: self._outgoing.next_due(), lambda error: None)

    def ledger(self) -> Ledger:
        """Return what was reserved and spent, period by period, and the chains still to be sent.

        Those of items counted in a period that is over are among them: they are drawn and stored
        first. Raises StoreError if the store cannot be read, or the kill switch is on.
        """
        self._errors.refuse_if_switched_off("the ledger cannot be read")
        if self.settings.disabled and self._file is not None and os.path.exists(self._file):
            from clientsdk.ledger import read_file

            return read_file(self._file)
        self._outgoing.settle(self._now())
        return self._store.ledger()

    def stats(self) -> Stats:
        """Return what this client has done in this process, and what waits in its store.

        It raises nothing. :mod:`clientsdk.prometheus` exposes the same to Prometheus.
        """
        waits = self._outgoing.totals() if self._is_open else (0, 0, 0)
        return self._tally.stats(waits, self._errors.why)

    def preview(self) -> Preview:
        """Return exactly what would be sent, byte for byte, if nothing more were recorded.

        Each report is shown as it is sent when it is due. Nothing is sent or charged. Items counted
        in a period that is over are drawn and stored first; of those still being counted nothing is
        drawn or shown. Raises StoreError as :meth:`ledger` does. To be shown to the person at this
        device, and never logged.
        """
        from clientsdk.preview import preview

        self._errors.refuse_if_switched_off("what would be sent cannot be read")
        now = self._now()
        self._outgoing.settle(now)
        return preview(self._store, self._outgoing.sender, now)
