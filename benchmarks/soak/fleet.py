"""Devices made up for a fault run: every value of theirs falls into a bucket of its own.

A device has one pseudonym and records one value of each of ``METRICS`` metrics, all in one second.
Windows are a second long and metrics have ``SYMBOLS`` symbols: device d is the only one whose
reports are of second d // SYMBOLS and bear the symbol d mod SYMBOLS, at each level. Payloads are
chosen and not drawn, which no aggregator can tell; so its counts say of every single value
whether it counts, how often, and at which level. Everything follows from a seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from mechanisms.coins import shard_of
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import Row, encode_message

METRICS = 5
SYMBOLS = 128
LEVELS = 3
SECOND = 1000

#: What real devices record beside them, in the same plan.
COLOUR = "colour"

_PLAN = """\
collector: soak.example
plan: soak
version: 1
owner: telemetry@soak.example
expires: 2099-12-31
period: {period}
grace: {grace}
ceilings: {{period: 900000, lifetime: 1000000}}
resolution: 1s
shards: {shards}
minimum_reports: 1
metrics:
  colour: {{type: category, domain: [red, green, blue], outside: other, mechanism: grr, window: 1m,
    repeat: {{every: 100000}},
    ladder: &ladder [{{epsilon: 0.5}}, {{epsilon: 1, after: 2s}}, {{epsilon: 2, after: 6s}}]}}
"""
_METRIC = """\
  bucket{number}: {{type: category, domain: [{domain}], outside: v0, mechanism: grr, window: 1s,
    ladder: *ladder}}
"""


def plan_of(period: str = "1h", grace: str = "1d", shards: int = 16) -> CompiledPlan:
    """Return the plan of a fault run; with short durations its states expire early."""
    domain = ", ".join(f"v{symbol}" for symbol in range(SYMBOLS))
    text = _PLAN.format(period=period, grace=grace, shards=shards)
    text += "".join(_METRIC.format(number=n, domain=domain) for n in range(METRICS))
    return parse_plan(text).compile()


@dataclass(frozen=True)
class Fleet:
    """Devices, known by number from 0.

    Parameters
    ----------
    plan : CompiledPlan
        Of :func:`plan_of`.
    base : int
        When device 0 records, ms; a multiple of a second.
    seed : int
        From which pseudonyms and chain ids follow.
    """

    plan: CompiledPlan
    base: int
    seed: int

    @cached_property
    def metrics(self) -> tuple[CompiledMetric, ...]:
        """The metrics that tell values apart."""
        return tuple(self.plan.metric(f"bucket{number}") for number in range(METRICS))

    def pseudonym(self, device: int) -> bytes:
        """Return the pseudonym of a device."""
        return self._id(f"device {device}")

    def event(self, device: int) -> int:
        """Return when a device records, ms."""
        return self.base + device // SYMBOLS * SECOND

    def message(self, device: int, level: int) -> tuple[int, bytes]:
        """Return shard and bytes of the message with a level of all of a device's values."""
        pseudonym, event = self.pseudonym(device), self.event(device)
        shard = shard_of(pseudonym, self.plan.shards)
        payload = bytes([device % SYMBOLS])
        runs = [
            (metric.index, [Row(level, pseudonym, self._chain(device, number), event, payload)])
            for number, metric in enumerate(self.metrics)
        ]
        return shard, encode_message(self.plan.fingerprint, shard, runs)

    def _chain(self, device: int, number: int) -> bytes:
        return self._id(f"chain {device} {number}")

    def _id(self, what: str) -> bytes:
        key = self.seed.to_bytes(8, "little")
        return hashlib.blake2b(what.encode(), digest_size=16, key=key).digest()
