"""Devices made up for a fault run: every value of theirs falls into a bucket of its own.

A device has one pseudonym and records one value of each of ``METRICS`` metrics, all in one second.
Windows are a second long and metrics have ``SYMBOLS`` symbols: device d is the only one whose
reports are of second d // SYMBOLS and have the symbol d mod SYMBOLS, at each level. Payloads are
chosen and not drawn, which no aggregator can see; so its counts show of every single value
whether it counts, how often, and at which level. Everything follows from a seed.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.coins import shard_of
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import Row, encode_message

METRICS = 5
SYMBOLS = 128
LEVELS = 3
SECOND = 1000

#: The metric that real devices record beside the fleet's, in the same plan.
COLOUR = "colour"

_PLAN = """\
collector: soak.example
plan: soak
version: 1
owner: telemetry@soak.example
expires: 2099-12-31
period: 1h
grace: 1d
ceilings: {period: 900000, lifetime: 1000000}
resolution: 1s
shards: 16
minimum_reports: 1
metrics:
  colour: {type: category, domain: [red, green, blue], outside: other, mechanism: grr, window: 1m,
    repeat: {every: 100000},
    ladder: &ladder [{epsilon: 0.5}, {epsilon: 1, after: 2s}, {epsilon: 2, after: 6s}]}
"""
_METRIC = """\
  bucket%d: {type: category, domain: [%s], outside: v0, mechanism: grr, window: 1s, ladder: *ladder}
"""


def plan_of() -> CompiledPlan:
    """Return the plan of a fault run."""
    domain = ", ".join(f"v{symbol}" for symbol in range(SYMBOLS))
    return parse_plan(_PLAN + "".join(_METRIC % (n, domain) for n in range(METRICS))).compile()


@dataclass(frozen=True)
class Fleet:
    """Devices, known by number from 0."""

    #: The plan that :func:`plan_of` returns.
    plan: CompiledPlan
    #: When device 0 records, ms; a multiple of a second.
    base: int
    #: From which pseudonyms and chain ids follow.
    seed: int

    @cached_property
    def metrics(self) -> tuple[CompiledMetric, ...]:
        """The metrics whose buckets are values."""
        return tuple(self.plan.metric(f"bucket{number}") for number in range(METRICS))

    def pseudonym(self, device: int) -> bytes:
        """Return the pseudonym of a device."""
        return self._id(f"device {device}")

    def event(self, device: int) -> int:
        """Return when a device records, ms."""
        return self.base + device // SYMBOLS * SECOND

    def message(self, device: int, level: int) -> tuple[int, bytes]:
        """Return shard and bytes of the message with one level of all of a device's values."""
        pseudonym, event = self.pseudonym(device), self.event(device)
        shard, payload = shard_of(pseudonym, self.plan.shards), bytes([device % SYMBOLS])
        groups = []
        for number, metric in enumerate(self.metrics):
            chain = self._id(f"chain {device} {number}")
            groups.append((metric.index, [Row(level, pseudonym, chain, event, payload)]))
        return shard, encode_message(self.plan.fingerprint, shard, groups)

    def _id(self, what: str) -> bytes:
        key = self.seed.to_bytes(8, "little")
        return hashlib.blake2b(what.encode(), digest_size=16, key=key).digest()


class Progress:
    """Levels that a fleet has sent, noted before, and those acknowledged, noted afterwards.

    It is a file mapped into memory, made with zeros if it does not exist, so that it outlives a
    sender that is killed: what was about to be sent counts as sent, what was not yet noted as
    acknowledged does not.
    """

    _COUNTS = ("begun", "messages", "repeated", "reordered")

    def __init__(self, path: Path, capacity: int) -> None:
        self.capacity = capacity
        head = 8 * len(self._COUNTS)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, head + 3 * capacity)
            held = mmap.mmap(descriptor, head + 3 * capacity)
        finally:
            os.close(descriptor)
        self._counts = np.frombuffer(held, dtype=np.int64, count=len(self._COUNTS))
        bits = np.frombuffer(held, dtype=np.uint8, offset=head).reshape(3, capacity)
        #: Bit l of a device is level l of its values. What is given up is not sent again.
        self.sent, self.acknowledged, self.given_up = bits

    def count(self, name: str) -> int:
        """Return how many devices have ``begun``, or how many ``messages`` were handed over.

        Among the messages ``repeated`` had been acknowledged before, and ``reordered`` came after
        a newer level of their values.
        """
        return int(self._counts[self._COUNTS.index(name)])

    def add(self, name: str, more: int) -> None:
        """Raise a count."""
        self._counts[self._COUNTS.index(name)] += more

    def known(self) -> NDArray[np.uint8]:
        """Return a copy of what is acknowledged now, of the devices that have begun."""
        acknowledged = self.acknowledged.copy()
        return acknowledged[: self.count("begun")]
