"""Reads the columns of a Parquet file, with Arrow: what only reads CSV need not load that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from sotto.errors import FormatError, ParameterError
from sotto_cli.simulation.columns import Table, TableColumn

#: Errors that Arrow raises for a damaged file; its own message may quote a cell.
_ARROW = (pa.ArrowException, OSError, ValueError)


def read_parquet(path: Path, used: Sequence[str], check: Callable[[Sequence[str]], None]) -> Table:
    """Read the columns named ``used``, as :func:`sotto_cli.simulation.columns.read_csv` does."""
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
    except _ARROW as error:
        raise FormatError(f"{path} cannot be read as Parquet: it is damaged or cut off") from error
    check(names)
    try:
        with pa.parquet.ParquetFile(path) as file:
            table = file.read(columns=list(used))
    except _ARROW as error:
        raise FormatError(f"{path} cannot be read to its end: it is damaged or cut off") from error
    columns = {name: _column(name, table[name]) for name in used}
    return Table(columns, np.arange(1, len(table) + 1, dtype=np.int64), "row")


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
        values: list[object] = _texts(distinct) if _is_text(kind) else distinct.to_pylist()
        last = len(values)
        codes = np.concatenate([chunk.indices.fill_null(last).to_numpy() for chunk in chunks])
    except _ARROW as error:
        raise ParameterError(
            f"the cells of column {name!r} are of a type that no metric has"
        ) from error
    return TableColumn([*values, None], codes.astype(np.int64), timestamps)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(distinct: pa.Array) -> list[object]:
    return [
        None if cell is None else cell.decode(errors="surrogateescape")
        for cell in distinct.cast(pa.large_binary()).to_pylist()
    ]
