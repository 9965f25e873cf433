"""Reading partitions: what an engine may cut, and what a broker may lose."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from fake_kafka import FakeCluster, install
from report_logs import START
from step_plans import DAY, category, plan
from stream_engine import Engine
from streaming_logs import write

from pipelines.beam.plans import PlansFolder
from pipelines.beam.reading import read_dofn
from pipelines.beam.stream import Stream
from pipelines.sinks.kafka import LARGEST, DocumentsSink
from pipelines.sources.base import GoneError, Partition
from pipelines.sources.kafka import RequeueTopic
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans
from sotto.clocks import now_ms
from sotto.errors import AggregationError
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
    read = read_dofn(Stream("job", PlansFolder(str(tmp_path / "plans"))), source)
    tracker = read.process.__defaults__[0].restriction_provider.create_tracker(OffsetRange(0, 999))
    assert tracker.try_claim(99)
    cut = tracker.try_split(fraction)
    if fraction:
        assert cut is None
        assert tracker.try_claim(299)
    else:
        assert cut == (OffsetRange(0, 100), OffsetRange(100, 999))


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
            (Reason.FUTURE, engine.now - DAY),
        ]
        assert engine.parts[part].clock.append == engine.now
        assert "one has records at" in caplog.text
        engine.tick(-2 * DAY)
        with pytest.raises(AggregationError, match="set the clock"):
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
    assert block is not None
    assert block.append.tolist() == [START]
    assert [corrupt.position for corrupt in block.corrupt] == [1, 2]


def test_a_document_that_no_broker_takes_stops_no_pipeline(caplog):
    sink = DocumentsSink(Broker("fake:9092"), "reports-estimates")
    sink.write([(b"key", b"x" * LARGEST)])
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
