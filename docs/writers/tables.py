"""``docs/reference/tables.md``: every view and table of results, from their own comments.

``python -m docs.writers.tables`` prints the page, of the template ``tables.md.j2``.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import jinja2
import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from pipelines.results.schema import VERSION
from pipelines.results.tables import METADATA, SINK_METADATA
from pipelines.results.views import COMPARISONS, RANGES, RETENTION, VIEWS, RowSet

#: A column's name, what it holds, and what it means.
_Row: TypeAlias = tuple[str, str, str]


def page() -> str:
    """Return the page."""
    template = (Path(__file__).parent / "tables.md.j2").read_text("utf-8")
    described = Counter(chain(*map(_described, VIEWS)))
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    made = environment.from_string(template).render(
        version=VERSION,
        # Columns that several views have.
        common=[row for row, times in described.items() if times > 1],
        described=_described,
        cells=_cells,
        views=VIEWS,
        computed=(RANGES, COMPARISONS, RETENTION),
        tables=METADATA.sorted_tables,
        sink_tables=SINK_METADATA.sorted_tables,
    )
    return made.rstrip() + "\n"


def _described(view: RowSet) -> list[_Row]:
    return [(each.name, each.kind, each.about.text) for each in view.columns]


def _cells(table: sql.Table) -> list[_Row]:
    """Return the columns of a table."""
    return [
        (column.name, _type(column) + (", key" if column.primary_key else ""), str(column.comment))
        for column in table.columns
    ]


def _type(column: sql.Column[object]) -> str:
    one, other = (
        str(column.type.compile(dialect=each.dialect())).lower() for each in (sqlite, postgresql)
    )
    null = " or null" if column.nullable else ""
    return f"{one}{null}" if one == other else f"{one} (PostgreSQL: {other}){null}"


if __name__ == "__main__":
    print(page(), end="")
