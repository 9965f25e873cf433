"""Writes rows as JSON, CSV, Parquet or Arrow, with the view's columns and their meanings.

The HTTP interface writes its answers, and ``sotto export`` its files, by these functions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.results.fields import Kind, moment
from pipelines.results.reader import ResultsReader, Row
from pipelines.results.views import RowSet, View
from sotto.csv_cells import write_csv_rows
from sotto.plan.files import checked_output, open_beside

#: Writes batches of rows to a file.
Writer: TypeAlias = Callable[[RowSet, Iterable[Sequence[Row]], IO[bytes]], None]

_TYPES: Mapping[Kind, Any] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("ms", tz="UTC"),
    "integers": pa.list_(pa.int64()),
    "texts": pa.list_(pa.string()),
    "pairs": pa.list_(pa.list_(pa.float64())),
}


@lru_cache(maxsize=4096)
def time_text(milliseconds: int) -> str:
    """Return a time as text, as the views of SQLite have it.

    >>> time_text(1_370_044_800_000)
    '2013-06-01T00:00:00.000Z'
    """
    return moment(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def arrow_schema(view: RowSet) -> Any:
    """Return the Arrow schema of rows; each field's metadata has what the column means."""
    return pa.schema(
        [
            pa.field(each.name, _TYPES[each.kind], metadata={"comment": each.about.text})
            for each in view.columns
        ],
        metadata={"comment": view.comment},
    )


def arrow_batch(view: RowSet, rows: Sequence[Row]) -> Any:
    """Return rows as a record batch of :func:`arrow_schema`."""
    schema = arrow_schema(view)
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def objects(view: RowSet, rows: Iterable[Row]) -> Iterator[dict[str, object]]:
    """Yield rows as JSON has them, by name of the column."""
    names = [column.name for column in view.columns]
    shown: Mapping[Kind, Callable[[Any], object]] = {"time": time_text, "boolean": bool}
    convert = [(at, shown[each.kind]) for at, each in enumerate(view.columns) if each.kind in shown]
    for row in rows:
        values = list(row)
        for at, to in convert:
            if values[at] is not None:
                values[at] = to(values[at])
        yield dict(zip(names, values, strict=True))


def write_json(view: RowSet, batches: Iterable[Sequence[Row]], file: IO[bytes]) -> None:
    """Write a list of objects, one a line."""
    before = "[\n"
    for rows in batches:
        for each in objects(view, rows):
            file.write((before + json.dumps(each, ensure_ascii=False)).encode())
            before = ",\n"
    file.write(b"[]\n" if before == "[\n" else b"\n]\n")


def write_csv(view: RowSet, batches: Iterable[Sequence[Row]], file: IO[bytes]) -> None:
    """Write a line of names, then a line for each row; a list is JSON, and null is empty."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    names = [each.name for each in view.columns]
    write_csv_rows(text, names, (each for rows in batches for each in objects(view, rows)))
    text.flush()
    text.detach()


def write_parquet(view: RowSet, batches: Iterable[Sequence[Row]], file: IO[bytes]) -> None:
    """Write Apache Parquet, one row group for each batch."""
    with pq.ParquetWriter(file, arrow_schema(view)) as writer:
        for rows in batches:
            writer.write_batch(arrow_batch(view, rows))


def write_arrow(view: RowSet, batches: Iterable[Sequence[Row]], file: IO[bytes]) -> None:
    """Write an Arrow IPC file (Feather), one record batch for each batch."""
    with pa.ipc.new_file(file, arrow_schema(view)) as writer:
        for rows in batches:
            writer.write_batch(arrow_batch(view, rows))


#: By name of the format.
WRITERS: Mapping[str, Writer] = {
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
    "arrow": write_arrow,
}


def export(reader: ResultsReader, files: Mapping[Path, View], format: str) -> dict[Path, int]:
    """Write each view to its file, as of one moment, and return how many rows each file has.

    Existing files are replaced only once all are written; symbolic links are followed.
    ``format``: ``parquet``, ``csv``, ``arrow`` or ``json``.

    Raises ResultsError if the results cannot be read, ParameterError if a path cannot be that of a
    file, OSError if a file cannot be written.
    """
    paths = {view.name: checked_output(path) for path, view in files.items()}

    def write(view: View, batches: Iterator[Sequence[Row]]) -> int:
        counted = 0

        def rows() -> Iterator[Sequence[Row]]:
            nonlocal counted
            for batch in batches:
                counted += len(batch)
                yield batch

        with open_beside(_beside(path := paths[view.name]), path) as file:
            WRITERS[format](view, rows(), file)
        return counted

    try:
        counts = reader.read_all(list(files.values()), write)
        for path in paths.values():
            _beside(path).replace(path)
    finally:
        for path in paths.values():
            _beside(path).unlink(missing_ok=True)
    return dict(zip(files, counts, strict=True))


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")
