"""Reading partitions: what an engine may cut, and what a broker may lose."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from fake_kafka import FakeCluster, install
from kafka.errors import KafkaTimeoutError
from report_logs import START
from step_plans import DAY, category, plan
from stream_engine import Engine
from streaming_logs import write

from pipelines.beam.plans import PlansFolder
from pipelines.beam.reading import ReadPartitions
from pipelines.beam.stream import Stream
from pipelines.results.documents import RejectsDocument
from pipelines.sinks import kafka as sinks
from pipelines.sinks.kafka import LARGEST, DocumentsSink
from pipelines.sources.base import GoneError, LostError, Partition
from pipelines.sources.kafka import CHECKED_SECONDS, ReportEpochs, RequeueTopic
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans
from sotto.clocks import now_ms
from sotto.errors import AggregationError, BrokerError
from sotto.kafka.brokers import Broker
from sotto.log.reader import EARLIEST
from sotto.wire.reasons import Reason


def engine_of(folder: Path, source: EmbeddedLog) -> Engine:
    (folder / "plans").mkdir()
    StoredPlans(folder / "plans").keep([plan(1, 4, category("colour", 3, 0.5, 1))], {})
    return Engine(Stream("job", PlansFolder(str(folder / "plans"))), [source], random.Random(1))


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.5])
def test_a_partition_is_cut_after_what_is_read(fraction, tmp_path):
    """Blocks are claimed whole: a cut within one would lose the records before it."""
    (tmp_path / "plans").mkdir()
    source = EmbeddedLog(tmp_path / "log")
    read = ReadPartitions(Stream("job", PlansFolder(str(tmp_path / "plans"))), source)
    tracker = read.create_tracker(OffsetRange(0, 999))
    assert tracker.try_claim(99)
    cut = tracker.try_split(fraction)
    if fraction:
        assert cut is None
        assert tracker.try_claim(299)
    else:
        assert cut == (OffsetRange(0, 100), OffsetRange(100, 999))


def test_a_runner_learns_of_the_backlog(tmp_path):
    """It is counted in positions, and is that of the last time that the source was asked."""
    write(tmp_path / "log", {"one": [(START, b"first"), (START, b"second")]})
    source = EmbeddedLog(tmp_path / "log")
    end = source.partition("one").bounds()[1]
    read = ReadPartitions(Stream("job", PlansFolder(str(tmp_path / "plans"))), source)
    whole = read.initial_restriction("one")
    assert read.restriction_size("one", whole) == end
    assert read.restriction_size("one", OffsetRange(end - 7, whole.stop)) == 7
    assert read.restriction_size("one", OffsetRange(end, whole.stop)) == 1
    read._ends.reading = "one"
    tracker = read.create_tracker(whole)
    tracker.try_claim(9)
    progress = tracker.current_progress()
    assert (progress.completed_work, progress.remaining_work) == (10, end - 10)


class Shrinking(EmbeddedLog):
    lost = 0

    def partition(self, name: str) -> Partition:
        partition = super().partition(name)
        bounds = partition.bounds
        partition.bounds = lambda taken=0: (0, bounds()[1] - self.lost)  # type: ignore[method-assign]
        return partition


def test_a_partition_that_ends_before_what_is_read_is_refused(tmp_path):
    """Otherwise the records that come in the place of those lost would be taken for read."""
    write(tmp_path / "log", {"one": [(START, b"poison")]})
    source = Shrinking(tmp_path / "log")
    with engine_of(tmp_path, source) as engine:
        engine.discover()
        (part,) = [part for part in engine.parts if part[1] is not None]
        for _ in range(3):
            engine.read_from(part, 3_000)
            engine.tick(engine.stream.idle + 1_000)
        object.__setattr__(source, "lost", 1)
        with pytest.raises(AggregationError, match=r"one ends at offset .* have been read"):
            engine.read_from(part, 3_000)


def test_records_from_the_future_are_rejected_and_hold_up_no_others(tmp_path, caplog):
    """A broker whose clock was ahead for a moment would make all that follows late for ever."""
    log = tmp_path / "log"
    with engine_of(tmp_path, EmbeddedLog(log)) as engine:
        records = [(engine.now - DAY, b"a"), (engine.now + 3000 * DAY, b"b"), (engine.now, b"c")]
        write(log, {"one": records})
        engine.discover()
        (part,) = [part for part in engine.parts if part[1] is not None]
        while engine.read_from(part, 3_000):
            pass
        found = [(each.reason, each.append) for each in engine.rejects]
        assert sorted(found) == [
            (Reason.MALFORMED, engine.now - DAY),
            (Reason.MALFORMED, engine.now),
            (Reason.FUTURE, engine.now + 3000 * DAY),
        ]
        assert engine.parts[part].clock.append == engine.now
        assert "one has records at" in caplog.text
        engine.tick(-2 * DAY)
        with pytest.raises(AggregationError, match=r"up to [0-9: -]+, but by .* set the clock"):
            engine.read_from(part, 3_000)


def test_what_is_given_back_from_the_future_is_damage(monkeypatch):
    """The state of its period would never be let go, and no engine has a timer for its end."""
    name = "reports-e1-p1"
    cluster = FakeCluster(name)
    install(monkeypatch, cluster)
    monkeypatch.setattr("pipelines.sources.kafka._check_id", lambda *_: None)
    for time in (START, now_ms() + DAY, 2**62):
        cluster.partition(0).append(time, b"x", kind=0)
    opened = RequeueTopic(Broker("fake:9092"), name).partition(f"{name}@one/0")
    block = opened.poll(0, 9, EARLIEST, now_ms())
    assert block.append.tolist() == [START]
    assert [corrupt.position for corrupt in block.corrupt] == [1, 2]


def test_a_document_that_no_broker_takes_stops_no_pipeline(caplog):
    sink = DocumentsSink(Broker("fake:9092"), "reports-estimates")
    sink.write([RejectsDocument.of("job", "tests.example", {"x" * LARGEST: 1}, 1)])
    assert "look for fewer candidates" in caplog.text


@dataclass(frozen=True)
class Deleted(EmbeddedLog):
    gone: bool = False

    def partition(self, name: str) -> Partition:
        if self.gone:
            raise GoneError(f"{name} is not there")
        return super().partition(name)


@pytest.mark.parametrize("to_its_end", [True, False])
def test_a_deleted_partition_ends_if_it_was_read_to_its_end(tmp_path, to_its_end):
    """An old epoch's topic may be deleted once it is aggregated, and not before."""
    write(tmp_path / "log", {"one": [(START, b"poison")]})
    source = Deleted(tmp_path / "log")
    with engine_of(tmp_path, source) as engine:
        engine.discover()
        (part,) = [part for part in engine.parts if part[1] is not None]
        engine.read_from(part, 3_000)
        if to_its_end:
            for _ in range(2):
                engine.tick(engine.stream.idle + 1_000)
                engine.read_from(part, 3_000)
        engine.checkpoint()
        engine.restart(0)
        object.__setattr__(source, "gone", True)
        if to_its_end:
            assert not engine.read_from(part, 3_000)
            assert part not in engine.parts
        else:
            with pytest.raises(GoneError):
                engine.read_from(part, 3_000)


class Broken:
    """A partition whose broker does not answer some calls."""

    def __init__(self, partition: Partition, source: Away) -> None:
        self._partition, self._source = partition, source

    def __getattr__(self, name: str) -> object:
        self._source.fail_if_away(name)
        return getattr(self._partition, name)

    def close(self) -> None: ...


@dataclass(frozen=True)
class Away(EmbeddedLog):
    calls: tuple[str, ...] = ()

    def fail_if_away(self, call: str) -> None:
        if call in self.calls:
            raise BrokerError("no broker answers")

    def names(self) -> Sequence[str]:
        self.fail_if_away("names")
        return super().names()

    def partition(self, name: str) -> Partition:
        self.fail_if_away("partition")
        return Broken(super().partition(name), self)  # type: ignore[return-value]


#: More than all restarts that Flink makes of a job.
ATTEMPTS = 200


def test_a_broker_that_is_away_is_not_asked_for_the_backlog_again_and_again(tmp_path):
    """Each question may wait for as long as a connection takes to fail."""
    write(tmp_path / "log", {"one": [(START, b"first")]})
    source = Away(tmp_path / "log", ("partition",))
    read = ReadPartitions(Stream("job", PlansFolder(str(tmp_path / "plans"))), source)
    assert read.restriction_size("one", OffsetRange(3, 99)) == 1
    object.__setattr__(source, "calls", ())
    assert read.restriction_size("one", OffsetRange(3, 99)) == 1


@pytest.mark.parametrize("call", ["partition", "poll", "bounds"])
def test_a_broker_that_is_away_ends_no_pipeline(tmp_path, call, caplog):
    """Reading goes on where it was, and the watermark stands for so long."""
    write(tmp_path / "log", {"one": [(START, b"first")]})
    source = Away(tmp_path / "log")
    with engine_of(tmp_path, source) as engine:
        object.__setattr__(source, "calls", ("names",))
        engine.discover()
        assert [part for part in engine.parts if part[1] is not None] == []
        object.__setattr__(source, "calls", ())
        engine.discover()
        (part,) = [part for part in engine.parts if part[1] is not None]
        assert engine.read_from(part, 3_000)
        engine.checkpoint()
        engine.restart(0)
        before = engine.parts[part]
        object.__setattr__(source, "calls", (call, "names"))
        for _ in range(ATTEMPTS):
            engine.tick(25_000)
            engine.discover()
            assert not engine.read_from(part, 3_000)
            assert engine.parts[part] == before
        assert "one waits for the broker: no broker answers" in caplog.text
        write(tmp_path / "log", {"one": [(START + 1, b"second")]})
        object.__setattr__(source, "calls", ())
        assert engine.read_from(part, 3_000)
        assert [each.reason for each in engine.rejects] == [Reason.MALFORMED] * 2
        assert "the broker answers again" in caplog.text


def test_a_topic_that_is_made_again_ends_the_pipeline(monkeypatch):
    """Its offsets are those of other records: to go on would be to skip them."""
    name = "reports-e1-p1"
    cluster = FakeCluster(name)
    install(monkeypatch, cluster)
    source = ReportEpochs(Broker("fake:9092"), "reports", 1)
    now = 0.0
    monkeypatch.setattr("pipelines.sources.kafka.time", SimpleNamespace(monotonic=lambda: now))
    partition = source.partition(f"{name}@one/0")
    cluster.ids[name] = "two"
    assert partition.poll(0, 9, EARLIEST, now_ms()) is None
    now += CHECKED_SECONDS
    with pytest.raises(LostError, match="anew, --from-scratch"):
        source.partition(f"{name}@one/0")
    with pytest.raises(LostError, match="anew, --from-scratch"):
        partition.poll(0, 9, EARLIEST, now_ms())


def test_documents_are_sent_until_the_broker_takes_them(monkeypatch, caplog):
    sent, waited = [], []

    @contextmanager
    def producer(broker: Broker) -> Iterator[str]:
        if len(waited) < ATTEMPTS:
            raise BrokerError("no broker answers")
        yield "producer"

    def send(producer: str, topic: str, records: Sequence[object]) -> None:
        if len(waited) < 2 * ATTEMPTS:
            raise KafkaTimeoutError
        sent.extend(records)

    monkeypatch.setattr(sinks, "producer_for", producer)
    monkeypatch.setattr(sinks, "send_all", send)
    monkeypatch.setattr(sinks, "time", SimpleNamespace(sleep=waited.append))
    sink = DocumentsSink(Broker("fake:9092"), "reports-estimates")
    document = RejectsDocument.of("job", "tests.example", {"late": 1}, 1)
    sink.write([document])
    assert [(key, value) for key, value, *_ in sent] == [document.record]
    assert len(waited) == 2 * ATTEMPTS
    assert "what goes to reports-estimates waits for the broker" in caplog.text
