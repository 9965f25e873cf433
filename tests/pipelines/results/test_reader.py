"""The reader of results: what it chooses, pages, and what it says of a database that has none."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sql
from invented_results import DAY, START, write_results
from moving_results import MovingResults, when

from pipelines.results.database import (
    NoResultsError,
    ReadOnlyDatabase,
    ResultsError,
    UnreadableError,
)
from pipelines.results.fields import milliseconds, moment
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import Budget, EstimateRecord, MetricRecord, Rejection, Window
from pipelines.results.views import (
    VIEW_BUDGETS,
    VIEW_ESTIMATES,
    VIEW_METRICS,
    VIEW_REJECTIONS,
    VIEW_WINDOWS,
    VIEWS,
)
from pipelines.sinks.sql import Results
from sotto.errors import ParameterError

RECORDS = {
    VIEW_WINDOWS: Window,
    VIEW_ESTIMATES: EstimateRecord,
    VIEW_METRICS: MetricRecord,
    VIEW_BUDGETS: Budget,
    VIEW_REJECTIONS: Rejection,
}


#: When the first two windows begin.
FIRST, SECOND = (moment(START + 7 * at * DAY) for at in range(2))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def reader(file: Path) -> ResultsReader:
    return ResultsReader(write_results(file.parent))


def test_records_have_the_columns_of_the_views() -> None:
    for view, record in RECORDS.items():
        assert {column.name for column in view.columns} == {*record.__dataclass_fields__}


def test_all_that_is_stored_is_read(reader: ResultsReader) -> None:
    windows = reader.windows()
    third = SECOND + timedelta(days=7)
    assert [(each.metric, each.window_start, each.segment) for each in windows] == [
        ("page", FIRST, ""),
        ("speed", FIRST, ""),
        ("speed", SECOND, ""),
        ("theme", FIRST, ""),
        ("theme", SECOND, ""),
        *(("theme", third, segment) for segment in ("", "os=<b>", "os=linux")),
        ("visits", FIRST, ""),
        ("visits", SECOND, ""),
    ]
    assert windows[0].window_end - windows[0].window_start == timedelta(days=7)
    assert windows[0].reports_by_level == (0, 1666, 3334)
    _, found, *_ = reader.estimates()
    assert (found.kind, found.confounded_with, found.significant) == ("string", ("/other",), 1)
    other = reader.estimates(Chosen(metric="theme", items=("other",)))[0]
    assert (other.item, other.value, other.shown, other.withheld) == ("other", -0.01, 0, None)
    (budget,) = reader.budgets()
    assert (budget.accepted, budget.most_observed, budget.closed) == (1400, 31, 1)
    assert reader.rejections() == [
        Rejection("app.example", "late", 4321, 1),
        Rejection("app.example", "malformed", 1, 0),
    ]
    _, speed, theme, _ = reader.metrics()
    assert (theme.windows, theme.reports) == (3, 2700)
    assert (speed.first_window, speed.newest_window) == (FIRST, SECOND)
    (health,) = reader.health()
    assert (health.generation, health.clock) == (1, FIRST + timedelta(days=8))
    assert reader.plans() == []


@pytest.mark.parametrize(
    ("chosen", "number"),
    [
        (Chosen(metric="theme"), 15),
        (Chosen(metric="theme", segment=""), 9),
        (Chosen(segment="os=linux", items=("light",)), 1),
        (Chosen(newest=True), 26),
        (Chosen(newest=True, until=SECOND), 37),
        (Chosen(since=SECOND), 25),
        (Chosen(until=SECOND), 37),
        (Chosen(kind="mean"), 6),
        (Chosen(version=2), 0),
        (Chosen(collector="another.example"), 0),
    ],
)
def test_what_is_chosen_is_read(reader: ResultsReader, chosen: Chosen, number: int) -> None:
    found = reader.estimates(chosen)
    assert len(found) == number
    assert {*found} <= {*reader.estimates()}


def test_pages_add_up_to_the_whole(reader: ResultsReader) -> None:
    for view in VIEWS:
        whole = reader.page(view)
        rows, after = [], None
        while True:
            page = reader.page(view, after=after, limit=2)
            assert len(page.rows) <= 2
            rows += page.rows
            if (after := page.next) is None:
                break
        assert rows == whole.rows
        assert whole.next is None
    with pytest.raises(ParameterError):
        reader.page(VIEW_WINDOWS, after=(1, 2))
    with pytest.raises(ParameterError):
        reader.page(VIEW_REJECTIONS, after=("late", 2))


def test_all_rows_are_read_some_at_a_time(
    reader: ResultsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.results.reader._BATCH", 25)
    (found,) = reader.read_all([VIEW_ESTIMATES], lambda view, batches: [*map(list, batches)])
    assert [len(batch) for batch in found] == [25, 25, 12]
    assert [tuple(row) for batch in found for row in batch] == reader.page(VIEW_ESTIMATES).rows


def test_the_revision_changes_with_the_results(reader: ResultsReader, file: Path) -> None:
    before = reader.revision()
    assert reader.revision() == before
    write_results(file.parent, generation=2)
    assert reader.revision() != before


def test_methods_that_share_a_transaction_see_no_change_between(
    reader: ResultsReader, file: Path
) -> None:
    def revisions(shared: ResultsReader) -> tuple[str, str]:
        before = shared.revision()
        write_results(file.parent, generation=2)
        return before, shared.at_once(ResultsReader.revision)

    first = reader.revision()
    # As long as somebody has the file open it keeps its journal.
    with closing(sqlite3.connect(file)) as other:
        other.execute("SELECT * FROM meta").fetchall()
        assert reader.at_once(revisions) == (first, first)
    assert reader.revision() != first


def test_nothing_is_written(reader: ResultsReader, file: Path) -> None:
    before = {path.name: path.read_bytes() for path in file.parent.iterdir()}
    reader.estimates()
    reader.health()
    assert {path.name: path.read_bytes() for path in file.parent.iterdir()} == before


def test_a_database_without_results_says_so(file: Path) -> None:
    reader = ResultsReader(f"sqlite:///{file}")
    with pytest.raises(NoResultsError, match=r"there are no results in .*results\.db"):
        reader.windows()
    sqlite3.connect(file).close()
    with pytest.raises(NoResultsError, match="has no results"):
        reader.windows()
    with Results(f"sqlite:///{file}") as results:
        results.prepare()
    with pytest.raises(NoResultsError, match="no results yet"):
        reader.windows()


def test_a_database_that_cannot_be_read_says_why(reader: ResultsReader, file: Path) -> None:
    for damage, why in (
        ("DROP TABLE stored_alarms", "stored_alarms"),
        ("UPDATE stored_estimates SET value = 'a'", "damaged: estimates has a value of another"),
        ("UPDATE stored_estimates SET reach = '['", "damaged: a list in it is no JSON"),
    ):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(damage)
        with pytest.raises(ResultsError, match=why):
            (reader.alarms if "alarms" in why else reader.estimates)()
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(ResultsError, match="not a database"):
        reader.windows()


def test_what_seems_damaged_because_it_changed_is_read_again(file: Path) -> None:
    write_results(file.parent)
    asked = []

    def query(_: sql.Connection) -> int:
        asked.append(1)
        if len(asked) == 1:
            os.utime(file, ns=(1, 1))
        if len(asked) != 2:
            raise sql.exc.DatabaseError("", None, Exception("malformed"))
        return 7

    database = ReadOnlyDatabase(f"sqlite:///{file}")
    assert database.read(query) == 7
    # A file that fails, and has not changed, is damaged.
    with pytest.raises(ResultsError, match="malformed"):
        database.read(query)
    assert len(asked) == 3


def test_a_database_that_is_locked_is_unreadable_for_now(
    reader: ResultsReader, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.results.database._LOCKED", 0.05)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    (file.parent / "results.db-wal").write_bytes(b"")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnreadableError, match="locked"):
            reader.windows()


IN_MEMORY = ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory"]


@pytest.mark.parametrize("url", [*IN_MEMORY, "nothing", "nosuch://x/y"])
def test_what_is_no_database_is_refused(url: str) -> None:
    with pytest.raises(ResultsError):
        ResultsReader(url)


def test_times_are_aware_and_within_what_there_is() -> None:
    assert moment(milliseconds(FIRST)) == FIRST
    assert moment(2**62).year == 9999
    assert moment(-(2**62)) == datetime(1, 1, 1, tzinfo=UTC)
    with pytest.raises(ParameterError):
        milliseconds(datetime(2013, 6, 1))


def test_of_every_metric_the_newest_window_and_the_newest_that_is_shown(tmp_path: Path) -> None:
    reader = ResultsReader(write_results(tmp_path))
    found = [(each.metric, each.window_start, each.withheld) for each in reader.newest_windows()]
    windows = reader.windows(Chosen(segment=""))
    speeds = [each for each in windows if each.metric == "speed"]
    assert [each.withheld is None for each in speeds] == [True, False]
    last = {each.metric: each for each in windows}
    wanted = [last["page"], *speeds, last["theme"], last["visits"]]
    assert found == [(each.metric, each.window_start, each.withheld) for each in wanted]
    assert reader.reports() == sum(each.reports for each in windows)
    rows = reader.newest_estimates(("share", "mean", "missing", "string"), 2)
    # The larger two shares; means and strings of windows that are shown, not the uncertain one.
    assert [(each.metric, each.kind, each.position) for each in rows] == [
        ("page", "string", 1),
        ("speed", "mean", 0),
        ("speed", "missing", 1),
        ("theme", "share", 0),
        ("theme", "share", 1),
        ("visits", "mean", 3),
        ("visits", "mean", 4),
        ("visits", "share", 10),
        ("visits", "share", 11),
    ]
    assert {each.window_start for each in rows if each.metric == "theme"} == {
        last["theme"].window_start
    }


def test_a_metric_of_which_all_is_withheld_has_its_newest_window_alone(tmp_path: Path) -> None:
    for version in (1, 2):
        results = MovingResults(tmp_path, version)
        results.write({"red": [None, None] if version == 1 else [(0.5, 0.1), (0.6, 0.1)]})
        if version == 1:
            with sqlite3.connect(results.url.database or "") as connection:
                connection.execute("UPDATE stored_windows SET withheld = 'few'")
                connection.execute("UPDATE meta SET projected_generation = 0")
    reader = results.reader()
    newest = [(each.version, each.window_start) for each in reader.newest_windows()]
    assert newest == [(1, when(1)), (2, when(1))]
    assert [(each.version, each.value) for each in reader.newest_estimates(["share"], 3)] == [
        (2, 0.6)
    ]


def test_what_the_first_page_reads_does_not_grow_with_the_windows(reader: ResultsReader) -> None:
    """Every table is searched by its key; none is read from one end to the other."""
    seen: list[tuple[str, tuple[object, ...]]] = []

    def note(
        _: object, __: object, statement: str, given: tuple[object, ...], *___: object
    ) -> None:
        seen.append((statement, given))

    sql.event.listen(sql.Engine, "before_cursor_execute", note)
    try:
        assert reader.newest_windows()
        assert reader.newest_estimates(["share"], 3)
    finally:
        sql.event.remove(sql.Engine, "before_cursor_execute", note)
    asked = [(statement, given) for statement, given in seen if "FROM stored_" in statement]
    assert len(asked) == 4
    with closing(sqlite3.connect(str(reader.file))) as connection:
        for statement, given in asked:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall()
            steps = [row[3] for row in plan]
            assert not [each for each in steps if re.match("SCAN (stored_|w )", each)], steps
