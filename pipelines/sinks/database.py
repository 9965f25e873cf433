"""A database of results that is written from a topic of estimates.

Documents and the offsets behind them are written in one transaction, so that a sink that is killed
anywhere goes on where the database is. A document replaces what an older revision of its key said,
and nothing newer. The results are those of one job; those of another come in its place only if
that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import sqlalchemy as sql
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from pipelines.sinks.results import META, ProjectionError, Results, first_line
from pipelines.sinks.tables import (
    JOBS,
    OFFSETS,
    OWN,
    Advance,
    Keyed,
    advance,
    empty,
    mark_changed,
    newer,
    sort_by_job,
    take_newest_job,
    take_turn,
    write,
)
from sotto.errors import AggregationError


@dataclass(frozen=True)
class Applied:
    """What became of documents.

    Parameters
    ----------
    written : int
    stale : int
        Of revisions that the results have already, or newer ones.
    others : int
        Of another job.
    refused : int
        That the database cannot store.
    """

    written: int = 0
    stale: int = 0
    others: int = 0
    refused: int = 0

    def plus(self, other: Applied) -> Applied:
        """Return the sum."""
        return Applied(
            self.written + other.written,
            self.stale + other.stale,
            self.others + other.others,
            self.refused + other.refused,
        )


class SinkDatabase:
    """A database that one topic of estimates is written to.

    Parameters
    ----------
    url : str or URL
        As :class:`pipelines.sinks.results.Results` takes it.

    Raises
    ------
    AggregationError
        Here and in every method: it cannot be used as it is; what to do.
    ProjectionError
        It cannot be used now.
    """

    def __init__(self, url: str | sql.URL) -> None:
        self._results = Results(url)

    def __enter__(self) -> SinkDatabase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._results.__exit__(kind, error, traceback)

    def offsets(self, topic: str, id: str, *, replace: bool = False) -> dict[int, int]:
        """Return up to where partitions are taken; make the tables if need be.

        Parameters
        ----------
        topic, id : str
            Name and id of the topic.
        replace : bool
            Whether the results of another topic go, and those of the last other job seen come in
            the place of what there is. Then nothing is taken.

        Raises
        ------
        AggregationError
            The results are of another topic, or of a run.
        """
        try:
            self._results.prepare()
            OWN.create_all(self._results.engine)
            with self._results.engine.begin() as connection:
                return _offsets(connection, topic, id, replace)
        except SQLAlchemyError as error:
            raise ProjectionError(f"the database cannot be used: {first_line(error)}") from error

    def apply(
        self, topic: str, id: str, read: Sequence[Advance], documents: Sequence[Keyed]
    ) -> Applied:
        """Write documents, and up to where partitions are taken, in one transaction.

        Raises
        ------
        AggregationError
            Another sink writes to the database.
        """
        try:
            try:
                return self._apply(topic, id, read, documents, singly=False)
            except DBAPIError as error:
                if not _unstorable(error):
                    raise
            return self._apply(topic, id, read, documents, singly=True)
        except SQLAlchemyError as error:
            raise ProjectionError(f"documents could not be written: {first_line(error)}") from error

    def add(self, job: str, documents: Sequence[Keyed]) -> Applied:
        """Write documents that come from a pipeline directly, in one transaction.

        Several workers may do so at the same time.

        Raises
        ------
        AggregationError
            The results are of another job, of a topic, or of a run.
        """
        try:
            self._results.prepare()
            OWN.create_all(self._results.engine)
            try:
                return self._add(job, documents, singly=False)
            except DBAPIError as error:
                if not _unstorable(error):
                    raise
            return self._add(job, documents, singly=True)
        except SQLAlchemyError as error:
            raise ProjectionError(f"documents could not be written: {first_line(error)}") from error

    def _add(self, job: str, documents: Sequence[Keyed], *, singly: bool) -> Applied:
        with self._results.engine.begin() as connection:
            take_turn(connection, job)
            return _applied(connection, documents, singly=singly)

    def _apply(
        self,
        topic: str,
        id: str,
        read: Sequence[Advance],
        documents: Sequence[Keyed],
        *,
        singly: bool,
    ) -> Applied:
        with self._results.engine.begin() as connection:
            # First of all, since this takes the lock of a SQLite file.
            for part in read:
                advance(connection, topic, id, part)
            return _applied(connection, documents, singly=singly)


def _applied(connection: sql.Connection, documents: Sequence[Keyed], *, singly: bool) -> Applied:
    ours, others = sort_by_job(connection, documents)
    fresh = newer(connection, ours)
    refused = 0
    if singly:
        refused = sum(not _written(connection, each) for each in fresh)
    else:
        write(connection, fresh)
    if fresh:
        mark_changed(connection, len(fresh))
    written = len(fresh) - refused
    return Applied(written, len(documents) - others - len(fresh), others, refused)


def _written(connection: sql.Connection, document: Keyed) -> bool:
    """Write a document, or nothing of it if the database cannot store it."""
    try:
        with connection.begin_nested():
            write(connection, [document])
    except DBAPIError as error:
        if not _unstorable(error):
            raise
        return False
    return True


def _unstorable(error: DBAPIError) -> bool:
    """Tell whether a database refused values for what they are, as it always will."""
    # Of PostgreSQL, 22 are values out of range and 54 such as are too long for an index.
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, DataError) or state[:2] in ("22", "54")


def _offsets(connection: sql.Connection, topic: str, id: str, replace: bool) -> dict[int, int]:
    found = connection.execute(sql.select(OFFSETS)).all()
    if not found and connection.execute(sql.select(META.c.id)).first() is not None:
        if connection.execute(sql.select(META.c.lineage)).scalar() is not None:
            raise AggregationError(
                "the database holds the results of a run: give another one to the sink"
            )
        return {}
    others = [row for row in found if row.topic != topic]
    again = [row for row in found if row.topic == topic and row.topic_id != id]
    if (others or again) and replace:
        empty(connection)
        connection.execute(sql.delete(JOBS))
        return {}
    if others:
        raise AggregationError(
            f"the database holds the results of topic {others[0].topic}: give another database, "
            f"or --replace to have those of {topic} in their place"
        )
    if again:
        raise AggregationError(
            f"topic {topic} was deleted and made again since its documents were taken: give "
            "another database, or --replace to begin anew"
        )
    if replace and take_newest_job(connection):
        return {}
    return {row.partition: row.next for row in found}
