"""Finding the runs of many messages at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sotto.wire.format import ROW, RUN, row_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: So few messages are walked one by one: an array operation costs more than a run does then.
_FEW = 64

_RUN = np.dtype([("metric", "<u2"), ("width", "<u2"), ("count", "<u4")])


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
    count = len(data) - dtype.itemsize + 1
    everywhere = np.ndarray((count,), opaque, data, 0, (1,))
    return everywhere[positions].view(dtype)


class Runs(NamedTuple):
    """A table of runs; all columns are int64 of shape (k,).

    Attributes
    ----------
    message : ndarray
        Index of the run's message.
    metric, width, rows : ndarray
        As the run's header says: metric, payload width, number of rows.
    start : ndarray
        Where in the buffer its first row is.
    """

    message: NDArray[np.int64]
    metric: NDArray[np.int64]
    width: NDArray[np.int64]
    rows: NDArray[np.int64]
    start: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_]) -> Runs:
        """Return the chosen runs."""
        return self if chosen.all() else Runs(*(column[chosen] for column in self))

    def by_metric(self) -> Iterator[tuple[int, Runs]]:
        """Yield the runs of each metric (below 65536), by metric."""
        if len(self.metric) == 0:
            return
        order = np.argsort(self.metric.astype(np.uint16), kind="stable")
        runs = Runs(*(column[order] for column in self))
        edges = np.flatnonzero(runs.metric[1:] != runs.metric[:-1]) + 1
        bounds = [0, *edges.tolist(), len(order)]
        for begin, end in pairwise(bounds):
            yield int(runs.metric[begin]), Runs(*(column[begin:end] for column in runs))

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, for each row of these runs, its run and its place.

        Returns
        -------
        of_run : ndarray, shape (n,), int64
            Index of the row's run in this table.
        starts : ndarray, shape (n,), int64
            Where in the buffer the row begins.
        """
        of_run = np.repeat(np.arange(len(self.rows)), self.rows)
        alike = len(self.width) == 0 or bool((self.width == self.width[0]).all())
        widths = self.width[:1] if alike else self.width
        sizes = widths + ROW.size
        before = np.cumsum(self.rows) - self.rows
        starts = (self.start - before * sizes)[of_run]
        starts += np.arange(len(of_run)) * (sizes if alike else sizes[of_run])
        return of_run, starts


def walk(
    data: NDArray[np.uint8],
    message: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    runs: NDArray[np.int64],
) -> tuple[Runs, NDArray[np.int64]]:
    """Find all runs of the given messages, and the messages that are not exactly their runs.

    Parameters
    ----------
    data : ndarray of uint8
        The buffer.
    message : ndarray, shape (k,), int64
        Indices of the messages to walk.
    begins, ends, runs : ndarray, shape (m,), int64
        Of every message: where its first run begins, where it ends, how many runs it has.

    Returns
    -------
    Runs
        Of whole messages alone.
    ndarray of int64
        The messages that are malformed.
    """
    pieces: list[Runs] = []
    broken = [message[:0]]
    at, left = begins[message], runs[message]
    while len(message) > _FEW:
        end = ends[message]
        room = at + RUN.size <= end
        header = records_at(data, np.where(room, at, 0), _RUN)
        metric, width, count = (header[name].astype(np.int64) for name in _RUN.names or ())
        start = at + RUN.size
        after = start + count * (width + ROW.size)
        good = room & (count > 0) & (after <= end)
        left = left - 1
        good &= (left > 0) | (after == end)
        pieces.append(Runs(message, metric, width, count, start).where(good))
        if not good.all():
            broken.append(message[~good])
        on = good & (left > 0)
        message, at, left = message[on], after[on], left[on]
    few, few_broken = _walk_few(data, message, at, ends, left)
    broken.append(few_broken)
    malformed = np.concatenate(broken)
    table = Runs(*(np.concatenate(columns) for columns in zip(*pieces, few, strict=True)))
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
) -> tuple[Runs, NDArray[np.int64]]:
    """The same, message by message."""
    found: list[tuple[int, int, int, int, int]] = []
    broken = []
    view = data.data
    for message, position, runs in zip(messages.tolist(), at.tolist(), left.tolist(), strict=True):
        end = int(ends[message])
        for _ in range(runs):
            if position + RUN.size > end:
                break
            metric, width, count = RUN.unpack_from(view, position)
            start = position + RUN.size
            position = start + count * row_size(width)
            if count == 0 or position > end:
                break
            found.append((message, metric, width, count, start))
        else:
            if position == end:
                continue
        broken.append(message)
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    return Runs(*table.T), np.array(broken, dtype=np.int64)
