"""Reads a CSV or Parquet table as what devices record: a device, a time and a value a metric.

Every distinct text of a column is parsed once. A cell that is empty becomes None (missing); one
that cannot be of its metric's type becomes ``WRONG_TYPE``. Rows that no device could have
recorded (no id, no time) are left out and counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli.cells import WRONG_TYPE, as_id, as_metric, milliseconds
from sotto.errors import FormatError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sotto.plan.compiled import CompiledPlan

CSV_SUFFIXES = (".csv", ".csv.gz")
PARQUET_SUFFIXES = (".parquet",)

NO_DEVICE = "no device id"
NO_TIME = "no time"
BAD_TIME = "unparsable time"
RAGGED = "wrong number of cells"


@dataclass(frozen=True)
class Columns:
    """Which column of the table says what.

    Attributes
    ----------
    device, time : str
        The columns of the device's id and of the event's time.
    metrics : mapping of str to str
        The column of each metric, in the plan's order.
    nulls : frozenset of str
        Cells of these texts count as empty, beside the empty cell itself.
    """

    device: str
    time: str
    metrics: Mapping[str, str]
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
    """What devices record, sorted by device and time.

    Attributes
    ----------
    row : (n,) int64
        Number of the row in the input, from 0.
    time : (n,) int64
        Milliseconds since the epoch, UTC.
    starts : (devices + 1,) int64
        Device ``i`` has the entries ``starts[i]:starts[i + 1]``, in time order. Devices are
        numbered as they first appear in the input; their ids are not kept.
    values : mapping of str to (n,) object
        By metric: a value, ``None`` where the cell is empty, or ``WRONG_TYPE``.
    rows : int
        Rows of the input, those left out included.
    skipped : Counter of str
        Rows left out, by reason.
    """

    row: NDArray[np.int64]
    time: NDArray[np.int64]
    starts: NDArray[np.int64]
    values: Mapping[str, NDArray[np.object_]]
    rows: int
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.starts) - 1

    def __len__(self) -> int:
        return len(self.time)


def read_recordings(path: Path, plan: CompiledPlan, columns: Columns) -> Recordings:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    Parameters
    ----------
    path : Path
        The input. CSV is UTF-8 with a header line. Times are ISO 8601 (without an offset: UTC)
        or whole milliseconds since the epoch; a Parquet timestamp is what it says.
    plan : CompiledPlan
        Says the type of each metric.
    columns : Columns
        Which column says what.

    Raises
    ------
    ParameterError
        A column is absent, or the name of the file ends otherwise.
    FormatError
        The file is not what its name says.
    """
    import numpy as np

    table, ragged = _read_table(path, columns)
    count = len(table)
    device = _decoded(table[columns.device], columns.nulls, as_id)
    time = _decoded(table[columns.time], columns.nulls, milliseconds)
    no_device = _which(device, None)
    no_time = _which(time, None) & ~no_device
    bad_time = _which(time, WRONG_TYPE) & ~no_device
    skipped = Counter(
        {
            NO_DEVICE: int(no_device.sum()),
            NO_TIME: int(no_time.sum()),
            BAD_TIME: int(bad_time.sum()),
            RAGGED: ragged,
        }
    )
    kept = np.flatnonzero(~(no_device | no_time | bad_time))
    when = time[kept].astype(np.int64)
    numbers: dict[str, int] = {}
    who = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in device[kept]), np.int64, len(kept)
    )
    order = np.lexsort((when, who))
    kept = kept[order]
    values = {
        metric.name: _decoded(
            table[columns.metrics[metric.name]],
            columns.nulls,
            as_metric(metric.type, ranged=metric.range is not None),
        )[kept]
        for metric in plan.metrics
    }
    starts = np.concatenate(([0], np.cumsum(np.bincount(who, minlength=len(numbers)))))
    skipped = Counter({reason: n for reason, n in skipped.items() if n})
    return Recordings(kept, when[order], starts, values, count + ragged, skipped)


def _read_table(path: Path, columns: Columns) -> tuple[pa.Table, int]:
    """Return the columns that are used, and how many ragged lines were left out."""
    import pyarrow as pa

    if not path.is_file():
        raise ParameterError(f"no such file: {path}")
    try:
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            return _read_parquet(path, columns), 0
        if path.name.lower().endswith(CSV_SUFFIXES):
            return _read_csv(path, columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        # Arrow's own message may quote a cell: only its class is passed on.
        raise FormatError(f"{path} cannot be read as what its name says") from error
    raise ParameterError(f"{path} must end in one of {', '.join(CSV_SUFFIXES + PARQUET_SUFFIXES)}")


def _read_parquet(path: Path, columns: Columns) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns.check(file.schema_arrow.names)
        return file.read(columns=columns.used)


def _read_csv(path: Path, columns: Columns) -> tuple[pa.Table, int]:
    import pyarrow as pa
    import pyarrow.csv as pcsv

    ragged = 0

    def skip(_line: object) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    with pcsv.open_csv(path, parse_options=pcsv.ParseOptions(invalid_row_handler=skip)) as reader:
        columns.check(reader.schema.names)
    ragged = 0
    table = pcsv.read_csv(
        path,
        # One thread, so that the handler is called in one.
        read_options=pcsv.ReadOptions(use_threads=False),
        parse_options=pcsv.ParseOptions(invalid_row_handler=skip),
        convert_options=pcsv.ConvertOptions(
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
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.null())
    if not len(column):
        return np.empty(0, dtype=object)
    distinct = [
        None if value is None or value == "" or value in nulls else parse(value)
        for value in _python_values(column.dictionary)
    ]
    table = np.empty(len(distinct) + 1, dtype=object)
    table[:-1] = distinct
    decoded: NDArray[np.object_] = table[column.indices.fill_null(len(distinct)).to_numpy()]
    return decoded


def _which(values: NDArray[np.object_], what: object) -> NDArray[np.bool_]:
    import numpy as np

    return np.fromiter((value is what for value in values), np.bool_, len(values))


def _python_values(dictionary: pa.Array) -> Iterator[object]:
    """Yield Python values; timestamps and dates as whole milliseconds since the epoch."""
    import pyarrow as pa

    kind = dictionary.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # A timestamp with a zone is stored in UTC already; one without is taken as UTC.
        stamps = dictionary.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False)
        dictionary = stamps.cast(pa.int64())
    yield from dictionary.to_pylist()


__all__ = ["Columns", "Recordings", "milliseconds", "read_recordings"]
