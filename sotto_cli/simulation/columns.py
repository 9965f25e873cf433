"""Reads the columns of a CSV or Parquet file with Arrow, whatever is in their cells.

Every distinct cell of a column is kept once. A cell whose bytes are no UTF-8 text has surrogates in
the place of these bytes, until :mod:`sotto_cli.simulation.cells` sees them.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sotto.errors import FormatError, ParameterError
from sotto_cli.simulation.cells import is_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes that Arrow reads at a time. A row must fit.
_BLOCK = 1 << 20
#: Errors of a damaged file; Arrow's own message may quote a cell.
_DAMAGED = (pa.ArrowException, OSError, EOFError, ValueError, zlib.error, csv.Error)


@dataclass(frozen=True)
class TableColumn:
    """The cells of one column."""

    #: Each distinct cell: a text, or what a Parquet file has in its place; None if it is null.
    distinct: Sequence[object]
    #: The place of each row's cell in ``distinct``, of shape (n,).
    codes: NDArray[np.int64]
    #: Whether they are timestamps, given in milliseconds since the epoch.
    timestamps: bool = False


@dataclass(frozen=True)
class Table:
    """The columns of a file that are used."""

    columns: dict[str, TableColumn]
    #: The number of each row. Rows are counted from 1, as a spreadsheet counts them: the line of
    #: column names is one, a blank line is none, and a row with a cell of two lines is one.
    rows: NDArray[np.int64]
    #: Rows with too many cells or too few, which are left out.
    ragged: list[int]


def read_table(path: Path, used: Sequence[str], check: Callable[[Sequence[str]], None]) -> Table:
    """Read the columns named ``used``; ``check`` is given the names of all that there are.

    Raises FormatError if the file is not what its name says.
    """
    ragged: list[int] = []
    try:
        if path.name.lower().endswith(".parquet"):
            with pa.parquet.ParquetFile(path) as file:
                check(file.schema_arrow.names)
                table, first = file.read(columns=list(used)), 1
        else:
            header = _header(path)
            # The first line of a table without names has cells, which no error repeats.
            check(header if any(name in used for name in header) else [])
            table, first = _read_csv(path, used, ragged), 2
    except (FormatError, ParameterError):
        raise
    except _DAMAGED as error:
        raise FormatError(
            f"{path} cannot be read to its end: it is damaged or cut off, or a quote is not closed"
        ) from error
    rows = np.arange(first, first + len(table) + len(ragged), dtype=np.int64)
    columns = {name: _column(name, table[name]) for name in used}
    return Table(columns, np.setdiff1d(rows, ragged), ragged)


def _header(path: Path) -> list[str]:
    """Return the names of a CSV file's columns, once every quote in it is seen to be closed."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    header: list[str] = []
    lines: list[str] = []
    csv.field_size_limit(2 * _BLOCK)
    with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:

        def next_line() -> str:
            lines.append(file.readline())
            return lines[-1]

        for row in csv.reader(iter(next_line, "")):
            header = header or row
            # Arrow takes all rows behind a quote that is never closed for one cell: up to the end
            # of the file, or to the next quote, within a cell. Other odd quotes lose no row.
            if len(lines) > 1:
                next(csv.reader(lines, strict=True))
            lines.clear()
    if not header:
        raise FormatError(f"{path} is empty: a CSV file begins with a line of column names")
    if not is_text("".join(header)):
        raise FormatError(f"the first line of {path} is no UTF-8 text; save it as CSV in UTF-8")
    return header


def _read_csv(path: Path, used: Sequence[str], ragged: list[int]) -> pa.Table:
    def leave_out(row: pa.csv.InvalidRow) -> str:
        ragged.append(row.number)
        return "skip"

    zipped = "gzip" if path.name.lower().endswith(".gz") else None
    cells = pa.dictionary(pa.int32(), pa.binary())
    with pa.input_stream(path, compression=zipped) as file:
        return pa.csv.read_csv(
            file,
            # Several threads would not know the numbers of rows.
            pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=leave_out),
            pa.csv.ConvertOptions(
                include_columns=list(used), column_types=dict.fromkeys(used, cells)
            ),
        )


def _column(name: str, cells: pa.ChunkedArray) -> TableColumn:
    try:
        if not pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        chunks = cells.unify_dictionaries().chunks
        if not chunks:
            return TableColumn([], np.empty(0, dtype=np.int64))
        distinct, kind = chunks[0].dictionary, cells.type.value_type
        timestamps = bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
        if timestamps:
            # A timestamp with a zone is stored in UTC already; one without is taken as UTC.
            stamps = distinct.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False)
            distinct = stamps.cast(pa.int64())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # Arrow would refuse a text that is not UTF-8.
            distinct = distinct.cast(pa.large_binary())
        values = [
            cell.decode(errors="surrogateescape") if isinstance(cell, bytes) else cell
            for cell in distinct.to_pylist()
        ]
        codes = np.concatenate([each.indices.fill_null(len(values)).to_numpy() for each in chunks])
    except _DAMAGED as error:
        raise ParameterError(
            f"the cells of column {name!r} are of a type that no metric has"
        ) from error
    return TableColumn([*values, None], codes.astype(np.int64), timestamps)
