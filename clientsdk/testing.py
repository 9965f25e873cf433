"""For tests of apps and for simulations: seeded clients, a clock to move, what was reported.

What a seeded client draws can be predicted by anyone who knows the seed and protects nobody. A
:class:`~clientsdk.Client` itself cannot be given a seed: no argument, setting or variable leads to
one.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from clientsdk.client import Client
from clientsdk.forgetful import NO_LIFETIME_BOUND
from clientsdk.outcomes import Outcome
from clientsdk.publishers import MemoryPublisher, Publisher
from clientsdk.quota import Quota
from clientsdk.reported import Reported, Reports, reports_in
from clientsdk.settings import Settings
from mechanisms.randomness import Source
from mechanisms.testing import SeededSource
from sotto.errors import ParameterError
from sotto.plan.compiled import Ceilings, CompiledPlan

__all__ = [
    "FakeClock",
    "Recorded",
    "Reported",
    "Reports",
    "SeededClient",
    "WatchedClient",
    "move_to_turn",
    "reported",
    "small_plan",
]

_UNITS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}


class FakeClock:
    """A clock that stands still until it is moved.

    Parameters
    ----------
    now : int
        Milliseconds since the epoch.

    Examples
    --------
    >>> clock = FakeClock(0)
    >>> clock.advance(days=1, hours=-1)
    >>> clock()
    82800000
    """

    def __init__(self, now: int = 1_750_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time, in milliseconds since the epoch."""
        return self.now

    def advance(self, **amounts: int) -> None:
        """Move by ``days``, ``hours``, ``minutes``, ``seconds`` and ``ms``; negative: back."""
        self.now += sum(_UNITS[unit] * amount for unit, amount in amounts.items())


class SeededClient(Client):
    """A client whose draws follow from a seed, with consent already given.

    Parameters
    ----------
    plan : CompiledPlan, bytes or path
    seed : int
    state, clock, publisher, ceilings, quota
        As for :class:`~clientsdk.Client`; by default a store in memory, a :class:`FakeClock` and
        a :class:`~clientsdk.MemoryPublisher`.
    leaks_values : bool
        Whether the publisher may be another than a :class:`~clientsdk.MemoryPublisher`. What such a
        client sends tells the true values to anyone who knows the seed, so never give it any of a
        person.
    consent : bool
        Whether to give consent.
    background : bool
        Whether to send without being asked, which no seed makes repeatable.
    settings : Settings, optional
        By default all defaults. Of the environment only the three variables about privacy count.

    Attributes
    ----------
    clock : FakeClock or callable
    publisher : Publisher

    Raises
    ------
    ParameterError
        The publisher is another, and ``leaks_values`` does not say that this is meant.

    Examples
    --------
    >>> client = SeededClient(small_plan(), seed=1)
    >>> client.record("colour", "red"), client.record("colour", "red")
    (<Outcome.ACCEPTED: 'accepted'>, <Outcome.PERIOD_FULL: 'period_full'>)
    """

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        seed: int,
        state: str | os.PathLike[str] | None = None,
        publisher: Publisher | None = None,
        clock: FakeClock | None = None,
        leaks_values: bool = False,
        ceilings: Ceilings | None = None,
        consent: bool = True,
        background: bool = False,
        quota: Quota | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._seeded = SeededSource(seed)
        self.clock = FakeClock() if clock is None else clock
        self.publisher = MemoryPublisher() if publisher is None else publisher
        if not leaks_values and not isinstance(self.publisher, MemoryPublisher):
            raise ParameterError(
                f"publisher must be a MemoryPublisher, not {type(self.publisher).__name__}: what a "
                "seeded client sends tells the true values; leaks_values=True if that is meant"
            )
        super().__init__(
            plan,
            state=NO_LIFETIME_BOUND if state is None else state,
            publisher=self.publisher,
            clock=self.clock,
            ceilings=ceilings,
            background=background,
            quota=quota,
            settings=Settings() if settings is None else settings,
        )
        if consent and not self.settings.disabled:
            self.give_consent()

    def _source(self) -> Source:
        return self._seeded

    def _warn_that_it_forgets(self) -> None:
        """Do not: that is what tests and simulations want."""


class Recorded(NamedTuple):
    """A value that an app handed to a :class:`WatchedClient`, and what became of it."""

    metric: str
    value: object
    outcome: Outcome


class WatchedClient(SeededClient):
    """A seeded client that also keeps the values: what an app recorded, for its tests alone.

    Parameters
    ----------
    plan, seed, state, publisher, clock, leaks_values, consent, settings
        As for :class:`SeededClient`; the seed is 0 unless given.

    Attributes
    ----------
    recorded : list of Recorded
        In the order in which they were recorded.

    Examples
    --------
    >>> client = WatchedClient(small_plan())
    >>> client.record("colour", "red")
    <Outcome.ACCEPTED: 'accepted'>
    >>> client.values("colour")
    ['red']
    """

    def __init__(
        self,
        plan: CompiledPlan | bytes | str | os.PathLike[str],
        *,
        seed: int = 0,
        state: str | os.PathLike[str] | None = None,
        publisher: Publisher | None = None,
        clock: FakeClock | None = None,
        leaks_values: bool = False,
        consent: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self.recorded: list[Recorded] = []
        super().__init__(
            plan,
            seed=seed,
            state=state,
            publisher=publisher,
            clock=clock,
            leaks_values=leaks_values,
            consent=consent,
            settings=settings,
        )

    def record(self, metric: str, value: object) -> Outcome:
        """Do what :meth:`clientsdk.Client.record` does, and keep the value."""
        outcome = super().record(metric, value)
        self.recorded.append(Recorded(metric, value, outcome))
        return outcome

    def values(self, metric: str) -> list[object]:
        """Return the values of a metric that were accepted."""
        self.plan.metric(metric)
        return [
            each.value
            for each in self.recorded
            if each.metric == metric and each.outcome is Outcome.ACCEPTED
        ]


def move_to_turn(client: SeededClient, metric: str, *, turn: bool = True) -> None:
    """Move a client's clock on to a period in which its device answers about a metric, or not.

    For plans that divide devices into panels. If the period that it is in is such a one, the
    clock is left as it is; else it moves to the beginning of the next. So does every period of a
    metric without a panel.

    Parameters
    ----------
    client : SeededClient
        Its clock is a :class:`FakeClock`.
    metric : str
        Its name in the plan.
    turn : bool
        Whether values are to be accepted; if not, they are ``not_in_panel``.

    Raises
    ------
    UnknownMetricError
        The plan has no such metric.
    ParameterError
        The metric has no panel, so that every period is the device's turn.

    Examples
    --------
    >>> client = SeededClient(small_plan(panel=4), seed=1)
    >>> move_to_turn(client, "colour")
    >>> client.record("colour", "red")
    <Outcome.ACCEPTED: 'accepted'>
    >>> move_to_turn(client, "colour", turn=False)
    >>> client.record("colour", "red")
    <Outcome.NOT_IN_PANEL: 'not_in_panel'>
    """
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


def reported(client: SeededClient) -> Reports:
    """Return the reports that a client has sent to its memory publisher.

    Raises
    ------
    TypeError
        It has another publisher.

    Examples
    --------
    >>> client = SeededClient(small_plan(), seed=1)
    >>> client.record("colour", "red")
    <Outcome.ACCEPTED: 'accepted'>
    >>> client.clock.advance(days=2)
    >>> client.flush().sent
    1
    >>> report = reported(client).of("colour").only()
    >>> report.rung, report.says
    (2, "'red'")
    """
    if not isinstance(client.publisher, MemoryPublisher):
        raise TypeError(f"a MemoryPublisher is wanted, not {type(client.publisher).__name__}")
    return reports_in([client.plan], client.publisher.messages)


def small_plan(*, panel: int = 1) -> CompiledPlan:
    """Return a plan for tests and examples: ``colour``, once a day, in two rungs.

    It asks for no more than one report, so that a test sees what few devices sent.

    Parameters
    ----------
    panel : int, positive
        A device answers on one day of so many.
    """
    colour: dict[str, object] = {
        "name": "colour",
        "type": "category",
        "mechanism": {"name": "grr", "domain_size": 4},
        "domain": ["red", "green", "blue"],
        "outside": "other",
        "missing": False,
        "window": 86_400_000,
        "repeat": {"kind": "first", "limit": 1},
        "ladder": [
            {"epsilon": 500_000, "after": 0},
            {"epsilon": 1_000_000, "after": 86_400_000},
        ],
    }
    if panel > 1:
        colour["panel"] = panel
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
