"""Reads a CSV or Parquet table as what devices record: a device, a time and a value a metric.

A cell that is empty becomes None (missing); one that cannot be of its metric's type, or is no text,
becomes a :class:`~sotto_cli.simulation.cells.Cell`. Rows that no device could have recorded (no
id, no time) are left out and counted by reason. Problems are named by column and row, never by
value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sotto.errors import ParameterError, did_you_mean
from sotto_cli.simulation.cells import (
    NOT_TEXT,
    WRONG_TYPE,
    Cell,
    Parser,
    feeds,
    has_offset,
    parsed,
    time_parser,
    value_parser,
    within_parser,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sotto.plan.compiled import CompiledPlan
    from sotto_cli.simulation.columns import Table, TableColumn

_ENDINGS = (".csv", ".csv.gz", ".parquet")
NO_DEVICE = "no device id"
NO_TIME = "no time"
BAD_TIME = "unparsable time"
BAD_TEXT = "device id that is no UTF-8 text"
RAGGED = "wrong number of cells"
UNLIKELY = "time outside 2000 to 2100"
UNIT = "--time-unit says what numbers count"
#: The years 2000 and 2100, in milliseconds since the epoch.
_LIKELY = 946_684_800_000, 4_102_444_800_000
OUTSIDE = "value outside the plan's domain or range"
SPELT = "more than half are: is it the same spelling, the same unit?"
NO_OFFSET = "time without an offset, beside others with one"
UTC = "read as UTC"
_ROWS = "such rows are skipped"
#: So many places are listed of each kind of problem.
LISTED = 10


@dataclass(frozen=True)
class TableProblem:
    """Something in the input that somebody should look at."""

    what: str
    #: The measure taken about it.
    done: str
    #: The column, None if it is of whole rows.
    column: str | None
    #: How many rows or cells.
    count: int
    #: The numbers of the first rows, at most :data:`LISTED`.
    places: tuple[int, ...]

    def __str__(self) -> str:
        where = "row" + "s" * (self.count > 1) + " " + ", ".join(map(str, self.places))
        more = self.count - len(self.places)
        where += f" and {more:,} more" if more else ""
        column = "" if self.column is None else f" in column {self.column!r}"
        return f"{self.what}{column}: {where}; {self.done}"


@dataclass(frozen=True)
class Columns:
    """Which column of the table says what."""

    device: str
    time: str
    #: The column of each name that an app records, counts or reaches a step of.
    names: Mapping[str, str]
    #: Cells of these texts count as empty, beside the empty cell itself.
    nulls: frozenset[str] = frozenset()
    #: The unit of a time that is a number: ``s``, ``ms``, ``us`` or ``ns``.
    time_unit: str = "ms"
    #: The column of each of the plan's segments that the input has.
    segments: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_plan(
        cls,
        plan: CompiledPlan,
        device: str,
        time: str,
        renamed: Mapping[str, str] | None = None,
        nulls: Sequence[str] = (),
        time_unit: str = "ms",
        segments: Mapping[str, str] | None = None,
    ) -> Columns:
        """Give every name that an app passes the column of that name, or the one in ``renamed``.

        They are the metrics', but where the device measures: ``export`` of ``{count: export}``.
        """
        renamed, segments = renamed or {}, segments or {}
        names = list(dict.fromkeys(feed.name for feed in feeds(plan)))
        for what, given, known in (
            ("segment", segments, [name for name, _ in plan.segments]),
            ("metric or measure", renamed, names),
        ):
            for name in given:
                if name not in known:
                    has = (", ".join(known) or "none") + did_you_mean(name, known)
                    raise ParameterError(f"the plan has no {what} {name!r}; it has {has}")
        columns = {name: renamed.get(name, name) for name in names}
        return cls(device, time, columns, frozenset(nulls), time_unit, segments)

    @property
    def used(self) -> list[str]:
        """Every column that is read, each once."""
        said = [*self.names.values(), *self.segments.values()]
        return list(dict.fromkeys([self.device, self.time, *said]))

    def check(self, present: Sequence[str]) -> None:
        """Raise :class:`ParameterError` that names what is absent and what there is.

        ``present`` is empty if a table seems to have no names.
        """
        absent = [name for name in self.used if name not in present]
        if absent:
            has = "a CSV file begins with a line of column names, with commas between them"
            if present:
                has = f"the input has {', '.join(map(repr, present))}"
            missed = ", ".join(map(repr, absent))
            raise ParameterError(f"no column {missed}; {has} (--map NAME=COLUMN renames one)")
        doubled = [name for name in self.used if list(present).count(name) > 1]
        if doubled:
            raise ParameterError(f"the input has several columns named {doubled[0]!r}")


@dataclass(frozen=True)
class Recordings:
    """Recordings of devices, n entries sorted by device and time."""

    #: Number of each entry's row in the input, from 0.
    row: NDArray[np.int64]
    #: Milliseconds since the epoch, UTC.
    time: NDArray[np.int64]
    #: Device ``i`` has the entries ``starts[i]:starts[i + 1]``, in time order. Devices are numbered
    #: as they first appear in the input; their ids are not kept.
    starts: NDArray[np.int64]
    #: By metric, the first that the value feeds, of shape (n,): a value, ``None`` where the cell is
    #: empty, or a ``Cell``.
    values: Mapping[str, NDArray[np.object_]]
    #: Rows of the input, those left out included.
    rows: int
    #: Rows left out, by reason.
    skipped: Counter[str] = field(default_factory=Counter)
    #: Problems of the input: rows left out, cells of the wrong type, times to be doubted.
    problems: tuple[TableProblem, ...] = ()
    #: By segment, of shape (n,): what the device was, ``None`` where that is not said.
    segments: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.starts) - 1

    def __len__(self) -> int:
        return len(self.time)

    def deal(self, processes: int) -> list[NDArray[np.int64]]:
        """Deal the devices out so that each process has about as many rows; no share is empty."""
        rows = np.diff(self.starts)
        heaviest_first = np.argsort(-rows, kind="stable")
        # There and back again, as captains choose teams.
        lap = np.arange(len(rows)) % (2 * processes)
        hand = np.minimum(lap, 2 * processes - 1 - lap)
        shares = [np.sort(heaviest_first[hand == share]) for share in range(processes)]
        return [share for share in shares if len(share)]

    def subset(self, devices: NDArray[np.int64]) -> Recordings:
        """Return the recordings of some devices, numbered from 0 in the order of ``devices``."""
        spans = [np.arange(self.starts[each], self.starts[each + 1]) for each in devices]
        entries = np.concatenate(spans)
        return Recordings(
            row=self.row[entries],
            time=self.time[entries],
            starts=np.cumsum([0, *map(len, spans)]),
            values={name: values[entries] for name, values in self.values.items()},
            rows=self.rows,
            segments={name: said[entries] for name, said in self.segments.items()},
        )


def read_recordings(path: Path, plan: CompiledPlan, columns: Columns) -> Recordings:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    CSV is UTF-8 with a header line. Times are ISO 8601 (without an offset: UTC) or numbers of
    ``columns.time_unit`` since the epoch; a Parquet timestamp is what it says. Raises
    ParameterError if a column is absent or the name of the file ends otherwise, FormatError if it
    is not what its name says. Problems of single rows and cells are in ``problems``.
    """
    table = _read(path, columns)
    found = _Problems(table)
    found.add(RAGGED, _ROWS, None, table.ragged)
    skipped = Counter({RAGGED: len(table.ragged)} if table.ragged else {})
    device = _decoded(table.columns[columns.device], columns.nulls, str)
    times = table.columns[columns.time]
    to_time = time_parser("ms" if times.timestamps else columns.time_unit)
    time = _decoded(times, columns.nulls, to_time)
    kept = np.arange(len(table.rows))
    for cells, what, reason, column in (
        (device, None, NO_DEVICE, columns.device),
        (device, NOT_TEXT, BAD_TEXT, columns.device),
        (time, None, NO_TIME, columns.time),
        (time, WRONG_TYPE, BAD_TIME, columns.time),
        (time, NOT_TEXT, BAD_TIME, columns.time),
    ):
        bad = np.fromiter((cell is what for cell in cells[kept]), np.bool_, len(kept))
        if bad.any():
            skipped[reason] += int(bad.sum())
            found.add_at(reason, _ROWS, column, kept[bad])
            kept = kept[~bad]
    _doubt_times(found, times, time[kept].astype(np.int64), kept, columns)
    numbers: dict[str, int] = {}
    who = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in device[kept]), np.int64, len(kept)
    )
    when = time[kept].astype(np.int64)
    order = np.lexsort((when, who))
    values = {}
    for feed in feeds(plan):
        column, parse = columns.names[feed.name], value_parser(feed)
        cells = _decoded(table.columns[column], columns.nulls, parse)[kept]
        for kind in Cell:
            bad = np.fromiter((cell is kind for cell in cells), np.bool_, len(kept))
            found.add_at(kind.value, "such cells are skipped", column, kept[bad])
        values[feed.values] = cells[order]
        if (metric := feed.metrics[0]).measure is None:
            told = _decoded(table.columns[column], columns.nulls, within_parser(metric, parse))
            outside = np.fromiter((each is False for each in told[kept]), np.bool_, len(kept))
            if 2 * np.count_nonzero(outside) > len(kept):
                found.add_at(OUTSIDE, SPELT, column, kept[outside])
    segments = {}
    for name, column in columns.segments.items():
        said = _decoded(table.columns[column], columns.nulls, str)[kept]
        # A cell that is no text is no value that the plan lists.
        bad = np.fromiter((cell is NOT_TEXT for cell in said), np.bool_, len(kept))
        found.add_at(NOT_TEXT.value, "such cells count as other", column, kept[bad])
        said[bad] = None
        segments[name] = said[order]
    starts = np.concatenate(([0], np.cumsum(np.bincount(who, minlength=len(numbers)))))
    rows = len(table.rows) + len(table.ragged)
    found_in = kept[order], when[order], starts, values, rows, skipped, tuple(found.problems)
    return Recordings(*found_in, segments)


def _read(path: Path, columns: Columns) -> Table:
    name = path.name.lower()
    if not path.is_file():
        raise ParameterError(f"--input {path} must be a file: there is none, or it is a folder")
    if not name.endswith(_ENDINGS):
        raise ParameterError(f"{path} must end in one of {', '.join(_ENDINGS)}")
    # Not before: processes that play devices back need no Arrow.
    from sotto_cli.simulation.columns import read_table

    return read_table(path, columns.used, columns.check)


def _doubt_times(
    found: _Problems,
    times: TableColumn,
    when: NDArray[np.int64],
    kept: NDArray[np.int64],
    columns: Columns,
) -> None:
    """Note times that were read, and hardly mean what was read; refuse a table of mostly such."""
    unlikely = (when < _LIKELY[0]) | (when >= _LIKELY[1])
    if 2 * np.count_nonzero(unlikely) > len(when):
        raise ParameterError(
            f"the times in {columns.time!r} must lie between 2000 and 2100; more than half of them "
            f"do not: correct them; {UNIT} (s, ms, us or ns; here {columns.time_unit})"
        )
    found.add_at(UNLIKELY, UNIT, columns.time, kept[unlikely])
    if times.timestamps:
        return
    codes = times.codes[kept]
    offsets = [has_offset(cell) for cell in times.distinct]
    zoned, plain = (np.array([each is which for each in offsets]) for which in (True, False))
    if len(codes) and zoned[codes].any():
        found.add_at(NO_OFFSET, UTC, columns.time, kept[plain[codes]])


class _Problems:
    """Problems by place, in the order in which they are found."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.problems: list[TableProblem] = []

    def add_at(self, what: str, done: str, column: str, kept: NDArray[np.int64]) -> None:
        """Note a problem of some of the rows that were read, unless there are none."""
        self.add(what, done, column, self._table.rows[kept].tolist())

    def add(self, what: str, done: str, column: str | None, rows: list[int]) -> None:
        """Note a problem of rows of these numbers, unless there are none."""
        if rows:
            first = tuple(rows[:LISTED])
            self.problems.append(TableProblem(what, done, column, len(rows), first))


def _decoded(column: TableColumn, nulls: frozenset[str], parse: Parser) -> NDArray[np.object_]:
    """Return the column as Python values, each distinct one parsed once."""
    table = np.empty(len(column.distinct), dtype=object)
    for place, cell in enumerate(column.distinct):
        # One by one: numpy would take a vector's value apart.
        table[place] = parsed(cell, nulls, parse)
    return table[column.codes]
