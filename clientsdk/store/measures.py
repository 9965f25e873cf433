"""Measures: what a device adds up over a budget period, and draws one answer from at its end.

These are the only true values that are ever written: the plan says so, by ``stored: true``. A row
is made at the first use in a period, and keeps its size and place whatever is added to it. Each
addition writes it once, and never the same bytes again: SQLite would leave out such a write, and
so show that nothing has changed. The transaction that leaves the period draws the answers and
erases the rows. All functions with a connection belong in a transaction of the caller.

The measure ``used`` stores no true value but a response: at first one to *no*, and after a use one
to *yes*, drawn independently of the one before. The answer is drawn from the response alone. Its
row is written again at fixed times, whether or not there was a use.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from os import urandom
from sqlite3 import Connection, Cursor

from clientsdk import draws
from clientsdk.store import device_secrets, schema
from clientsdk.store.accounts import tally_name
from clientsdk.store.outbox import StoredChain
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.measures import RECORDED, Measure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DAY = 86_400_000
#: Random bytes, by which no two writes of a row are the same.
_NONCE = 8
#: Whether there was a value, and a float or a whole number.
_NUMBER, _WHOLE = struct.Struct("<?d"), struct.Struct("<?q")
_MOST = (1 << 63) - 1


@frozen
class MeasureRow:
    """A row of the table ``measure``, without its random bytes; its state is in no ``repr``."""

    tally: str
    period: int
    plan: int
    metric: int
    cell: int
    state: bytes

    def __repr__(self) -> str:
        return f"MeasureRow({self.tally}, {self.period})"


def _rows(connection: Connection, tally: str | None = None) -> list[MeasureRow]:
    """Return the rows, or the one of a metric; DamagedError if a value is of another type.

    A state is read as a blob even if it is text: Python's error about text that it cannot decode
    would show it.
    """
    rows = connection.execute(
        "SELECT tally, period, plan, metric, cell, substr(CAST(state AS BLOB), ?) FROM measure"
        " WHERE ? IS NULL OR tally = ? ORDER BY tally",
        (_NONCE + 1, tally, tally),
    ).fetchall()
    if any([*map(type, row)] != [str, *(int,) * 4, bytes] for row in rows):
        raise schema.damaged(connection)
    return [MeasureRow(*row) for row in rows]


def metric_of(connection: Connection, plan: CompiledPlan, row: MeasureRow) -> CompiledMetric:
    """Return the metric of a row; DamagedError if the row does not fit it.

    A row fits if its tally names the metric, its period is none before the epoch, and its state has
    the size that the metric gives. A response is checked only when the answer is drawn from it.
    """
    if row.period >= 0 and row.metric in range(len(plan.metrics)):
        metric, size = plan.metrics[row.metric], len(row.state)
        fits = metric.holds_response or size == len(nothing(plan, metric))
        if metric.measure and fits and row.tally == tally_name(plan.plan, metric.name):
            return metric
    raise schema.damaged(connection)


def began(
    connection: Connection, tally: str, plan: Callable[[Connection, int], CompiledPlan]
) -> tuple[CompiledMetric, bytes] | None:
    """Return metric and state of a measure that has begun, or None; DamagedError if neither."""
    for row in _rows(connection, tally):
        return metric_of(connection, plan(connection, row.plan), row), row.state
    return None


def begin(
    connection: Connection, tally: str, period: int, place: tuple[int, int, int], state: bytes
) -> None:
    """Make the row of a measure; ``place``: plan's number, metric's index, and cell."""
    row = tally, period, *place, urandom(_NONCE) + state
    connection.execute("INSERT INTO measure VALUES (?, ?, ?, ?, ?, ?)", row)


def nothing(plan: CompiledPlan, metric: CompiledMetric) -> bytes:
    """Return the state of a measure to which nothing has been added.

    A state of days has a bit for each that a period can have a part of.
    """
    days = metric.measure is not None and metric.measure.kind == "days"
    return bytes((plan.period // DAY + 2 + 7) // 8 if days else _NUMBER.size)


def response(
    metric: CompiledMetric, used: bool, pseudonym: bytes, source: Source, resolution: int
) -> bytes:
    """Return the state of the measure ``used`` with a new response at the last level.

    Raises StoreError if the operating system gives no randomness, before it looks at ``used``.
    """
    with device_secrets.random_bytes():
        source, chain, _ = draws.for_chain(source, resolution)
    return metric.mechanism.draw_last(metric.encode(used), chain, pseudonym, source)


def rewrite(cursor: Cursor, tally: str, state: bytes) -> None:
    """Write a state, new or not, behind other random bytes: no two writes are the same."""
    written = urandom(_NONCE) + state, tally
    cursor.execute("UPDATE measure SET state = ? WHERE tally = ?", written)


def added(metric: CompiledMetric, state: bytes, value: float | None, now: int, began: int) -> bytes:
    """Return a state with an amount added; its period ``began``, in ms since the epoch as ``now``.

    A clock that was set back may say a time before that.
    """
    kind = _measure(metric).kind
    if kind == "days":
        days = int.from_bytes(state, "little")
        if value and (now >= began or not days):
            day = max(now // DAY - began // DAY, 0)
            days |= 1 << min(day, 8 * len(state) - 1)
        return days.to_bytes(len(state), "little")
    if kind in ("count", "furthest"):
        _, before = _WHOLE.unpack(state)
        more = int(value or 0)
        total = min(before + more, _most(metric)) if kind == "count" else max(before, more)
        return _WHOLE.pack(True, total)
    known, number = _NUMBER.unpack(state)
    if value is None:
        # A last value may be missing; to the others a missing one adds nothing.
        return _NUMBER.pack(False, 0.0) if kind == "last" else state
    if kind == "sum":
        return _NUMBER.pack(True, number + value)
    if known and kind != "last":
        value = (max if kind == "max" else min)(number, value)
    return _NUMBER.pack(True, value)


def _measure(metric: CompiledMetric) -> Measure:
    assert metric.measure is not None
    return metric.measure


def _most(metric: CompiledMetric) -> int:
    """Return the count beyond which the metric tells no two counts apart."""
    if metric.edges is not None:
        return metric.edges[-1]
    high = metric.range[1] if metric.range is not None else 1
    return math.ceil(min(max(high, 0), _MOST // 2))


def _value(metric: CompiledMetric, state: bytes) -> Any:
    """Return the value that a state stands for, as an app would record it."""
    kind = _measure(metric).kind
    if kind == "days":
        return int.from_bytes(state, "little").bit_count()
    known, number = (_NUMBER if kind in RECORDED else _WHOLE).unpack(state)
    if kind == "furthest":
        return metric.labels[min(max(number, 0), len(metric.labels) - 1)]
    if kind in RECORDED and kind != "sum" and not known:
        return None
    return bool(number) if metric.type == "boolean" else number


def first_use(connection: Connection, tally: str, period: int) -> int:
    """Return the budget period of a metric's first use, which is noted if it is this one.

    An entry that is no whole number is damage; this period takes its place.
    """
    connection.execute("DELETE FROM first_use WHERE typeof(period) <> 'integer'")
    connection.execute("INSERT OR IGNORE INTO first_use VALUES (?, ?)", (tally, period))
    row = connection.execute("SELECT period FROM first_use WHERE tally = ?", (tally,)).fetchone()
    return int(row[0])


def age(plan: CompiledPlan, metric: CompiledMetric, first: int, period: int) -> int:
    """Return how often a metric's ``every`` has begun anew since the period of the first use."""
    every = _measure(metric).every
    return max(0, period * plan.period // every - first * plan.period // every)


def take(connection: Connection) -> list[MeasureRow]:
    """Erase all rows and return them; DamagedError if a value is of another type."""
    rows = _rows(connection)
    connection.execute("DELETE FROM measure")
    return rows


def answer(plan: CompiledPlan, row: MeasureRow, pseudonym: bytes, source: Source) -> StoredChain:
    """Draw the chain of a period that is over; its event is the last step of that period.

    Chain id and jitter are drawn before the state is read. Raises StoreError if the operating
    system gives no randomness, and ParameterError if the state is no response of the metric.
    """
    metric = plan.metrics[row.metric]
    with device_secrets.random_bytes():
        source, chain, jitter = draws.for_chain(source, plan.resolution)
    mechanism = metric.mechanism
    if metric.holds_response:
        payloads = mechanism.weaker(row.state, source)
    else:
        symbol = metric.encode(_value(metric, row.state))
        payloads = mechanism.draw(symbol, chain, pseudonym, source)
    end = (row.period + 1) * plan.period
    of_metric = row.plan, row.metric, end - plan.resolution, jitter
    due = end + jitter + metric.delays[0]
    return StoredChain(row.period, due, chain, *of_metric, 0, 0, b"".join(payloads), row.cell)


def next_end(connection: Connection, length: int) -> int | None:
    """Return when the first period with a measure under way ends, in ms; None if there is none."""
    whole = "SELECT min(period) FROM measure WHERE typeof(period) = 'integer' AND period >= 0"
    (period,) = connection.execute(whole).fetchone()
    return None if period is None else (period + 1) * length


def erase(connection: Connection, tally: str | None = None) -> None:
    """Erase what was measured, and when a metric was first used, of all metrics or of one."""
    for table in ("measure", "first_use"):
        connection.execute(f"DELETE FROM {table} WHERE ? IS NULL OR tally = ?", (tally, tally))


def erase_expired(connection: Connection, moment: int) -> bool:
    """Erase what is measured under plans that have expired; return whether there was any."""
    erased = connection.execute(
        "DELETE FROM measure WHERE plan IN (SELECT id FROM plan WHERE expires <= ?)", (moment,)
    )
    return erased.rowcount > 0


def forget_first_uses(connection: Connection, period: int) -> None:
    """Forget first uses after ``period``: the clock was ahead then."""
    connection.execute("DELETE FROM first_use WHERE period > ?", (period,))
