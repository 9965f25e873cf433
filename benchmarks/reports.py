"""The reports of most benchmarks: five metrics of five mechanisms on a ladder of three levels.

Devices send weekly what they recorded, at once, after a day and after a week. Reports are made in
numpy, thousands at a time, as the bytes that devices would send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.coins import shards_of
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import MAGIC, VERSION

HOUR = 3_600_000
DAY = 24 * HOUR
PERIOD = 7 * DAY
LEVELS = 3
#: Devices a week, and the first week.
DEVICES, FIRST = 20_000, 2800
SEED = 20_240_501
CANDIDATES = tuple(f"airport {number}" for number in range(100))

Ids = NDArray[np.uint64]


_PLAN = """\
collector: benchmark.example
plan: run
version: 1
owner: benchmark@benchmark.example
expires: 2099-12-31
period: {period}ms
resolution: 1h
ceilings: {ceilings}
metrics:
  carrier: {{type: category, domain: [{domain}], outside: c0, mechanism: grr, <<: &common
    {{window: {window}ms, repeat: {{once: first}}, ladder: [
      {{epsilon: 0.5}}, {{epsilon: 1, after: 1d}}, {{epsilon: 2, after: 7d}}]}}}}
  diverted: {{type: boolean, mechanism: grr, <<: *common}}
  delay: {{type: number, range: [0, 1], outside: clip, mechanism: threshold, <<: *common}}
  distance: {{type: number, range: [0, 1], outside: clip, <<: *common,
    mechanism: {{bit_aware: sampled, bits: 10}}}}
  destination: {{type: string, mechanism: rappor, <<: *common}}
"""


def plan(
    period: int = PERIOD,
    window: int = 4 * PERIOD,
    *,
    ceilings: str = "{period: 20, lifetime: 640}",
) -> CompiledPlan:
    """Return the plan, whose durations are in milliseconds."""
    domain = ", ".join(f"c{value}" for value in range(16))
    given = {"period": period, "window": window, "ceilings": ceilings, "domain": domain}
    return parse_plan(_PLAN.format(**given)).compile()


def values(metric: CompiledMetric, uniform: NDArray[np.float64]) -> Any:
    """Return skewed values of a metric, one for each uniform number."""
    if metric.type in ("category", "boolean"):
        return (uniform**2 * len(metric.labels)).astype(np.int64)
    if metric.type == "string":
        return [CANDIDATES[int(len(CANDIDATES) * u**4)].encode() for u in uniform]
    return uniform**2


def messages(
    plan: CompiledPlan,
    pseudonyms: Ids,
    events: NDArray[np.int64],
    source: SeededSource,
    metrics: Sequence[CompiledMetric] = (),
    group: int = 1,
) -> NDArray[np.void]:
    """Return messages, shape (levels, n / group), of ``group`` rows a metric, by default of all.

    Each of n chains has a pseudonym, shape (n, 2), and an event; those of one message have one
    shard.
    """
    metrics = metrics or plan.metrics
    n, levels = len(pseudonyms), plan.metrics[0].mechanism.levels
    header = [("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("shard", "<u2")]
    groups = [(metric.name, _group(metric, group)) for metric in metrics]
    layout = np.dtype([*header, ("groups", "<u2"), ("fingerprint", "S32"), *groups])
    made: NDArray[np.void] = np.zeros((levels, n // group), dtype=layout)
    made["magic"], made["version"] = MAGIC, VERSION
    made["shard"] = shards_of(pseudonyms[::group], plan.shards)
    made["groups"], made["fingerprint"] = len(metrics), plan.fingerprint
    for metric in metrics:
        chains = source.words(2 * n).reshape(-1, 2)
        drawn = values(metric, source.words(n).astype(np.float64) / 2.0**64)
        payload = metric.mechanism.randomize(drawn, chains, pseudonyms, source)
        part = made[metric.name]
        part["metric"], part["width"], part["count"] = metric.index, payload.shape[2], group
        rows, shape = part["rows"], (n // group, group)
        rows["level"] = np.arange(levels)[:, None, None]
        rows["pseudonym"], rows["chain"] = pseudonyms.reshape(*shape, 2), chains.reshape(*shape, 2)
        rows["event"] = events.reshape(shape)
        rows["payload"] = payload.transpose(1, 0, 2).reshape(levels, *shape, -1)
    return made


def _group(metric: CompiledMetric, rows: int) -> np.dtype[np.void]:
    row = [("level", "u1"), ("pseudonym", "<u8", 2), ("chain", "<u8", 2), ("event", "<i8")]
    layout = np.dtype([*row, ("payload", "u1", metric.mechanism.payload_width)])
    head = [("metric", "<u2"), ("width", "<u2"), ("count", "<u4")]
    return np.dtype([*head, ("rows", layout, rows)])


class Sent(NamedTuple):
    """Messages of one length and when they are appended."""

    append: NDArray[np.int64]
    message: NDArray[np.void]

    def select(self, at: NDArray[np.intp]) -> Sent:
        """Return some of them."""
        return Sent(self.append[at], self.message[at])

    def write(self, log: Path, lane: str = "lane") -> int:
        """Append them to a log and return their bytes."""
        size, raw = self.message.itemsize, self.message.tobytes()
        with LogWriter(log, lane, fsync="never") as writer:
            for number, append in enumerate(self.append.tolist()):
                writer.append(raw[number * size : (number + 1) * size], append)
        return len(raw)


def week(plan: CompiledPlan, number: int, source: SeededSource, devices: int) -> Sent:
    """Return all that the devices of one week send, now or later."""
    pseudonyms = source.words(2 * devices).reshape(-1, 2)
    moments = (source.words(devices) % np.uint64(PERIOD)).astype(np.int64)
    events = (FIRST + number) * PERIOD + moments // HOUR * HOUR
    made = messages(plan, pseudonyms, events, source)
    delays = np.array(plan.metrics[0].delays)[:, None]
    jitter = (source.words(LEVELS * devices) % np.uint64(HOUR)).astype(np.int64)
    return Sent((events + HOUR + delays + jitter.reshape(LEVELS, -1)).ravel(), made.ravel())


def weeks(plan: CompiledPlan, reports: int, devices: int = DEVICES) -> Iterator[Sent]:
    """Yield messages in the order of their append times, as many as make up the reports."""
    source = SeededSource(SEED)
    left = reports // len(plan.metrics)
    held = week(plan, 0, source, devices)
    number = 0
    while left > 0:
        number += 1
        more = week(plan, number, source, devices)
        held = Sent(*(np.concatenate(pair) for pair in zip(held, more, strict=True)))
        due = held.append < (FIRST + number) * PERIOD
        part = held.select(np.flatnonzero(due))
        yield part.select(np.argsort(part.append, kind="stable")[:left])
        left -= len(part.append)
        held = held.select(np.flatnonzero(~due))


def write(log: Path, parts: Iterable[Sent]) -> None:
    """Write a log of one partition."""
    for part in parts:
        part.write(log)
