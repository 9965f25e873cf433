"""A real broker, the project's own, started once for all tests of this folder.

The tests are skipped, and say so, if Java or Maven are missing, or the archives are neither in the
cache nor to be fetched.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
from pathlib import Path

import pytest
from aggregated import PATIENCE, new_topic
from programs import fetched

from clientsdk import Broker
from clientsdk.testing import small_plan
from deploy import jars
from deploy.kafka.broker import SOURCE, LocalBroker
from pipelines.sinks import kafka as sink
from pipelines.sources import kafka_reader
from sotto.kafka import admin

HEAP = 192


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves sockets of refused connections to the garbage collector, also of TLS."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl)"))


@pytest.fixture(scope="session", autouse=True)
def _patience():
    """Give a broker that has to wait for the machine more time than one of a user's gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admin, "PATIENCE", float(PATIENCE))
        patch.setattr(admin, "_PATIENCE_MS", PATIENCE * 1000)
        for module in (kafka_reader, sink):
            patch.setattr(module, "PATIENCE", float(PATIENCE))
        yield


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
    with fetched():
        jars.java()
        jars.jars("kafka", SOURCE)


@pytest.fixture(scope="session")
def _plain(archives, tmp_path_factory):
    broker = LocalBroker(tmp_path_factory.mktemp("plain"), heap=HEAP)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def _tls(archives, tmp_path_factory):
    broker = LocalBroker(tmp_path_factory.mktemp("tls"), "tls", heap=HEAP)
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


@pytest.fixture
def topic(broker):
    return new_topic(broker)
