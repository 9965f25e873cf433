"""The owners of a database's results: which job, and which topic, each collector's are from.

A database holds the results of several collectors, and those of one collector are from one job: a
state directory of aggregation runs, or a job's documents in one topic. Another job's results
replace them only if that is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError

from pipelines.results.documents import Document
from pipelines.results.tables import JOBS, META, OFFSETS, WINDOWS
from pipelines.sinks.base import Advance
from pipelines.sinks.rows import forget
from sotto.errors import AggregationError

_LOGGER = logging.getLogger(__name__)

#: The name in place of a topic for documents that a pipeline writes directly; no topic has it.
_DIRECT = "a pipeline"


def offsets(connection: sql.Connection, topic: str, id: str, replace: bool) -> dict[int, int]:
    """Return the next offset of each partition of a topic; see :meth:`SqlSink.offsets`."""
    found = connection.execute(sql.select(OFFSETS).where(OFFSETS.c.topic == topic)).all()
    again = any(row.topic_id != id for row in found)
    if again and not replace:
        raise AggregationError(
            f"topic {topic} was deleted and created again since its documents were read: give "
            "another database, or --replace to begin anew"
        )
    if again:
        ours = sql.select(META.c.collector).where(META.c.source == topic)
        for collector in connection.execute(ours).scalars().all():
            _forget(connection, collector)
        connection.execute(sql.delete(JOBS).where(JOBS.c.topic == topic))
    if again or (replace and _replace_jobs(connection, topic)):
        connection.execute(sql.delete(OFFSETS).where(OFFSETS.c.topic == topic))
        return {}
    return {row.partition: row.next for row in found}


def advance(connection: sql.Connection, topic: str, id: str, part: Advance) -> None:
    """Write the offset up to which a partition is written."""
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


def source_of(job: str) -> str:
    """Return the name in place of a topic for a pipeline's job that writes documents itself."""
    return f"{_DIRECT} {job}"


def lock_for(connection: sql.Connection, job: str) -> None:
    """Lock the rows of a pipeline's job for one of its workers."""
    source = source_of(job)
    raised = connection.execute(
        sql.update(OFFSETS).where(OFFSETS.c.topic == source).values(next=OFFSETS.c.next + 1)
    )
    if not raised.rowcount:
        row = {"topic": source, "partition": 0, "topic_id": job, "next": 1}
        connection.execute(sql.insert(OFFSETS), row)


def of_current_jobs(
    connection: sql.Connection, source: str, documents: Sequence[Document], replace: bool
) -> tuple[list[Document], int]:
    """Return the documents of each collector's current job, and how many are of other jobs.

    The job of a new collector is that of its first document. Documents of a job that was replaced
    are left out and not counted. ``source``: the topic of the documents. ``replace``: whether this
    topic replaces another one from which a collector's results are.
    """
    jobs = connection.execute(sql.select(JOBS).where(JOBS.c.replaced))
    replaced = {(row.collector, row.job) for row in jobs}
    current = {row.collector: row for row in connection.execute(sql.select(META))}
    taken: dict[str, str] = {}
    ours: list[Document] = []
    others: dict[tuple[str, str], int] = {}
    for each in documents:
        whose = (each.collector_name, each.job)
        collector = each.collector_name
        if collector not in taken and collector in current:
            if _stays(current[collector], source, replace):
                taken[collector] = current[collector].state
            else:
                _forget(connection, collector, current[collector].source)
        if collector not in taken and whose not in replaced:
            taken[collector] = each.job
            row = {"collector": collector, "state": each.job, "source": source}
            connection.execute(sql.insert(META).values(projected_generation=0, **row))
        if each.job == taken.get(collector):
            ours.append(each)
        elif whose not in replaced:
            others[whose] = others.pop(whose, 0) + 1
    _note_jobs(connection, source, list(others))
    return ours, sum(others.values())


def _stays(current: sql.Row[tuple[object, ...]], source: str, replace: bool) -> bool:
    """Return whether a collector's results are from a topic; False if this replaces them.

    Raises AggregationError if they belong to another source and must not be replaced.
    """
    if current.source == source:
        return True
    if current.source is None:
        raise AggregationError(
            f"the database holds the results of aggregation runs of {current.collector}: give "
            "another one to the sink"
        )
    if not replace:
        topic = "" if current.source.startswith(_DIRECT) else "topic "
        replaces = f", or --replace to have those of {source} in their place"
        raise AggregationError(
            f"the database holds the results of {current.collector} from {topic}{current.source}: "
            f"give another database{'' if source.startswith(_DIRECT) else replaces}"
        )
    return False


def _note_jobs(connection: sql.Connection, topic: str, jobs: Sequence[tuple[str, str]]) -> None:
    last = connection.execute(sql.select(sql.func.max(JOBS.c.seen))).scalar() or 0
    for at, (collector, job) in enumerate(jobs, start=last + 1):
        ours = {"collector": collector, "topic": topic, "job": job}
        connection.execute(sql.delete(JOBS).where(*(JOBS.c[n] == v for n, v in ours.items())))
        connection.execute(sql.insert(JOBS).values(**ours, seen=at, replaced=False))


def _replace_jobs(connection: sql.Connection, topic: str) -> bool:
    """Let the jobs that were seen last in a topic replace the current ones; False without such."""
    query = sql.select(JOBS).where(JOBS.c.topic == topic, ~JOBS.c.replaced).order_by(JOBS.c.seen)
    newest = {row.collector: row.job for row in connection.execute(query)}
    for collector, job in newest.items():
        ours = (JOBS.c.collector == collector, JOBS.c.topic == topic)
        query = sql.select(META.c.state).where(META.c.collector == collector)
        before = connection.execute(query).scalar()
        _forget(connection, collector)
        connection.execute(sql.delete(JOBS).where(*ours, JOBS.c.job == job))
        connection.execute(sql.update(JOBS).where(*ours).values(replaced=True))
        about = {"collector": collector, "topic": topic}
        if before is not None:
            connection.execute(sql.insert(JOBS).values(**about, job=before, seen=0, replaced=True))
        row = {"collector": collector, "state": job, "source": topic}
        connection.execute(sql.insert(META).values(projected_generation=0, **row))
    return bool(newest)


def _forget(connection: sql.Connection, collector: str, source: str | None = None) -> None:
    """Remove a collector's results; and the offsets of their topic ``source``, if it is given."""
    query = sql.select(sql.func.count()).where(WINDOWS.c.collector == collector)
    if windows := connection.execute(query.where(WINDOWS.c.segment == "")).scalar():
        _LOGGER.warning("%s: the results of %d windows are replaced", collector, windows)
    forget(connection, collector)
    if source is not None:
        connection.execute(sql.delete(OFFSETS).where(OFFSETS.c.topic == source))
        connection.execute(sql.delete(JOBS).where(JOBS.c.topic == source))
