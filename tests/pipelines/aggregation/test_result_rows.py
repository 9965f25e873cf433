"""Estimates of few reports are withheld, in every output and for every type of metric.

That an output says nothing of a payload is shown by comparison: a report with one payload and a
report with another one, alike in everything that is not protected, give the same bytes.
"""

from __future__ import annotations

import csv
import io
import random
import sqlite3
import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from committed_states import counted, projected
from crashes import Killed, kill_at
from every_type import KINDS, counts_of, every_plan, first_payload
from numpy.typing import NDArray
from plan_texts import plan_head
from report_logs import START, Device, Sent, write
from sink_documents import Feed
from step_plans import DAY, HOUR
from watched import exposition

from mechanisms.testing import SeededSource
from mechanisms.vector.coordinates import CoordinateSampling
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import reason, rows_of_windows
from pipelines.bounded.run import aggregate
from pipelines.results import records
from pipelines.results.documents import Document, WindowDocument, parse
from pipelines.results.views import VIEW_ESTIMATES
from pipelines.sinks.committed import CommittedGeneration
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import SqlSink
from pipelines.storage.directory import StateDirectory
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, SinkTopic
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.format import Row
from sotto_cli import main

#: A seed with which 20 or more of so few reports of bits are about the first one.
SEED = 6
CANDIDATES = ("home", "away")
#: Columns of an estimate that come from payloads.
FROM_PAYLOADS = (
    *("value", "standard_error", "low", "high", "display", "detection_floor"),
    *("significant", "p_value", "confounded_with"),
)
COLOUR = (
    plan_head("small", (100, 1000), shards=4)
    + """\
  colour:
    {type: category, domain: [red, green], outside: other, mechanism: grr, window: 7d,
     ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]}
"""
)


@cache
def colour_plan(least: int | None = None) -> CompiledPlan:
    said = "" if least is None else f"minimum_reports: {least}\n"
    return parse_plan(said + COLOUR).compile()


def two_payloads(metric: CompiledMetric, chain: bytes, pseudonym: bytes) -> list[bytes]:
    made, source, found = random.Random(7), SeededSource(7), set[bytes]()
    while len(found) < 2:
        found.add(first_payload(metric, chain, pseudonym, made, source))
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
        return projected(self.state)["estimates"]

    def windows(self) -> list[dict[str, object]]:
        return projected(self.state)["windows"]

    def documents(self, since: int = 0) -> list[tuple[bytes, bytes]]:
        directory, registry = StateDirectory(self.state), Registry([self.plan])
        manifest = directory.manifest()
        of = CommittedGeneration(directory, manifest, registry, self.candidates)
        return [
            each.model_copy(update={"job": "job"}).record for each in of.projection(since).documents
        ]

    def sunk(self) -> Path:
        file = self.folder / "sunk.db"
        with SqlSink(f"sqlite:///{file}") as written:
            assert Feed(written).give(*self.documents()).refused == 0
        return file

    def exposed(self) -> str:
        lines = exposition(self.state).splitlines()
        timed = ("sotto_run_", "sotto_exporter_")
        return "\n".join(line for line in lines if not line.startswith(timed))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two jobs with one report a window, which differ in the reports' payloads alone."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    plan = every_plan(20)
    made = [Outputs(at, plan, lone_reports(plan, n)) for n, at in enumerate(folders)]
    counts = [sorted(counted(each.state).items()) for each in made]
    assert all(one != other for one, other in zip(*counts, strict=True))
    return made


def printed(*how: str) -> Callable[[Outputs], bytes]:
    def output(outputs: Outputs) -> bytes:
        with redirect_stdout(io.StringIO()) as out:
            assert main(["estimates", "--state", str(outputs.state), *how]) == 0
        return out.getvalue().encode()

    return output


def stored(file: Path) -> bytes:
    """Return a database's bytes with one name for all jobs and generations, which are random."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        names = connection.execute("select state, lineage from meta").fetchone()
    content = file.read_bytes()
    for name in names:
        content = content.replace(name.encode(), b"-" * len(name))
    return content


OUTPUTS: dict[str, Callable[[Outputs], bytes]] = {
    "table": printed("--all"),
    "csv": printed("--format", "csv"),
    "json": printed("--format", "json"),
    "database": lambda outputs: stored(outputs.state / "results.db"),
    "documents": lambda outputs: repr(outputs.documents()).encode(),
    "sink": lambda outputs: stored(outputs.sunk()),
    "exporter": lambda outputs: outputs.exposed().encode(),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_no_output_of_one_report_says_anything_of_its_payload(pair, output):
    one, other = map(OUTPUTS[output], pair)
    assert one == other
    assert output == "exporter" or b"1 report, the plan asks for 20" in one


def test_what_is_withheld_keeps_its_rows_and_says_why(pair):
    lines = printed()(pair[0]).decode().splitlines()
    why = "1 report, the plan asks for 20"
    assert [line for line in lines if line.startswith("  ")] == [f"  withheld: {why}"] * len(KINDS)
    table = printed("--format", "csv", "--metric", "grr")(pair[0]).decode()
    lines = list(csv.DictReader(io.StringIO(table)))
    assert [line["item"] for line in lines] == ["red", "green", "blue", "grey", "other"]
    for line in lines:
        assert list(line) == [each.name for each in VIEW_ESTIMATES.columns]
        assert {line["shown" if name == "display" else name] for name in FROM_PAYLOADS} == {""}
        assert (line["reports"], line["reports_by_level"], line["withheld"]) == ("1", "[1, 0]", why)
    parsed = [parse(*each) for each in pair[0].documents()]
    windows = [each for each in parsed if isinstance(each, WindowDocument)]
    assert {each.window["metric"] for each in windows} == set(KINDS)
    for document in windows:
        assert (document.window["withheld"], document.window["minimum_reports"]) == (why, 20)
        assert {row[name] for row in document.estimates for name in FROM_PAYLOADS} == {None}
    exposed = pair[0].exposed()
    assert "sotto_estimate{" not in exposed
    assert exposed.count("sotto_estimate_window_withheld{") == len(KINDS)
    for name in ("reports", "withheld"):
        labels = f'collector="{every_plan(20).collector}",metric="grr",plan="every",version="1"'
        assert f"sotto_estimate_window_{name}{{{labels}}} 1.0" in exposed


def colours(plan: CompiledPlan, devices: int) -> list[Sent]:
    """Return the reports of some devices, each at both levels."""
    source = random.Random(3)
    made = [Device(plan, source) for _ in range(devices)]
    return [sent for each in made for sent in each.chain(plan.metric("colour"), START)]


@pytest.mark.parametrize("least", [None, 20])
def test_nineteen_reports_are_too_few_and_twenty_are_not(tmp_path, least):
    plan, owner = colour_plan(least), colour_plan(1)
    few = Outputs(tmp_path / "few", plan, colours(plan, 19))
    assert {row["withheld"] for row in few.rows()} == {"19 reports, the plan asks for 20"}
    assert {row[name] for row in few.rows() for name in FROM_PAYLOADS} == {None}
    assert [(row["n"], row["reports_by_level"]) for row in few.windows()] == [(19, [0, 19])]
    enough = Outputs(tmp_path / "enough", plan, colours(plan, 20))
    asked = Outputs(tmp_path / "asked", owner, colours(owner, 20))
    assert {row["withheld"] for row in enough.rows()} == {None}
    for row, exact in zip(enough.rows(), asked.rows(), strict=True):
        assert row["value"] == pytest.approx(exact["value"], abs=0.01)
        assert row["low"] <= exact["low"] < exact["high"] <= row["high"]
    assert all(isinstance(row["value"], float) for row in enough.rows())
    assert "sotto_estimate{" in enough.exposed()


def test_estimates_go_when_revocations_leave_too_few_and_stay_when_few_are_revoked(tmp_path):
    """Row and document of the same key are replaced, under a higher revision."""
    plan = colour_plan()
    colour, source = plan.metric("colour"), random.Random(4)
    sent, at = colours(plan, 19), START - START % HOUR
    liars = [Device(plan, source) for _ in range(21)]
    first = [Row(0, each.pseudonym, source.randbytes(16), at, b"\0") for each in liars]
    for each, row in zip(liars, first, strict=True):
        sent += [each.send(START + 2 * DAY, colour, row._replace(level=k)) for k in (0, 1)]
    job = Outputs(tmp_path, plan, sent)
    before, published, rows = job.windows(), job.documents(), job.rows()
    figures = [struct.pack(">d", row["value"]) for row in rows]
    assert all(each in (job.state / "results.db").read_bytes() for each in figures)
    assert [(row["n"], row["withheld"], row["revision"]) for row in before] == [(40, None, 1)]
    with SqlSink(f"sqlite:///{tmp_path / 'sunk.db'}") as database:
        Feed(database).give(*published)
    again = [
        each.send(START + 2 * DAY, colour, row._replace(payload=b"\1"))
        for each, row in zip(liars, first, strict=True)
    ]
    write(tmp_path / "log", again[:1], lanes=1)
    aggregate(tmp_path / "log", job.state, [plan])
    now = [(row["n"], row["withheld"], row["revision"]) for row in job.windows()]
    assert now == [(39, None, 2)]
    assert job.rows() == [{**row, "revision": 2} for row in rows]
    write(tmp_path / "log", again[1:], lanes=1)
    aggregate(tmp_path / "log", job.state, [plan])
    now = [(row["n"], row["withheld"], row["revision"]) for row in job.windows()]
    assert now == [(19, "19 reports, the plan asks for 20", 3)]
    assert {row[name] for row in job.rows() for name in FROM_PAYLOADS} == {None}
    assert not any(each in (job.state / "results.db").read_bytes() for each in figures)
    assert "sotto_estimate{" not in job.exposed()
    news = job.documents(since=1)
    assert news[0][0] == published[0][0]
    with SqlSink(f"sqlite:///{tmp_path / 'sunk.db'}") as database:
        Feed(database).give(*news)
    sunk = projected(f"sqlite:///{tmp_path / 'sunk.db'}")
    assert (sunk["estimates"], sunk["windows"]) == (job.rows(), job.windows())
    assert not any(each in (tmp_path / "sunk.db").read_bytes() for each in figures)


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
        self, documents: Iterable[Document], headers: tuple[tuple[str, bytes], ...]
    ) -> dict[str, int]:
        for key, value in [each.record for each in documents]:
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
        aggregate(self.folder / "log", self.state, plans, publish=[self.topic], **options)
        return len(self.topic.kept) - before

    def sink(self) -> None:
        records = self.topic.kept[self.sunk :]
        self.sunk = len(self.topic.kept)
        with SqlSink(self.database) as database:
            Feed(database).give(*((each.key, each.value) for each in records))

    def withheld(self) -> set[object]:
        """Return why estimates are withheld, which results, topic and sink agree on."""
        self.sink()
        (window,) = (
            each for each in self.topic.told().values() if isinstance(each, WindowDocument)
        )
        results, sunk = projected(self.state), projected(self.database)
        found, stored = results["estimates"], results["windows"]
        assert (sunk["estimates"], sunk["windows"]) == (found, stored)
        assert stored == window.rows()[records.Window]
        found.sort(key=lambda row: int(str(row["position"])))
        assert window.estimates == tuple(
            {name: row[name] for name in window.estimates[0]} for row in found
        )
        assert {row["value"] is None for row in found} == {
            row["withheld"] is not None for row in found
        }
        return {row["withheld"] for row in found}

    def revision(self) -> int:
        return int(str(projected(self.state)["windows"][0]["revision"]))


@pytest.mark.slow
def test_another_minimum_reaches_the_topic_and_its_sinks(tmp_path):
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


def test_another_minimum_after_an_interrupted_run(tmp_path):
    """The interrupted run is done first, and its commit has the minimum."""
    job = Published(tmp_path, 1)
    source, plan = random.Random(5), colour_plan(1)
    chain = Device(plan, source).chain(plan.metric("colour"), START + 30 * DAY)
    write(tmp_path / "log", chain, lanes=1)

    with pytest.raises(Killed):
        job.aggregate(1, checkpoint=kill_at("begun"))
    job.aggregate(20)
    assert StateDirectory(job.state).manifest().generation == 2
    windows = projected(job.state)["windows"]
    assert [row["revision"] for row in windows] == [2, 2]
    assert all(row["withheld"] for row in windows)
    told = [each for each in job.topic.told().values() if isinstance(each, WindowDocument)]
    assert [each.window["withheld"] for each in told] == [row["withheld"] for row in windows]
    assert job.aggregate(20) == 0


def estimated(plan: CompiledPlan, name: str, counts: NDArray[np.int64]) -> list[dict[str, Any]]:
    key = WindowKey(plan.fingerprint, plan.metric(name).index, 0)
    strings = {plan.fingerprint: {"rappor": CANDIDATES}}
    (window,), rows = rows_of_windows([(key, WindowCounts(1, counts))], Registry([plan]), strings)
    assert window["withheld"] is None
    return rows


def test_a_coordinate_that_too_few_reports_are_about_is_withheld_by_itself():
    """Nothing else that is published is made of a vector's coordinates."""
    plan = every_plan(20)
    counts = counts_of(plan.metric("vector_thresholds"), 70, seed=5)
    rows = estimated(plan, "vector_thresholds", counts)
    few = [row for row in rows if row["n"] < 20]
    assert 0 < len(few) < len(rows)
    assert {row["kind"] for row in rows} == {"mean"}
    assert {row[column] for row in few for column in FROM_PAYLOADS} == {None}
    assert [row["withheld"] for row in rows] == [reason(row["n"], 20) for row in rows]


@pytest.mark.parametrize("name", ["sampled_bit", "sampled_bits"])
def test_bits_are_published_all_or_none(name):
    """The mean is made of all of them."""
    plan = every_plan(20)
    metric = plan.metric(name)
    rows = estimated(plan, name, counts_of(metric, 39, seed=SEED))
    bits = [row for row in rows if row["kind"] == "bit"]
    fewest = min(row["n"] for row in bits)
    assert fewest < 20 <= max(row["n"] for row in bits)
    assert {row[column] for row in bits for column in FROM_PAYLOADS} == {None}
    assert [row["withheld"] for row in bits] == [
        reason(row["n"], 20) or "a bit has too few reports of a level" for row in bits
    ]
    assert {row["withheld"] for row in rows if row["kind"] != "bit"} == {None}
    many = estimated(plan, name, 40 * counts_of(metric, 39, seed=SEED))
    assert min(row["n"] for row in many if row["kind"] == "bit") >= 20
    assert {row["withheld"] for row in many} == {None}


def test_a_bit_that_no_report_is_about_keeps_no_other_one_back():
    """An owner who asks for one report is given what each has."""
    plan = every_plan(1)
    assert plan.minimum_reports == 1
    rows = estimated(plan, "sampled_bit", counts_of(plan.metric("sampled_bit"), 39, seed=0))
    bits = [row for row in rows if row["kind"] == "bit"]
    assert [row["n"] for row in bits] == [23, 10, 4, 1, 0, 1]
    assert [row["withheld"] for row in bits] == [reason(row["n"], 1) for row in bits]


def test_all_other_estimates_are_made_of_all_reports_of_their_window():
    """So that none of them is a part of another one that could be told from the rest."""
    plan = every_plan(20)
    for metric in plan.metrics:
        for row in estimated(plan, metric.name, counts_of(metric, 90, seed=2)):
            part = row["kind"] == "bit" or metric.type == "vector"
            assert row["n"] == 90 or part, (metric.name, row["kind"])


@pytest.mark.parametrize("least", [1, 20, 100, 1000])
def test_no_stratum_has_fewer_reports_than_the_plan_asks_for(least):
    """A point of the distribution of a number is estimated from each."""
    plan = every_plan(least)
    metric = plan.metric("threshold")
    counts = counts_of(metric, 1280, seed=3)
    rows = estimated(plan, "threshold", counts)
    points = [row for row in rows if row["kind"] == "cdf"]
    assert len(points) == {1: 64, 20: 32, 100: 8, 1000: 1}[least]
    assert {row["n"] for row in points} == {1280}
    if least == 1:
        found = metric.mechanism.numeric(counts, *metric.range)
        assert [row["value"] for row in points] == found.cdf.values.tolist()
        assert rows[0]["value"] == found.mean.value


@pytest.mark.parametrize("name", ["threshold", "sampled_bit", "vector_bits", "vector_thresholds"])
def test_a_mean_has_strata_of_as_many_reports_as_the_plan_asks_for(name):
    """Its digits would tell the answers of each small one."""
    lax, strict = every_plan(20), every_plan(300)
    counts = counts_of(lax.metric(name), 400, seed=4)
    first = int(_answers(lax.metric(name), counts).sum())
    counts *= 1 + 300 // first
    mean = next(row for row in estimated(strict, name, counts) if row["kind"] == "mean")
    plain = _pooled(lax.metric(name), counts)
    low, high = lax.metric(name).range or (0.0, 1.0)
    # Rounded to a tenth of an error, at most.
    assert mean["value"] == pytest.approx(plain, abs=0.02 * (high - low))
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
