"""Reports of devices: recordings through the SDK's own client, into a publisher that keeps them.

The client's clock is moved from one recording to the next, so that the event time of a report says
which recording it is of. Nothing else is simulated: consent, decisions, the ledger, the store in
memory, the source of randomness and the messages are the SDK's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from clientsdk import NO_LIFETIME_BOUND, MemoryPublisher, Quota, Settings
from clientsdk.outcomes import Outcome
from clientsdk.testing import FakeClock
from mechanisms.arrays import Bools, Ints
from mechanisms.audit.cases import Case, Views
from mechanisms.audit.guessing import key_of, score_key
from mechanisms.audit.reports import AttackedReports, UnexpectedReportsError
from mechanisms.base import NO_ID
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.exact import MICRO
from mechanisms.randomness import Source
from sotto.audit import metric_of
from sotto.plan.checks import MAX_CEILING, MAX_LIMIT, MAX_TIME
from sotto.plan.compiled import FORMAT, CompiledMetric, CompiledPlan
from sotto.plan.metric import MISSING_STRING
from sotto.wire.format import Row, decode_message, pseudonym_of
from sotto_cli.simulation.device import Device

#: Milliseconds: the resolution of event times, and the least budget period.
_STEP, _SHORT = 1000, 60_000
_SETTINGS = Settings(background=False, quota=Quota(bytes=1 << 40))
#: Periods in which a constant value is reported, and recordings of which a reservoir keeps one.
_PERIODS, _KEPT_OF = 26, 3


class DeviceSampler:
    """Reports of values that devices record under a metric: a :data:`.Sampler`.

    Values that are recorded every time, or first, are those of one device in one long period. Top
    items and values of a reservoir take a period each; constant ones take a device each.
    """

    def __init__(self, metric: CompiledMetric) -> None:
        top, coins = metric.type == "top_item", metric.mechanism.coins
        # A pseudonym's coins have to be the same for all values.
        many = (metric.kind == "first" and not top) or coins == "pseudonym"
        self.kind = "every" if many else metric.kind
        if metric.holds_response:
            self.kind = "constant"
        cost = metric.mechanism.certified(metric.sent - 1)
        limit = min(MAX_LIMIT, MAX_CEILING // cost) if self.kind == "every" else 1
        self._unit = _STEP if self.kind == "every" else _SHORT
        self._plan = _plan(metric, self.kind, limit, cost)
        [self._metric] = self._plan.metrics

    @property
    def cost(self) -> int:
        """How many recordings take as long as one of a value that is recorded every time."""
        return 1 if self.kind == "every" else 50 if self.kind == "constant" else 10

    def __call__(self, values: Sequence[Any], places: Ints, source: Source) -> AttackedReports:
        recorded = [self._recorded(value) for value in values]
        chosen = [recorded[place] for place in places.tolist()]
        # One value is left for a probe.
        together = {"every": self._metric.limit - 1, "constant": 1}.get(self.kind, len(chosen))
        rows: list[Row] = []
        for start in range(0, len(chosen), together):
            rows += self._sent(chosen[start : start + together], source)
        n, sent = len(chosen), self._metric.sent
        payloads = b"".join(row.payload for row in rows)
        chains = b"".join(row.chain for row in rows[::sent])
        return AttackedReports(
            places,
            np.frombuffer(payloads, dtype=np.uint8).reshape(n, sent, -1),
            np.frombuffer(chains, dtype="<u8").astype(np.uint64).reshape(n, 2),
        )

    def periods(self, value: Any, count: int, source: Source) -> list[bytes]:
        """Return the last payloads of one device that records a value in each of some periods."""
        rows = self._sent([self._recorded(value)] * count, source)
        return [row.payload for row in rows[self._metric.sent - 1 :: self._metric.sent]]

    def _recorded(self, value: Any) -> list[Any]:
        """Return what an app records for a value of the mechanism."""
        metric = self._metric
        if metric.type == "top_item":
            return [metric.labels[item] for item, count in enumerate(value) for _ in range(count)]
        return [app_value(metric, value)] * (_KEPT_OF if self.kind == "reservoir" else 1)

    def _sent(self, recorded: Sequence[Sequence[Any]], source: Source) -> list[Row]:
        """Return the reports of one device, by recording and level."""
        while True:
            clock, publisher = FakeClock(0), MemoryPublisher()
            with Device(
                self._plan,
                state=NO_LIFETIME_BOUND,
                publisher=publisher,
                clock=clock,
                settings=_SETTINGS,
                source=source,
            ) as device:
                device.give_consent()
                if self._metric.mechanism.coins == "pseudonym":
                    # The attacked pair has its loss in one cohort, which a device is in by chance.
                    device.record(self._metric.name, recorded[0][0])
                    clock.now += 3 * _STEP
                    device.flush()
                    [(_, message)] = publisher.messages
                    if self._stratum(pseudonym_of(message)) != self._stratum(NO_ID):
                        continue
                return self._played(device, clock, publisher, recorded)

    def _stratum(self, pseudonym: bytes) -> int:
        name = np.frombuffer(pseudonym, dtype="<u8").astype(np.uint64).reshape(1, 2)
        strata = self._metric.mechanism.strata_of(name, name)
        return 0 if strata is None else int(strata[0])

    def _played(
        self,
        device: Device,
        clock: FakeClock,
        publisher: MemoryPublisher,
        recorded: Sequence[Sequence[Any]],
    ) -> list[Row]:
        """Record, a step of the clock or a period each, send every level, and return all of it."""
        began, name = clock.now, self._metric.name
        every, period = self.kind == "every", self._plan.period
        publisher.messages.clear()
        for values in recorded:
            for value in values:
                if device.record(name, value) is not Outcome.ACCEPTED:
                    raise UnexpectedReportsError("a device refuses what it should record")
            clock.now += self._unit
            if not every:
                device.flush()
        # Reports are due a step, and less than another, after the delay of their level.
        clock.now += 2 * _STEP
        for _ in range(self._metric.sent + 1):
            device.flush()
            clock.now += period
        rows = [
            row
            for _, message in publisher.messages
            for group in decode_message(message).groups
            for row in group.rows
            if row.event >= began
        ]
        rows.sort(key=lambda row: (row.event, row.level))
        sent = self._metric.sent
        expected = [(number, level) for number in range(len(recorded)) for level in range(sent)]
        found = [((row.event - began) // self._unit, row.level) for row in rows]
        if found != expected or len({row.chain for row in rows}) != len(recorded):
            raise UnexpectedReportsError("a device sends other reports than its plan says")
        return rows


def app_value(metric: CompiledMetric, symbol: Any) -> Any:
    """Return a value that an app would record for a symbol of a metric's mechanism."""
    if metric.type == "string":
        return None if symbol == MISSING_STRING.encode() else symbol.decode()
    if metric.type in ("number", "vector"):
        assert metric.range is not None
        low, high = metric.range
        if metric.type == "vector":
            return [low + (high - low) * each for each in symbol]
        return None if symbol is None else low + (high - low) * symbol
    if metric.missing and symbol == len(metric.labels) - 1:
        return None
    if metric.type in ("boolean", "survey"):
        return bool(symbol)
    if metric.type == "ordinal" and metric.numeric:
        return (metric.edges or metric.points)[symbol]
    return metric.labels[symbol]


def _plan(metric: CompiledMetric, kind: str, limit: int, cost: int) -> CompiledPlan:
    """Return a plan of one metric under which a device can record as much as it may."""
    period = max(2 * _STEP * limit, _SHORT)
    first = 0 if kind == "every" else period
    levels = metric.document()["ladder"]
    assert isinstance(levels, list)
    for number, level in enumerate(levels):
        level["after"] = first + min(number, metric.sent - 1) * period
    document = metric.document() | {
        "repeat": {"kind": kind, "limit": limit},
        "ladder": levels,
        "window": period,
        "panel": 1,
    }
    # A value is recorded here, whatever measures it elsewhere.
    for word in ("group", "data_type", "description", "purpose", "panel", "measure", "stored"):
        document.pop(word, None)
    plan = {
        "format": FORMAT,
        "collector": "audit.example",
        "plan": "audit",
        "version": 1,
        "owner": "audit@audit.example",
        "expires": MAX_TIME,
        "period": period,
        "resolution": _STEP,
        "grace": period,
        "retention": period,
        "shards": 1,
        "minimum_reports": 1,
        "ceilings": {"period": limit * cost, "lifetime": MAX_CEILING},
        "metrics": [document],
    }
    return CompiledPlan.from_json(json.dumps(plan, sort_keys=True, separators=(",", ":")).encode())


def device_cases() -> list[Case]:
    """Return what a device keeps beside a single chain: a permanent response, a reservoir."""
    grr = GeneralizedRandomizedResponse((0.5, 1.0, 2.0), 2)
    constant = DeviceSampler(metric_of(grr, "constant"))
    kept = GeneralizedRandomizedResponse((0.5, 1.0), 2)
    reservoir = DeviceSampler(metric_of(kept, "reservoir"))
    return [
        Case(
            f"a constant value, {_PERIODS} linked periods at 0.5 and 1",
            "Erlingsson et al., CCS 2014",
            2.0,
            grr.certified() / MICRO,
            partial(_constant, constant),
            "",
            300,
        ),
        Case(
            f"a reservoir of {_KEPT_OF} values a period, at 0.5 and 1",
            "Vitter, ACM TOMS 1985",
            1.0,
            kept.certified() / MICRO,
            partial(_reservoir, reservoir),
            "",
            100,
        ),
    ]


def _constant(sampler: DeviceSampler, secrets: Bools, source: Source) -> Views:
    said = [sampler.periods(int(secret), _PERIODS, source) for secret in secrets]
    ones = np.array([2 * sum(each[0] for each in device) - _PERIODS for device in said], float)
    return {"all periods": score_key(ones), "whether most say 1": score_key(np.sign(ones))}


def _reservoir(sampler: DeviceSampler, secrets: Bools, source: Source) -> Views:
    reports = sampler([0, 1], secrets.astype(np.int64), source)
    return {"the bytes": key_of(reports.payloads[:, :, 0].astype(np.int64))}
