"""What a keeper keeps, as an engine gives it: state of the key that is being worked on.

An engine makes these once for an operator; whatever is read or written belongs to the key of the
element in work. It restores all keys of all keepers to one moment, together with the positions of
the sources, or not at all. Everything is bytes, so that no engine's serializer is part of a format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


class Cell(Protocol):
    """One value."""

    def get(self) -> bytes | None:
        """Return the value; None if there is none."""

    def set(self, value: bytes) -> None:
        """Put a value in the place of the last."""

    def clear(self) -> None:
        """Remove the value."""


class Bag(Protocol):
    """Values in the order in which they came; adding one costs nothing for those before."""

    def append(self, value: bytes) -> None:
        """Add a value."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield all values, oldest first."""

    def clear(self) -> None:
        """Remove all values."""


class Store(Protocol):
    """Values by key; reading or writing one costs nothing for the others."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none."""

    def put(self, key: bytes, value: bytes) -> None:
        """Put a value in the place of the key's last."""

    def remove(self, key: bytes) -> None:
        """Remove a key, which may not be there."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all keys and values, in any order; nothing is written while they are gone over."""


@dataclass(frozen=True)
class ClockStates:
    """State of a lane: its clock and its next offset."""

    clock: Cell


@dataclass(frozen=True)
class ShardStates:
    """State of a shard.

    Parameters
    ----------
    waiting : Bag
        Letters that are not decoded yet.
    queue : Cell
        How many they are and since when.
    clocks : Store
        The clock of each lane that the shard is in.
    ledger : Cell
        The first open period, what became of all reports, and what has been told of it.
    plans : Cell
        The plans by which the rows in ``logs`` are numbered.
    heads : Store
        By budget period: the extent of its snapshot and log, and the token of its live state.
    snapshots : Store
        Pieces of states.
    logs : Store
        Packed rows taken since the snapshot.
    """

    waiting: Bag
    queue: Cell
    clocks: Store
    ledger: Cell
    plans: Cell
    heads: Store
    snapshots: Store
    logs: Store


@dataclass(frozen=True)
class WindowStates:
    """State of a slot of windows.

    Parameters
    ----------
    counts : Store
        By window: the packed matrix.
    agenda : Store
        By window: what has been told of it and what is due.
    clock : Cell
        The latest time of the log known here, and when it was last seen to advance.
    opened : Cell
        By shard, the first open period.
    """

    counts: Store
    agenda: Store
    clock: Cell
    opened: Cell


@dataclass(frozen=True)
class BookStates:
    """State of the books, of which there is one.

    Parameters
    ----------
    shards : Store
        By shard: what became of all its reports.
    periods : Store
        Audits by period and shard; those of closed periods summed.
    lanes : Store
        By lane: its clock and next offset.
    told : Cell
        What documents have been made, and when.
    """

    shards: Store
    periods: Store
    lanes: Store
    told: Cell
