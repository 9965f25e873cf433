"""Faults that networks and attackers plant between the aircraft and the log.

A :class:`FaultyNetwork` stands between devices and log. It sends messages twice,
holds some back until stronger levels have overtaken them, adds bytes that no device sent, and makes
two aircraft misbehave. Its faults are chosen so that it can be said afterwards exactly which
reports must count: none but those of the misbehaving aircraft in the weeks in question drop out. So
whatever a bit flip could turn into a believable report is not flipped.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mechanisms.coins import shard_of
from sotto.log.reader import LogReader, partitions
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.format import GROUP, HEADER, Row, decode_message, encode_message
from sotto.wire.reasons import Reason

HOUR = 3_600_000
DAY = 24 * HOUR

DUPLICATE = "message sent again"
HELD_BACK = "message held back nine days"
OVERSPENDS = "sends chains beyond its budget"
RERANDOMIZES = "answers the same question twice"
DAMAGED = "record damaged on disk"

#: Misbehaviour of the first and of the second aircraft that report in a period.
_MISBEHAVIOURS = (OVERSPENDS, RERANDOMIZES)

HOLD = 9 * DAY
EXTRA_CHAINS = 2


@dataclass(frozen=True)
class Misbehaviour:
    """One aircraft in one budget period, whose reports of it must not count."""

    device: int
    period: int
    fault: str


class Target(NamedTuple):
    """A category metric of a plan, about which messages are forged."""

    plan: CompiledPlan
    metric: CompiledMetric

    @property
    def symbols(self) -> int:
        return len(self.metric.labels)

    def payload(self, symbol: int) -> bytes:
        return symbol.to_bytes(self.metric.mechanism.payload_width, "little")


@dataclass
class FaultyNetwork:
    """Delivers everything, and more; the seed says which messages are tampered with.

    In each of ``periods`` the first two aircraft that report misbehave. A share of all messages is
    sent again (``duplicates``), ``held`` back if it carries first levels alone, or followed by one
    piece of each kind of ``garbage``. ``planted`` counts the faults.
    """

    target: Target
    seed: int = 2013
    periods: frozenset[int] = frozenset()
    duplicates: float = 0.02
    held: float = 0.05
    garbage: float = 0.0002
    planted: Counter[str] = field(default_factory=Counter)
    misbehaved: list[Misbehaviour] = field(default_factory=list)
    _device: int = -1
    _rng: random.Random = field(default_factory=random.Random)

    def carry(self, device: int, sent: int, message: bytes) -> Iterator[tuple[int, bytes]]:
        """Return what arrives of one message, and what comes along with it."""
        if device != self._device:
            self._device, self._rng = device, random.Random(f"{self.seed}:{device}")
        rng = self._rng
        if rng.random() < self.held and _first_levels_alone(message):
            self.planted[HELD_BACK] += 1
            yield sent + HOLD, message
        else:
            yield sent, message
        if rng.random() < self.duplicates:
            self.planted[DUPLICATE] += 1
            yield sent + rng.randrange(HOUR, 5 * DAY), message
        if rng.random() < self.garbage:
            for reason, forge in GARBAGE:
                self.planted[reason.label] += 1
                yield sent, forge(self.target, rng, message, sent)
        if self.periods:
            yield from self._misbehave(device, sent, message)

    def _misbehave(self, device: int, sent: int, message: bytes) -> Iterator[tuple[int, bytes]]:
        row = _row_of(self.target, message)
        if row is None or (period := row.event // self.target.plan.period) not in self.periods:
            return
        before = [case.device for case in self.misbehaved if case.period == period]
        if device in before or len(before) == len(_MISBEHAVIOURS):
            return
        fault = _MISBEHAVIOURS[len(before)]
        self.misbehaved.append(Misbehaviour(device, period, fault))
        self.planted[fault] += 1
        if fault == OVERSPENDS:
            last = self.target.metric.mechanism.levels - 1
            for _ in range(EXTRA_CHAINS):
                extra = row._replace(level=last, chain=self._rng.randbytes(16))
                yield sent + HOUR, _message(self.target, extra)
        else:
            symbol = (int.from_bytes(row.payload, "little") + 1) % self.target.symbols
            again = row._replace(payload=self.target.payload(symbol))
            yield sent + HOUR, _message(self.target, again)


def _first_levels_alone(message: bytes) -> bool:
    return all(row.level == 0 for run in decode_message(message).groups for row in run.rows)


def _row_of(target: Target, message: bytes) -> Row | None:
    for run in decode_message(message).groups:
        if run.metric == target.metric.index:
            return run.rows[0]
    return None


def _message(target: Target, row: Row) -> bytes:
    shard = shard_of(row.pseudonym, target.plan.shards)
    return encode_message(target.plan.fingerprint, shard, [(target.metric.index, [row])])


def _stranger(target: Target, rng: random.Random, sent: int) -> Row:
    """Return an acceptable row of a device that does not exist."""
    event = sent - sent % target.plan.resolution
    payload = target.payload(rng.randrange(target.symbols))
    return Row(0, rng.randbytes(16), rng.randbytes(16), event, payload)


Forge = Callable[[Target, random.Random, bytes, int], bytes]


def _changed(change: Callable[[Target, random.Random, Row], Row]) -> Forge:
    """Return a maker of messages with a row that a stranger would not send."""

    def forge(target: Target, rng: random.Random, message: bytes, sent: int) -> bytes:
        return _message(target, change(target, rng, _stranger(target, rng, sent)))

    return forge


def _flipped(first: int, bits: range, places: int = 1) -> Forge:
    """Return a maker of messages of which one bit is flipped: in one byte of some, one of some."""

    def forge(target: Target, rng: random.Random, message: bytes, sent: int) -> bytes:
        forged = bytearray(_message(target, _stranger(target, rng, sent)))
        forged[first + rng.randrange(places)] ^= 1 << rng.choice(bits)
        return bytes(forged)

    return forge


def _noise(target: Target, rng: random.Random, message: bytes, sent: int) -> bytes:
    return b"\0" + rng.randbytes(rng.randrange(1, 400))


def _truncated(target: Target, rng: random.Random, message: bytes, sent: int) -> bytes:
    return message[: rng.randrange(1, len(message))]


def _outside_domain(target: Target, rng: random.Random, row: Row) -> Row:
    return row._replace(payload=target.payload(target.symbols + rng.randrange(50)))


def _between_hours(target: Target, rng: random.Random, row: Row) -> Row:
    return row._replace(event=row.event - rng.randrange(1, target.plan.resolution))


def _too_old(target: Target, rng: random.Random, row: Row) -> Row:
    days = target.metric.horizon // DAY + rng.randrange(2, 30)
    return row._replace(event=row.event - days * DAY)


#: One maker of garbage each for the reasons that a single record can have.
GARBAGE: tuple[tuple[Reason, Forge], ...] = (
    (Reason.MALFORMED, _noise),
    (Reason.MALFORMED, _truncated),
    (Reason.UNKNOWN_VERSION, _flipped(2, range(8))),
    (Reason.UNKNOWN_PLAN, _flipped(HEADER.size - 32, range(8), 32)),
    (Reason.UNKNOWN_METRIC, _flipped(HEADER.size + 1, range(8))),
    (Reason.WRONG_WIDTH, _changed(lambda _, __, row: row._replace(payload=row.payload + b"\0"))),
    (Reason.WRONG_SHARD, _flipped(4, range(6))),
    (Reason.IMPOSSIBLE_LEVEL, _flipped(HEADER.size + GROUP.size, range(3, 8))),
    (Reason.OUT_OF_DOMAIN, _changed(_outside_domain)),
    (Reason.MISALIGNED_TIME, _changed(_between_hours)),
    (Reason.FUTURE, _changed(lambda _, __, row: row._replace(event=row.event + 3 * DAY))),
    (Reason.LATE, _changed(_too_old)),
)


def damage(log: Path, records: int = 40) -> int:
    """Add a lane of copies of messages, damage every fourth of them on disk, and return how many.

    The reader must step over the damage, hand it to quarantine, and go on with the record behind
    it.
    """
    reader = LogReader(partitions(log)[0])
    copies = []
    for record in reader.records(0, reader.end()):
        copies.append((record.append, record.body))
        if len(copies) == records:
            break
    with LogWriter(log, "damaged") as writer:
        ends = [writer.append(body, append) + len(body) for append, body in copies]
    (segment,) = (log / "damaged").glob("*.seg")
    chosen = ends[1:-1:4]
    with segment.open("r+b", buffering=0) as file:
        for end in chosen:
            file.seek(end)
            byte = file.read(1)
            file.seek(end)
            file.write(bytes([byte[0] ^ 0xFF]))
        os.fsync(file.fileno())
    return len(chosen)
