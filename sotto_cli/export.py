"""Write results to files for other tools: Parquet, CSV, Arrow or JSON.

A file has one of the views that the database has for people: times are timestamps in UTC, privacy
is in epsilon. docs/reference/tables.md says what each column means; Parquet and Arrow files carry
it, too. All files are of one moment, also while a job goes on; those of an earlier export are
replaced.

examples:
  sotto export --state build/state --out results
      results/shares.parquet, results/means.parquet and so on, a file a view
  sotto export --state build/state --table shares --out shares.parquet
  sotto export --database postgresql+psycopg://localhost/sotto --format csv --out results

  then, in Python:  pandas.read_parquet("results/shares.parquet")
  and in DuckDB:    SELECT item, share FROM 'results/shares.parquet' WHERE metric = 'carrier'
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.columns import aligned
from sotto.errors import ParameterError
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.results.views import View


FORMATS = ("parquet", "csv", "arrow", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    options.add(place, "--state")
    options.add(place, "--database")
    parser.set_defaults(plan=())
    add = partial(options.add, parser)
    options.add_format(parser, *FORMATS)
    add("--out PATH", "the folder, or with one --table the file", required=True, type=Path)
    which = "only this view, such as shares; again for another; see docs/reference/tables.md"
    add("--table NAME", which, [], action="append")


def run(args: argparse.Namespace) -> None:
    from pipelines.results.encode import export

    files = _files(args.out, args.table, args.format)
    with options.reader_of(args) as reader:
        # No folder is made where there are no results.
        reader.revision()
        for folder in {path.parent for path in files}:
            folder.mkdir(parents=True, exist_ok=True)
        written = export(reader, files, args.format)
    cells = [
        (str(path), f"{rows:,}", "row" if rows == 1 else "rows") for path, rows in written.items()
    ]
    print("\n".join(aligned(cells, [False, True, False])))


def _files(out: Path, names: list[str], format: str) -> dict[Path, View]:
    """Return the files to write, each with its view."""
    from pipelines.results.views import VIEWS

    views = {view.name: view for view in VIEWS}
    for name in names:
        if name not in views:
            raise ParameterError(f"--table must be one of {', '.join(views)}; got {name!r}")
    if len(set(names)) != 1:
        file = str(out) == "-" or out.suffix[1:].lower() in (*FORMATS, "xls", "xlsx")
        if out.is_file() or (file and not out.is_dir()):
            raise ParameterError(f"--out {out} names a file: give a folder, or one --table")
        return {out / f"{name}.{format}": views[name] for name in names or views}
    path = out / f"{names[0]}.{format}" if out.is_dir() else out
    if str(out) == "-" or path.suffix[1:].lower() in {*FORMATS, "xls", "xlsx"} - {format}:
        raise ParameterError(f"--out {out} would be {format}: name it *.{format}, or give --format")
    return {path: views[names[0]]}
