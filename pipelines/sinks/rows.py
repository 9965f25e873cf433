"""Writes the rows of documents to the tables of a database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import sqlalchemy as sql

from pipelines.results.documents import Document, HealthDocument
from pipelines.results.tables import HEALTH, META, METADATA, REVISIONS, TABLES, Row

#: The most keys that one query asks for.
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
    """Return the newest document of each key, if it is newer than the database's, in order."""
    found = newest(documents)
    keys = list(found)
    have: dict[str, int] = {}
    for at in range(0, len(keys), _QUERIED):
        query = sql.select(REVISIONS).where(REVISIONS.c.key.in_(keys[at : at + _QUERIED]))
        have |= {row.key: row.revision for row in connection.execute(query)}
    return [each for key, each in found.items() if each.revision > have.get(key, 0)]


def write_documents(connection: sql.Connection, documents: Sequence[Document]) -> None:
    """Write documents, at most one of each key, in place of all rows that have their keys."""
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
    """Remove all results of a collector, and the note of whose they are.

    ``state``: if given, that note is removed only if it names this state directory.
    """
    for table in (*METADATA.sorted_tables, REVISIONS, HEALTH):
        remove = sql.delete(table).where(table.c.collector == collector)
        # If another state's results have come meanwhile, the note stays and the transaction fails.
        others = table is META and state is not None
        connection.execute(remove.where(META.c.state == state) if others else remove)


def _replace(
    connection: sql.Connection,
    table: sql.Table,
    stale: Sequence[Row],
    rows: Sequence[Row],
    key: Sequence[str],
) -> None:
    """Remove the rows that have the key of a row in ``stale``, and insert ``rows``."""
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
    """Return a value that a database can store: None for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
