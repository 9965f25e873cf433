"""Creates the tables and views of results, and upgrades those of earlier releases.

An upgrade adds the columns that a table lacks; a reader takes them as null until then. Tables of
releases before 0.4 are refused.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from functools import cache
from typing import Any

import sqlalchemy as sql
from sqlalchemy.schema import CreateTable, SetColumnComment, SetTableComment

from pipelines.results import tables
from pipelines.results.views import VIEWS
from sotto.errors import AggregationError

#: The message about a database whose tables this release does not read.
OLDER = (
    "the database is of a release before 0.4: give another one with --database, where "
    "sotto aggregate or sotto sink writes all results that the state or the topic still has"
)
_METADATA = (tables.METADATA, tables.SINK_METADATA)
#: Tables of releases before 0.4 whose names views have now.
_RENAMED = {"windows", "estimates"}
#: The view that says which schema a database has.
VERSION = "results_version"
#: The number, an arbitrary one, of the lock that a writer of PostgreSQL holds to change the schema.
_LOCK = 0x50770


def prepare(engine: sql.Engine) -> None:
    """Create the tables and views of results, and add what an older database lacks of them.

    Nothing is changed if all is there already.

    Raises AggregationError if the database is of a release before 0.4.
    """
    with engine.connect() as connection:
        if _complete(connection):
            return
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_LOCK)))
        if not _complete(connection):
            _change(connection)


def version(connection: sql.Connection) -> str | None:
    """Return the digest of the schema that a database has; None if it says none."""
    if VERSION not in sql.inspect(connection).get_view_names():
        return None
    found = connection.execute(sql.text(f"SELECT digest FROM {VERSION}")).scalar()
    return None if found is None else str(found)


def is_older(connection: sql.Connection) -> bool:
    """Return whether a database has tables of results of a release before 0.4."""
    return not _RENAMED.isdisjoint(sql.inspect(connection).get_table_names())


def read_as_null(connection: sql.Connection) -> bool:
    """Let a connection read missing columns of results' tables as null; return whether any are.

    A database of an earlier release is read in this way until its job upgrades it.
    """
    lacked: defaultdict[str, list[str]] = defaultdict(list)
    for column in lacking(connection, tables.METADATA):
        kind = column.type.compile(connection.dialect)
        lacked[column.table.name].append(f"CAST(NULL AS {kind}) AS {column.name}")
    if not lacked:
        return False
    place = connection.dialect.default_schema_name
    whole = ", ".join(
        f"{name} AS (SELECT *, {', '.join(columns)} FROM {place}.{name})"
        for name, columns in lacked.items()
    )

    def completed(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> tuple[str, Any]:
        for head in ("WITH RECURSIVE ", "WITH "):
            if statement.startswith(head):
                return f"{head}{whole}, {statement.removeprefix(head)}", parameters
        if statement.startswith("SELECT"):
            statement = f"WITH {whole} {statement}"
        return statement, parameters

    sql.event.listen(connection, "before_cursor_execute", completed, retval=True)
    return True


def lacking(connection: sql.Connection, metadata: sql.MetaData) -> list[sql.Column[object]]:
    """Return the columns that the existing tables of a database lack."""
    inspected = sql.inspect(connection)
    there = set(inspected.get_table_names())
    found: list[sql.Column[object]] = []
    for table in metadata.sorted_tables:
        if table.name in there:
            have = {each["name"] for each in inspected.get_columns(table.name)}
            found += [column for column in table.columns if column.name not in have]
    return found


def _complete(connection: sql.Connection) -> bool:
    there = set(sql.inspect(connection).get_table_names())
    return (
        all(table.name in there for each in _METADATA for table in each.sorted_tables)
        and version(connection) == digest(connection.dialect.name)
        and not any(lacking(connection, each) for each in _METADATA)
    )


def _change(connection: sql.Connection) -> None:
    if is_older(connection):
        raise AggregationError(OLDER)
    # Not every table can be changed while a view uses it, so views are made again.
    views = set(sql.inspect(connection).get_view_names())
    for name in (VERSION, *(view.name for view in VIEWS)):
        if name in views:
            connection.exec_driver_sql(f"DROP VIEW {name}")
    for each in _METADATA:
        each.create_all(connection)
        for column in lacking(connection, each):
            kind = column.type.compile(connection.dialect)
            added = f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"
            connection.exec_driver_sql(added)
    commented = connection.dialect.supports_comments
    for statement in _statements(connection.dialect.name):
        # PostgreSQL's driver takes % for a parameter.
        connection.exec_driver_sql(statement.replace("%", "%%") if commented else statement)
    if commented:
        for each in _METADATA:
            for table in each.sorted_tables:
                connection.execute(SetTableComment(table))
                for column in table.columns:
                    connection.execute(SetColumnComment(column))


@cache
def digest(dialect: str) -> str:
    """Return the digest of the schema that this Sotto makes; it changes with any part of it."""
    made = sql.create_mock_engine(f"{dialect}://", executor=lambda *_: None).dialect
    parts = [*_views(dialect)]
    for metadata in _METADATA:
        for table in metadata.sorted_tables:
            parts.append(str(CreateTable(table).compile(dialect=made)))
            parts += [str(table.comment), *(str(column.comment) for column in table.columns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _statements(dialect: str) -> list[str]:
    """Return the statements that create the views, and the view that says which schema it is."""
    return [*_views(dialect), f"CREATE VIEW {VERSION} AS SELECT '{digest(dialect)}' AS digest"]


@cache
def _views(dialect: str) -> list[str]:
    made = sql.create_mock_engine(f"{dialect}://", executor=lambda *_: None).dialect
    statements = []
    for view in VIEWS:
        query = view.shown.compile(dialect=made, compile_kwargs={"literal_binds": True})
        statements.append(f"CREATE VIEW {view.name} AS {query}")
        if made.supports_comments:
            statements.append(f"COMMENT ON VIEW {view.name} IS {_quoted(view.comment)}")
            for column in view.columns:
                said = _quoted(column.about.text)
                statements.append(f"COMMENT ON COLUMN {view.name}.{column.name} IS {said}")
    return statements


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
