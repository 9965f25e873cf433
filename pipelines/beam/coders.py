"""The coders of what an engine keeps of a pipeline: restrictions, clocks, and the state of keys.

An engine restores bytes without looking at them. So every value begins with a byte that is its
version, and a version that this release does not know is an error; otherwise a changed format would
be noticed late, or never.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple, TypeVar

from apache_beam.coders import Coder
from apache_beam.io.restriction_trackers import OffsetRange

from sotto.errors import FormatError
from sotto.log.reader import EARLIEST

#: The version of all values that are kept. A release that raises it says in
#: docs/operate/flink.md which ones it reads.
VERSION = 1
_PAIR = struct.Struct("<qq")
T = TypeVar("T")


class Clock(NamedTuple):
    """The time of a partition, ms."""

    #: The append time of its last record; a later record with an earlier one is given this one.
    append: int = EARLIEST
    watermark: int = EARLIEST  #: no element that follows has an earlier timestamp


def read_tuple(kind: type[T], state: Any) -> T:
    """Return a named tuple that state keeps as JSON; one of its defaults if the state is empty."""
    return kind(*json.loads(state.read() or b"[]"))


def write_tuple(state: Any, value: tuple[object, ...]) -> None:
    state.write(json.dumps(value, separators=(",", ":")).encode())


class StateCoder(Coder):
    """The coder of bytes in state; the other coders are derived from it."""

    def encode(self, value: Any) -> bytes:
        return bytes([VERSION]) + self._packed(value)

    def decode(self, encoded: bytes) -> Any:
        """Return a value; FormatError if another release has written it in another version."""
        if not encoded or encoded[0] != VERSION:
            version = encoded[0] if encoded else "none"
            raise FormatError(
                f"the state of the job has version {version}, expected {VERSION}: another release "
                "of Sotto has written it; go on with that one, or begin --from-scratch"
            )
        return self._unpacked(encoded[1:])

    def _packed(self, value: Any) -> bytes:
        return bytes(value)

    def _unpacked(self, content: bytes) -> Any:
        return content

    def is_deterministic(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class OffsetsCoder(StateCoder):
    """The coder of offsets that are still to be read: two little-endian i64."""

    def _packed(self, value: OffsetRange) -> bytes:
        return _PAIR.pack(value.start, value.stop)

    def _unpacked(self, content: bytes) -> OffsetRange:
        return OffsetRange(*_PAIR.unpack(content))


class ClockCoder(StateCoder):
    """The coder of a partition's clock: two little-endian i64."""

    def _packed(self, value: Clock) -> bytes:
        return _PAIR.pack(*value)

    def _unpacked(self, content: bytes) -> Clock:
        return Clock(*_PAIR.unpack(content))


class NamesCoder(StateCoder):
    """The coder of names of partitions: a JSON array."""

    def _packed(self, value: tuple[str, ...]) -> bytes:
        return json.dumps(value).encode()

    def _unpacked(self, content: bytes) -> tuple[str, ...]:
        return tuple(json.loads(content))
