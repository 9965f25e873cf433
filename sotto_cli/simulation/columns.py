"""Reads the columns of a CSV file, whatever is in their cells.

Every distinct cell of a column is kept once. A cell whose bytes are no UTF-8 text has surrogates in
the place of these bytes, until :mod:`sotto_cli.simulation.cells` sees them.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sotto.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Characters of one cell. A quote that is never closed ends there.
_LONGEST_CELL = 1 << 20


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
    #: The place of each row: the line of a CSV file, the row of a Parquet file, counted from 1.
    lines: NDArray[np.int64]
    #: The unit of ``lines``.
    place: str
    #: Lines of rows with too many cells or too few, which are left out.
    ragged: list[int] = field(default_factory=list)


def read_csv(path: Path, used: Sequence[str], check: Callable[[Sequence[str]], None]) -> Table:
    """Read the columns named ``used``; ``check`` is given the names of all that there are.

    Raises FormatError if it is not what its name says.
    """
    try:
        return _read_csv(path, used, check)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read to its end: it is damaged or cut off") from error


def _read_csv(path: Path, used: Sequence[str], check: Callable[[Sequence[str]], None]) -> Table:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = _rows(file)
        _, header = next(rows, (0, []))
        if not header:
            raise FormatError(f"{path} is empty: a CSV file begins with a line of column names")
        if not is_text("".join(header)):
            raise FormatError(f"the first line of {path} is no UTF-8 text; save it as CSV in UTF-8")
        check(header)
        numbers: list[dict[str, int]] = [{} for _ in used]
        codes = [array("q") for _ in used]
        takes = [
            (header.index(name), seen, taken.append)
            for name, seen, taken in zip(used, numbers, codes, strict=True)
        ]
        lines, ragged, width = array("q"), [], len(header)
        for line, row in rows:
            if len(row) != width:
                ragged.append(line)
                continue
            lines.append(line)
            for place, seen, take in takes:
                take(seen.setdefault(row[place], len(seen)))
    columns = {
        name: TableColumn(list(seen), np.frombuffer(taken, np.int64) if taken else _none())
        for name, seen, taken in zip(used, numbers, codes, strict=True)
    }
    return Table(columns, np.array(lines, np.int64), "line", ragged)


def _rows(file: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the line in which each row begins, and its cells; blank lines are passed over."""
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(file)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                # A cell without an end: as a row of no cells it is one that is left out.
                yield line, []
                continue
            if row:
                yield line, row
    finally:
        csv.field_size_limit(before)


def _none() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


def is_text(cell: str) -> bool:
    """Whether all bytes of a cell were UTF-8 text, none of them zero."""
    if cell.isascii():
        return "\0" not in cell
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in cell
