"""Small documents of a topic of estimates, and checks of a database that they are written to."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sql
from committed_states import projected
from made_documents import (
    health_document,
    period_document,
    rejects_document,
    window_document,
    window_row,
)

from pipelines.results.documents import parse
from pipelines.sinks.base import Advance, Applied, ReadTopic
from pipelines.sinks.sql import SqlSink

TOPIC, ID = "reports-estimates", "first"
_PERIOD = ("pseudonyms", "chains", "accepted", "observed", "most_accepted", "most_observed")


def small_window(start: int, **more: object) -> dict[str, object]:
    """Return a row of a window of two reports."""
    own = {"reports_by_level": [1, 2], "complete": True}
    return window_row("colour", start, 10, 2, **{**own, **more})


def period_row(number: int) -> dict[str, object]:
    return {
        "collector": "tests.example",
        "period_start": 0,
        "period_end": 7,
        "closed": False,
        **dict.fromkeys(_PERIOD, number),
        "over_budget": 0,
        "equivocation": 1,
    }


def window(
    revision: int,
    start: int = 0,
    items: Sequence[str] = ("red", "blue"),
    job: str = "job",
    collector: str = "tests.example",
) -> tuple[bytes, bytes]:
    estimates = [
        {
            "kind": "share",
            "item": item,
            "position": at,
            "value": float(revision),
            "low": float("nan"),
            "n": 3,
            "reports_by_level": [1, 2],
            "confounded_with": ["other"] if at else None,
            "unit": "share",
            "method": "unbiased",
        }
        for at, item in enumerate(items)
    ]
    return window_document(
        job, small_window(start, collector=collector), estimates, revision, "early"
    )


def rest(revision: int, rejects: int, job: str = "job") -> list[tuple[bytes, bytes]]:
    """Return keys and values of a period, of what was rejected and of how the job is."""
    return [
        period_document(job, period_row(revision), revision),
        rejects_document(job, "tests.example", {"late": rejects}, revision),
        health_document(job, "tests.example", {"clock": 100 + revision}, revision),
    ]


class Feed:
    """A partition from which a database is written, as a sink would."""

    def __init__(self, database: SqlSink, topic: str = TOPIC, id: str = ID) -> None:
        self.database, self.topic, self.id = database, topic, id

    def give(self, *records: tuple[bytes, bytes], replace: bool = False) -> Applied:
        """Write records that follow what the database has."""
        at = self.database.offsets(self.topic, self.id, replace=replace).get(0, 0)
        documents = [parse(*each) for each in records]
        read = [Advance(0, at, at + len(records))]
        return self.database.write(documents, ReadTopic(self.topic, self.id, read, replace))


def values(url: str | sql.URL) -> dict[tuple[object, object], object]:
    return {(row["window_start"], row["item"]): row["value"] for row in projected(url)["estimates"]}
