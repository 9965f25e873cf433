"""The stage that decodes: from messages to packed rows, by budget period and shard.

A message is ``bytes``, and its timestamp is its append time: the time at which a broker or a log
took it. Reports are judged by that time and by no clock, with one exception: a message whose append
time is more than the plans' grace ahead of now is rejected as from the future. Sotto's own sources
give *blocks* of messages, which hold append times; their reader has marked messages from the
future.

All messages of a bundle are decoded together, and rows cross Beam packed, never one by one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.aggregation import quarantine
from pipelines.aggregation.decode import arrivals
from pipelines.aggregation.rows import Rows, padded_width
from pipelines.aggregation.step import Tally
from pipelines.beam.plans import PlanSource, numbering_of
from pipelines.sources.base import trusted_until
from sotto.clocks import now_ms
from sotto.errors import ParameterError
from sotto.log.reader import EARLIEST, Block, Corrupt
from sotto.plan.registry import Registry
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

Keyed: TypeAlias = tuple[bytes, bytes]
#: All values of a key.
Grouped: TypeAlias = tuple[bytes, Iterable[bytes]]

#: So many messages, or bytes of them, are decoded before the end of their bundle.
MESSAGES = 5_000
BYTES = 8 << 20
#: The most rejects that one element is made of.
REJECTS = 1_000
#: Names of the outputs beside the main one.
REJECTED, NOTES = "rejected", "notes"

#: Beam's counters of the outcome of reports, by field of the tally; rejects are counted by reason.
COUNTERS = {
    "reports": "decoded",
    "counted": "counted",
    "superseded": "superseded",
    "duplicates": "duplicates",
    "revoked": "revoked_pseudonyms",
}

_STATE_KEY = struct.Struct("<qH")
#: Before packed rows: the length of their numbering.
_NUMBERING = struct.Struct("<H")
#: Bytes behind the last message of a buffer, for readers of whole words.
_PADDING = bytes(8)


@dataclass(frozen=True)
class MessageBlock:
    """Neighbouring messages of a partition, as Sotto's own sources read them."""

    partition: str  #: its name
    block: Block
    #: Whether its messages were requeued: they keep the append time of when they first came.
    requeued: bool = False


class PackedRows(NamedTuple):
    """Rows of one shard and budget period, and the plans by which their metrics are numbered."""

    numbering: bytes
    rows: bytes

    def to_bytes(self) -> bytes:
        return _NUMBERING.pack(len(self.numbering)) + self.numbering + self.rows

    @classmethod
    def from_bytes(cls, element: bytes) -> PackedRows:
        (size,) = _NUMBERING.unpack_from(element)
        at = _NUMBERING.size + size
        return cls(element[_NUMBERING.size : at], element[at:])


def increase(name: str, number: int) -> None:
    """Add to one of Beam's counters, which begins at 0 with each start of a job."""
    if number:
        Metrics.counter("sotto", name).inc(number)


def shard_key(period: int, shard: int) -> bytes:
    return _STATE_KEY.pack(period, shard)


def period_and_shard(key: bytes) -> tuple[int, int]:
    period, shard = _STATE_KEY.unpack(key)
    return period, shard


class Gathered:
    """The decoded messages of a bundle, under one registry, until they are emitted."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rows: dict[tuple[int, int, int], list[Rows]] = {}
        self.rejects: list[Reject] = []
        self.size, self.reports = 0, 0
        #: The offset that is read next, by name of the partition; and the latest append time, ms.
        self.offsets: dict[str, int] = {}
        self.clock = EARLIEST
        #: The earliest timestamp of the messages.
        self.time: Timestamp | None = None

    def add(self, block: Block) -> None:
        found = arrivals(block, self.registry, None)
        for rows in found.rows:
            key = (rows.period, rows.shard, padded_width(rows.payload.shape[1]))
            self.rows.setdefault(key, []).append(rows)
        self.rejects += found.rejects
        self.reports += found.reports

    def add_messages(self, messages: list[tuple[int, bytes]]) -> None:
        """Take messages with their append times, ms, in any order."""
        trusted = trusted_until(now_ms(), self.registry)
        messages.sort(key=lambda pair: pair[0])
        sound = [pair for pair in messages if pair[0] <= trusted]
        future = (Corrupt(0, *pair, True) for pair in messages[len(sound) :])
        append = np.array([time for time, _ in sound], dtype=np.int64)
        lengths = np.array([len(message) for _, message in sound], dtype=np.int64)
        buffer = b"".join([*(message for _, message in sound), _PADDING])
        offsets = np.cumsum(lengths) - lengths
        end = int(append[-1]) if len(append) else EARLIEST
        self.add(Block(0, buffer, offsets, lengths, append, tuple(future), 0, end))
        self.clock = max(self.clock, end)

    def outputs(self) -> Iterator[tuple[str | None, Any]]:
        """Yield elements, each with the name of its output, None for the main one."""
        numbering = numbering_of(self.registry)
        for (period, shard, _), parts in self.rows.items():
            rows = PackedRows(numbering, Rows.concat(parts).to_bytes())
            yield None, (shard_key(period, shard), rows.to_bytes())
        note: dict[str, Any] = {"offsets": self.offsets} if self.offsets else {}
        if self.clock != EARLIEST:
            note["clock"] = self.clock
        if ahead := sum(each.reason is Reason.FUTURE and not each.rows for each in self.rejects):
            note["future"] = ahead
        yield from rejected(self.rejects, Tally(reports=self.reports), note)


def rejected(
    rejects: list[Reject], tally: Tally, more: dict[str, Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield packed rejects and a note of their numbers, each with the name of its output.

    Beam's counters are increased, too. ``more``: further fields of the note.
    """
    numbers = quarantine.numbers(rejects)
    for name, number in tally._asdict().items():
        increase(COUNTERS[name], number)
    for reason, number in numbers.items():
        increase(f"rejected_{reason}", number)
    for at in range(0, len(rejects), REJECTS):
        yield REJECTED, quarantine.pack(rejects[at : at + REJECTS])
    if rejects or any(tally) or more:
        note = {"tally": list(tally), "rejects": numbers, **(more or {})}
        yield NOTES, (b"", json.dumps(note).encode())


@beam.typehints.with_input_types(bytes | MessageBlock)
@beam.typehints.with_output_types(Keyed, rejected=bytes, notes=Keyed)
class Decode(beam.DoFn):
    """Decodes messages, or blocks of them, to packed rows; rejects and notes are side outputs."""

    def __init__(self, plans: PlanSource) -> None:
        self._plans = plans

    def start_bundle(self) -> None:
        self._messages: list[tuple[int, bytes]] = []
        self._gathered: Gathered | None = None

    def process(
        self, element: bytes | MessageBlock, at: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        gathered = self._gathered = self._gathered or Gathered(self._plans.registry())
        gathered.time = at if gathered.time is None else min(at, gathered.time)
        if isinstance(element, MessageBlock):
            gathered.add(element.block)
            gathered.size += len(element.block.buffer)
            gathered.offsets[element.partition] = element.block.end
            if not element.requeued:
                gathered.clock = max(gathered.clock, element.block.clock)
        else:
            if not isinstance(element, bytes):
                raise ParameterError(
                    "expects an element that is the bytes of a message, as a device sent it; got "
                    f"{type(element).__name__}: let the source give what it has taken, undecoded"
                )
            if at == MIN_TIMESTAMP:
                raise ParameterError(
                    "a message has no timestamp: expects its append time, which a source of "
                    "messages sets, or beam.window.TimestampedValue after one that does not"
                )
            self._messages.append((at.micros // 1000, element))
            gathered.size += len(element)
        if gathered.size >= BYTES or len(self._messages) >= MESSAGES:
            yield from self._flush(gathered)

    def finish_bundle(self) -> Iterator[Any]:
        if self._gathered is not None:
            yield from self._flush(self._gathered)

    def _flush(self, gathered: Gathered) -> Iterator[Any]:
        if self._messages:
            gathered.add_messages(self._messages)
        self._messages, self._gathered = [], None
        for tag, value in gathered.outputs():
            stamped = WindowedValue(value, gathered.time, (GlobalWindow(),))
            yield stamped if tag is None else beam.pvalue.TaggedOutput(tag, stamped)
