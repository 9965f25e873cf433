"""Writes rows of results, and those of documents, to the tables of a database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import sqlalchemy as sql

from pipelines.results.documents import Document, HealthDocument
from pipelines.results.tables import HEALTH, META, METADATA, REVISIONS, TABLES, Row

#: Keys that one query asks for.
_QUERIED = 500


def newest(documents: Iterable[Document]) -> dict[str, Document]:
    """Return the newest document of each key, in order."""
    found: dict[str, Document] = {}
    for each in documents:
        key = each.key.decode()
        known = found.get(key)
        if known is None or known.revision < each.revision:
            found.pop(key, None)
            found[key] = each
    return found


def newer(connection: sql.Connection, documents: Iterable[Document]) -> list[Document]:
    """Return the newest document of each key that is newer than the results, in order."""
    found = newest(documents)
    keys = list(found)
    have: dict[str, int] = {}
    for at in range(0, len(keys), _QUERIED):
        query = sql.select(REVISIONS).where(REVISIONS.c.key.in_(keys[at : at + _QUERIED]))
        have |= {row.key: row.revision for row in connection.execute(query)}
    return [each for key, each in found.items() if each.revision > have.get(key, 0)]


def write_documents(connection: sql.Connection, documents: Sequence[Document]) -> None:
    """Write documents, at most one of a key, over what there is of their keys."""
    revisions = [
        {"key": each.key.decode(), "collector": each.collector_name, "revision": each.revision}
        for each in documents
    ]
    _replace(connection, REVISIONS, revisions, revisions, ("key",))
    for kind in {type(each) for each in documents}:
        same = [each for each in documents if type(each) is kind]
        stale, rows = [each.named for each in same], [each.rows() for each in same]
        for record in kind.records:
            new = [row for each in rows for row in each[record]]
            _replace(connection, TABLES[record], stale, new, kind.key_names)
    for each in documents:
        if isinstance(each, HealthDocument):
            now = {"projected_generation": each.revision, "clock": each.health["clock"]}
            ours = META.c.collector == each.collector
            connection.execute(sql.update(META).where(ours).values(now))


def mark_changed(connection: sql.Connection, collector: str, documents: int) -> None:
    """Change the digest by which readers notice that a collector's results have changed."""
    ours = META.c.collector == collector
    before = connection.execute(sql.select(META.c.lineage).where(ours)).scalar() or "0 documents"
    written = int(before.split()[0]) + documents
    connection.execute(sql.update(META).where(ours).values(lineage=f"{written} documents"))


def forget(connection: sql.Connection, collector: str, state: str | None = None) -> None:
    """Remove all results of a collector, and whose they are: if a state is given, if its."""
    for table in (*METADATA.sorted_tables, REVISIONS, HEALTH):
        remove = sql.delete(table).where(table.c.collector == collector)
        # Another one's may have come since it was looked: then the transaction is to fail.
        others = table is META and state is not None
        connection.execute(remove.where(META.c.state == state) if others else remove)


def _replace(
    connection: sql.Connection,
    table: sql.Table,
    stale: Sequence[Row],
    rows: Sequence[Row],
    key: Sequence[str],
) -> None:
    """Insert rows in the place of those that have the key of one that is stale."""
    same = (table.c[name] == sql.bindparam(f"old_{name}") for name in key)
    keys = [{f"old_{name}": row[name] for name in key} for row in stale]
    connection.execute(sql.delete(table).where(*same), keys)
    _insert(connection, table, rows)


def _insert(connection: sql.Connection, table: sql.Table, rows: Iterable[Row]) -> None:
    """Insert rows; what is not finite becomes null."""
    values = [{name: finite(value) for name, value in row.items()} for row in rows]
    if values:
        connection.execute(sql.insert(table), values)


def finite(value: object) -> object:
    """Return what a database takes of a value: null for what is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
