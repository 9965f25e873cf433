"""A real broker, the project's own, started once for all tests of this folder.

Where Java or Maven are missing, or the archives are neither in the cache nor to be fetched, the
tests are skipped and say so.
"""

from __future__ import annotations

import gc
import itertools
import logging
import multiprocessing
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from clientsdk import Broker
from clientsdk.testing import small_plan
from deploy import jars
from deploy.errors import MissingToolError, UnavailableError
from deploy.kafka.broker import SOURCE, LocalBroker
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic

HEAP = 192
#: A broker that lives for seconds starts sooner where Java optimizes less.
JAVA = ("-XX:TieredStopAtLevel=1",)
PARTITIONS = 4
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves sockets of refused connections to the garbage collector."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _sockets_of_refused_connections():
    """Collect them while nobody is warned; tracebacks in log records would keep them."""
    logger = logging.getLogger("kafka")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)
    gc.collect()


@pytest.fixture(scope="session")
def server():
    """Makes processes that have all imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sink_child", "pipelines.bounded.job"])
    return context


@pytest.fixture(scope="session")
def archives():
    """All that a broker is made of, or a reason to skip."""
    try:
        jars.java()
        jars.jars("kafka", SOURCE)
    except (MissingToolError, UnavailableError) as error:
        pytest.skip(f"no broker can be started: {error}")


@pytest.fixture(scope="session")
def _plain(archives, tmp_path_factory):
    broker = LocalBroker(tmp_path_factory.mktemp("plain"), heap=HEAP, options=JAVA)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def _tls(archives, tmp_path_factory):
    broker = LocalBroker(tmp_path_factory.mktemp("tls"), "tls", heap=HEAP, options=JAVA)
    yield broker
    broker.stop()


@pytest.fixture
def local(_plain):
    if not _plain.running:
        _plain.start()
    return _plain


@pytest.fixture
def secured(_tls):
    if not _tls.running:
        _tls.start()
    return _tls


@pytest.fixture
def broker(local):
    return Broker.from_file(local.client_file)


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(small_plan().to_json())
    return str(path)


def new_topic(broker: Broker, partitions: int = PARTITIONS) -> ReportTopic:
    topic = ReportTopic(f"test{next(_numbers)}", 1, partitions)
    with connected(broker) as topics:
        topics.create(topic, replicas=1, retention=small_plan().horizon)
    return topic


@pytest.fixture
def make_topic():
    return new_topic


@pytest.fixture
def topic(broker):
    return new_topic(broker)


def all_records(broker: Broker, topic: ReportTopic) -> list:
    """Return all records of a topic, partition by partition."""
    consumer = KafkaConsumer(**broker.options(10), request_timeout_ms=10_000)
    try:
        partitions = [TopicPartition(str(topic), at) for at in range(topic.partitions)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found: dict[TopicPartition, list] = {partition: [] for partition in partitions}
        deadline = time.monotonic() + 300
        while any(consumer.position(at) < end for at, end in ends.items()):
            assert time.monotonic() < deadline
            for partition, records in consumer.poll(timeout_ms=200).items():
                found[partition] += records
    finally:
        consumer.close()
    return [record for partition in partitions for record in found[partition]]


@pytest.fixture
def read_all():
    return all_records
