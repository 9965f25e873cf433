"""The contract of sinks, held by each: of every key, what the newest document says."""

from __future__ import annotations

import pickle
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from made_documents import rejects_document
from sink_documents import rest, window
from waiting import wait_until

from pipelines.results.documents import Document, RejectsDocument, WindowDocument, parse
from pipelines.results.records import EstimateRecord, Rejection
from pipelines.sinks import kafka as kafka_module
from pipelines.sinks.base import Applied, Sink, SinkError
from pipelines.sinks.quarantine import Record
from pipelines.sinks.registry import SINKS, open_sink
from sotto.errors import AggregationError, ParameterError

#: Values of estimates by window and item, and numbers of rejected reports by reason.
Held = tuple[dict[tuple[int, str], float], dict[str, int]]


class Served(NamedTuple):
    """A sink's URL, and what it holds of ``tests.example``; empty before anything is written."""

    url: str
    held: Callable[[], Held]
    #: Whether the sink itself keeps one document of a key, and one job's; not its readers.
    keyed: bool = True
    #: The most bytes of a document that it can store; None if any document fits.
    largest: int | None = None


def sqlite(folder: Path, patch: pytest.MonkeyPatch) -> Served:
    file = folder / "results.db"

    def held() -> Held:
        with closing(sqlite3.connect(file)) as connection:
            return held_in(lambda query: connection.execute(query).fetchall(), "stored_estimates")

    return Served(f"sqlite:///{file}", held)


def duck(folder: Path, patch: pytest.MonkeyPatch) -> Served:
    file = folder / "results.duckdb"

    def held() -> Held:
        with duckdb.connect(str(file)) as connection:
            return held_in(lambda query: connection.execute(query).fetchall(), "estimates")

    return Served(f"duckdb:///{file}", held)


def held_in(ask: Callable[[str], list[tuple[object, ...]]], estimates: str) -> Held:
    start = "window_start" if estimates.startswith("stored") else "epoch_ms(window_start)"
    rows, reports = ("quarantine", "rows") if start == "window_start" else ("rejections", "reports")
    ours = "WHERE collector = 'tests.example'"
    found = ask(f"SELECT {start}, item, value FROM {estimates} {ours}")
    rejected = ask(f"SELECT reason, {reports} FROM {rows} {ours}")
    return {(a, b): c for a, b, c in found}, dict(rejected)  # type: ignore[misc,arg-type]


def kafka(folder: Path, patch: pytest.MonkeyPatch) -> Served:
    log: list[Record] = []

    @contextmanager
    def producer(*_: object) -> Iterator[str]:
        yield "producer"

    patch.setattr(kafka_module, "producer_for", producer)
    patch.setattr(kafka_module, "send_all", lambda producer, topic, records: log.extend(records))

    def held() -> Held:
        newest: dict[bytes, Document] = {}
        for record in log:
            document = parse(record.key, record.value)
            if document.collector_name == "tests.example":
                known = newest.setdefault(document.key, document)
                if document.revision > known.revision:
                    newest[document.key] = document
        rows = [each.rows() for each in newest.values()]
        estimates = [row for each in rows for row in each.get(EstimateRecord, ())]
        rejected = [row for each in rows for row in each.get(Rejection, ())]
        return (
            {(row["window_start"], row["item"]): row["value"] for row in estimates},  # type: ignore[misc]
            {row["reason"]: row["rows"] for row in rejected},  # type: ignore[misc]
        )

    return Served(
        "kafka://fake:9092/reports-estimates", held, keyed=False, largest=kafka_module.LARGEST
    )


#: A new sink is a line here. PostgreSQL is held to the same in tests/postgres.
SERVED: Mapping[str, Callable[[Path, pytest.MonkeyPatch], Served]] = {
    "sqlite": sqlite,
    "duckdb": duck,
    "kafka": kafka,
}


@pytest.fixture(params=SERVED)
def served(request, tmp_path, monkeypatch):
    return SERVED[request.param](tmp_path, monkeypatch)


@pytest.fixture
def sink(served):
    with open_sink(served.url, "job") as opened:
        yield opened


def write(sink: Sink, *records: tuple[bytes, bytes]) -> Applied:
    return sink.write([parse(*each) for each in records])


def test_every_sink_is_held_to_the_contract():
    assert {*SERVED, "postgresql"} == set(SINKS)


def test_what_is_written_is_held_and_written_again_changes_nothing(sink, served):
    records = [window(3), window(4, start=10, items=("red",)), *rest(4, rejects=6)]
    assert write(sink, *records).written == 5
    expected = {(0, "red"): 3.0, (0, "blue"): 3.0, (10, "red"): 4.0}, {"late": 6}
    assert served.held() == expected
    again = write(sink, *records)
    assert sum(again) == 5
    assert again.stale == 5 * served.keyed
    assert served.held() == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_order_and_batches_do_not_matter(served, seed):
    draw = random.Random(seed)
    records = [window(r, start) for r in range(1, 6) for start in (0, 10)]
    records += [each for r in range(1, 6) for each in rest(r, rejects=r)]
    shuffled = [*draw.sample(records, len(records)), *draw.sample(records, 3)]
    while shuffled:
        with open_sink(served.url, "job") as sink:
            write(sink, *(shuffled.pop() for _ in range(min(len(shuffled), seed + 1))))
    values = {(start, item): 5.0 for start in (0, 10) for item in ("red", "blue")}
    assert served.held() == (values, {"late": 5})


def test_a_document_replaces_all_rows_of_its_key_and_no_others(sink, served):
    write(sink, window(1, items=("red", "blue", "green")), window(1, start=10))
    write(sink, window(2, items=("red",)), rejects_document("job", "tests.example", {"late": 1}, 1))
    write(sink, rejects_document("job", "tests.example", {"malformed": 2}, 2))
    values = {(0, "red"): 2.0, (10, "red"): 1.0, (10, "blue"): 1.0}
    assert served.held() == (values, {"malformed": 2})


def test_a_window_without_estimates_goes_and_does_not_come_back(sink, served):
    write(sink, window(1))
    write(sink, window(2, items=()))
    write(sink, window(1))
    assert served.held() == ({}, {})


def test_a_sink_crosses_processes_before_it_is_used(served):
    with pickle.loads(pickle.dumps(open_sink(served.url, "job"))) as sink:  # noqa: S301
        write(sink, window(1))
    assert served.held()[0] == {(0, "red"): 1.0, (0, "blue"): 1.0}


def test_a_closed_sink_opens_again(sink, served):
    write(sink, window(1))
    sink.close()
    write(sink, window(2))
    assert served.held()[0][0, "red"] == 2.0


def test_a_topic_is_read_from_its_beginning_where_a_sink_has_no_offsets(sink, served):
    assert sink.offsets("reports-estimates", "id") == {}


def test_documents_of_several_collectors_are_apart(sink, served):
    theirs = {"collector": "theirs.example", "job": "theirs"}
    if served.keyed:
        write(sink, window(1), window(9, **theirs))
    else:
        write(sink, window(1))
    write(sink, window(2), window(10, items=(), **theirs))
    assert served.held()[0] == {(0, "red"): 2.0, (0, "blue"): 2.0}


def test_documents_of_another_job_are_counted_and_left(sink, served):
    if not served.keyed:
        pytest.skip("its readers choose a job")
    write(sink, window(1))
    assert write(sink, window(7, job="another"), window(2)) == Applied(written=1, others=1)
    with (
        open_sink(served.url, "another") as another,
        pytest.raises(AggregationError, match="give another"),
    ):
        write(another, window(7, job="another"))
    assert served.held()[0][0, "red"] == 2.0


@pytest.mark.slow
def test_several_workers_write_at_the_same_time(served):
    def work(start: int) -> None:
        with open_sink(served.url, "job") as sink:
            for revision in (1, 2):

                def written(record: tuple[bytes, bytes] = window(revision, start)) -> bool:
                    # A runner tries a bundle again too, whose database could not be used.
                    with suppress(SinkError):
                        write(sink, record)
                        return True
                    return False

                wait_until(written)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 80, 10)))
    expected = {(start, item): 2.0 for start in range(0, 80, 10) for item in ("red", "blue")}
    assert served.held()[0] == expected


def test_threads_wait_for_each_other_at_a_duckdb_file(tmp_path):
    def work(start: int) -> Applied:
        with open_sink(f"duckdb:///{tmp_path}/results.duckdb", "job") as sink:
            return write(sink, window(1, start))

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(0, 160, 10))) == {Applied(written=1)}


def test_a_document_that_cannot_be_stored_is_left_out_and_counted(sink, served):
    if served.largest is None:
        pytest.skip("it stores all that a document can hold")
    large = RejectsDocument.of("job", "tests.example", {"x" * served.largest: 1}, 1)
    small = parse(*window(1))
    assert isinstance(small, WindowDocument)
    assert sink.write([large, small]) == Applied(written=1, refused=1)
    assert set(served.held()[0]) == {(0, "red"), (0, "blue")}


@pytest.mark.parametrize("url", ["", "results.db", "redis://localhost"])
def test_a_url_of_no_sink_is_refused(url):
    with pytest.raises(ParameterError, match="no sink"):
        open_sink(url)


@pytest.mark.parametrize(
    "url",
    [
        "duckdb:results",
        "sqlite://",
        "kafka://fake:9092/reports-e1-p8",
        "postgresql://me@fake:hidden/results",
        "postgresql:/me:hidden@fake/results",
    ],
)
def test_a_url_that_its_sink_cannot_use_is_refused(url):
    with pytest.raises((AggregationError, ParameterError)) as refused:
        open_sink(url)
    assert "hidden" not in str(refused.value)
