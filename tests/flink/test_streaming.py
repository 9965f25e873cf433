"""The job on a real Flink and a real broker: faults, and what comes out is what a drain says."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pipelines.flink.launch import LATEST, PYTHON
from pipelines.flink.rest import FlinkError
from streamed import World, in_order, kill, rejects_of, streamed, until

from benchmarks.soak.fleet import Fleet, plan_of
from deploy import jars
from deploy.errors import MissingToolError, UnavailableError
from deploy.flink.archives import connector
from deploy.kafka.broker import SOURCE, LocalBroker
from pipelines.quarantined import parse as parse_rejected
from sotto.errors import BrokerError, SottoError
from sotto.topics import ReportTopic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return []


@pytest.fixture(scope="module")
def _broker(archives, tmp_path_factory) -> Iterator[LocalBroker]:
    try:
        connector()
        jars.jars("kafka", SOURCE)
    except (MissingToolError, UnavailableError) as error:
        pytest.skip(f"no streaming job can be run: {error}")
    broker = LocalBroker(tmp_path_factory.mktemp("broker"), heap=192)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def world(local, _broker, flink_python, monkeypatch, worlds, tmp_path_factory) -> World:
    """A topic of a fleet's reports, and a job of its own."""
    monkeypatch.setenv(PYTHON, str(flink_python))
    if not worlds:
        base = (time.time_ns() // 1_000_000_000 - 60) * 1000
        fleet = Fleet(plan_of(), base, seed=5)
        worlds.append(World(_broker, local, fleet, tmp_path_factory.mktemp("streamed")))
        worlds[0].make_topics()
    return worlds[0]


def test_a_topic_that_cannot_be_used_is_refused_before_anything_is_submitted(world):
    with pytest.raises(BrokerError, match="there is no topic streamed-e7-p4"):
        world.submit(topics=[ReportTopic("streamed", 7, 4)])
    with pytest.raises(FlinkError, match="parallelism 9 needs as many slots, and 2 are free"):
        world.submit(parallelism=9)
    with pytest.raises(FlinkError, match="no job manager answers at"):
        world.submit(flink="http://127.0.0.1:1")
    with pytest.raises(FlinkError, match="a savepoint is another's"):
        world.submit(restore=LATEST)
    assert not world.job.known.id
    assert not world.manager.jobs()


def test_whatever_befalls_a_job_it_comes_to_what_a_drain_comes_to(world):
    first, second, third = range(100), range(100, 200), range(200, 300)
    world.publish(first, rung=0)
    world.produce([(1, b"no report"), (2, None), (3, b"SO" * 40), (0, bytes(500_000))])
    job = world.submit(parallelism=2)
    world.until_counted()
    with pytest.raises(FlinkError, match="the job runs already"):
        world.submit()

    made = world.manager.savepoint(job, world.job.place("savepoints"), stop=True)
    with pytest.raises(FlinkError, match=r"the job in .* has run before"):
        world.submit()
    with pytest.raises(SottoError, match="plan soak version 1 has two fingerprints"):
        world.submit(plans=[plan_of(period="2h")], restore=LATEST)
    job = world.submit(restore=made, parallelism=1)
    world.publish(first, rung=1)
    world.publish(second, rung=2)
    world.until_counted()

    world.manager.wait_until_well(job)
    world.session.job_manager.kill()
    world.session.start()
    job = world.submit(restore=LATEST, parallelism=2)
    world.publish(second, rung=0)
    world.publish(third, rung=0)
    world.until_counted()

    kill(world.session.workers[-1:])
    world.publish(first, rung=2)
    world.until_counted()

    world.session.task_manager.kill()
    world.publish(third, rung=1)
    world.session.start()
    world.until_counted()

    world.local.kill()
    world.local.start()
    world.publish(third, rung=1)
    world.publish(third, rung=2)
    world.until_counted()

    tables, rejected = world.drained()
    assert rejected == {"malformed": 3, "unknown_version": 1}
    documents = until(
        lambda: (
            (said := world.documents())
            and rejects_of(said) == rejected
            and in_order(streamed(said)["periods"]) == in_order(tables["periods"])
            and said
        ),
        world.told,
    )
    said = streamed(documents)
    assert in_order(said["windows"]) == in_order(tables["windows"])
    assert in_order(said["estimates"]) == in_order(tables["estimates"])
    kept = {record.key: record for record in world.records("quarantine")}
    reasons = [
        parse_rejected(key, record.value, record.headers).reject.reason.label
        for key, record in kept.items()
    ]
    assert sorted(reasons) == ["malformed"] * 3 + ["unknown_version"]

    # One that is larger than any buffer of the job's; a drain takes its batch for damage.
    world.produce([(0, bytes(56 << 20))])
    world.publish(range(300, 310), rung=0)
    assert rejects_of(world.until_counted()) == {"malformed": 4, "unknown_version": 1}
    world.manager.cancel(world.job.known.id)
    world.manager.wait(world.job.known.id, "CANCELED")
