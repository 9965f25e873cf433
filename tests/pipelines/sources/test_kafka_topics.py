"""Aggregating partitions: as an embedded log with the same records, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from committed_states import committed, counted, rejects
from crashes import Killed, after_runs, kill_at
from fake_kafka import FakeCluster, FakeConsumer, FakeRecord, copied, install
from kafka import TopicPartition
from report_logs import START, Device, append, faulty, honest, write
from run_reference import expected
from step_plans import DAY, HOUR, plans, registry

from pipelines.bounded.run import RunResult, aggregate
from pipelines.sources import frozen, kafka_reader
from pipelines.sources.kafka import KafkaTopics
from pipelines.sources.kafka_reader import PartitionId, Reader
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError, BrokerError, ParameterError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, ReportTopic
from sotto.wire.reasons import Reason

pytestmark = pytest.mark.slow

NAME = "reports-e1-p2"


@pytest.fixture
def cluster(monkeypatch):
    made = FakeCluster(NAME)
    install(monkeypatch, made)
    return made


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("topic") / "log", honest(12, 3, 31) + faulty(32))


@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_offsets_may_be_missing_anywhere(cluster, log, tmp_path, batch):
    """As after compaction, between aborted records, and where markers of transactions are."""
    source = random.Random(5)
    copied(log, cluster, (source.choice([0, 0, 1, 9]) for _ in range(10_000)))
    for number in (0, 1):
        cluster.partition(number).end += 3
    cluster.batch = batch
    aggregate(cluster.source(), tmp_path, plans(), max_reports=70)
    assert counted(tmp_path) == expected(log, registry()).counts
    assert aggregate(cluster.source(), tmp_path, plans()).runs == 0


def taken(cluster: FakeCluster, state: Path, **options: object) -> RunResult:
    return aggregate(cluster.source(), state, plans(), **options)  # type: ignore[arg-type]


def report(append: int, seed: int = 1) -> bytes:
    device = Device(plans()[0], random.Random(seed))
    return device.chain(device.plan.metric("colour"), append, 1)[0].message


def append_reports(cluster: FakeCluster, number: int, *seeds: int, topic: str = NAME) -> None:
    """Append a report of a device each to a partition."""
    for seed in seeds:
        cluster.partition(number, topic).append(START + DAY, report(START, seed))


def test_poison_is_quarantined_and_the_rest_counted(cluster, tmp_path):
    partition = cluster.partition(0)
    time = START + DAY
    partition.append(time, b"\xff" * 50)
    partition.append(time, None)
    partition.append(time, b"")
    partition.append(time, b"SO")
    partition.append(time, report(START))
    partition.append(time, b"\0" * 3_000_000)
    result = taken(cluster, tmp_path)
    assert (result.tally.counted, result.rejects) == (1, {"malformed": 5})
    lengths = [len(each.message) for each in rejects(tmp_path)]
    assert sorted(lengths) == [0, 0, 2, 50, 3_000_000]


def test_times_that_senders_chose_count_for_nothing(cluster, tmp_path):
    """A topic that was on CreateTime for a while."""
    partition = cluster.partition(1)
    partition.append(START + DAY, report(START, 1))
    partition.append(START + 900 * DAY, report(START, 2), kind=0)
    partition.append(START + DAY + HOUR, report(START, 3))
    partition.append(START, report(START, 4), kind=0)
    result = taken(cluster, tmp_path)
    assert (result.tally.counted, result.rejects) == (2, {"corrupt_log": 2})
    assert [each[:3] for each in rejects(tmp_path)] == [
        (Reason.CORRUPT_LOG, report(START, 2), START + DAY),
        (Reason.CORRUPT_LOG, report(START, 4), START + DAY + HOUR),
    ]
    assert StateDirectory(tmp_path).manifest().clock == START + DAY + HOUR
    assert taken(cluster, tmp_path).runs == 0


def test_a_broker_whose_clock_was_set_back_is_known_again(cluster, tmp_path):
    for time in (START + DAY + HOUR, START + DAY):
        cluster.partition(0).append(time, report(START, time))
        assert taken(cluster, tmp_path).tally.counted == 1
    append_reports(cluster, 0, 3)
    assert taken(cluster, tmp_path).tally.counted == 1


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_what_was_looked_at_is_read_once_if_there_is_room(cluster, tmp_path, monkeypatch, room):
    monkeypatch.setattr(frozen, "KEPT_BYTES", room)
    cluster.batch = 4
    for step in range(40):
        cluster.partition(step % 2).append(START + DAY + step, report(START, step))
    assert taken(cluster, tmp_path, max_reports=9).tally.counted == 40
    assert (len(cluster.fetches) == len(set(cluster.fetches))) == (room > 0)
    assert len(cluster.fetches) >= 10


@pytest.mark.parametrize(("room", "fetches"), [(10_016, 2), (10_015, 4)])
def test_what_is_kept_is_measured_with_its_damage_and_where_messages_are_empty(
    cluster, tmp_path, monkeypatch, room, fetches
):
    """Two blocks of 100 records of 40 bytes and 8 of padding; damage is there twice."""
    monkeypatch.setattr(frozen, "KEPT_BYTES", room)
    cluster.batch = 101
    cluster.partition(0).append(START, bytes(1000), kind=0)
    for _ in range(200):
        cluster.partition(0).append(START, b"")
    assert taken(cluster, tmp_path).rejects == {"corrupt_log": 1, "malformed": 200}
    assert len(cluster.fetches) == fetches


def interrupted(cluster: FakeCluster, state: Path) -> None:
    """Begin a run that is not finished."""
    with pytest.raises(Killed):
        taken(cluster, state, checkpoint=kill_at("begun"))


def test_a_restart_takes_what_was_undertaken(cluster, tmp_path):
    append_reports(cluster, 0, 1)
    interrupted(cluster, tmp_path)
    append_reports(cluster, 0, 2)
    taken(cluster, tmp_path, stop=after_runs(0))
    manifest = StateDirectory(tmp_path).manifest()
    assert (manifest.generation, manifest.positions) == (1, {f"{NAME}@one/0": 1})
    assert taken(cluster, tmp_path).tally.counted == 1


def test_reading_begins_where_a_topic_begins(cluster, tmp_path):
    """And what of it is deleted later without having been taken is missed, on every partition."""
    for partition in (cluster.partition(0), cluster.partition(1)):
        partition.first = partition.end = 5
    append_reports(cluster, 0, 1)
    assert taken(cluster, tmp_path).rejects == {}
    assert StateDirectory(tmp_path).manifest().positions == {f"{NAME}@one/0": 6, f"{NAME}@one/1": 5}
    append_reports(cluster, 1, 2, 3)
    cluster.partition(1).delete_before(6)
    with pytest.raises(AggregationError, match=r"p2@one/1 begins at offset 6, and 5 is the next"):
        taken(cluster, tmp_path)


@pytest.mark.parametrize("never_taken_from", [False, True])
def test_records_deleted_uncounted_are_refused_and_then_accepted(
    cluster, tmp_path, never_taken_from
):
    append_reports(cluster, 0, 1)
    taken(cluster, tmp_path)
    number = 1 if never_taken_from else 0
    append_reports(cluster, number, 2, 3, 4)
    cluster.partition(number).delete_before(cluster.partition(number).end - 1)
    with pytest.raises(AggregationError, match=r"deleted uncounted.*--accept-loss"):
        taken(cluster, tmp_path)
    assert StateDirectory(tmp_path).manifest().generation == 1
    result = aggregate(cluster.source(accept_loss=True), tmp_path, plans())
    assert (result.tally.counted, result.rejects) == (1, {"corrupt_log": 1})
    assert [each[:3] for each in rejects(tmp_path)] == [(Reason.CORRUPT_LOG, b"", START + DAY)]
    assert taken(cluster, tmp_path).runs == 0


def test_records_deleted_within_what_was_undertaken(cluster, tmp_path):
    append_reports(cluster, 0, 1, 2, 3)
    interrupted(cluster, tmp_path)
    cluster.partition(0).delete_before(2)
    with pytest.raises(AggregationError, match="deleted uncounted"):
        taken(cluster, tmp_path)
    result = aggregate(cluster.source(accept_loss=True), tmp_path, plans())
    assert (result.tally.counted, result.rejects) == (1, {"corrupt_log": 1})


def test_another_topic_is_not_taken_for_the_one_that_was(cluster, tmp_path):
    append_reports(cluster, 0, 1, 2)
    partition = cluster.partition(0)
    taken(cluster, tmp_path)
    before = committed(tmp_path)
    cluster.ids[NAME] = "two"
    with pytest.raises(AggregationError, match="deleted"):
        taken(cluster, tmp_path)
    cluster.ids[NAME] = "one"
    kept = partition.records
    partition.records, partition.end = kept[:1], 1
    with pytest.raises(AggregationError, match="ends at offset 1"):
        taken(cluster, tmp_path)
    partition.append(START + 2 * DAY, report(START, 2))
    with pytest.raises(AggregationError, match="offset 1"):
        taken(cluster, tmp_path)
    partition.records = kept[:1]
    assert taken(cluster, tmp_path).runs == 0
    partition.records = kept
    assert taken(cluster, tmp_path).runs == 0
    assert committed(tmp_path) == before


def test_a_new_epoch_follows_an_aggregated_one(monkeypatch, tmp_path):
    old, new, other = "reports-e1-p1", "reports-e2-p2", "fleet-e1-p1"
    cluster = FakeCluster(old, new, other)
    install(monkeypatch, cluster)
    append_reports(cluster, 0, 1, topic=old)
    aggregate(cluster.source(old), tmp_path, plans())
    append_reports(cluster, 0, 2, topic=old)
    append_reports(cluster, 1, 3, topic=new)
    with pytest.raises(AggregationError, match="counted"):
        aggregate(cluster.source(new), tmp_path, plans())
    assert aggregate(cluster.source(old, new), tmp_path, plans()).tally.counted == 2
    append_reports(cluster, 0, 4, topic=new)
    assert aggregate(cluster.source(new), tmp_path, plans()).tally.counted == 1
    del cluster.topics[old]
    assert aggregate(cluster.source(new), tmp_path, plans()).runs == 0
    with pytest.raises(AggregationError, match="another"):
        aggregate(cluster.source(other), tmp_path, plans())
    with pytest.raises(ParameterError, match="one name"):
        cluster.source(new, other)
    with pytest.raises(ParameterError, match="one name"):
        KafkaTopics(Broker("fake:9092"), [])


def test_an_older_epochs_partition_of_which_nothing_was_taken_is_looked_at(monkeypatch, tmp_path):
    old, new = "reports-e1-p2", "reports-e2-p2"
    cluster = FakeCluster(old, new)
    install(monkeypatch, cluster)
    append_reports(cluster, 0, 1, topic=old)
    aggregate(cluster.source(old), tmp_path, plans())
    append_reports(cluster, 1, 2, topic=old)
    with pytest.raises(
        AggregationError, match=r"e1-p2@one/1 has 1 messages that have not been counted"
    ):
        aggregate(cluster.source(new), tmp_path, plans())
    assert aggregate(cluster.source(old, new), tmp_path, plans()).tally.counted == 1
    assert aggregate(cluster.source(new), tmp_path, plans()).runs == 0


def test_a_state_directory_is_of_a_log_or_of_a_topic(cluster, tmp_path):
    append_reports(cluster, 0, 1)
    append(tmp_path / "log", [(START + DAY, report(START, 1))])
    aggregate(tmp_path / "log", tmp_path / "one", plans())
    taken(cluster, tmp_path / "two")
    with pytest.raises(AggregationError, match="embedded"):
        taken(cluster, tmp_path / "one")
    with pytest.raises(AggregationError, match="another log"):
        aggregate(tmp_path / "log", tmp_path / "two", plans())


def test_a_partition_that_the_broker_does_not_know_yet_is_an_error_that_can_be_tried_again(
    cluster, monkeypatch
):
    """An unknown partition makes kafka-python raise KeyError; one found too late is left out."""
    found, asked = FakeConsumer.end_offsets, []

    def stumbling(consumer: FakeConsumer, wanted: list, timeout_ms: int) -> dict:
        asked.append(timeout_ms)
        if len(asked) < 3:
            raise KeyError(wanted[0])
        return found(consumer, wanted, timeout_ms) if len(asked) < 4 else {}

    monkeypatch.setattr(FakeConsumer, "end_offsets", stumbling)
    reader, partition = Reader(Broker("fake:9092")), PartitionId(NAME, 0)
    assert reader.bounds([partition]) == {partition: (0, 0)}
    monkeypatch.setattr(kafka_reader, "PATIENCE", 0.05)
    with pytest.raises(BrokerError, match=r"reports-e1-p2 partition 0: .*try again"):
        reader.bounds([partition])


def test_a_broker_is_not_blamed_for_the_time_that_records_take_to_write(cluster, monkeypatch):
    """A request may bring nothing right after a database kept its writer waiting."""
    partition = TopicPartition(NAME, 0)
    for number in range(20):
        cluster.partition(0).append(START, b"%d" % number)
    now = 0.0
    monkeypatch.setattr(kafka_reader.time, "monotonic", lambda: now)
    consumer, read = FakeConsumer(cluster), []
    poll, empty = consumer.poll, [False, True] * 10
    monkeypatch.setattr(consumer, "poll", lambda wait: {} if empty.pop(0) else poll(wait))
    consumer.assign([partition])
    consumer.seek(partition, 0)
    for records in kafka_reader.read_until(consumer, {partition: 20}):
        read += [record.value for record in records]
        now += 10 * kafka_reader.PATIENCE
    assert read == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("within_a_job", [False, True])
def test_a_broker_that_falls_silent_is_an_error(cluster, tmp_path, within_a_job):
    """It can be tried again, unlike a job that fails."""
    append_reports(cluster, 0, 1)
    if within_a_job:
        interrupted(cluster, tmp_path)
    cluster.silent = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_reader, "PATIENCE", 0.05)
        with pytest.raises(BrokerError, match="partition 0"):
            taken(cluster, tmp_path)
    cluster.silent = False
    assert taken(cluster, tmp_path).tally.counted == 1


def test_a_broker_without_ids_is_too_old(cluster, tmp_path):
    cluster.ids[NAME] = ""
    with pytest.raises(BrokerError, match="too old"):
        taken(cluster, tmp_path)


def test_partitions_that_were_added_keep_nothing_from_being_counted(cluster, monkeypatch, tmp_path):
    """Publishers and the next epoch refuse such a topic; what it holds was acknowledged."""

    def check(wanted: ReportTopic, horizon: int, *, reading: bool = False) -> FoundTopic:
        found = FoundTopic(wanted.partitions + 1, 1, wanted.settings(horizon), "one")
        assert wanted.faults(found, horizon, reading=reading) == []
        return found

    monkeypatch.setattr(cluster, "check", check)
    append_reports(cluster, 1, 1)
    assert taken(cluster, tmp_path).tally.counted == 1


def test_an_older_epoch_with_fewer_partitions_comes_first(monkeypatch, tmp_path):
    made = FakeCluster("reports-e10-p2", "reports-e9-p1")
    install(monkeypatch, made)
    source = made.source()
    source.open(registry())
    names = [partition.name for partition in source.partitions({})]
    source.close()
    assert names == ["reports-e9-p1@one/0", "reports-e10-p2@one/0", "reports-e10-p2@one/1"]


def test_a_poll_waits_where_records_are_left(cluster, monkeypatch):
    """One that waited at the end of each of many partitions would hold up the others."""
    waits, poll = [], FakeConsumer.poll

    def timed(self: FakeConsumer, timeout_ms: int) -> dict[TopicPartition, list[FakeRecord]]:
        waits.append(timeout_ms)
        return poll(self, timeout_ms)

    monkeypatch.setattr(FakeConsumer, "poll", timed)
    for number in range(2 * cluster.batch):
        cluster.partition(0).append(START + number, b"any")
    reader, at = Reader(Broker("fake:9092")), 0
    while (piece := reader.poll(PartitionId(NAME, 0), at)) is not None:
        at = piece.end
    assert at == 2 * cluster.batch
    assert waits == [200, 200, 20]
