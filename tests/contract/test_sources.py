"""The contract of bounded sources, held by each: records in an order that never changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from committed_states import counted
from fake_kafka import FakeCluster, copied, install
from report_logs import honest, write
from run_reference import expected
from step_plans import plans, registry

from pipelines.bounded.run import aggregate
from pipelines.sources import SOURCES, source_of
from pipelines.sources.base import BoundedSource, MissingError
from pipelines.sources.kafka import KafkaTopics
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.intent import LastRecord
from sotto.errors import AggregationError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic

TOPIC = "reports-e1-p2"


class Served(NamedTuple):
    """A source of the records of a log, one that does not exist, and the URL of the first."""

    source: BoundedSource
    missing: BoundedSource
    url: str


def embedded(log: Path, patch: pytest.MonkeyPatch) -> Served:
    return Served(EmbeddedLog(log), EmbeddedLog(log / "none"), f"file://{log}")


def kafka(log: Path, patch: pytest.MonkeyPatch) -> Served:
    cluster = FakeCluster(TOPIC)
    install(patch, cluster)
    copied(log, cluster, iter(lambda: 0, None))
    missing = KafkaTopics(Broker("fake:9092"), [ReportTopic.parse("others-e1-p2")])
    return Served(cluster.source(), missing, f"kafka://fake:9092/{TOPIC}")


#: A new source is a line here.
SERVED: dict[str, Callable[[Path, pytest.MonkeyPatch], Served]] = {"file": embedded, "kafka": kafka}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sources") / "log", honest(6, 2, 31))


@pytest.fixture(params=SERVED)
def served(request, log, monkeypatch):
    return SERVED[request.param](log, monkeypatch)


@pytest.fixture
def source(served):
    served.source.open(registry())
    yield served.source
    served.source.close()


def read(partition, start, end, clock=0):
    """Positions, append times and messages of a range, and where and when it ends."""
    records, at = [], start
    for block in partition.blocks(start, end, clock):
        assert block.position >= at
        for i, offset in enumerate(block.offsets.tolist()):
            body = bytes(block.buffer[offset : offset + int(block.lengths[i])])
            records.append((int(block.begins[i]), int(block.append[i]), body))
        at, clock = block.end, block.clock
    assert at == end
    return records


def bodies(log):
    """All messages of an embedded log."""
    source = EmbeddedLog(log)
    whole = [read(each, *each.bounds()) for each in source.partitions({})]
    return sorted(body for records in whole for *_, body in records)


def test_a_url_stands_for_the_source(served):
    assert SOURCES.keys() == SERVED.keys()
    made = source_of(served.url)
    assert type(made) is type(served.source)
    assert made.unit == served.source.unit
    assert source_of(made) is made


@pytest.mark.parametrize("url", ["build/log", "file:build/log"])
def test_a_log_has_the_folder_that_a_publisher_of_the_same_url_writes_to(url):
    assert source_of(url) == EmbeddedLog(Path("build/log"))


def test_what_does_not_exist_is_missing_whatever_the_plans(served):
    with pytest.raises(MissingError):
        served.missing.open(None)


def test_partitions_keep_their_names_and_positions(source):
    names = list(source.names())
    assert len(set(names)) == len(names) > 0
    assert [each.name for each in source.partitions({})] == names
    for name in names:
        first, end = source.partition(name).bounds()
        assert 0 <= first <= end
        assert source.partition(name).bounds(end)[1] == end


def test_all_records_are_read_once_in_one_order(source, log):
    found = []
    for each in source.partitions({}):
        records = read(each, *each.bounds())
        assert records == read(source.partition(each.name), *each.bounds())
        positions = [position for position, *_ in records]
        times = [time for _, time, _ in records]
        assert positions == sorted(set(positions))
        assert times == sorted(times)
        found += [body for *_, body in records]
    assert sorted(found) == bodies(log)


def test_a_range_that_is_cut_at_any_record_is_the_same_range(source):
    each = max(source.partitions({}), key=lambda one: one.bounds()[1])
    first, end = each.bounds()
    whole = read(each, first, end)
    for position, *_ in whole[1:4]:
        assert read(each, first, position) + read(each, position, end) == whole


def test_no_append_time_precedes_the_clock_that_is_given(source):
    each = max(source.partitions({}), key=lambda one: one.bounds()[1])
    first, end = each.bounds()
    late = read(each, first, end)[0][1] + 10**9
    assert {time for _, time, _ in read(each, first, end, late)} == {late}


def test_records_from_behind_what_is_trusted_are_damage(source):
    each = max(source.partitions({}), key=lambda one: one.bounds()[1])
    first, end = each.bounds()
    last = read(each, first, end)[-1][1]
    blocks = list(each.blocks(first, end, 0, last - 1))
    assert sum(len(block.corrupt) for block in blocks) > 0
    assert all(time < last for block in blocks for time in block.append.tolist())


def test_polls_come_to_what_a_range_comes_to(source):
    for name in source.names():
        polled = source.partition(name)
        at, end = polled.bounds()
        found = []
        while at < end:
            block = polled.poll(at, end, 0)
            found += block.begins.tolist()
            at = block.end
        assert found == [position for position, *_ in read(polled, *polled.bounds())]
        polled.close()


def test_a_source_crosses_processes(source):
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    copy.open(registry())
    assert list(copy.names()) == list(source.names())
    assert copy.label == source.label
    copy.close()


def test_another_source_in_its_place_is_refused(source):
    each = max(source.partitions({}), key=lambda one: one.bounds()[1])
    first, end = each.bounds()
    position = read(each, first, end)[0][0]
    header = each.header(position)
    assert header
    ends = {each.name: end}
    source.check(ends, {each.name: LastRecord(position, header)})
    with pytest.raises(AggregationError):
        source.check(ends, {each.name: LastRecord(position, b"x" * len(header))})
    with pytest.raises(AggregationError):
        source.check({each.name: end + 10_000_000}, {})


def test_a_run_of_its_url_counts_what_the_log_has(served, log, tmp_path):
    aggregate(served.url, tmp_path, plans())
    assert counted(tmp_path) == expected(log, registry()).counts
    assert aggregate(served.url, tmp_path, plans()).runs == 0
