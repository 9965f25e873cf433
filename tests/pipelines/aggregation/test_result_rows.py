"""Estimates of few reports are withheld, in every output and for every type of metric.

That an output says nothing of a payload is shown by comparison: a report with one payload and a
report with another one, alike in everything that is not protected, give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
import struct
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crashes import Killed, kill_at
from every_type import KINDS, plan_text
from numpy.typing import NDArray
from report_logs import START, Device, Sent, write
from sink_documents import Feed
from step_plans import DAY, HOUR
from watched import exposition

from mechanisms.testing import SeededSource
from mechanisms.vector.coordinates import CoordinateSampling
from pipelines.aggregation.counts import Window, WindowKey, unpack_page
from pipelines.aggregation.result_rows import reason, rows_of_windows
from pipelines.bounded.run import aggregate
from pipelines.sinks.committed import documents_of, projection
from pipelines.sinks.documents import WindowDocument, parse
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import DocumentDatabase, Results, of_state
from pipelines.sinks.tables import ESTIMATES, WINDOWS
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import dump_document, load
from sotto.cli import main
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, SinkTopic
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.format import Row

#: Of so few reports of bits, 20 or more are about the first one.
SEED = 6
CANDIDATES = ("home", "away")
#: Columns of an estimate that come from payloads.
FROM_PAYLOADS = (
    *("value", "standard_error", "low", "high", "display", "detection_floor"),
    *("significant", "p_value", "confounded_with"),
)
COLOUR = """\
collector: tests.example
plan: small
version: 1
owner: nobody@tests.example
expires: 2100-01-01
period: 7d
resolution: 1h
shards: 4
ceilings: {period: 100, lifetime: 1000}
metrics:
  colour:
    {type: category, domain: [red, green], outside: other, mechanism: grr, window: 7d,
     ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]}
"""


def every_plan() -> CompiledPlan:
    """A plan with every type and mechanism that asks for as many reports as a plan mostly does."""
    return parse_plan(plan_text().replace("minimum_reports: 1\n", "")).compile()


def colour_plan(least: int | None = None) -> CompiledPlan:
    said = "" if least is None else f"minimum_reports: {least}\n"
    return parse_plan(said + COLOUR).compile()


def two_payloads(metric: CompiledMetric, chain: bytes, pseudonym: bytes) -> list[bytes]:
    """Return two payloads of one chain that differ."""
    made, found = random.Random(7), set[bytes]()
    source = SeededSource(7)
    while len(found) < 2:
        value = KINDS[metric.name].value(made)
        symbol = (1, 0, 0) if metric.type == "top_item" else metric.encode(value)
        found.add(metric.mechanism.draw(symbol, chain, pseudonym, source)[0])
    return sorted(found)


def lone_reports(plan: CompiledPlan, which: int) -> list[Sent]:
    """Return one report of each metric, each with the first or the second of two payloads."""
    source = random.Random(11)
    device, sent = Device(plan, source), []
    for metric in plan.metrics:
        chain = source.randbytes(16)
        payload = two_payloads(metric, chain, device.pseudonym)[which]
        row = Row(0, device.pseudonym, chain, START - START % HOUR, payload)
        sent.append(device.send(START + 2 * HOUR, metric, row))
    return sent


class Outputs:
    """A log with reports, aggregated, and everything that is published of it."""

    def __init__(self, folder: Path, plan: CompiledPlan, sent: list[Sent]) -> None:
        self.folder, self.plan, self.state = folder, plan, folder / "state"
        self.candidates = {plan.fingerprint: {"rappor": CANDIDATES}}
        write(folder / "log", sent)
        aggregate(folder / "log", self.state, [plan], candidates=self.candidates)

    def rows(self) -> list[dict[str, object]]:
        with Results(of_state(self.state)) as results:
            return results.estimates()

    def windows(self) -> list[dict[str, object]]:
        with Results(of_state(self.state)) as results:
            return results.table(WINDOWS)

    def documents(self, since: int = 0) -> list[tuple[bytes, bytes]]:
        directory, registry = StateDirectory(self.state), Registry([self.plan])
        manifest = directory.manifest()
        made = projection(directory, manifest, registry, self.candidates, since)
        return list(documents_of(replace(made, state="job"), registry.collector, None))

    def sunk(self) -> Path:
        """Write the documents to a database, as a sink does."""
        file = self.folder / "sunk.db"
        with DocumentDatabase(f"sqlite:///{file}") as written:
            assert Feed(written).give(*self.documents()).refused == 0
        return file

    def exposed(self) -> str:
        """Return what an exporter exposes, without how long things took."""
        lines = exposition(self.state).splitlines()
        timed = ("sotto_run_", "sotto_exporter_")
        return "\n".join(line for line in lines if not line.startswith(timed))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Outputs]:
    """Two jobs with one report a window, which differ in the reports' payloads alone."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    plan = every_plan()
    made = [Outputs(at, plan, lone_reports(plan, n)) for n, at in enumerate(folders)]
    counts = [sorted(_counts(each).items()) for each in made]
    assert all(one != other for one, other in zip(*counts, strict=True))
    return made


def _counts(outputs: Outputs) -> dict[WindowKey, list[list[int]]]:
    directory = StateDirectory(outputs.state)
    pages = directory.manifest().pages.items()
    bodies = [load(directory.files.page(page, made), b"counts") for page, made in pages]
    return {key: w.counts.tolist() for body in bodies for key, w in unpack_page(body).items()}


def printed(outputs: Outputs, how: Sequence[str], capsys: pytest.CaptureFixture[str]) -> bytes:
    assert main(["estimates", "--state", str(outputs.state), *how]) == 0
    return capsys.readouterr().out.encode()


@pytest.mark.parametrize(
    "how", [["--format", "table", "--all"], ["--format", "csv"], ["--format", "json"]]
)
def test_what_is_printed_of_one_report_says_nothing_of_its_payload(
    pair: list[Outputs], how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (printed(each, how, capsys) for each in pair)
    assert one == other
    assert one.count(b"1 report, the plan asks for 20") >= len(KINDS)


def test_a_table_says_once_a_window_why_there_are_no_estimates(
    pair: list[Outputs], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(pair[0], [], capsys).decode().splitlines()
    assert [line for line in lines if line.startswith("  ")] == [
        "  withheld: 1 report, the plan asks for 20"
    ] * len(KINDS)


def test_a_csv_keeps_its_columns_and_a_row_for_every_estimate(
    pair: list[Outputs], capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(pair[0], ["--format", "csv", "--metric", "grr"], capsys).decode()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["item"] for line in lines] == ["red", "green", "blue", "grey", "other"]
    for line in lines:
        assert list(line) == list(ESTIMATES.columns.keys())
        assert {line[name] for name in FROM_PAYLOADS} == {""}
        assert (line["n"], line["reports_by_level"]) == ("1", "[1, 0]")
        assert line["withheld"] == "1 report, the plan asks for 20"


@pytest.mark.parametrize("place", [lambda o: o.state / "results.db", Outputs.sunk])
def test_a_database_of_one_report_says_nothing_of_its_payload(
    pair: list[Outputs], place: Callable[[Outputs], Path]
) -> None:
    """Byte for byte, but for the names of the jobs and of generations, which are random."""
    one, other = (_neutral(place(each)) for each in pair)
    assert one == other
    assert b"1 report, the plan asks for 20" in one


def _neutral(file: Path) -> bytes:
    """Return a database's bytes with one name for all jobs and generations."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        names = connection.execute("select state, lineage from meta").fetchone()
    content = file.read_bytes()
    for name in names:
        content = content.replace(name.encode(), b"-" * len(name))
    return content


def test_documents_of_one_report_say_nothing_of_its_payload(pair: list[Outputs]) -> None:
    one, other = (each.documents() for each in pair)
    assert one == other
    windows = [d for each in one if isinstance(d := parse(*each), WindowDocument)]
    assert {each.window["metric"] for each in windows} == set(KINDS)
    for document in windows:
        assert document.window["withheld"] == "1 report, the plan asks for 20"
        assert document.window["minimum_reports"] == 20
        assert {row[name] for row in document.estimates for name in FROM_PAYLOADS} == {None}


def test_an_exporter_of_one_report_says_nothing_of_its_payload(pair: list[Outputs]) -> None:
    one, other = (each.exposed() for each in pair)
    assert one == other
    assert "sotto_estimate{" not in one
    assert one.count("sotto_estimate_window_withheld{") == len(KINDS)
    assert 'sotto_estimate_window_reports{metric="grr",plan="every",version="1"} 1.0' in one
    assert 'sotto_estimate_window_withheld{metric="grr",plan="every",version="1"} 1.0' in one


def colours(plan: CompiledPlan, devices: int) -> list[Sent]:
    """Return the reports of some devices, of which every third sends only the first level."""
    source = random.Random(3)
    made = [Device(plan, source) for _ in range(devices)]
    return [
        sent
        for number, device in enumerate(made)
        for sent in device.chain(plan.metric("colour"), START, upto=1 + (number % 3 > 0))
    ]


@pytest.mark.parametrize("least", [None, 20])
def test_nineteen_reports_are_too_few_and_twenty_are_not(tmp_path: Path, least: int | None) -> None:
    plan, owner = colour_plan(least), colour_plan(1)
    few = Outputs(tmp_path / "few", plan, colours(plan, 19))
    assert {row["withheld"] for row in few.rows()} == {"19 reports, the plan asks for 20"}
    assert {row[name] for row in few.rows() for name in FROM_PAYLOADS} == {None}
    assert [(row["n"], row["reports_by_level"]) for row in few.windows()] == [(19, [7, 12])]
    enough = Outputs(tmp_path / "enough", plan, colours(plan, 20))
    asked = Outputs(tmp_path / "asked", owner, colours(owner, 20))
    assert {row["withheld"] for row in enough.rows()} == {None}
    assert enough.rows() == asked.rows()
    assert all(isinstance(row["value"], float) for row in enough.rows())


def test_an_owner_who_asks_for_one_report_is_given_its_estimate(tmp_path: Path) -> None:
    plan = colour_plan(1)
    lone = Outputs(tmp_path, plan, colours(plan, 1))
    assert {row["withheld"] for row in lone.rows()} == {None}
    shares = [row["value"] for row in lone.rows()]
    assert max(shares) > 1 > min(shares)  # type: ignore[type-var]
    assert "sotto_estimate{" in lone.exposed()


def test_estimates_go_when_a_revocation_leaves_too_few(tmp_path: Path) -> None:
    """Row and document of the same key are replaced, under a higher revision."""
    plan = colour_plan()
    colour, source = plan.metric("colour"), random.Random(4)
    sent = colours(plan, 19)
    liar = Device(plan, source)
    chain, at = source.randbytes(16), START - START % HOUR
    first = Row(0, liar.pseudonym, chain, at, b"\0")
    job = Outputs(tmp_path, plan, [*sent, liar.send(START + 2 * HOUR, colour, first)])
    before, published = job.windows(), job.documents()
    figures = [struct.pack(">d", row["value"]) for row in job.rows()]
    assert all(each in (job.state / "results.db").read_bytes() for each in figures)
    assert [(row["n"], row["withheld"], row["revision"]) for row in before] == [(20, None, 1)]
    with DocumentDatabase(f"sqlite:///{tmp_path / 'sunk.db'}") as database:
        Feed(database).give(*published)
    again = liar.send(START + 2 * DAY, colour, first._replace(payload=b"\1"))
    write(tmp_path / "log", [again], lanes=1)
    aggregate(tmp_path / "log", job.state, [plan])
    now = [(row["n"], row["withheld"], row["revision"]) for row in job.windows()]
    assert now == [(19, "19 reports, the plan asks for 20", 2)]
    assert {row[name] for row in job.rows() for name in FROM_PAYLOADS} == {None}
    assert not any(each in (job.state / "results.db").read_bytes() for each in figures)
    assert "sotto_estimate{" not in job.exposed()
    news = job.documents(since=1)
    assert news[0][0] == published[0][0]
    with DocumentDatabase(f"sqlite:///{tmp_path / 'sunk.db'}") as database:
        Feed(database).give(*news)
    with Results(f"sqlite:///{tmp_path / 'sunk.db'}") as results:
        assert results.estimates() == job.rows()
        assert results.table(WINDOWS) == job.windows()
    assert not any(each in (tmp_path / "sunk.db").read_bytes() for each in figures)


@pytest.mark.parametrize("asked", ["1", "NULL"])
def test_results_made_under_another_minimum_are_made_again(tmp_path: Path, asked: str) -> None:
    """Of a plan that asked for one report, and of a release that did not ask."""
    plan = colour_plan()
    job = Outputs(tmp_path, plan, colours(plan, 19))
    expected = job.rows(), job.windows()
    _estimate_under(job.state / "results.db", asked)
    aggregate(tmp_path / "log", job.state, [plan])
    assert (job.rows(), job.windows()) == expected


def _estimate_under(database: Path, asked: str) -> None:
    """Make a database what it would be had the plan asked for another number of reports."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update estimates set value = 0.5, withheld = null")
        connection.execute(f"update windows set withheld = null, minimum_reports = {asked}")


class KeptTopic(EstimatesTopic):
    """A topic of estimates in memory, not compacted."""

    def __init__(self) -> None:
        super().__init__(Broker("fake:9092"), SinkTopic("reports", "estimates"))
        self.kept: list[SimpleNamespace] = []

    def found(self) -> FoundTopic:
        return FoundTopic(1, 1, {}, "one")

    def records(self, partitions: int, begin: Mapping[str, int]) -> Generator[Any]:
        yield from self.kept[begin.get("0", 0) :]

    def send(
        self,
        documents: Iterable[tuple[bytes, bytes]],
        last: tuple[bytes, bytes],
        headers: list[tuple[str, bytes]],
    ) -> dict[str, int]:
        for key, value in [*documents, last]:
            self.kept.append(SimpleNamespace(key=key, value=value, headers=headers))
        return {"0": len(self.kept)}

    def told(self) -> dict[bytes, Any]:
        """Return what a reader has: of each key the document of the highest revision."""
        found: dict[bytes, Any] = {}
        for record in self.kept:
            document = parse(record.key, record.value)
            if record.key not in found or found[record.key].revision < document.revision:
                found[record.key] = document
        return found


class Published:
    """A log with reports of one window, what runs publish of it, and a sink of that."""

    def __init__(self, folder: Path, least: int, devices: int = 19) -> None:
        self.folder, self.state, self.topic = folder, folder / "state", KeptTopic()
        self.database, self.sunk = f"sqlite:///{folder / 'sunk.db'}", 0
        write(folder / "log", colours(colour_plan(least), devices))
        self.aggregate(least)

    def aggregate(self, least: int, **options: Any) -> int:
        """Aggregate under a plan that asks for so many reports; return the documents published."""
        before = len(self.topic.kept)
        plans = [colour_plan(least)]
        aggregate(self.folder / "log", self.state, plans, publish=self.topic, **options)
        return len(self.topic.kept) - before

    def sink(self) -> None:
        """Give the sink what is new in the topic."""
        records = self.topic.kept[self.sunk :]
        self.sunk = len(self.topic.kept)
        with DocumentDatabase(self.database) as database:
            Feed(database).give(*((each.key, each.value) for each in records))

    def withheld(self) -> set[object]:
        """Return why estimates are withheld, which results, topic and sink agree on."""
        self.sink()
        (window,) = (
            each for each in self.topic.told().values() if isinstance(each, WindowDocument)
        )
        with Results(of_state(self.state)) as results, Results(self.database) as sunk:
            found = results.estimates()
            assert sunk.estimates() == found
            assert sunk.table(WINDOWS) == results.table(WINDOWS) == [window.rows()[0]]
            assert window.estimates == tuple(
                {name: row[name] for name in window.estimates[0]} for row in found
            )
        assert {row["value"] is None for row in found} == {
            row["withheld"] is not None for row in found
        }
        return {row["withheld"] for row in found}

    def revision(self) -> int:
        with Results(of_state(self.state)) as results:
            return int(str(results.table(WINDOWS)[0]["revision"]))


@pytest.mark.slow
def test_another_minimum_reaches_the_topic_and_its_sinks(tmp_path: Path) -> None:
    """Nothing else is new, and a consumer keeps the document of the highest revision."""
    job = Published(tmp_path, 1)
    assert (job.withheld(), job.revision()) == ({None}, 1)
    for least in (20, 19, 20):
        before = job.revision()
        assert job.aggregate(least) > 0
        assert job.revision() == before + 1
        assert job.withheld() == {reason(19, least)}
        assert job.aggregate(least) == 0
        assert job.revision() == before + 1
    assert StateDirectory(job.state).manifest().generation == 4


def test_results_of_a_release_that_noted_no_minimum_are_published_again(tmp_path: Path) -> None:
    """By which rule it withheld is not known. Once."""
    job = Published(tmp_path, 20)
    path = job.state / "MANIFEST.json"
    said = json.loads(path.read_bytes())
    del said["minima"], said["digest"]
    path.write_bytes(dump_document(said))
    assert job.aggregate(20) > 0
    assert (job.revision(), job.withheld()) == (2, {"19 reports, the plan asks for 20"})
    assert job.aggregate(20) == 0


def test_another_minimum_after_an_interrupted_run(tmp_path: Path) -> None:
    """What was undertaken is done first, and its commit has the minimum."""
    job = Published(tmp_path, 1)
    source, plan = random.Random(5), colour_plan(1)
    chain = Device(plan, source).chain(plan.metric("colour"), START + 30 * DAY)
    write(tmp_path / "log", chain, lanes=1)

    with pytest.raises(Killed):
        job.aggregate(1, checkpoint=kill_at("begun"))
    job.aggregate(20)
    assert StateDirectory(job.state).manifest().generation == 2
    with Results(of_state(job.state)) as results:
        windows = results.table(WINDOWS)
        assert [row["revision"] for row in windows] == [2, 2]
        assert all(row["withheld"] for row in windows)
    told = [each for each in job.topic.told().values() if isinstance(each, WindowDocument)]
    assert [each.window["withheld"] for each in told] == [row["withheld"] for row in windows]
    assert job.aggregate(20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("step", ["MANIFEST.json written", "committed", "projected"])
def test_another_minimum_when_the_run_is_killed(tmp_path: Path, step: str) -> None:
    """The documents are the same ones, whenever they are published."""
    job = Published(tmp_path, 1)
    assert job.withheld() == {None}
    with pytest.raises(Killed):
        job.aggregate(20, checkpoint=kill_at(step))
    assert job.aggregate(20) > 0
    assert (job.revision(), job.withheld()) == (2, {"19 reports, the plan asks for 20"})
    assert job.aggregate(20) == 0


def counted(metric: CompiledMetric, reports: int, seed: int) -> NDArray[np.int64]:
    """Return the counts of some reports of the first level."""
    source, made, mechanism = SeededSource(seed), random.Random(seed), metric.mechanism
    counts = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
    for _ in range(reports):
        ids = source.words(4).reshape(2, 1, 2)
        chain, pseudonym = (row.astype("<u8").tobytes() for row in ids)
        value = KINDS[metric.name].value(made)
        symbol = (1, 0, 0) if metric.type == "top_item" else metric.encode(value)
        payload = np.frombuffer(mechanism.draw(symbol, chain, pseudonym, source)[0], np.uint8)
        counts[:1] += mechanism.accumulate(payload[np.newaxis], *ids, np.zeros(1, np.int64), 1)
    return counts


def estimated(plan: CompiledPlan, name: str, counts: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return the rows of a window that has reports enough."""
    key = WindowKey(plan.fingerprint, plan.metric(name).index, 0)
    strings = {plan.fingerprint: {"rappor": CANDIDATES}}
    (window,), rows = rows_of_windows([(key, Window(1, counts))], Registry([plan]), strings)
    assert window["withheld"] is None
    return rows


def test_a_coordinate_that_too_few_reports_are_about_is_withheld_by_itself() -> None:
    """Nothing else that is published is made of a vector's coordinates."""
    plan = every_plan()
    counts = counted(plan.metric("vector_thresholds"), 70, seed=5)
    rows = estimated(plan, "vector_thresholds", counts)
    few = [row for row in rows if row["n"] < 20]
    assert 0 < len(few) < len(rows)
    assert {row["kind"] for row in rows} == {"mean"}
    assert {row[column] for row in few for column in FROM_PAYLOADS} == {None}
    assert [row["withheld"] for row in rows] == [reason(row["n"], 20) for row in rows]


@pytest.mark.parametrize("name", ["sampled_bit", "sampled_bits"])
def test_bits_are_published_all_or_none(name: str) -> None:
    """From the mean, which is made of all, and all bits but one that one would follow."""
    plan = every_plan()
    metric = plan.metric(name)
    rows = estimated(plan, name, counted(metric, 39, seed=SEED))
    bits = [row for row in rows if row["kind"] == "bit"]
    fewest = min(row["n"] for row in bits)
    assert fewest < 20 <= max(row["n"] for row in bits)
    assert {row[column] for row in bits for column in FROM_PAYLOADS} == {None}
    short = reason(fewest, 20)
    assert [row["withheld"] for row in bits] == [
        reason(row["n"], 20) or f"another bit has {short}" for row in bits
    ]
    assert {row["withheld"] for row in rows if row["kind"] != "bit"} == {None}
    many = estimated(plan, name, 20 * counted(metric, 39, seed=SEED))
    assert min(row["n"] for row in many if row["kind"] == "bit") >= 20
    assert {row["withheld"] for row in many} == {None}


def test_a_bit_that_no_report_is_about_keeps_no_other_one_back() -> None:
    """An owner who asks for one report is given what each has."""
    plan = parse_plan(plan_text()).compile()
    assert plan.minimum_reports == 1
    rows = estimated(plan, "sampled_bit", counted(plan.metric("sampled_bit"), 39, seed=0))
    bits = [row for row in rows if row["kind"] == "bit"]
    assert [row["n"] for row in bits] == [23, 10, 4, 1, 0, 1]
    assert [row["withheld"] for row in bits] == [reason(row["n"], 1) for row in bits]


def test_all_other_estimates_are_made_of_all_reports_of_their_window() -> None:
    """So that none of them is a part of another one that could be told from the rest."""
    plan = every_plan()
    for metric in plan.metrics:
        for row in estimated(plan, metric.name, counted(metric, 30, seed=2)):
            part = row["kind"] == "bit" or metric.type == "vector"
            assert row["n"] == 30 or part, (metric.name, row["kind"])


@pytest.mark.parametrize("least", [1, 20, 100, 1000])
def test_no_stratum_is_expected_to_have_fewer_reports_than_the_plan_asks_for(least: int) -> None:
    """A point of the distribution of a number is estimated from each."""
    plan = parse_plan(
        plan_text().replace("minimum_reports: 1\n", f"minimum_reports: {least}\n")
    ).compile()
    metric = plan.metric("threshold")
    counts = counted(metric, 1280, seed=3)
    rows = estimated(plan, "threshold", counts)
    points = [row for row in rows if row["kind"] == "cdf"]
    assert len(points) == {1: 64, 20: 64, 100: 8, 1000: 1}[least]
    assert {row["n"] for row in points} == {1280}
    if least <= 20:
        assert metric.range is not None
        found = metric.mechanism.numeric(counts, *metric.range)
        assert found.cdf is not None
        assert [row["value"] for row in points] == found.cdf.values.tolist()
        assert rows[0]["value"] == found.mean.value


@pytest.mark.parametrize("name", ["threshold", "sampled_bit", "vector_bits", "vector_thresholds"])
def test_a_mean_has_strata_of_as_many_reports_as_the_plan_asks_for(name: str) -> None:
    """Its digits would tell the answers of each small one."""
    lax, strict = (
        parse_plan(plan_text().replace("minimum_reports: 1\n", said)).compile()
        for said in ("", "minimum_reports: 300\n")
    )
    counts = counted(lax.metric(name), 400, seed=4)
    first = int(_answers(lax.metric(name), counts).sum())
    counts *= 1 + 300 // first
    mean = next(row for row in estimated(strict, name, counts) if row["kind"] == "mean")
    plain = _pooled(lax.metric(name), counts)
    assert mean["value"] == pytest.approx(plain, abs=1e-9)
    fine = next(row for row in estimated(lax, name, counts) if row["kind"] == "mean")
    assert abs(fine["value"] - plain) > 1e-6


def _answers(metric: CompiledMetric, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the answers of a number, or of a vector's first coordinate: no, yes, missing."""
    mechanism, cells = metric.mechanism, counts[0]
    if isinstance(mechanism, CoordinateSampling):
        return cells.reshape(mechanism.dimensions, -1, 2)[0].sum(axis=0)
    return cells.reshape(-1, 2 + metric.missing).sum(axis=0)


def _pooled(metric: CompiledMetric, counts: NDArray[np.int64]) -> float:
    """Return the mean of a number, or of a vector's first coordinate, of all answers alike."""
    answers = _answers(metric, counts)
    p, q = metric.mechanism.pairs()[0]
    shares = (answers / answers.sum() - q) / (p - q)
    present = 1 - shares[2] if len(shares) == 3 else 1.0
    low, high = metric.range or (0.0, 1.0)
    return float(low + (high - low) * shares[1] / present)


def test_documents_of_before_are_still_read(tmp_path: Path) -> None:
    plan = colour_plan(1)
    key, value = Outputs(tmp_path, plan, colours(plan, 3)).documents()[0]
    said = json.loads(value)
    for part in (said["window"], *said["estimates"]):
        part.pop("withheld")
        part.pop("minimum_reports", None)
    document = parse(key, json.dumps(said).encode())
    assert isinstance(document, WindowDocument)
    assert document.window["withheld"] is document.window["minimum_reports"] is None
    assert {row["withheld"] for row in document.estimates} == {None}
