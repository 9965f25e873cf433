"""For tests of apps and for simulations: seeded clients, a clock to move, what was reported.

Whoever knows the seed can predict what a seeded client draws: it protects nobody. A
:class:`~clientsdk.Client` itself cannot be given a seed, by no argument, setting or variable.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict, Unpack, overload

from clientsdk import diagnostics
from clientsdk.client import Client
from clientsdk.outcomes import Outcome
from clientsdk.preview import meaning
from clientsdk.publishers import MemoryPublisher, Publisher
from clientsdk.settings import NO_LIFETIME_BOUND, Quota, Settings
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.testing import SeededSource
from sotto.errors import ParameterError, is_int, unboxed, wrong_type
from sotto.plan.compiled import Ceilings, CompiledMetric, CompiledPlan
from sotto.plan.measures import Measure
from sotto.wire.format import decode_message

_LEAKS = "a seeded client may send what reveals the true values: make a Client in an app"
#: An error shows so many of the reports that were there instead.
_SHOWN = 10
_UNITS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}


class FakeClock:
    """A clock that stands still until it is moved.

    ``now`` is in milliseconds since the epoch, as the times in a ledger are; a call returns
    seconds, as ``time.time`` does.

    >>> clock = FakeClock(0)
    >>> clock.advance(days=1, hours=-1)
    >>> clock(), clock.now
    (82800.0, 82800000)
    """

    def __init__(self, now: int = 1_750_000_000_000) -> None:
        if not isinstance(unboxed(now), int | float):
            raise wrong_type("now", "a number of milliseconds since the epoch", now)
        self.now: int = now

    def __call__(self) -> float:
        return self.now / 1000

    def advance(self, **amounts: int) -> None:
        """Move by ``days``, ``hours``, ``minutes``, ``seconds`` and ``ms``; negative: back."""
        for unit, amount in amounts.items():
            if unit not in _UNITS:
                raise ParameterError(f"a clock is moved by {', '.join(_UNITS)}; got {unit}")
            if not is_int(amount):
                raise wrong_type("what a clock is moved by", "an int", amount)
        self.now += sum(_UNITS[unit] * amount for unit, amount in amounts.items())


class SeededClient(Client):
    """A client whose draws follow from a seed, with consent already given.

    Parameters are as for :class:`~clientsdk.Client`; by default a store in memory, a
    :class:`FakeClock`, a :class:`~clientsdk.MemoryPublisher`, no background thread, which no seed
    makes repeatable, and of the environment only the ``SOTTO_`` variables about privacy. Any other
    publisher is a ParameterError unless ``leaks_values``: what such a client sends reveals the true
    values to anyone who knows the seed, so never give it any of a person.

    >>> client = SeededClient(small_plan(), seed=1)
    >>> client.record("colour", "red"), client.record("colour", "red")
    (<Outcome.ACCEPTED: 'accepted'>, <Outcome.PERIOD_FULL: 'period_full'>)
    """

    _simulated = True

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        seed: int,
        state: str | os.PathLike[str] | None = None,
        publisher: Publisher | None = None,
        clock: FakeClock | None = None,
        leaks_values: bool = False,
        ceilings: tuple[float, float] | Ceilings | None = None,
        consent: bool = True,
        background: bool = False,
        quota: Quota | None = None,
        settings: Settings | None = None,
        segments: Mapping[str, str | None] | None = None,
    ) -> None:
        if not is_int(seed):
            raise wrong_type("seed", "an int", seed)
        self._seeded = SeededSource(seed)
        self.clock = FakeClock() if clock is None else clock
        self.publisher: Publisher = MemoryPublisher() if publisher is None else publisher
        if not leaks_values and not isinstance(self.publisher, MemoryPublisher):
            raise ParameterError(
                f"publisher must be a MemoryPublisher, not {type(self.publisher).__name__}: what a "
                "seeded client sends reveals the true values; leaks_values=True if that is meant"
            )
        if leaks_values:
            diagnostics.warn("seeded", _LEAKS, quiet=math.inf)
        super().__init__(
            plan,
            state=NO_LIFETIME_BOUND if state is None else state,
            publisher=self.publisher,
            clock=self.clock,
            ceilings=ceilings,
            background=background,
            quota=quota,
            settings=Settings() if settings is None else settings,
            segments=segments,
        )
        if consent and not self.settings.disabled:
            self.give_consent()

    def _source(self) -> Source:
        return self._seeded


class SeededOptions(TypedDict, total=False):
    """The arguments that a seeded client may be made without."""

    state: str | os.PathLike[str] | None
    publisher: Publisher | None
    clock: FakeClock | None
    leaks_values: bool
    ceilings: tuple[float, float] | Ceilings | None
    consent: bool
    background: bool
    quota: Quota | None
    settings: Settings | None
    segments: Mapping[str, str | None] | None


class Recorded(NamedTuple):
    """A value that an app handed to a :class:`WatchedClient`, and what became of it.

    ``metric`` is the name that it was handed under, of a measure the one that is measured.
    """

    metric: str
    value: object
    outcome: Outcome
    method: str = "record"  #: The client's: ``record``, ``count`` or ``reach``.


class OutsideDomainWarning(UserWarning):
    """An app has recorded a value that its plan does not name, or that lies outside its range."""


class WatchedClient(SeededClient):
    """A seeded client that also keeps the values: what an app ``recorded``, for its tests alone.

    ``outside`` are those that the plan clips or counts as another value, for each of which there is
    an :class:`OutsideDomainWarning` too: a device would say nothing, since what becomes of a value
    must not depend on it, and the app's developer would never know.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     client = WatchedClient(small_plan())
    ...     outcome = client.record("colour", "mauve")
    >>> str(caught[0].message)
    "metric 'colour': a value that the plan does not name counts as 'other'"
    >>> [(each.metric, each.value) for each in client.outside]
    [('colour', 'mauve')]
    """

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        seed: int = 0,
        **options: Unpack[SeededOptions],
    ) -> None:
        self.recorded: list[Recorded] = []
        self.outside: list[Recorded] = []
        super().__init__(plan, seed=seed, **options)

    def record(self, metric: str, value: object) -> Outcome:
        return self._kept("record", metric, value, super().record(metric, value))

    def count(self, event: str, times: int = 1) -> Outcome:
        return self._kept("count", event, times, super().count(event, times))

    def reach(self, metric: str, step: str) -> Outcome:
        return self._kept("reach", metric, step, super().reach(metric, step))

    def _kept(self, method: str, name: str, value: object, outcome: Outcome) -> Outcome:
        recorded = Recorded(name, value, outcome, method)
        self.recorded.append(recorded)
        plain = [each for each in self.plan.metrics if each.name == name and not each.measure]
        for known in plain or self.plan.fed(method, name):
            # A sum may lie within although its parts do not, as may a count.
            summed = method == "count" or known.measure == Measure("sum", name)
            if summed or known.within(value):
                continue
            self.outside.append(recorded)
            warnings.warn(_outside(known), OutsideDomainWarning, stacklevel=3)
        return outcome

    def values(self, metric: str) -> list[object]:
        """Return the values of a metric, or of what it measures, that were accepted."""
        measure = self.plan.metric(metric).measure
        fed = (measure.method, measure.of or metric) if measure else ("record", metric)
        return [
            each.value
            for each in self.recorded
            if (each.method, each.metric) == fed and each.outcome is Outcome.ACCEPTED
        ]


def _outside(metric: CompiledMetric) -> str:
    """Return what becomes of a value outside a metric's domain; not which value it is."""
    if metric.range is None:
        what = f"a value that the plan does not name counts as {metric.outside!r}"
    else:
        low, high = metric.range
        what = f"a value outside [{low:g}, {high:g}] is clipped"
    return f"metric {metric.name!r}: {what}"


def move_to_turn(client: SeededClient, metric: str, *, turn: bool = True) -> None:
    """Move a client's clock on to a period in which its device answers about a metric, or not.

    For plans that divide devices into panels. The clock is left as it is if the period is such a
    one, else it moves to the beginning of the next. If not ``turn``, values are to be
    ``not_in_panel``: ParameterError for a metric without a panel, of which every period is the
    device's turn.
    """
    if not isinstance(client, SeededClient):
        raise wrong_type("client", "a SeededClient", client)
    panels = client.plan.metric(metric).panel
    if panels == 1 and not turn:
        raise ParameterError(f"metric {metric!r} has no panel: every period is the device's turn")
    store, length = client._store, client.plan.period
    now = max(client.clock.now // length, store.period)
    period = now
    while store.panel.is_turn(panels, period) is not turn:
        period += 1
    if period != client.clock.now // length:
        client.clock.now = period * length


@frozen
class Reported:
    """One report that was sent; ``level`` counts from 1, the weakest.

    Up to it the chain has cost ``epsilon``, in micro-epsilon. ``event`` is the truncated time of
    the recording, in milliseconds since the epoch, ``meaning`` what the payload says: an output of
    the mechanism, not the value. ``message`` says which message it came in, counted from 0.
    """

    metric: str
    level: int
    epsilon: int
    event: int
    meaning: str
    pseudonym: bytes
    chain: bytes
    payload: bytes
    shard: int
    message: int

    def __str__(self) -> str:
        return f"{self.metric}, level {self.level}, says {self.meaning}"


class Reports(Sequence[Reported]):
    """Reports in the order in which they were sent; errors show what all are ``about``."""

    def __init__(
        self, plan: CompiledPlan, reports: Iterable[Reported], about: str = "reports"
    ) -> None:
        self._plan = plan
        self._reports = tuple(reports)
        self._about = about

    def __len__(self) -> int:
        return len(self._reports)

    @overload
    def __getitem__(self, index: int) -> Reported: ...

    @overload
    def __getitem__(self, index: slice) -> Reports: ...

    def __getitem__(self, index: int | slice) -> Reported | Reports:
        if isinstance(index, slice):
            return Reports(self._plan, self._reports[index], self._about)
        return self._reports[index]

    def __repr__(self) -> str:
        lines = [f"{len(self)} {self._about}", *(f"  {each}" for each in self._reports[:_SHOWN])]
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)

    def of(self, metric: str) -> Reports:
        self._plan.metric(metric)
        found = [each for each in self._reports if each.metric == metric]
        return Reports(self._plan, found, f"reports of {metric!r}")

    @property
    def newest(self) -> Reports:
        """The newest of each chain: what an aggregator counts."""
        newest = {each.chain: each for each in sorted(self._reports, key=lambda each: each.level)}
        kept = [each for each in self._reports if newest[each.chain] is each]
        return Reports(self._plan, kept, f"{self._about}, the newest of each chain")

    def only(self) -> Reported:
        """Return the one report that there is; an AssertionError lists what there is instead."""
        self.exactly(1)
        return self._reports[0]

    def exactly(self, wanted: int) -> Reports:
        """Return these, if there are so many; an AssertionError lists them otherwise."""
        if len(self) != wanted:
            raise AssertionError(f"expected {wanted}, but there are {self!r}")
        return self


def reported(client: SeededClient) -> Reports:
    """Return the reports that a client has sent to its memory publisher; TypeError for any other.

    >>> client = SeededClient(small_plan(), seed=1)
    >>> client.record("colour", "red")
    <Outcome.ACCEPTED: 'accepted'>
    >>> client.clock.advance(days=2)
    >>> client.flush().sent
    1
    >>> report = reported(client).of("colour").only()
    >>> report.level, report.meaning
    (2, "'red'")
    """
    if not isinstance(client, SeededClient):
        raise wrong_type("client", "a SeededClient", client)
    if not isinstance(client.publisher, MemoryPublisher):
        raise TypeError(
            f"expects a client with a MemoryPublisher; got {type(client.publisher).__name__}"
        )
    plan = client.plan
    found: list[Reported] = []
    for number, (shard, data) in enumerate(client.publisher.messages):
        message = decode_message(data)
        if message.fingerprint != plan.fingerprint:
            raise ParameterError(f"message {number} was made under another plan")
        for run in message.groups:
            metric = plan.metrics[run.metric]
            found += [
                Reported(
                    metric=metric.name,
                    level=row.level + 1,
                    epsilon=metric.mechanism.certified(row.level),
                    event=row.event,
                    meaning=meaning(metric, row),
                    pseudonym=row.pseudonym,
                    chain=row.chain,
                    payload=row.payload,
                    shard=shard,
                    message=number,
                )
                for row in run.rows
            ]
    return Reports(plan, found)


def small_plan(*, panel: int = 1) -> CompiledPlan:
    """Return a plan for tests and examples: ``colour``, once a day, on one day of ``panel``."""
    if not is_int(panel):
        raise wrong_type("panel", "an int", panel)
    colour: dict[str, object] = {
        "name": "colour",
        "type": "category",
        "mechanism": {"name": "grr", "domain_size": 4},
        "domain": ["red", "green", "blue"],
        "outside": "other",
        "missing": False,
        "window": 86_400_000,
        "repeat": {"kind": "first", "limit": 1},
        "ladder": [{"epsilon": 500_000, "after": 0}, {"epsilon": 1_000_000, "after": 86_400_000}],
        **({"panel": panel} if panel > 1 else {}),
    }
    plan = {
        "format": 2,
        "collector": "colours.example",
        "plan": "colours",
        "version": 1,
        "owner": "owner@colours.example",
        "expires": 4_102_444_800_000,
        "period": 86_400_000,
        "resolution": 3_600_000,
        "grace": 86_400_000,
        "retention": 86_400_000,
        "shards": 64,
        "minimum_reports": 1,
        "ceilings": {"period": 1_000_000, "lifetime": 100_000_000},
        "metrics": [colour],
    }
    compiled = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CompiledPlan.from_json(compiled.encode())
