"""Writes rows of results, and those of documents, to the tables of a database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import sqlalchemy as sql

from pipelines.results.documents import (
    WINDOW_KEY,
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.results.tables import (
    ALARMS,
    ESTIMATES,
    HEALTH,
    META,
    METADATA,
    PERIODS,
    QUARANTINE,
    REVISIONS,
    WINDOWS,
    Row,
)

#: What estimates and alarms repeat of their window.
_REPEATED = (*WINDOW_KEY, "segment", "window_end", "revision")
#: Keys that one query asks for.
_QUERIED = 500


def newer(connection: sql.Connection, documents: Sequence[Document]) -> list[Document]:
    """Return the newest document of each key that is newer than the results, in order."""
    newest: dict[str, Document] = {}
    for each in documents:
        key = each.key.decode()
        known = newest.get(key)
        if known is None or known.revision < each.revision:
            newest.pop(key, None)
            newest[key] = each
    keys = list(newest)
    have: dict[str, int] = {}
    for at in range(0, len(keys), _QUERIED):
        query = sql.select(REVISIONS).where(REVISIONS.c.key.in_(keys[at : at + _QUERIED]))
        have |= {row.key: row.revision for row in connection.execute(query)}
    return [each for key, each in newest.items() if each.revision > have.get(key, 0)]


def write_documents(connection: sql.Connection, documents: Sequence[Document]) -> None:
    """Write documents, at most one of a key, over what there is of their keys."""
    revisions = [
        {
            "key": each.key.decode(),
            "collector": each.collector_name,
            "revision": each.revision,
        }
        for each in documents
    ]
    _replace(connection, REVISIONS, ("key",), revisions, revisions)
    found = [each.rows() for each in documents if isinstance(each, WindowDocument)]
    replace_windows(
        connection,
        [row for windows, _ in found for row in windows],
        [row for _, estimates in found for row in estimates],
    )
    for each in documents:
        if isinstance(each, PeriodDocument):
            key = ("collector", "period_start")
            _replace(connection, PERIODS, key, [each.period], [each.period])
        elif isinstance(each, RejectsDocument):
            replace_all(connection, QUARANTINE, each.collector, _quarantine(each))
        elif isinstance(each, HealthDocument):
            row = {
                "collector": each.collector,
                "revision": each.revision,
                "document": dict(each.health),
            }
            _replace(connection, HEALTH, ("collector",), [row], [row])
            now = {"projected_generation": each.revision, "clock": each.health["clock"]}
            connection.execute(
                sql.update(META).where(META.c.collector == each.collector).values(now)
            )


def _quarantine(document: RejectsDocument) -> list[Row]:
    requeued = document.requeued
    return [
        {
            "collector": document.collector,
            "generation": 0,
            "reason": reason,
            "rows": rows,
            "requeued": None if requeued is None else requeued.get(reason, 0),
        }
        for reason, rows in document.rejects.items()
    ]


def mark_changed(connection: sql.Connection, collector: str, documents: int) -> None:
    """Change the digest by which readers notice that a collector's results have changed."""
    ours = META.c.collector == collector
    before = connection.execute(sql.select(META.c.lineage).where(ours)).scalar() or "0 documents"
    written = int(before.split()[0]) + documents
    connection.execute(sql.update(META).where(ours).values(lineage=f"{written} documents"))


def replace_windows(
    connection: sql.Connection, windows: Sequence[Row], estimates: Sequence[Row]
) -> None:
    """Replace all rows of some windows, of all segments; one without estimates is removed.

    The row of all reports has as ``alarms`` those of the table of that name, without their key.
    """
    stale = [row for row in windows if not row["segment"]]
    alarms = [
        {**{name: row[name] for name in _REPEATED}, **alarm}
        for row in stale
        for alarm in cast(Sequence[Row], row.get("alarms") or ())
    ]
    estimated = {tuple(row[name] for name in WINDOW_KEY) for row in estimates}
    kept = [
        {name: row[name] for name in row if name != "alarms"}
        for row in windows
        if tuple(row[name] for name in WINDOW_KEY) in estimated
    ]
    _replace(connection, ESTIMATES, WINDOW_KEY, stale, estimates)
    _replace(connection, WINDOWS, WINDOW_KEY, stale, kept)
    _replace(connection, ALARMS, WINDOW_KEY, stale, alarms)


def replace_all(
    connection: sql.Connection, table: sql.Table, collector: str, rows: Sequence[Row]
) -> None:
    """Replace all rows that a table has of a collector."""
    connection.execute(sql.delete(table).where(table.c.collector == collector))
    _insert(connection, table, rows)


def forget(connection: sql.Connection, collector: str, state: str | None = None) -> None:
    """Remove all results of a collector, and whose they are: if a state is given, if its."""
    for table in METADATA.sorted_tables:
        remove = sql.delete(table).where(table.c.collector == collector)
        # Another one's may have come since it was looked: then the transaction is to fail.
        others = table is META and state is not None
        connection.execute(remove.where(META.c.state == state) if others else remove)


def _replace(
    connection: sql.Connection,
    table: sql.Table,
    key: Sequence[str],
    stale: Sequence[Row],
    rows: Sequence[Row],
) -> None:
    if stale:
        same = (table.c[name] == sql.bindparam(f"old_{name}") for name in key)
        keys = [{f"old_{name}": row[name] for name in key} for row in stale]
        connection.execute(sql.delete(table).where(*same), keys)
    _insert(connection, table, rows)


def _insert(connection: sql.Connection, table: sql.Table, rows: Iterable[Row]) -> None:
    """Insert rows; what is not finite becomes null."""
    values = [{name: _finite(value) for name, value in row.items()} for row in rows]
    if values:
        connection.execute(sql.insert(table), values)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
