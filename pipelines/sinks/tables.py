"""The tables that a sink has beside those of the results, and what it does with their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError

from pipelines.sinks.documents import (
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.sinks.results import (
    META,
    METADATA,
    PERIODS,
    QUARANTINE,
    insert_rows,
    replace_windows,
)
from sotto.errors import AggregationError

#: Keys that one query asks for.
_ASKED = 500

OWN = sql.MetaData()

#: Up to where each partition of the topic is taken.
OFFSETS = sql.Table(
    "sink_offsets",
    OWN,
    sql.Column("topic", sql.String, primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    sql.Column("topic_id", sql.String, nullable=False),
    sql.Column("next", sql.BigInteger, nullable=False),
)
#: The revision that the results have of each key.
REVISIONS = sql.Table(
    "sink_revisions",
    OWN,
    sql.Column("key", sql.String, primary_key=True),
    sql.Column("revision", sql.BigInteger, nullable=False),
)
#: Other jobs whose documents were seen, in the order of their last ones, and which were replaced.
JOBS = sql.Table(
    "sink_jobs",
    OWN,
    sql.Column("job", sql.String, primary_key=True),
    sql.Column("seen", sql.BigInteger, nullable=False),
    sql.Column("replaced", sql.Boolean, nullable=False),
)
#: How the job is, as it says itself.
HEALTH = sql.Table(
    "health",
    OWN,
    sql.Column("collector", sql.String, primary_key=True),
    sql.Column("revision", sql.BigInteger, nullable=False),
    sql.Column("document", sql.JSON, nullable=False),
)


#: Stands for a topic where documents come from a pipeline directly; no topic has this name.
DIRECT = "a pipeline"


class Keyed(NamedTuple):
    """A document and its key."""

    key: bytes
    document: Document


@dataclass(frozen=True)
class Advance:
    """What was read of a partition: the offsets from ``start`` up to ``end``."""

    partition: int
    start: int
    end: int


def advance(connection: sql.Connection, topic: str, id: str, part: Advance) -> None:
    """Write up to where a partition is taken.

    Raises
    ------
    AggregationError
        It is not taken up to where the part begins.
    """
    where = (OFFSETS.c.topic == topic, OFFSETS.c.partition == part.partition)
    raised = connection.execute(
        sql.update(OFFSETS)
        .where(*where, OFFSETS.c.topic_id == id, OFFSETS.c.next == part.start)
        .values(next=part.end)
    )
    if raised.rowcount:
        return
    row = {"topic": topic, "partition": part.partition, "topic_id": id, "next": part.end}
    try:
        if connection.execute(sql.select(OFFSETS).where(*where)).first() is None:
            connection.execute(sql.insert(OFFSETS), row)
            return
    except IntegrityError as error:
        raise AggregationError("another sink writes to the database") from error
    raise AggregationError("another sink writes to the database")


def take_turn(connection: sql.Connection, job: str) -> None:
    """Lock the database for one of several writers of a job's documents.

    Raises
    ------
    AggregationError
        The results are of another job, of a topic, or of a run.
    """
    raised = connection.execute(
        sql.update(OFFSETS)
        .where(OFFSETS.c.topic == DIRECT, OFFSETS.c.topic_id == job)
        .values(next=OFFSETS.c.next + 1)
    )
    if raised.rowcount:
        return
    found = connection.execute(sql.select(OFFSETS)).first()
    if found is not None or connection.execute(sql.select(META.c.id)).first() is not None:
        raise AggregationError("the database holds other results: give another one to the pipeline")
    row = {"topic": DIRECT, "partition": 0, "topic_id": job, "next": 1}
    connection.execute(sql.insert(OFFSETS), row)


def sort_by_job(connection: sql.Connection, documents: Sequence[Keyed]) -> tuple[list[Keyed], int]:
    """Return the documents of the job whose results these are, and how many are of others.

    Where there are no results yet, the first document's job is that. A job that was replaced is
    none of the others: nobody waits for it.
    """
    replaced = set(connection.execute(sql.select(JOBS.c.job).where(JOBS.c.replaced)).scalars())
    current = connection.execute(sql.select(META.c.state)).scalar()
    ours: list[Keyed] = []
    others: dict[str, int] = {}
    for each in documents:
        job = each.document.job
        if current is None and job not in replaced:
            current = job
            connection.execute(sql.insert(META).values(id=1, state=job, projected_generation=0))
        if job == current:
            ours.append(each)
        elif job not in replaced:
            others[job] = others.pop(job, 0) + 1
    _see(connection, list(others))
    return ours, sum(others.values())


def _see(connection: sql.Connection, jobs: Sequence[str]) -> None:
    if not jobs:
        return
    last = connection.execute(sql.select(sql.func.max(JOBS.c.seen))).scalar() or 0
    connection.execute(sql.delete(JOBS).where(JOBS.c.job.in_(jobs)))
    rows = [{"job": job, "seen": last + 1 + at, "replaced": False} for at, job in enumerate(jobs)]
    connection.execute(sql.insert(JOBS), rows)


def take_newest_job(connection: sql.Connection) -> bool:
    """Put the other job seen last in the place of this one; False if none has been seen."""
    query = sql.select(JOBS.c.job).where(~JOBS.c.replaced).order_by(JOBS.c.seen.desc())
    newest = connection.execute(query).scalar()
    if newest is None:
        return False
    before = connection.execute(sql.select(META.c.state)).scalar()
    empty(connection)
    connection.execute(sql.delete(JOBS).where(JOBS.c.job == newest))
    connection.execute(sql.update(JOBS).values(replaced=True))
    if before is not None:
        connection.execute(sql.insert(JOBS).values(job=before, seen=0, replaced=True))
    connection.execute(sql.insert(META).values(id=1, state=newest, projected_generation=0))
    return True


def empty(connection: sql.Connection) -> None:
    """Remove all results, and up to where partitions are taken; what is known of jobs stays."""
    for table in (*METADATA.sorted_tables, OFFSETS, REVISIONS, HEALTH):
        connection.execute(sql.delete(table))


def newer(connection: sql.Connection, documents: Sequence[Keyed]) -> list[Keyed]:
    """Return the newest document of each key that is newer than the results, in order."""
    newest: dict[bytes, Keyed] = {}
    for each in documents:
        known = newest.get(each.key)
        if known is None or known.document.revision < each.document.revision:
            newest.pop(each.key, None)
            newest[each.key] = each
    keys = [key.decode() for key in newest]
    have: dict[bytes, int] = {}
    for at in range(0, len(keys), _ASKED):
        asked = REVISIONS.c.key.in_(keys[at : at + _ASKED])
        for key, revision in connection.execute(sql.select(REVISIONS).where(asked)):
            have[key.encode()] = revision
    return [each for each in newest.values() if each.document.revision > have.get(each.key, 0)]


def write(connection: sql.Connection, documents: Sequence[Keyed]) -> None:
    """Write documents, at most one of a key, over what there is of their keys."""
    stale = [{"old_key": each.key.decode()} for each in documents]
    if not stale:
        return
    revisions = [
        {"key": each.key.decode(), "revision": each.document.revision} for each in documents
    ]
    connection.execute(
        sql.delete(REVISIONS).where(REVISIONS.c.key == sql.bindparam("old_key")), stale
    )
    insert_rows(connection, REVISIONS, revisions)
    windows = [each.document for each in documents if isinstance(each.document, WindowDocument)]
    rows = [row for window in windows for row in window.estimates]
    replace_windows(connection, [window.window for window in windows], rows)
    for each in documents:
        _write_one(connection, each.document)


def _write_one(connection: sql.Connection, document: Document) -> None:
    if isinstance(document, PeriodDocument):
        row = document.period
        same = [PERIODS.c[name] == row[name] for name in ("collector", "period_start")]
        connection.execute(sql.delete(PERIODS).where(*same))
        insert_rows(connection, PERIODS, [row])
    elif isinstance(document, RejectsDocument):
        again = document.requeued
        connection.execute(sql.delete(QUARANTINE))
        insert_rows(
            connection,
            QUARANTINE,
            [
                {
                    "generation": 0,
                    "reason": reason,
                    "rows": rows,
                    "requeued": None if again is None else again.get(reason, 0),
                }
                for reason, rows in document.rejects.items()
            ],
        )
    elif isinstance(document, HealthDocument):
        connection.execute(sql.delete(HEALTH).where(HEALTH.c.collector == document.collector))
        row = {
            "collector": document.collector,
            "revision": document.revision,
            "document": dict(document.health),
        }
        connection.execute(sql.insert(HEALTH), row)
        now = {"projected_generation": document.revision, "clock": document.health["clock"]}
        connection.execute(sql.update(META).values(now))


def mark_changed(connection: sql.Connection, documents: int) -> None:
    """Let those who read know that the results are others than before."""
    before = connection.execute(sql.select(META.c.lineage)).scalar() or "0 documents"
    taken = int(before.split()[0]) + documents
    connection.execute(sql.update(META).values(lineage=f"{taken} documents"))
