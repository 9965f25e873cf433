"""``sotto stream`` on a real Flink and a real broker: whatever befalls it, a run's results."""

from __future__ import annotations

import gc
import re

import pytest
from programs import fetched
from streamed import PATIENCE, World, kill, later_plan, until

from deploy import jars
from deploy.kafka.broker import SOURCE, LocalBroker
from sotto.exit_status import ExitStatus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def broker(archives, tmp_path_factory):
    with fetched():
        jars.jars("kafka", SOURCE)
    broker = LocalBroker(tmp_path_factory.mktemp("broker"), heap=192)
    broker.start()
    yield broker
    broker.stop()
    # kafka-python leaves sockets of a broker that hangs up: here nobody is warned of them.
    gc.collect()


@pytest.fixture
def world(local, broker, tmp_path):
    world = World(broker, local, tmp_path)
    yield world
    world.close()


def test_whatever_befalls_it_it_comes_to_what_a_run_comes_to(world):
    """One job from its first record to its end: each part of a session is killed in turn."""
    world.publish(6)
    # The third unpacks to more than is ever read of a batch.
    world.produce(b"no report", b"SO" * 40, bytes(56 << 20))
    # Reports of a plan that comes later are rejected, and counted once they are given back.
    world.publish(3, later_plan())
    job = world.submit("--parallelism=2")
    world.until_equal(job)

    world.add_plan(later_plan())
    world.until_plans_are_kept(2)
    # The broker is away; no restart is used up, however long that takes.
    world.publish(3)
    world.outage(job)
    # A new epoch needs nothing to be told, nor does a new plan.
    world.make_topic(world.second)
    world.topics.append(world.second)
    world.publish(4)
    world.until_plans_are_known(2)
    world.requeue()
    world.publish(2, later_plan())
    world.until_equal(job)
    assert world.manager.failures(job) == []

    world.wait_for_checkpoint(job)
    world.publish(3)
    with world.restarted(job):
        world.session.task_manager.kill()
        world.session.start()
    world.publish(3)
    with world.restarted(job):
        kill(world.session.workers[-1:])
    world.publish(3)
    world.until_equal(job)

    saved = world.manager.savepoint(job, (world.session.folder / "savepoints").as_uri(), stop=True)
    world.publish(3)
    job = world.submit("--parallelism=1", f"--savepoint_path={saved}")
    world.until_equal(job)

    # Only checkpoints are left of a job whose manager is gone; its old tasks go on for a while.
    world.wait_for_checkpoint(job)
    world.session.job_manager.kill()
    world.session.start()
    world.publish(3)
    job = world.submit("--parallelism=2", f"--savepoint_path={world.last_checkpoint(job)}")
    found = world.until_equal(job)
    assert found["rejected"] == {"malformed": 2, "unknown_version": 1, "unknown_plan": 6}

    waiting_needs_no_job_server_and_ends_a_job_whose_topic_is_made_again(world, job)


def waiting_needs_no_job_server_and_ends_a_job_whose_topic_is_made_again(world, job):
    """Flink would restart such a job for a quarter of an hour."""
    submitted = world.logs[-1].read_text("utf-8").splitlines()
    place = r"job \w+, http://\S+/#/job/running/\w+/overview"
    assert re.fullmatch(f"submitted: {place}", submitted[0])
    assert {line.partition(":")[0] for line in submitted[1:]} == {"pipeline"}
    world.waiting[-1].kill()
    world.session.job_server.kill()
    process, log = world.wait()
    until(lambda: "pipeline: running" in log.read_text("utf-8"), lambda: log.read_text("utf-8"))
    world.remake_topic(world.second)
    assert process.wait(PATIENCE) == ExitStatus.LOST
    watched = log.read_text("utf-8").splitlines()
    assert re.fullmatch(f"runs already, with its own options: {place}", watched[0])
    assert "deleted and created again" in watched[-1]
    world.manager.wait(job, "CANCELED")
