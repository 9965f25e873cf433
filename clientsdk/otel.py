"""Records what an app measures with OpenTelemetry under local differential privacy.

A metric of the plan says which instrument feeds it: ``otel: {instrument: NAME}``. Each single value
is randomized as :meth:`clientsdk.Client.record` does it. That takes a provider: an exporter sees
the sums of an interval alone. An attribute is read only if it has the name of one of the plan's
segments, or a category's metric names it; all other attributes, the context and the resource are
never looked at. Needs ``opentelemetry-api``, which the extra ``otel`` brings.

>>> from clientsdk.testing import SeededClient, small_plan
>>> provider = SottoMeterProvider(SeededClient(small_plan(), seed=1))
>>> provider.get_meter("app").create_histogram("not.in.the.plan").record(3.5)
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from opentelemetry.metrics import (
    CallbackOptions,
    CallbackT,
    Meter,
    MeterProvider,
    NoOpMeter,
    Observation,
)
from opentelemetry.util.types import Attributes

from clientsdk import diagnostics, disabled
from clientsdk.client import Client
from clientsdk.outcomes import Outcome
from clientsdk.settings import CONSENT, PLACES
from sotto.errors import ParameterError, wrong_type
from sotto.plan.metric import CompiledMetric

#: The use made of a measurement: as a method of an instrument, with an amount, its attributes and
#: its context.
Take = Callable[..., Outcome]
#: Seconds between two looks whether a budget period has begun. The first look comes sooner, yet not
#: before an app has made what its callbacks ask.
_LOOK, _FIRST_LOOK = 60.0, 1.0
#: With these outcomes a period has no answer to an observable, and its callback is asked again.
_UNANSWERED = (Outcome.NO_CONSENT, Outcome.STORE_FULL, Outcome.BAD_CLOCK)
#: Kinds of instruments whose single amounts are values of a number.
_AMOUNTS = ("histogram", "gauge", "observable gauge", "observable up-down counter")
#: Kinds of which each measurement can be one value of a category.
_EVENTS = ("histogram", "gauge", "counter")
#: Kinds that feed a measure, where they are others than those of a number.
_MEASURED = {"count": ("counter",), "last": (*_AMOUNTS, "up-down counter")}


class SottoMeterProvider(MeterProvider):
    """Feeds the metrics of a client's plan; use it as any provider of meters.

    ``OTEL_PYTHON_METER_PROVIDER=sotto`` makes one without code; ``SOTTO_PLAN``,
    ``SOTTO_STATE_FILE`` and ``SOTTO_PUBLISHER`` then name the three arguments of the client.
    Instruments never raise, and a metric that an instrument cannot feed is logged once.

    Parameters
    ----------
    client : Client, optional
        By default the one that the environment describes. The provider records nothing if a
        variable is missing, and never stops the app.
    also : MeterProvider, optional
        Receives every measurement as it is, first. Methods that it has beyond those of a provider
        are this provider's too.

    Raises
    ------
    ParameterError
        An argument is not as it should be; or, where ``SOTTO_ON_ERROR=raise``, a variable.

    Privacy
    -------
    The number and times of measurements are not protected, as those of recordings. Values of an
    attribute that the plan has as a segment are sent in the clear. A measure's segments are those
    that the app gives to the client.
    """

    def __init__(self, client: Client | None = None, *, also: MeterProvider | None = None) -> None:
        if not isinstance(client, Client | None):
            raise wrong_type("client", "a Client", client)
        if type(also).__name__ == "_ProxyMeterProvider":
            raise ParameterError(
                "also must be a provider that the app has made; got what stands for one until "
                "set_meter_provider is called, and would stand for this one"
            )
        #: The client that records; None if the environment describes none.
        self.client = _client_of_environment() if client is None else client
        self._own_client = self.client if client is None else None
        plan = self.client.plan if self.client else None
        if plan is not None and plan.metrics and not any(each.otel for each in plan.metrics):
            text = "no metric of the plan names an instrument, as otel: {instrument: NAME} does"
            diagnostics.warn("otel", f"instruments record nothing: {text}", quiet=math.inf)
        self._also: Any = also
        self._observed: list[_Observed] = []

    def __getattr__(self, name: str) -> Any:
        also = vars(self).get("_also")
        if also is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(also, name)

    def force_flush(self, *limit: Any, **more: Any) -> Any:
        """Do what ``also`` does; the client's reports are sent when they are due."""
        flush = getattr(self._also, "force_flush", None)
        return flush(*limit, **more) if flush else True

    def shutdown(self, *limit: Any, **more: Any) -> None:
        """Close the client if the environment described it, and shut ``also`` down.

        A client that was passed in stays open: whoever made it closes it.
        """
        if self._own_client is not None:
            self._own_client.close()
            self._observed.clear()
        if hasattr(self._also, "shutdown"):
            self._also.shutdown(*limit, **more)

    def get_meter(
        self,
        name: str,
        version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> Meter:
        """Return a meter whose instruments feed the plan's metrics."""
        named = (name, version, schema_url)
        if self._also is None:
            return _SottoMeter(self, NoOpMeter(*named))
        # Providers made before there were attributes take three arguments.
        more = () if attributes is None else (attributes,)
        return _SottoMeter(self, self._also.get_meter(*named, *more))

    def observe(self) -> None:
        """Ask the callbacks of observables that have no answer in this budget period yet.

        A thread does it every minute, unless the client has none. With ``also`` nothing is asked:
        the callbacks' answers to that provider are taken, so that it finds them as ever.
        """
        for each in list(self._observed):
            each.ask()

    def _takes(self, kind: str, name: str, unit: str) -> list[tuple[Take, list[str]]]:
        """Return what takes an instrument's measurements: one for each metric that it feeds.

        Beside it are the segments by which measurements are kept apart.
        """
        taking = []
        for metric in self.client.plan.metrics if self.client else ():
            if metric.otel is None or metric.otel.instrument.lower() != name.lower():
                continue
            problem = _problem(metric, kind, unit)
            if problem:
                _warn(metric, f"instrument {metric.otel.instrument} does not feed it: {problem}")
            elif self.client is not None:
                taking.append(_take(self.client, metric, kind))
        return taking

    def _observe_with(
        self, kind: str, name: str, unit: str, callbacks: Sequence[CallbackT] | None
    ) -> Sequence[CallbackT] | None:
        """Return the callbacks for the other provider, whose answers are taken if any are."""
        takes = self._takes(kind, name, unit)
        if self.client is None or not takes or not callbacks:
            return callbacks
        observed = [_Observed(self.client, name, kind, takes, _asking(each)) for each in callbacks]
        if self._also is not None:
            return [each.pass_on for each in observed]
        self._observed += observed
        if self not in _looking and self.client.settings.background:
            _looking.add(self)
            self._look()
        return callbacks

    def _look(self) -> None:
        """Start the thread that asks observables; no child of a fork inherits it."""
        threading.Thread(target=self._run, name="sotto-otel", daemon=True).start()

    def _run(self) -> None:
        wait, never = _FIRST_LOOK, threading.Event()
        while not never.wait(wait):
            self.observe()
            wait = _LOOK


def _method(kind: str) -> str:
    """Return which method of a meter makes instruments of a kind."""
    return f"create_{kind}".replace("-", "_").replace(" ", "_")


def _created(kind: str) -> Any:
    """Return the method that makes an instrument which an app calls."""

    def create(
        self: _SottoMeter, name: str, unit: str = "", description: str = "", **more: Any
    ) -> Any:
        made = getattr(self._behind, _method(kind))(name, unit, description, **more)
        return self._before(kind, made, name, unit, description)

    return create


def _observed(kind: str) -> Any:
    """Return the method that makes an observable instrument, which calls the app."""

    def create(
        self: _SottoMeter,
        name: str,
        callbacks: Sequence[CallbackT] | None = None,
        unit: str = "",
        description: str = "",
    ) -> Any:
        asked = self._provider._observe_with(kind, name, unit, callbacks)
        return getattr(self._behind, _method(kind))(name, asked, unit, description)

    return create


class _SottoMeter(Meter):
    """Makes each instrument of another meter, and one before it where the plan has a metric."""

    def __init__(self, provider: SottoMeterProvider, behind: Meter) -> None:
        super().__init__(behind.name, behind.version, behind.schema_url)
        self._provider = provider
        self._behind = behind

    def _before(self, kind: str, instrument: Any, *named: str) -> Any:
        takes = self._provider._takes(kind, named[0], named[1])
        if not takes:
            return instrument
        method = "add" if "counter" in kind else {"histogram": "record", "gauge": "set"}[kind]
        quiet = isinstance(self._behind, NoOpMeter)
        call = _call([take for take, _ in takes], None if quiet else getattr(instrument, method))
        base = getattr(NoOpMeter(""), _method(kind))("a")
        made = type(f"Sotto{kind.title()}", (type(base),), {method: staticmethod(call)})
        return made(*named)

    create_counter = _created("counter")
    create_up_down_counter = _created("up-down counter")
    #: The plan's range stands for its buckets.
    create_histogram = _created("histogram")
    create_gauge = _created("gauge")
    #: It feeds nothing, since it never starts anew.
    create_observable_counter = _observed("observable counter")
    #: These two are asked once a budget period.
    create_observable_up_down_counter = _observed("observable up-down counter")
    create_observable_gauge = _observed("observable gauge")


@dataclass(eq=False)
class _Observed:
    """One callback of an observable, whose answer is taken once a budget period."""

    client: Client
    name: str
    kind: str
    takes: Sequence[tuple[Take, list[str]]]
    asking: Callable[[CallbackOptions], Iterable[Observation]]
    answered: int | None = None

    def ask(self) -> None:
        """Ask the callback, if this period has no answer yet and one could be recorded."""
        try:
            if self._period() != self.answered and self.client.consented:
                self._take(list(self.asking(CallbackOptions())))
        except Exception as error:
            # An app's callback may raise anything; its text may hold a value.
            _warn_of(self.name, type(error).__name__)
        except BaseException as error:
            # An interrupt: no frame keeps what was measured.
            diagnostics.drop_locals(error)
            raise

    def pass_on(self, options: CallbackOptions) -> Iterable[Observation]:
        """Ask the callback for the other provider, and return its answer unchanged."""
        found = list(self.asking(options))
        try:
            if self._period() != self.answered:
                self._take(found)
        except Exception as error:
            _warn_of(self.name, type(error).__name__)
        except BaseException as error:
            del found
            diagnostics.drop_locals(error)
            raise
        return found

    def _period(self) -> int:
        return self.client.plan.period_of(self.client._now())

    def _take(self, found: Sequence[Observation]) -> None:
        period, outcomes = self._period(), []
        for take, segments in self.takes:
            parts: dict[tuple[str | None, ...], list[Observation]] = {}
            for each in found:
                given = each.attributes or {}
                part = tuple(_text(given.get(segment)) for segment in segments)
                parts.setdefault(part, []).append(each)
            for alike in parts.values():
                if len(alike) > 1 and self.kind != "observable up-down counter":
                    _warn_of(self.name, "has several values, by attributes that are no segments")
                    continue
                outcomes.append(take(sum(each.value for each in alike), alike[0].attributes))
        if not any(each in _UNANSWERED for each in outcomes):
            self.answered = period


#: Providers with a thread.
_looking: WeakSet[SottoMeterProvider] = WeakSet()
if hasattr(os, "register_at_fork"):
    # Behind the hook of threading, which takes what was started before it for the parent's.
    os.register_at_fork(after_in_child=lambda: [*map(SottoMeterProvider._look, _looking)])


def _client_of_environment() -> Client | None:
    """Return the client that the environment describes; None, and say so once, if it does not."""
    given = [os.environ.get(name, "").strip() for name in PLACES]
    missing = [name for name, value in zip(PLACES, given, strict=True) if not value]
    if missing:
        said = f"OTEL_PYTHON_METER_PROVIDER=sotto needs {' and '.join(missing)} in the environment"
        if disabled.raises("disable"):
            raise ParameterError(said)
        diagnostics.warn("otel", "telemetry is disabled: %s", said, quiet=math.inf)
        return None
    plan, state, publisher = given
    client = Client.open(plan, state=state, publisher=publisher)
    consent = os.environ.get(CONSENT, "").strip()
    if consent == "given":
        client.give_consent()
    elif consent:
        diagnostics.warn("otel", f"{CONSENT} must be given, or unset: nobody has agreed")
    return client


def _problem(metric: CompiledMetric, kind: str, unit: str) -> str:
    """Return why an instrument of a kind and unit cannot feed a metric; empty if it can."""
    category = metric.type == "category"
    measure = metric.measure and metric.measure.kind
    kinds = _EVENTS if category else _MEASURED.get(measure or "", _AMOUNTS)
    if kind not in kinds:
        wanted = "a category" if category else f"a metric of type {metric.type}"
        if measure in _MEASURED:
            wanted = f"the measure {measure}"
        listed = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
        return f"{wanted} takes what a {listed} measures, and no {kind}"
    if not category and unit and metric.unit and unit != metric.unit:
        return f"it measures in {unit!r}, and the plan says {metric.unit!r}"
    return ""


def _record(client: Client, metric: CompiledMetric, kind: str) -> Callable[[str, Any], Outcome]:
    """Return what records, counts or adds up the amounts of an instrument of a kind."""
    measure = metric.measure
    if measure is not None and measure.kind == "count":
        # A part of an event is none, and neither is what is no number.
        return lambda name, amount: client.count(
            measure.of, int(amount) if isinstance(amount, int) or math.isfinite(amount) else 0
        )
    if kind != "up-down counter":
        return client.record
    # A signal handler may add to it while its thread does.
    lock, total = threading.RLock(), 0.0

    def moved(name: str, amount: float) -> Outcome:
        nonlocal total
        with lock:
            total += amount
            return client.record(name, total)

    return moved


def _take(client: Client, metric: CompiledMetric, kind: str) -> tuple[Take, list[str]]:
    """Return what records a measurement as a metric's value, and raises nothing but interrupts.

    Beside it are the segments that are read: none of a measure, whose segments are the device's.
    """
    name, record = metric.name, _record(client, metric, kind)
    attribute = metric.otel and metric.otel.attribute
    segments = [each for each, _ in client.plan.segments] if metric.measure is None else []
    #: No value of a domain is an empty text: the plan says what that becomes.
    absent = None if metric.missing else ""
    if segments:
        # An app whose plan has no segments does without.
        from sotto.plan.segments import MEASURED

    def recorded(amount: Any, given: Mapping[str, Any]) -> Outcome:
        if attribute is not None:
            text = _text(given.get(str(attribute)))
            amount = absent if text is None else text
        return record(name, amount)

    def segmented(amount: Any, given: Mapping[str, Any]) -> Outcome:
        # In a context of their own: an interrupt leaves none of them set.
        alone = copy_context()
        alone.run(MEASURED.set, {each: _text(given[each]) for each in segments if each in given})
        return alone.run(recorded, amount, given)

    within = segmented if segments else recorded

    def take(amount: Any, attributes: Attributes = None, context: Any = None) -> Outcome:
        try:
            return within(amount, attributes or {})
        except BaseException as error:
            # Also an interrupt: neither this frame nor one that it called keeps what was measured.
            del amount, attributes, context
            diagnostics.drop_locals(error)
            if not isinstance(error, Exception):
                raise
            return client._errors.count_invalid(name, disabled.reason_of(error))

    return take, segments


def _call(takes: Sequence[Take], behind: Callable[..., None] | None) -> Callable[..., object]:
    """Return an instrument's method: the other provider first, then the plan's metrics."""
    if behind is None and len(takes) == 1:
        return takes[0]

    def all_of_them(amount: Any, attributes: Attributes = None, context: Any = None) -> None:
        try:
            if behind is not None:
                behind(amount, attributes, context)
            for take in takes:
                take(amount, attributes)
        except BaseException:
            # Also an interrupt: this frame does not keep what was measured.
            del amount, attributes, context
            raise

    return all_of_them


def _asking(callback: CallbackT) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return a callback as a function, also one that is a generator."""
    if not isinstance(callback, Generator):
        return callback
    next(callback)

    def send(options: CallbackOptions) -> Iterable[Observation]:
        try:
            return callback.send(options)
        except StopIteration:
            return ()

    return send


def _text(value: object) -> str | None:
    """Return an attribute's value as a plan lists it; None for one that is no single value."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def _warn(metric: CompiledMetric, said: str) -> None:
    diagnostics.warn(f"otel {metric.name}", f"metric {metric.name}: {said}", quiet=math.inf)


def _warn_of(instrument: str, said: str) -> None:
    text = f"the observable {instrument} is not recorded: {said}"
    diagnostics.warn(f"otel observable {instrument}", text, quiet=math.inf)
