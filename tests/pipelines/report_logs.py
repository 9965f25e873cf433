"""Small logs with everything in them that a log can have, for the tests of aggregating."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from step_plans import DAY, HOUR, PERIOD, plans

from mechanisms.coins import shard_of
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import Row, encode_message

#: The first event of every log here; not at the beginning of a period.
START = 2800 * PERIOD + 3 * DAY
SYMBOLS = {"grr": 2, "oue": 1, "rappor": b"home", "threshold": 0.25}


class Sent(NamedTuple):
    append: int
    message: bytes


class Device:
    def __init__(self, plan: CompiledPlan, source: random.Random) -> None:
        self.plan = plan
        self.random = source
        self.pseudonym = source.randbytes(16)
        self.bits = SeededSource(source.getrandbits(32))

    def chain(self, metric: CompiledMetric, event: int, upto: int | None = None) -> list[Sent]:
        """Return the reports of one value, all levels or those below ``upto``, as due."""
        chain = self.random.randbytes(16)
        payloads = self.draw(metric, chain)
        event -= event % HOUR
        return [
            self.send(event + level.after + HOUR + self.random.randrange(HOUR), metric, row)
            for level, row in zip(
                metric.ladder[:upto],
                [Row(level, self.pseudonym, chain, event, p) for level, p in enumerate(payloads)],
                strict=False,
            )
        ]

    def draw(self, metric: CompiledMetric, chain: bytes) -> tuple[bytes, ...]:
        symbol = SYMBOLS[metric.mechanism.name]
        return metric.mechanism.draw(symbol, chain, self.pseudonym, self.bits)

    def send(self, append: int, metric: CompiledMetric, *rows: Row) -> Sent:
        shard = shard_of(self.pseudonym, self.plan.shards)
        groups, cell = [(metric.index, rows)], rows[0].chain[0] % self.plan.cells
        return Sent(append, encode_message(self.plan.fingerprint, shard, groups, cell=cell))

    def period(self, start: int) -> list[Sent]:
        sent = []
        for metric in self.plan.metrics:
            for _ in range(self.random.randint(0, metric.limit)):
                sent += self.chain(metric, start + self.random.randrange(4 * DAY))
        return sent


def honest(devices: int, periods: int, seed: int) -> list[Sent]:
    """Return what honest devices of two plans send, with some of it sent again."""
    source = random.Random(seed)
    sent: list[Sent] = []
    for number in range(devices):
        for period in range(periods):
            device = Device(plans()[number % 2], source)
            sent += device.period(START + period * PERIOD)
    again = source.sample(sent, len(sent) // 20)
    return sent + [Sent(append + source.randrange(DAY), message) for append, message in again]


def faulty(seed: int) -> list[Sent]:
    """Return reports that are late, from the future, over budget, contradictory or no reports."""
    source = random.Random(seed)
    first, second = plans()
    colour = first.metric("colour")
    spender, liar, late, early = (Device(first, source) for _ in range(4))
    sent = [one for _ in range(3) for one in spender.chain(colour, START + DAY)]
    told = liar.chain(colour, START + DAY)
    chain = source.randbytes(16)
    row = Row(0, liar.pseudonym, chain, START, b"\0")
    sent += [*told, liar.send(START + DAY, colour, row)]
    sent += [liar.send(START + 2 * DAY, colour, row._replace(payload=b"\1"))]
    sent += liar.chain(colour, START + 3 * DAY)
    sent += [one._replace(append=one.append + 30 * DAY) for one in late.chain(colour, START)]
    sent += [one._replace(append=one.append - 2 * DAY) for one in early.chain(colour, START + DAY)]
    stranger = second.fingerprint[::-1]
    sent += [
        Sent(START + DAY, encode_message(stranger, 0, [(0, [row])])),
        Sent(START + DAY, b"no report"),
        liar.send(START + DAY, colour, row._replace(level=7)),
    ]
    return sent


def write(log: Path, sent: list[Sent], lanes: int = 2, segment_bytes: int = 1 << 20) -> Path:
    """Append messages to the lanes of a log, each lane in the order of append times."""
    shared: dict[int, list[Sent]] = defaultdict(list)
    for number, one in enumerate(sorted(sent)):
        shared[number % lanes].append(one)
    for lane, mine in shared.items():
        append(log, mine, f"lane-{lane}", segment_bytes)
    return log


def append(
    log: Path, sent: Iterable[tuple[int, bytes]], lane: str = "lane-0", segment_bytes: int = 1 << 20
) -> None:
    """Append messages to one lane, in their order."""
    with LogWriter(log, lane, fsync="never", segment_bytes=segment_bytes) as writer:
        for time, message in sent:
            writer.append(message, time)
