"""A job that is watched: a small log, aggregated, and what its exporter says."""

from __future__ import annotations

import atexit
import random
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from report_logs import START, Device, Sent, faulty, honest, write
from step_plans import plans

from pipelines.bounded.run import aggregate
from pipelines.exporter import lag
from pipelines.exporter.database import WatchedResults
from pipelines.exporter.engine import Engine, WatchedEngine
from pipelines.exporter.health import JobsCollector, Readers, RunReaders, StreamReaders, WatchedJob
from pipelines.exporter.lag import Documents, WatchedDocuments
from pipelines.results.documents import Document, parse
from pipelines.sinks.base import Advance, ReadTopic
from pipelines.sinks.committed import CommittedGeneration
from pipelines.sinks.sql import SqlSink, of_state
from pipelines.storage.directory import StateDirectory
from sotto.clocks import now_ms
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.registry import Registry

CANDIDATES = {plans()[1].fingerprint: {"path": ("home", "away")}}

ESTIMATES_TOPIC = SinkTopic("reports", "estimates")


class Watched(NamedTuple):
    """The folders in which a job has its log and its state."""

    log: Path
    state: Path


@cache
def _aggregated() -> tempfile.TemporaryDirectory[str]:
    """Aggregate once a process; the folder goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="sotto-watched-")
    atexit.register(folder.cleanup)
    log = write(Path(folder.name) / "log", honest(20, 4, 1) + faulty(2))
    aggregate(log, Path(folder.name) / "state", plans(), candidates=CANDIDATES)
    return folder


def watched(folder: Path) -> Watched:
    """Return a job that has aggregated a log with everything in it, in a folder of its own."""
    shutil.copytree(_aggregated().name, folder, dirs_exist_ok=True)
    return Watched(folder / "log", folder / "state")


def late_messages(number: int) -> list[Sent]:
    device = Device(plans()[0], random.Random(5))
    colour = device.plan.metric("colour")
    sent = [device.chain(colour, START)[0] for _ in range(number)]
    return [Sent(START + 10**9 + at, one.message) for at, one in enumerate(sent)]


def exposition(
    state: Path | None,
    log: Path | lag.Watched | lag.WatchedStream | None = None,
    *,
    max_series: int = 2000,
    database: str | None = None,
    documents: WatchedDocuments | None = None,
    registry: Registry | None = None,
    engine: WatchedEngine | None = None,
) -> str:
    """Return what the exporter of runs exposes or, without a state directory, of a stream."""
    results = WatchedResults(database or of_state(state or Path()), max_series)
    readers: Readers
    if state is not None:
        assert not isinstance(log, lag.WatchedStream)
        watched = lag.WatchedLog(log) if isinstance(log, Path) else log
        readers = RunReaders(state, results, watched).readings
    else:
        streams = []
        if log is not None:
            assert isinstance(log, lag.WatchedStream)
            about = documents or FakeDocuments(0, 0)
            streams = [WatchedJob(str(ESTIMATES_TOPIC), log, about)]
        plans = {} if registry is None else {registry.collector: registry}
        readers = StreamReaders(results, streams, plans, engine).readings
    collectors = CollectorRegistry()
    collectors.register(JobsCollector({"job": readers}))
    return generate_latest(collectors).decode()


#: Documents of a job that has committed once, by its manifest: copies of it have the same.
_documents: dict[bytes, list[Document]] = {}


def sunk(state: Path, database: str) -> int:
    """Write what a job would have published to a database, as a sink does; return how many."""
    committed = (state / "MANIFEST.json").read_bytes()
    if committed not in _documents:
        directory, registry = StateDirectory(state), Registry(plans())
        of = CommittedGeneration(directory, directory.manifest(), registry, CANDIDATES)
        _documents[committed] = [parse(*each.record) for each in of.projection(0).documents]
    documents = _documents[committed]
    with SqlSink(database) as written:
        assert written.offsets(str(ESTIMATES_TOPIC), "one") == {}
        part = Advance(0, 0, len(documents))
        written.write(documents, ReadTopic(str(ESTIMATES_TOPIC), "one", [part]))
    return len(documents)


class FakeDocuments(WatchedDocuments):
    """A topic of estimates with so many documents, the newest of some time."""

    def __init__(self, end: int, newest: int) -> None:
        super().__init__(Broker("fake:9092"), ESTIMATES_TOPIC)
        self.end, self.newest = end, newest

    def read(self, taken: Mapping[tuple[str, int], int]) -> Documents:
        return Documents(self.newest, self.end - taken.get((str(ESTIMATES_TOPIC), 0), 0))


class FakeEngine(WatchedEngine):
    """An engine that runs every job, and has been asked for some."""

    def __init__(self) -> None:
        super().__init__("http://fake:8081")
        self.asked: list[str | None] = []

    def read(self, job: str | None) -> Engine:
        self.asked.append(job)
        now = now_ms()
        return Engine(True, 2, now - 60_000, 10_000, 9_000, 800, 5, 3, now, 0.1, 0.5, 0.3, 1 << 28)


class FakeStream(lag.WatchedStream):
    """Topics of which a job has not read some records."""

    def __init__(self) -> None:
        super().__init__(Broker("fake:9092"), [ReportTopic("reports", 1, 2)])
        self.asked: list[Mapping[str, int]] = []

    def lag(self, taken: Mapping[str, int]) -> lag.Lag:
        self.asked.append(taken)
        partitions = {"reports-e1-p2/0": lag.Progress(12, 7), "reports-e1-p2/1": lag.Progress(5, 0)}
        return lag.Lag(None, 7, 1, now_ms() - 6_000_000, partitions)


def streaming(state: Path, folder: Path) -> str:
    """Return what the exporter of a streaming job with the same results exposes."""
    database = f"sqlite:///{folder / 'sunk.db'}"
    documents = FakeDocuments(sunk(state, database) + 3, now_ms())
    known, stream, engine = Registry(plans()), FakeStream(), FakeEngine()
    return exposition(
        None, stream, database=database, documents=documents, registry=known, engine=engine
    )


def lag_of(state: Path, log: Path | lag.Watched) -> dict[str, float]:
    """Return what the exporter says of the lag of a job, by the name of the figure."""
    found = samples(exposition(state, log))
    names = ("bytes", "records", "partitions", "seconds")
    return {n: value(found, f"sotto_lag_{n}") for n in names if f"sotto_lag_{n}" in found}


Labels = frozenset[tuple[str, str]]


_SAMPLE = re.compile(r"(?m)^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> dict[str, dict[Labels, float]]:
    """Return the value of every series, a tenth as long as the client's own parser takes."""
    found: dict[str, dict[Labels, float]] = {}
    for name, said, number in _SAMPLE.findall(text):
        labels = frozenset((key, label.replace('\\"', '"')) for key, label in _LABEL.findall(said))
        assert labels not in found.setdefault(name, {})
        found[name][labels] = float(number)
    return found


def value(found: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    """Return the value of the one series with these labels, whatever the collector."""
    wanted = labels.items()
    values = [
        number
        for series, number in found[name].items()
        if {(key, text) for key, text in series if key != "collector" or key in labels} == wanted
    ]
    (one,) = values
    return one
