"""A plan that the job does not know, through a real broker: quarantined, then requeued."""

from __future__ import annotations

import pytest
from aggregated import aggregated, produce, read_all
from committed_states import rejects
from kafka import KafkaProducer
from yesterday import publish

from clientsdk import Broker
from clientsdk.testing import small_plan
from mechanisms.frozen import replace
from pipelines.sinks.kafka import QUARANTINE_NOTE, QuarantineTopic
from pipelines.sinks.quarantine import parse, quarantine_record
from pipelines.storage.directory import StateDirectory
from sotto.errors import ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.topics import SinkTopic, Stay
from sotto.plan.compiled import CompiledPlan
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason
from sotto_cli import main

pytestmark = pytest.mark.slow

DEVICES = 6


def second_plan() -> CompiledPlan:
    return replace(small_plan(), version=2)


@pytest.fixture
def state(broker, topic, tmp_path):
    """A state directory into which a topic was aggregated by who did not know the second plan."""
    publish(broker, topic, DEVICES, 0, small_plan())
    publish(broker, topic, DEVICES, 100, second_plan())
    for name, plan in (("v1", small_plan()), ("v2", second_plan())):
        (tmp_path / f"{name}.json").write_bytes(plan.to_json())
    result = aggregated(broker, topic, tmp_path / "state")
    assert result.rejects == {"unknown_plan": 2 * DEVICES}
    return tmp_path / "state"


def given(folder, *more: str) -> list[str]:
    return [
        "requeue",
        *("--plan", str(folder / "v1.json"), "--plan", str(folder / "v2.json")),
        *more,
    ]


def published(broker, topic, state, **options) -> str:
    """Aggregate and publish what is rejected; return why that could not be done, if so."""
    to = QuarantineTopic(broker, SinkTopic(topic.name, "quarantine"))
    return aggregated(broker, topic, state, publish=[to], **options).unpublished


@pytest.fixture
def sinks(broker, topic):
    """The topics of quarantine and of requeue, as all their records are read."""
    stay = Stay(small_plan().horizon, small_plan().retention)
    with connected(broker) as topics:
        for kind in ("quarantine", "requeue"):
            topics.create_sink(SinkTopic(topic.name, kind), 2, 1, stay)
    return f"{topic.name}-quarantine", f"{topic.name}-requeue"


def test_a_streaming_job_is_given_back_what_it_rejected(
    broker, local, topic, state, sinks, tmp_path, capsys
):
    """With the first append times, once, whatever else is in its quarantine."""
    origin, target = sinks
    published(broker, topic, state)
    # Without its note all is published again, as after a crash.
    (state / QUARANTINE_NOTE).unlink()
    published(broker, topic, state)
    sent = rejects(state)
    producer = KafkaProducer(**broker.options(300))
    producer.send(str(origin), b"poison", key=b"poison")
    producer.send(str(origin), None, key=b"poison", headers=[("append", b"soon")])
    impossible = ((1 << 80, 1), (-5, 1), (1 << 62, 1), (5, -1))
    for number, (append, rows) in enumerate(impossible):
        said = Reject(Reason.UNKNOWN_PLAN, sent[0].message, append, rows)
        record = quarantine_record(said, "poison", b"%d" % number)
        producer.send(str(origin), record.value, key=record.key, headers=list(record.headers))
    producer.flush(300)
    producer.close()
    command = given(tmp_path, "--broker", str(local.client_file), "--topic", str(topic))
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{2 * DEVICES} reports would be requeued\n")
    assert f"{2 + len(impossible)} records of" in said
    assert read_all(broker, target) == []
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"{2 * DEVICES} reports given back")
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("0 reports given back")
    found = read_all(broker, target)
    assert sorted((record.timestamp, record.value) for record in found) == sorted(
        (reject.append, reject.message) for reject in sent
    )
    assert {record.timestamp_type for record in found} == {0}
    assert main([*command, "--dry-run"]) == 0
    assert "0 reports would be requeued" in capsys.readouterr().out
    assert main([*command, "--again"]) == 0
    assert len(read_all(broker, target)) == 2 * len(found)


def test_what_is_rejected_is_published_once_a_file(broker, topic, state, sinks):
    origin, _ = sinks
    assert published(broker, topic, state) == ""
    first = read_all(broker, origin)
    entries = [parse(record.key, record.value, record.headers) for record in first]
    assert sorted(entry.reject for entry in entries) == sorted(rejects(state))
    assert {entry.job for entry in entries} == {StateDirectory(state).manifest().state}
    assert published(broker, topic, state) == ""
    produce(broker, topic, b"no report")
    assert published(broker, topic, state) == ""
    both = read_all(broker, origin)
    assert len(both) == len(first) + 1
    # All again after a crash before the note: nobody who looks at keys takes it for more.
    (state / QUARANTINE_NOTE).unlink()
    assert published(broker, topic, state) == ""
    again = read_all(broker, origin)
    assert len(again) == 2 * len(both)
    assert {record.key for record in again} == {record.key for record in both}
    assert len({record.key for record in both}) == len(both)


def test_no_topic_of_quarantine_keeps_a_run_from_its_commit(broker, topic, state):
    produce(broker, topic, b"no report")
    assert "there is no topic" in published(broker, topic, state)
    assert StateDirectory(state).manifest().generation == 2
    away = QuarantineTopic(Broker("127.0.0.1:1"), SinkTopic(topic.name, "quarantine"))
    produce(broker, topic, b"none, either")
    result = aggregated(broker, topic, state, publish=[away, away])
    assert result.generation == 3
    assert result.unpublished.count("is the broker running") == 2


def test_another_kind_of_topic_is_refused(broker):
    with pytest.raises(ParameterError, match="quarantine"):
        QuarantineTopic(broker, SinkTopic("reports", "estimates"))
