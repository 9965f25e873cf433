"""Creates the tables and views of results, and brings those of an older Sotto to this one's.

Tables of an older database are given the columns that they lack. Where they had other keys or names
they are made again, and the results are projected anew. Those of a sink are kept under other names.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from functools import cache

import sqlalchemy as sql
from sqlalchemy.schema import CreateTable, SetColumnComment, SetTableComment

from pipelines.sinks import tables
from pipelines.sinks.comments import add_comments
from pipelines.sinks.views import VIEWS, View
from sotto.errors import AggregationError

add_comments()
_logger = logging.getLogger(__name__)

#: What is said of a database whose schema is older than this one's.
OLDER = (
    "the database is of an older Sotto; aggregate once more, or start the sink: it is brought up "
    "to date"
)
#: Before the names of a sink's tables of an earlier release.
_ASIDE = "earlier_"
_METADATA = (tables.METADATA, tables.SINK_METADATA)
#: Tables of earlier releases whose names views have now.
_EARLIER = [sql.Table(name, sql.MetaData()) for name in ("windows", "estimates")]
#: The view that says which schema a database has.
VERSION = "results_version"
#: An arbitrary number by which writers of PostgreSQL wait for each other.
_LOCK = 0x50770


def prepare(engine: sql.Engine, *, sink: bool = False, state: str | None = None) -> None:
    """Create the tables and views of results, and what an older database lacks of them.

    Tables of an earlier release that have other keys are made again, empty, if all in them are
    results that can be made again: those of the state directory ``state``, or a sink's, which stay
    as ``earlier_…``. ``sink``: also the tables of a sink. Where all is there already, nothing is
    changed.

    Raises AggregationError if the database holds what cannot be made again.
    """
    metadata = [tables.METADATA, *([tables.SINK_METADATA] if sink else [])]
    with engine.connect() as connection:
        if _complete(connection, metadata):
            return
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_LOCK)))
        if not _complete(connection, metadata):
            _change(connection, metadata, state)


def version(connection: sql.Connection) -> str | None:
    """Return the digest of the schema that a database has; None before there were any."""
    if VERSION not in sql.inspect(connection).get_view_names():
        return None
    found = connection.execute(sql.text(f"SELECT digest FROM {VERSION}")).scalar()
    return None if found is None else str(found)


def is_older(connection: sql.Connection) -> bool:
    """Return whether tables of results, or columns of them, are not there yet."""
    there = set(sql.inspect(connection).get_table_names())
    names = {table.name for table in tables.METADATA.sorted_tables}
    return not names <= there or bool(lacking(connection, tables.METADATA))


def lacking(connection: sql.Connection, metadata: sql.MetaData) -> list[sql.Column[object]]:
    """Return the columns that the tables of a database lack, if they are there at all."""
    inspected = sql.inspect(connection)
    there = set(inspected.get_table_names())
    found: list[sql.Column[object]] = []
    for table in metadata.sorted_tables:
        if table.name in there:
            have = {each["name"] for each in inspected.get_columns(table.name)}
            found += [column for column in table.columns if column.name not in have]
    return found


def _complete(connection: sql.Connection, metadata: list[sql.MetaData]) -> bool:
    there = set(sql.inspect(connection).get_table_names())
    return (
        all(table.name in there for each in metadata for table in each.sorted_tables)
        and version(connection) == digest(connection.dialect.name)
        and not any(lacking(connection, each) for each in metadata)
    )


def _change(connection: sql.Connection, metadata: list[sql.MetaData], state: str | None) -> None:
    # Tables that views are made of cannot all be changed.
    views = set(sql.inspect(connection).get_view_names())
    for name in (VERSION, *(view.name for view in VIEWS)):
        if name in views:
            connection.exec_driver_sql(f"DROP VIEW {name}")
    _drop_earlier(connection, state)
    for each in metadata:
        each.create_all(connection)
        for column in lacking(connection, each):
            kind = column.type.compile(connection.dialect)
            added = f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"
            connection.exec_driver_sql(added)
    commented = connection.dialect.supports_comments
    for statement in _statements(connection.dialect.name):
        # Where the driver looks for parameters.
        connection.exec_driver_sql(statement.replace("%", "%%") if commented else statement)
    if commented:
        for each in metadata:
            for table in each.sorted_tables:
                connection.execute(SetTableComment(table))
                for column in table.columns:
                    connection.execute(SetColumnComment(column))


def _drop_earlier(connection: sql.Connection, state: str | None) -> None:
    """Make room where tables of an earlier release have other keys or names."""
    keys = sql.inspect(connection).get_multi_pk_constraint()
    of_sinks = tables.SINK_METADATA.sorted_tables
    named = {table.name: table for each in _METADATA for table in each.sorted_tables}
    present = [named[name] for _, name in keys if name in named]
    renamed = [table for table in _EARLIER if (None, table.name) in keys]
    if not renamed and all(
        set(keys[None, table.name]["constrained_columns"]) == set(table.primary_key.columns.keys())
        for table in present
    ):
        return
    if not _can_be_made_again(connection, state, present):
        raise AggregationError(
            "the database has tables of an earlier release, and in them the results of another "
            "state directory, or of a sink: give another database"
        )
    kept = []
    for table in (*renamed, *present):
        # A run makes its results again from its state directory. A sink reads its topic again,
        # which may not go back as far as its results do: these stay.
        if state is None and table not in of_sinks:
            kept.append(_set_aside(connection, table.name))
        else:
            table.drop(connection)
    if kept:
        _logger.warning(
            "the database is of an older Sotto: its results are kept as %s, and the topic is read "
            "again from where it begins; drop these tables once all is there",
            ", ".join(kept),
        )


def _set_aside(connection: sql.Connection, name: str) -> str:
    """Rename a table, and return its new name."""
    kept = f"{_ASIDE}{name}"
    if sql.inspect(connection).has_table(kept):
        raise AggregationError(
            f"the database has tables of an earlier release, and {kept} of one before that: drop "
            "or rename it"
        )
    connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {kept}")
    return kept


def _can_be_made_again(
    connection: sql.Connection, state: str | None, present: Sequence[sql.Table]
) -> bool:
    """Return whether a database has the results of a state directory alone; for None, a sink's."""
    if state is None or tables.OFFSETS in present:
        return state is None and tables.OFFSETS in present
    states = sql.select(tables.META.c.state)
    return tables.META not in present or set(connection.execute(states).scalars()) <= {state}


@cache
def digest(dialect: str) -> str:
    """Return the digest of the schema that this Sotto makes; it changes with any part of it."""
    made = sql.create_mock_engine(f"{dialect}://", executor=lambda *_: None).dialect
    parts = list(_views(dialect))
    for metadata in _METADATA:
        for table in metadata.sorted_tables:
            parts.append(str(CreateTable(table).compile(dialect=made)))
            parts += [str(table.comment), *(str(column.comment) for column in table.columns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _statements(dialect: str) -> Iterator[str]:
    """Yield what creates the views, and the one that says which schema it is."""
    yield from _views(dialect)
    yield f"CREATE VIEW {VERSION} AS SELECT '{digest(dialect)}' AS digest"


def _views(dialect: str) -> Iterator[str]:
    made = sql.create_mock_engine(f"{dialect}://", executor=lambda *_: None).dialect
    for view in VIEWS:
        yield _created(view, made)
        if made.supports_comments:
            yield f"COMMENT ON VIEW {view.name} IS {_quoted(view.comment)}"
            for column in view.columns:
                said = _quoted(column.comment)
                yield f"COMMENT ON COLUMN {view.name}.{column.name} IS {said}"


def _created(view: View, dialect: sql.Dialect) -> str:
    query = view.shown.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return f"CREATE VIEW {view.name} AS {query}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
