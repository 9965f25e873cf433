"""A plan that the job does not know, through a real broker: quarantined, then requeued."""

from __future__ import annotations

import json
import time

import pytest
from drained import HOUR, drained, projected
from kafka import KafkaProducer

from clientsdk import KafkaPublisher
from clientsdk.testing import FakeClock, SeededClient, small_plan
from pipelines import files, quarantine
from pipelines.commit import StateDirectory
from pipelines.drain import drain
from pipelines.quarantined import quarantine_record
from pipelines.topic import KafkaTopics
from sotto.cli import main
from sotto.compiled import CompiledPlan
from sotto.sinktopics import SinkTopic, Stay
from sotto.topicadmin import connected
from sotto.topics import ReportTopic

pytestmark = pytest.mark.slow

DEVICES = 6


def second_plan() -> CompiledPlan:
    """Return the next version of the plan that all tests here have."""
    said = json.loads(small_plan().to_json())
    said["version"] = 2
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return CompiledPlan.from_json(text.encode())


def publish(broker, topic, plan: CompiledPlan, first: int) -> None:
    """Let devices record yesterday and send both rungs now."""
    publisher = KafkaPublisher(broker, topic)
    for seed in range(first, first + DEVICES):
        clock = FakeClock(time.time_ns() // 1_000_000 - 30 * HOUR)
        client = SeededClient(plan, seed=seed, clock=clock, publisher=publisher)
        client.record("colour", "red")
        for hours in (3, 26):
            clock.advance(hours=hours)
            client.flush()
    publisher.sync()
    publisher.close()


@pytest.fixture
def state(broker, topic, tmp_path):
    """A state directory into which a topic was drained by who did not know the second plan."""
    publish(broker, topic, small_plan(), 0)
    publish(broker, topic, second_plan(), 100)
    for name, plan in (("v1", small_plan()), ("v2", second_plan())):
        (tmp_path / f"{name}.json").write_bytes(plan.to_json())
    result = drained(broker, topic, tmp_path / "state")
    assert result.rejects == {"unknown_plan": 2 * DEVICES}
    return tmp_path / "state"


def given(folder, *more: str) -> list[str]:
    return [
        "requeue",
        *("--plan", str(folder / "v1.json"), "--plan", str(folder / "v2.json")),
        *more,
    ]


def test_a_topic_with_an_unknown_plan_is_drained_and_requeued(
    broker, topic, state, tmp_path, capsys
):
    both = [small_plan(), second_plan()]
    assert main(given(tmp_path, "--state", str(state))) == 0
    assert f"{2 * DEVICES} reports requeued" in capsys.readouterr().out
    drain(KafkaTopics(broker, [topic]), tmp_path / "known", both)
    tables = [projected(each, without=("revision",)) for each in (state, tmp_path / "known")]
    for name in ("windows", "estimates", "periods"):
        assert tables[0][name] == tables[1][name] != []
    # What comes behind it is counted as ever, and the topic is not read again.
    again = drain(KafkaTopics(broker, [topic]), state, both)
    assert (again.drains, again.generation) == (0, 2)
    publish(broker, topic, second_plan(), 200)
    assert drain(KafkaTopics(broker, [topic]), state, both).tally.counted == DEVICES


@pytest.fixture
def sinks(broker, topic) -> tuple[ReportTopic, ReportTopic]:
    """The topics of quarantine and of requeue, as all their records are read."""
    stay = Stay(small_plan().horizon, small_plan().retention)
    with connected(broker) as topics:
        for kind in ("quarantine", "requeue"):
            topics.create_sink(SinkTopic(topic.name, kind), 2, 1, stay)
    return _Whole(f"{topic.name}-quarantine"), _Whole(f"{topic.name}-requeue")


class _Whole:
    """A topic of two partitions by its name."""

    partitions = 2

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


def test_a_streaming_job_is_given_back_what_it_rejected(
    broker, local, topic, state, sinks, tmp_path, read_all, capsys
):
    """With the first append times, once, whatever else is in its quarantine."""
    origin, target = sinks
    directory = StateDirectory(state)
    (entry,) = directory.manifest().quarantine
    content = files.load(directory.quarantine(entry.generation), quarantine.KIND)
    rejects = list(quarantine.unpack(content))
    producer = KafkaProducer(**broker.options(10))
    for number, reject in enumerate(rejects[:1] + rejects):
        # The first is published twice, as after a crash.
        record = quarantine_record(reject, "job", b"1.%d" % max(number - 1, 0))
        producer.send(str(origin), record.value, key=record.key, headers=list(record.headers))
    producer.send(str(origin), b"poison", key=b"poison")
    producer.send(str(origin), None, key=b"poison", headers=[("append", b"soon")])
    producer.flush(10)
    producer.close()
    command = given(tmp_path, "--broker", str(local.client_file), "--topic", str(topic))
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{2 * DEVICES} reports would be requeued\n")
    assert "2 records of" in said
    assert read_all(broker, target) == []
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"{2 * DEVICES} reports given back")
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("0 reports given back")
    found = read_all(broker, target)
    assert sorted((record.timestamp, record.value) for record in found) == sorted(
        (reject.append, reject.message) for reject in rejects
    )
    assert {record.timestamp_type for record in found} == {0}
    assert main([*command, "--dry-run"]) == 0
    assert "0 reports would be requeued" in capsys.readouterr().out
