"""A database that a topic of estimates is written to: never back, whatever comes and when."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest
import sqlalchemy as sql
from committed_states import projected
from made_documents import project, projection, rejects_document
from sink_documents import ID, TOPIC, Feed, rest, values, window

from pipelines.results.documents import Document, parse
from pipelines.sinks import rows as written_rows
from pipelines.sinks.base import Advance, Applied, ReadTopic
from pipelines.sinks.sql import SqlSink
from sotto.errors import AggregationError


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'results.db'}"


@pytest.fixture
def database(url):
    with SqlSink(url) as made:
        yield made


@pytest.fixture
def feed(database):
    return Feed(database)


def test_what_is_published_is_what_the_tables_hold(feed, url):
    assert feed.give(window(1), window(1, start=10), *rest(1, rejects=4)) == Applied(written=5)
    found = projected(url)
    assert [row["projected_generation"] for row in found["meta"]] == [1]
    assert [(row["state"], row["clock"]) for row in found["meta"]] == [("job", 101)]
    assert [row["window_start"] for row in found["windows"]] == [0, 10]
    assert values(url) == {(start, item): 1.0 for start in (0, 10) for item in ("red", "blue")}
    assert [row["confounded_with"] for row in found["estimates"]] == [["other"], None] * 2
    assert found["periods"][0]["pseudonyms"] == 1
    assert [(row["generation"], row["rows"]) for row in found["quarantine"]] == [(0, 4)]


def test_what_was_requeued_is_told_where_it_is_known(feed, url):
    reasons = {"late": 2, "unknown_plan": 5}
    for revision, requeued in enumerate((None, {}, {"unknown_plan": 3}), start=1):
        feed.give(rejects_document("job", "tests.example", reasons, revision, requeued))
        found = {row["reason"]: row["requeued"] for row in projected(url)["quarantine"]}
        known = None if requeued is None else 0
        assert found == {"late": known, "unknown_plan": known, **(requeued or {})}


def test_documents_of_another_job_are_left_until_told(feed, url):
    feed.give(window(7))
    done = feed.give(window(1, job="old"), window(2, job="new"), window(8))
    assert done == Applied(written=1, others=2)
    assert values(url)[0, "red"] == 8.0
    # All is read again, and the newest job's documents count.
    records = [window(7), window(1, job="old"), window(2, job="new"), window(8)]
    assert feed.database.offsets(TOPIC, ID, replace=True) == {}
    assert feed.give(*records) == Applied(written=1, stale=3)
    assert values(url)[0, "red"] == 2.0
    assert [row["state"] for row in projected(url)["meta"]] == ["new"]
    # A job that was replaced does not come back.
    assert feed.give(window(9), replace=True) == Applied(stale=1)
    assert values(url)[0, "red"] == 2.0


def test_a_topic_that_was_made_again_is_refused_until_told(feed, url, caplog):
    feed.give(window(7))
    again = Feed(feed.database, id="second")
    with pytest.raises(AggregationError, match="deleted"):
        again.give(window(1))
    assert caplog.messages == []
    assert again.give(window(1), replace=True) == Applied(written=1)
    assert caplog.messages == ["tests.example: the results of 1 windows are replaced"]
    assert values(url)[0, "red"] == 1.0


def test_another_topic_is_refused_until_told(feed, url):
    feed.give(window(7))
    other = Feed(feed.database, topic="other-estimates", id="other")
    with pytest.raises(AggregationError, match=r"tests\.example from topic reports-estimates"):
        other.give(window(1))
    assert other.give(window(1, job="other"), replace=True) == Applied(written=1)
    assert [row["state"] for row in projected(url)["meta"]] == ["other"]


def test_a_pipeline_that_writes_by_itself_is_told_of_no_option_that_it_lacks(feed, url):
    feed.give(window(7))
    with SqlSink.open(url, "mine") as sink, pytest.raises(AggregationError) as refused:
        sink.write([parse(*window(1))])
    assert str(refused.value).endswith("from topic reports-estimates: give another database")


def test_the_database_of_a_run_is_refused(feed, url):
    project(url, projection("tests.example", "state", 1, 5, lineage="00"))
    for replace in (False, True):
        with pytest.raises(AggregationError, match="aggregation"):
            feed.give(window(1), replace=replace)
    assert [row["state"] for row in projected(url)["meta"]] == ["state"]


def test_jobs_of_several_collectors_share_a_database(feed, url):
    """One that begins anew, or whose topic is made again, costs the others nothing."""
    other = Feed(feed.database, topic="other-estimates", id="other")
    theirs = {"collector": "other.example", "job": "theirs"}
    feed.give(window(7), *rest(7, rejects=4))
    assert other.give(window(3, **theirs), window(4, **theirs)).written == 1
    assert other.give(rejects_document("theirs", "other.example", {"late": 2}, 4)).written == 1
    before = {
        name: [row for row in rows if row["collector"] == "tests.example"]
        for name, rows in projected(url).items()
    }
    assert [row["rows"] for row in before["quarantine"]] == [4]
    again = Feed(feed.database, topic="other-estimates", id="made again")
    assert again.give(window(1, job="new", collector="other.example"), replace=True).written == 1
    found = projected(url)
    assert {(row["collector"], row["state"], row["source"]) for row in found["meta"]} == {
        ("tests.example", "job", TOPIC),
        ("other.example", "new", "other-estimates"),
    }
    for name, rows in found.items():
        assert [row for row in rows if row["collector"] == "tests.example"] == before[name]
    assert {row["reason"] for row in found["quarantine"]} == {"late"}
    assert feed.give(window(8)) == Applied(written=1)


def test_two_sinks_are_noticed_and_nothing_of_the_second_is_written(feed, url):
    feed.give(window(1))
    key, value = window(2)
    for start in (0, 5):
        with pytest.raises(AggregationError, match="another sink"):
            feed.database.write(
                [parse(key, value)], ReadTopic(TOPIC, ID, [Advance(0, start, start + 1)])
            )
    assert values(url)[0, "red"] == 1.0


def test_those_who_read_learn_of_every_change(feed, url):
    def stamp() -> object:
        (row,) = projected(url)["meta"]
        return row["projected_generation"], row["lineage"]

    feed.give(window(1))
    first = stamp()
    feed.give(window(1))
    assert stamp() == first
    feed.give(window(2))
    assert stamp() != first


def test_workers_of_a_pipeline_compare_revisions_one_after_the_other(database, url, monkeypatch):
    file = url.removeprefix("sqlite:///")
    compared: list[Document] = []
    newer = written_rows.newer

    def watched(connection: sql.Connection, documents: Sequence[Document]) -> list[Document]:
        refused = pytest.raises(sqlite3.OperationalError, match="locked")
        with closing(sqlite3.connect(file, timeout=0)) as other, refused:
            other.execute("BEGIN IMMEDIATE")
        compared.extend(documents)
        return newer(connection, documents)

    monkeypatch.setattr(written_rows, "newer", watched)
    for revision in (1, 2):
        database.write([parse(*window(revision))])
    assert len(compared) == 2


def test_what_cannot_be_stored_stops_no_pipeline(database, url, monkeypatch):
    """An engine would write the same again and again."""
    written = written_rows.write_documents

    def write(connection: sql.Connection, documents: Sequence[Document]) -> None:
        if any(b"10" in each.key for each in documents):
            raise sql.exc.DataError("INSERT", {}, Exception("out of range"))
        written(connection, documents)

    monkeypatch.setattr(written_rows, "write_documents", write)
    documents = [parse(*window(1, start=start)) for start in (0, 10, 20)]
    assert database.write(documents) == Applied(written=2, refused=1)
    assert [row["window_start"] for row in projected(url)["windows"]] == [0, 20]
