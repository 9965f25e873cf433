"""The headers of many messages, and their groups, found at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sotto.errors import FormatError
from sotto.wire.format import GROUP, ROW, SIGNED_VERSION, VERSION, row_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: So few messages are walked one by one: an array operation costs more than a group does then.
_FEW = 64

_GROUP = np.dtype([("metric", "<u2"), ("width", "<u2"), ("count", "<u4")])

#: A header as one record of numpy.
LAYOUT = np.dtype(
    [
        ("magic", "S2"),
        ("version", "u1"),
        ("cell", "u1"),
        ("shard", "<u2"),
        ("groups", "<u2"),
        ("fingerprint", "<u8", (4,)),
    ]
)


def known_version(header: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which headers are of a version that can be read."""
    version = header["version"]
    known: NDArray[np.bool_] = (version == VERSION) | (version == SIGNED_VERSION)
    return known


def records_at(
    data: NDArray[np.uint8], positions: NDArray[np.int64], dtype: np.dtype[np.void]
) -> NDArray[Any]:
    """Return the records of a packed structured type at any positions of a buffer.

    Every byte is taken as the beginning of a record, and of these records those wanted are
    copied out: one copy of a record's length each, whatever its alignment.
    """
    if len(positions) == 0:
        return np.empty(0, dtype=dtype)
    opaque = np.dtype(f"V{dtype.itemsize}")
    everywhere = np.ndarray((len(data) - dtype.itemsize + 1,), opaque, data, 0, (1,))
    return everywhere[positions].view(dtype)


class Groups(NamedTuple):
    """A table of groups; all columns have shape (k,)."""

    #: Index of the group's message.
    message: NDArray[np.int64]
    #: As the group's header says: metric, payload width, number of rows.
    metric: NDArray[np.int64]
    width: NDArray[np.int64]
    rows: NDArray[np.int64]
    #: The place of its first row in the buffer.
    start: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_]) -> Groups:
        """Return the chosen groups."""
        return self if chosen.all() else Groups(*(column[chosen] for column in self))

    def by_metric(self) -> Iterator[tuple[int, Groups]]:
        """Yield the groups of each metric (below 65536), by metric."""
        if len(self.metric) == 0:
            return
        order = np.argsort(self.metric.astype(np.uint16), kind="stable")
        groups = Groups(*(column[order] for column in self))
        edges = np.flatnonzero(groups.metric[1:] != groups.metric[:-1]) + 1
        bounds = [0, *edges.tolist(), len(order)]
        for begin, end in pairwise(bounds):
            yield int(groups.metric[begin]), Groups(*(column[begin:end] for column in groups))

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, for each of the n rows, the index of its group and where in the buffer it is."""
        of_group = np.repeat(np.arange(len(self.rows)), self.rows)
        alike = len(self.width) == 0 or bool((self.width == self.width[0]).all())
        widths = self.width[:1] if alike else self.width
        sizes = widths + ROW.size
        before = np.cumsum(self.rows) - self.rows
        starts = (self.start - before * sizes)[of_group]
        starts += np.arange(len(of_group)) * (sizes if alike else sizes[of_group])
        return of_group, starts


def walk(
    data: NDArray[np.uint8],
    message: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    groups: NDArray[np.int64],
) -> tuple[Groups, NDArray[np.int64]]:
    """Find all groups of whole messages, and the messages that are not exactly their groups.

    ``message`` has the indices of those to walk. ``begins``, ``ends`` and ``groups`` of shape (m,)
    say where every message's first group begins, where it ends and how many it has.
    """
    pieces: list[Groups] = []
    broken = [message[:0]]
    at, left = begins[message], groups[message]
    while len(message) > _FEW:
        end = ends[message]
        room = at + GROUP.size <= end
        header = records_at(data, np.where(room, at, 0), _GROUP)
        metric, width, count = (header[name].astype(np.int64) for name in _GROUP.names or ())
        start = at + GROUP.size
        after = start + count * (width + ROW.size)
        good = room & (count > 0) & (after <= end)
        left = left - 1
        good &= (left > 0) | (after == end)
        pieces.append(Groups(message, metric, width, count, start).where(good))
        if not good.all():
            broken.append(message[~good])
        on = good & (left > 0)
        message, at, left = message[on], after[on], left[on]
    few, few_broken = _walk_few(data, message, at, ends, left)
    broken.append(few_broken)
    malformed = np.concatenate(broken)
    table = Groups(*(np.concatenate(columns) for columns in zip(*pieces, few, strict=True)))
    if len(malformed):
        sound = np.ones(len(ends), dtype=bool)
        sound[malformed] = False
        table = table.where(sound[table.message])
    return table, malformed


def _walk_few(
    data: NDArray[np.uint8],
    messages: NDArray[np.int64],
    at: NDArray[np.int64],
    ends: NDArray[np.int64],
    left: NDArray[np.int64],
) -> tuple[Groups, NDArray[np.int64]]:
    """The same, message by message."""
    found: list[tuple[int, int, int, int, int]] = []
    broken = []
    view = data.data
    for message, position, groups in zip(
        messages.tolist(), at.tolist(), left.tolist(), strict=True
    ):
        try:
            for metric, width, places in row_places(view, position, int(ends[message]), groups):
                found.append((message, metric, width, len(places), places.start))
        except FormatError:
            broken.append(message)
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    return Groups(*table.T), np.array(broken, dtype=np.int64)
