"""Reads a CSV or Parquet table as what devices record: a device, a time and a value a metric.

Every distinct text of a column is parsed once. A cell that is empty becomes None (missing); one
that cannot be of its metric's type becomes ``WRONG_TYPE``. Rows that no device could have
recorded (no id, no time) are left out and counted by reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sotto.errors import FormatError, ParameterError
from sotto.plan.durations import parse_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sotto.plan.compiled import CompiledMetric, CompiledPlan

NO_DEVICE = "no device id"
NO_TIME = "no time"
BAD_TIME = "unparsable time"
RAGGED = "wrong number of cells"

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})


class Cell(Enum):
    """What a cell is when it is no value."""

    WRONG_TYPE = "wrong type"


WRONG_TYPE: Final = Cell.WRONG_TYPE


@dataclass(frozen=True)
class Columns:
    """Which column of the table says what."""

    device: str
    time: str
    #: The column of each metric, in the plan's order.
    metrics: Mapping[str, str]
    #: Cells of these texts count as empty, beside the empty cell itself.
    nulls: frozenset[str] = frozenset()

    @classmethod
    def of_plan(
        cls,
        plan: CompiledPlan,
        device: str,
        time: str,
        renamed: Mapping[str, str] | None = None,
        nulls: Sequence[str] = (),
    ) -> Columns:
        """Give every metric of the plan the column of its own name, or the one in ``renamed``."""
        renamed = renamed or {}
        names = [metric.name for metric in plan.metrics]
        for name in renamed:
            if name not in names:
                raise ParameterError(f"the plan has no metric {name!r}; it has {', '.join(names)}")
        metrics = {name: renamed.get(name, name) for name in names}
        return cls(device, time, metrics, frozenset(nulls))

    @property
    def used(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([self.device, self.time, *self.metrics.values()]))

    def check(self, present: Sequence[str]) -> None:
        """Raise :class:`ParameterError` that names what is absent and what there is."""
        absent = [name for name in self.used if name not in present]
        if absent:
            raise ParameterError(
                f"no column {', '.join(map(repr, absent))}; the input has "
                f"{', '.join(map(repr, present))} (--map METRIC=COLUMN gives a metric another)"
            )
        doubled = [name for name in self.used if list(present).count(name) > 1]
        if doubled:
            raise ParameterError(f"the input has several columns named {doubled[0]!r}")


@dataclass(frozen=True)
class Recordings:
    """What devices record, n entries sorted by device and time."""

    #: Number of each entry's row in the input, from 0.
    row: NDArray[np.int64]
    #: Milliseconds since the epoch, UTC.
    time: NDArray[np.int64]
    #: Device ``i`` has the entries ``starts[i]:starts[i + 1]``, in time order. Devices are numbered
    #: as they first appear in the input; their ids are not kept.
    starts: NDArray[np.int64]
    #: By metric, of shape (n,): a value, ``None`` where the cell is empty, or ``WRONG_TYPE``.
    values: Mapping[str, NDArray[np.object_]]
    #: Rows of the input, those left out included.
    rows: int
    #: Rows left out, by reason.
    skipped: Counter[str] = field(default_factory=Counter)

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
        )


def read_recordings(path: Path, plan: CompiledPlan, columns: Columns) -> Recordings:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    CSV is UTF-8 with a header line. Times are ISO 8601 (without an offset: UTC) or whole
    milliseconds since the epoch; a Parquet timestamp is what it says. Raises ParameterError if a
    column is absent or the name of the file ends otherwise, FormatError if it is not what its name
    says.
    """
    table, ragged = _read_table(path, columns)
    device = _decoded(table[columns.device], columns.nulls, str)
    time = _decoded(table[columns.time], columns.nulls, _time)
    skipped = Counter({RAGGED: ragged} if ragged else {})
    kept = np.arange(len(table))
    for cells, what, reason in (
        (device, None, NO_DEVICE),
        (time, None, NO_TIME),
        (time, WRONG_TYPE, BAD_TIME),
    ):
        bad = np.fromiter((cell is what for cell in cells[kept]), np.bool_, len(kept))
        if bad.any():
            skipped[reason] = int(bad.sum())
        kept = kept[~bad]
    numbers: dict[str, int] = {}
    who = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in device[kept]), np.int64, len(kept)
    )
    when = time[kept].astype(np.int64)
    order = np.lexsort((when, who))
    kept = kept[order]
    values = {
        metric.name: _decoded(table[columns.metrics[metric.name]], columns.nulls, _parser(metric))[
            kept
        ]
        for metric in plan.metrics
    }
    starts = np.concatenate(([0], np.cumsum(np.bincount(who, minlength=len(numbers)))))
    return Recordings(kept, when[order], starts, values, len(table) + ragged, skipped)


def _read_table(path: Path, columns: Columns) -> tuple[pa.Table, int]:
    """Return the columns that are used, and how many ragged lines were left out."""
    name = path.name.lower()
    if not path.is_file():
        raise ParameterError(f"no such file: {path}")
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ParameterError(f"{path} must end in one of .csv, .csv.gz, .parquet")
    try:
        if name.endswith(".parquet"):
            with pa.parquet.ParquetFile(path) as file:
                columns.check(file.schema_arrow.names)
                return file.read(columns=columns.used), 0
        return _read_csv(path, columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        # Arrow's own message may quote a cell: only its class is passed on.
        raise FormatError(f"{path} cannot be read as what its name says") from error


def _read_csv(path: Path, columns: Columns) -> tuple[pa.Table, int]:
    ragged = 0

    def skip(_line: object) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    parse = pa.csv.ParseOptions(invalid_row_handler=skip)
    with pa.csv.open_csv(path, parse_options=parse) as reader:
        columns.check(reader.schema.names)
    ragged = 0
    table = pa.csv.read_csv(
        path,
        # One thread, so that the handler is called in one.
        read_options=pa.csv.ReadOptions(use_threads=False),
        parse_options=parse,
        convert_options=pa.csv.ConvertOptions(
            include_columns=columns.used,
            column_types={name: pa.string() for name in columns.used},
            strings_can_be_null=False,
        ),
    )
    return table, ragged


def _decoded(
    column: pa.ChunkedArray, nulls: frozenset[str], parse: Callable[[object], object]
) -> NDArray[np.object_]:
    """Return the column as Python values, each distinct one parsed once."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunks = column.unify_dictionaries().chunks
    if not chunks:
        return np.empty(0, dtype=object)
    distinct, kind = chunks[0].dictionary, column.type.value_type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # A timestamp with a zone is stored in UTC already; one without is taken as UTC.
        stamps = distinct.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False)
        distinct = stamps.cast(pa.int64())
    parsed = (
        None if value is None or value == "" or value in nulls else parse(value)
        for value in distinct.to_pylist()
    )
    # A cell that is null has the number after the last distinct one.
    table = np.fromiter((*parsed, None), dtype=object)
    last = len(table) - 1
    decoded: NDArray[np.object_] = table[
        np.concatenate([chunk.indices.fill_null(last).to_numpy() for chunk in chunks])
    ]
    return decoded


def _time(value: object) -> object:
    try:
        return parse_time(value)
    except ParameterError:
        return WRONG_TYPE


def _parser(metric: CompiledMetric) -> Callable[[object], object]:
    """Return what makes a cell a value of a metric's type.

    Text becomes what the type says; a value that a Parquet file has typed stays as it is, and
    the SDK says whether it fits. A cell of a vector has its numbers one after another, between
    blanks, commas or semicolons.
    """
    if metric.type == "number" or (metric.type == "ordinal" and metric.range is not None):
        return _number
    parsers = {"boolean": _boolean, "survey": _boolean, "vector": _vector}
    return parsers.get(metric.type, lambda value: value)


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return WRONG_TYPE
    # Python's float also takes digits grouped by underscores, and "nan".
    return number if math.isfinite(number) and "_" not in value else WRONG_TYPE


def _boolean(value: object) -> object:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else WRONG_TYPE


def _vector(value: object) -> object:
    if not isinstance(value, str):
        return value
    numbers = tuple(map(_number, value.replace(",", " ").replace(";", " ").split()))
    return WRONG_TYPE if WRONG_TYPE in numbers else numbers
