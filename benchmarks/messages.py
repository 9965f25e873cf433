"""What benchmarks aggregate: a plan of five metrics, and messages of made-up devices."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.coins import shards_of
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledMetric, CompiledPlan, canonical
from sotto.wire.format import MAGIC, VERSION

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
LEVELS = 3
CANDIDATES = tuple(f"airport {number}" for number in range(100))


def plan(
    period: int = WEEK, window: int = 4 * WEEK, limit: int = 1, signed: bool = False
) -> CompiledPlan:
    """Return a plan of five metrics of five mechanisms, on a ladder of three levels.

    They are sent at once, after a day and after a week.
    """
    number = {"type": "number", "outside": "clip", "range": [0.0, 1.0]}
    bloom = {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
    grr = {"name": "grr", "domain_size": 16}
    carriers = {"domain": [f"c{value}" for value in range(16)], "outside": "c0"}
    metrics: dict[str, dict[str, object]] = {
        "carrier": {
            "type": "category",
            "mechanism": grr,
            **carriers,
        },
        "diverted": {"type": "boolean", "mechanism": {"name": "grr", "domain_size": 2}},
        "delay": {"mechanism": {"name": "threshold", "missing": False}, **number},
        "distance": {"mechanism": {"name": "sampled_bit", "bits": 10, "missing": False}, **number},
        "destination": {"type": "string", "mechanism": bloom},
    }
    common = {
        "missing": False,
        "window": window,
        "repeat": {"kind": "first" if limit == 1 else "every", "limit": limit},
        "ladder": [
            {"epsilon": 500_000, "after": 0},
            {"epsilon": 1_000_000, "after": DAY},
            {"epsilon": 2_000_000, "after": 7 * DAY},
        ],
    }
    document = {
        "format": 2,
        "collector": "benchmark.example",
        "plan": "run",
        "version": 1,
        "owner": "benchmark@benchmark.example",
        "expires": 4_102_444_800_000,
        "period": period,
        "resolution": HOUR,
        "grace": DAY,
        "retention": 30 * DAY,
        "shards": 64,
        "ceilings": {"period": 10_000_000 * limit, "lifetime": 640_000_000 * limit},
        "metrics": [{"name": name, **common, **metric} for name, metric in metrics.items()],
        **({"authentication": "required"} if signed else {}),
    }
    return CompiledPlan.from_json(canonical(document))


class Devices(NamedTuple):
    """Devices that record a value of each metric, those of a message one after another."""

    pseudonym: NDArray[np.uint64]
    shard: NDArray[np.uint16]
    event: NDArray[np.int64]

    @classmethod
    def of(
        cls, pseudonym: NDArray[np.uint64], event: NDArray[np.int64] | int, shards: int
    ) -> Devices:
        """Return devices of pseudonyms, shape (n, 2), each in its shard."""
        shard = np.asarray(shards_of(pseudonym, shards)).astype(np.uint16)
        return cls(pseudonym, shard, np.broadcast_to(np.asarray(event), len(pseudonym)))

    def select(self, at: NDArray[np.intp]) -> Devices:
        """Return some of them."""
        return Devices(self.pseudonym[at], self.shard[at], self.event[at])


def symbols(metric: CompiledMetric, number: int, source: SeededSource) -> object:
    """Return skewed values of a metric, as its mechanism takes them."""
    uniform = source.words(number).astype(np.float64) / 2.0**64
    if metric.type in ("category", "boolean"):
        return (uniform**2 * len(metric.labels)).astype(np.int64)
    if metric.type == "string":
        return [CANDIDATES[int(len(CANDIDATES) * u**4)].encode() for u in uniform]
    return uniform**2


def messages(
    plan: CompiledPlan,
    metrics: list[CompiledMetric],
    found: Devices,
    group: int,
    source: SeededSource,
) -> NDArray[np.void]:
    """Return messages, shape (3, m): of every level, of ``group`` devices with a row a metric."""
    shape = (len(found.shard) // group, group)
    groups = [(metric.name, _group(metric, group)) for metric in metrics]
    header = [("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("shard", "<u2")]
    layout = np.dtype([*header, ("groups", "<u2"), ("fingerprint", "S32"), *groups])
    made: NDArray[np.void] = np.zeros((LEVELS, shape[0]), dtype=layout)
    made["magic"], made["version"] = MAGIC, VERSION
    made["shard"] = found.shard[::group]
    made["groups"], made["fingerprint"] = len(groups), plan.fingerprint
    for metric in metrics:
        count = len(found.shard)
        chain = source.words(2 * count).reshape(-1, 2)
        values = symbols(metric, count, source)
        payload = metric.mechanism.randomize(values, chain, found.pseudonym, source)
        own = made[metric.name]
        own["metric"], own["width"], own["count"] = metric.index, payload.shape[2], group
        rows = own["rows"]
        rows["level"] = np.arange(LEVELS)[:, None, None]
        rows["pseudonym"] = found.pseudonym.reshape(*shape, 2)
        rows["chain"], rows["event"] = chain.reshape(*shape, 2), found.event.reshape(shape)
        rows["payload"] = payload.transpose(1, 0, 2).reshape(LEVELS, *shape, -1)
    return made


def _group(metric: CompiledMetric, count: int) -> np.dtype[np.void]:
    width = metric.mechanism.payload_width
    row = [("level", "u1"), ("pseudonym", "<u8", 2), ("chain", "<u8", 2), ("event", "<i8")]
    rows = np.dtype([*row, ("payload", "u1", width)])
    head = [("metric", "<u2"), ("width", "<u2"), ("count", "<u4")]
    return np.dtype([*head, ("rows", rows, count)])


class Sent(NamedTuple):
    """Messages of one length and when they are appended."""

    append: NDArray[np.int64]
    message: NDArray[np.void]

    def select(self, at: NDArray[np.intp]) -> Sent:
        """Return some of them."""
        return Sent(self.append[at], self.message[at])

    def sorted(self) -> Sent:
        """Return them in the order of their append times."""
        return self.select(np.argsort(self.append, kind="stable"))

    def write(self, log: Path, partition: str = "messages") -> int:
        """Append them to a partition of a log; return their bytes."""
        size, raw = self.message.itemsize, self.message.tobytes()
        with LogWriter(log, partition, fsync="never") as writer:
            for number, append in enumerate(self.append.tolist()):
                writer.append(raw[number * size : (number + 1) * size], append)
        return len(raw)
