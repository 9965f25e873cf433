"""A sink's tables in PostgreSQL, and cases that only PostgreSQL has."""

from __future__ import annotations

import random
import string

import pytest
import sqlalchemy as sql
from committed_states import projected
from sink_documents import Feed, values, window
from test_document_database import (  # noqa: F401
    database,
    feed,
    test_documents_of_another_job_are_left_until_told,
    test_two_sinks_are_noticed_and_nothing_of_the_second_is_written,
    test_what_is_published_is_what_the_tables_hold,
)

from pipelines.sinks.base import Applied

pytestmark = pytest.mark.slow


def test_what_the_database_cannot_store_is_left_alone(feed: Feed, url: sql.URL) -> None:  # noqa: F811
    # An index takes no row of more than some 2,700 bytes that do not compress.
    letters = random.Random(5).choices(string.printable, k=20_000)
    too_long = window(2, start=10, items=("".join(letters),))
    feed.give(window(1, start=10))
    done = feed.give(window(1), too_long, window(3, start=20))
    assert done == Applied(written=2, refused=1)
    assert {start for start, _ in values(url)} == {0, 10, 20}
    assert values(url)[10, "red"] == 1.0
    assert feed.give(window(4)) == Applied(written=1)
    assert [row["state"] for row in projected(url)["meta"]] == ["job"]
