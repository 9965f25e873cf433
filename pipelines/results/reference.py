"""``docs/reference/tables.md``: every view and table of results, from their own comments.

``python -m pipelines.results.reference`` prints the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from pipelines.results.schema import VERSION
from pipelines.results.tables import METADATA, SINK_METADATA
from pipelines.results.views import COMPARISONS, RANGES, RETENTION, VIEWS, RowSet, View

#: A column's name, what it holds, and what it means.
_Row: TypeAlias = tuple[str, str, str]

_HEAD = """\
# Views and tables of results

Written by `make docs` from the comments that PostgreSQL has in the database, too (`\\d+ shares` in
psql). SQLite and PostgreSQL have the same views and tables. [results.md](../guides/results.md) has
queries.

"""
_VIEWS = f"""\
## Views, for people

The columns are a contract: later releases add some, and change none. Times are `timestamptz` in
PostgreSQL and text of ISO 8601 in UTC in SQLite, such as `2013-06-01T00:00:00.000Z`, whose order as
text is that in time; a time beyond the years 1 to 9999 is null. Lists are JSON. The same columns
are in the answers of `/api/v1` and in the files of `sotto export`.

A release that changes views makes them anew; in PostgreSQL, grant them again after it. The view
`{VERSION}` has a digest of the whole schema, by which a writer knows.

What columns of these names mean, unless a view says otherwise:

"""
_RANGES = """\
## Rows that are computed

`/api/v1`, `sotto estimates --from` and `--compare`, and `ResultsReader` make these when they are
asked for: [ranges](../guides/results.md#ranges-and-two-of-them-compared).

"""
_TABLES = """\
## Tables, for machines

Aggregation runs and sinks write these, and the views read them. They may change with any release; a
database can always be made again from the state directory or the topic. Times are milliseconds
since the epoch, and amounts of privacy are micro-epsilon.

"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD, _VIEWS, _columns(_COMMON), "\n", *map(_view, VIEWS), _RANGES]
    parts += [*map(_view, (RANGES, COMPARISONS, RETENTION)), _TABLES]
    parts += [_table(table) for table in METADATA.sorted_tables]
    parts.append("A sink's database also has these:\n\n")
    parts += [_table(table) for table in SINK_METADATA.sorted_tables]
    return "".join(parts).rstrip() + "\n"


def _view(view: RowSet) -> str:
    said = view.comment[0].upper() + view.comment[1:]
    private = (
        " For operators: not in the public mode of `sotto serve`."
        if isinstance(view, View) and view.private
        else ""
    )
    names = ", ".join(f"`{each.name}`" for each in view.columns)
    own = [each for each in _described(view) if each not in _COMMON]
    table = f"{_columns(own)}\n" if own else ""
    return f"### `{view.name}`\n\n{said}.{private}\n\nColumns: {names}.\n\n{table}"


def _described(view: RowSet) -> list[_Row]:
    return [(each.name, each.kind, each.about.text) for each in view.columns]


#: Columns that several views have in common.
_COMMON = [row for row, times in Counter(chain(*map(_described, VIEWS))).items() if times > 1]


def _table(table: sql.Table) -> str:
    said = str(table.comment)
    rows = [
        (
            column.name,
            _type(column) + (", key" if column.primary_key else ""),
            str(column.comment),
        )
        for column in table.columns
    ]
    return f"### `{table.name}`\n\n{said[0].upper()}{said[1:]}.\n\n{_columns(rows)}\n"


def _type(column: sql.Column[object]) -> str:
    one, other = (
        str(column.type.compile(dialect=each.dialect())).lower() for each in (sqlite, postgresql)
    )
    null = " or null" if column.nullable else ""
    return f"{one}{null}" if one == other else f"{one} (PostgreSQL: {other}){null}"


def _columns(rows: Sequence[_Row]) -> str:
    def lines() -> Iterator[str]:
        yield "| column | type | |"
        yield "|---|---|---|"
        for name, kind, comment in rows:
            yield f"| `{name}` | {kind} | {comment} |"

    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    print(page(), end="")
