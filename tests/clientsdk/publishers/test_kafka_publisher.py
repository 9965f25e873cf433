"""Publishing to Kafka against a cluster that librdkafka plays in this process.

It speaks an old protocol and forgets everything; what a real broker does is in ``tests/kafka``.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Producer
from device_plans import reporter
from kafka.errors import KafkaTimeoutError
from messages import SOMEBODY, message, pseudonym
from publishing import TOPIC, played_cluster, taken
from waiting import at_once, wait_until

from clientsdk import KafkaPublisher, lifecycle
from clientsdk.publishers import kafka, kafka_connections
from sotto.errors import PublishError
from sotto.kafka import client_logs

SIZE = len(message(bytes(60)))
#: Seconds that a busy machine may take longer; what is never given up takes for ever.
SLACK = 200.0


def producer_of(publisher, pseudonym=SOMEBODY):
    """The producer through which messages of a pseudonym go."""
    return publisher._connections._open[pseudonym].producer


@pytest.fixture
def cluster():
    with played_cluster() as broker:
        yield broker


@pytest.fixture
def publisher(cluster):
    publisher = KafkaPublisher(cluster, TOPIC, timeout=600)
    yield publisher
    publisher.close()


@pytest.mark.parametrize(("asked", "after"), [((), None), ((250.0, 7_000.0), 7.0)])
def test_what_is_late_since_the_broker_asked_to_wait_is_left_alone_for_so_long(
    cluster, monkeypatch, asked, after, publisher
):
    """The played cluster has no quotas: what one would answer is noted where the client does."""
    publisher.publish(0, message(b"message"))
    for milliseconds in asked:
        producer_of(publisher)._metrics.get_sensor("throttle-time").record(milliseconds)
    monkeypatch.setattr(
        kafka,
        "_wait_for",
        lambda sent, deadline: (KafkaTimeoutError(), sent[0].connection) if sent else None,
    )
    with pytest.raises(PublishError, match="in time") as told:
        publisher.sync()
    assert told.value.retry_after == after


def test_compression_changes_no_byte(cluster):
    publisher = KafkaPublisher(cluster, TOPIC, timeout=600)
    sent = message(os.urandom(500) + bytes(10_000))
    publisher.publish(3, sent)
    publisher.sync()
    assert producer_of(publisher).metrics()["producer-metrics"]["compression-rate-avg"] < 0.2
    publisher.close()
    assert taken(cluster, 1) == [(3, sent)]


def test_a_dead_broker_is_told_at_once_and_the_reports_stay():
    publisher = KafkaPublisher("127.0.0.1:1", TOPIC, timeout=600)
    client = reporter(publisher)
    client.clock.advance(hours=3)
    started = time.monotonic()
    result = client.flush()
    assert time.monotonic() - started < 300
    assert (result.sent, result.remaining) == (0, 1)
    assert isinstance(result.error, PublishError)
    assert "refused" in str(result.error)


def test_a_broker_that_takes_connections_and_says_nothing_costs_the_timeout_at_most():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        publisher = KafkaPublisher(f"127.0.0.1:{port}", TOPIC, timeout=0.5)
        for _ in range(2):
            started = time.monotonic()
            # Which of the two steps takes the time is the machine's affair.
            with pytest.raises(PublishError, match=r"let us in|has not answered yet"):
                publisher.publish(0, message(b"x"))
            assert time.monotonic() - started < 0.5 + SLACK
        publisher.close()


def test_a_wrong_number_of_partitions_is_refused(cluster):
    played = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    played.list_topics("reports-e1-p8", timeout=600)
    publisher = KafkaPublisher(cluster, "reports-e1-p8", timeout=600)
    with pytest.raises(PublishError, match="next epoch"):
        publisher.publish(0, message(b"x"))
    publisher.close()


@pytest.mark.real_randomness
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_has_connections_of_its_own(cluster, publisher):
    publisher.publish(0, message(b"before"))
    publisher.sync()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            publisher.publish(1, message(b"child"))
            publisher.sync()
            status = 0
        finally:
            os._exit(status)
    publisher.publish(2, message(b"parent"))
    publisher.sync()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    publisher.publish(3, message(b"after"))
    publisher.close()
    assert taken(cluster, 4) == [
        (at, message(sent)) for at, sent in enumerate((b"before", b"child", b"parent", b"after"))
    ]


class _Stuck:
    """Stands for the future of a message that is never acknowledged."""

    def succeeded(self):
        return False

    def get(self, timeout):
        from kafka.errors import KafkaTimeoutError

        raise KafkaTimeoutError("nobody answers")


def test_every_thread_whose_messages_may_be_lost_is_told(publisher):
    """Not only the one that asks first."""
    publisher.publish(0, message(b"there"))
    publisher.sync()
    told = []
    both_sent, first_asked = threading.Barrier(2, timeout=600), threading.Event()

    def other():
        publisher.publish(1, message(b"lost"))
        both_sent.wait()
        first_asked.wait(600)
        try:
            publisher.sync()
        except PublishError as error:
            told.append(error)
        publisher.sync()

    thread = threading.Thread(target=other)
    thread.start()
    both_sent.wait()
    publisher._pending[0] = publisher._pending[0]._replace(future=_Stuck())
    with pytest.raises(PublishError, match="acknowledge"):
        publisher.sync()
    publisher.sync()
    first_asked.set()
    thread.join(600)
    assert len(told) == 1
    publisher.publish(2, message(b"a new connection"))


def test_what_is_published_while_another_thread_closes_is_in_doubt(publisher):
    publisher.publish(0, message(b"there"))
    told = []

    def other():
        publisher.publish(1, message(b"never acknowledged"))
        publisher._pending[-1] = publisher._pending[-1]._replace(future=_Stuck())
        published.set()
        closed.wait(600)
        with pytest.raises(PublishError, match="reached"):
            publisher.sync()
        told.append(True)

    published, closed = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    sync = publisher.sync

    def sync_before_the_other_publishes():
        sync()
        thread.start()
        assert published.wait(600)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "sync", sync_before_the_other_publishes)
        publisher.close()
    closed.set()
    thread.join(600)
    assert told == [True]
    publisher.sync()


def test_who_waits_for_a_connection_that_another_thread_gives_up_is_told():
    made = threading.Event()
    connecting = kafka_connections.Connecting(lambda: made.wait(600))
    told = []

    def wait():
        with pytest.raises(PublishError, match="given up"):
            connecting.wait(600)
        told.append(True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_connections, "discard", lambda producer: None)
        thread = threading.Thread(target=wait)
        thread.start()
        connecting.cancel()
        made.set()
        thread.join(600)
    assert told == [True]


def test_a_child_leaves_a_connection_that_nobody_has_used_yet(monkeypatch):
    """It would be closed in the child as soon as nothing refers to it."""
    abandoned = []
    monkeypatch.setattr(kafka_connections, "abandon", abandoned.append)
    publisher = KafkaPublisher("127.0.0.1:1", TOPIC)
    connection, _ = publisher._connections.take(SOMEBODY, time.monotonic())
    connection._connecting = kafka_connections.Connecting(lambda: "a producer")
    assert connection._connecting.wait(600) == "a producer"
    publisher.after_fork_in_child()
    assert abandoned == ["a producer"]


def test_no_message_is_logged_whatever_the_level(cluster, caplog, monkeypatch):
    """And what kafka-python says is said once in a while."""
    monkeypatch.setattr(client_logs._discreet, "_latest", {})
    monkeypatch.setattr("sotto.kafka.producers.COMPRESSION", None)
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kafka"):
        publisher = KafkaPublisher(cluster, TOPIC, timeout=600)
        for _ in range(2):
            publisher.publish(0, message(b"not to be logged"))
            publisher.close()
    said = [record for record in caplog.records if record.name.startswith("kafka.")]
    assert said
    assert not [record for record in said if "not to be logged" in record.getMessage()]
    assert len({(record.name, record.lineno) for record in said}) == len(said)


def test_too_much_in_flight_waits_and_then_fails(monkeypatch, publisher):
    monkeypatch.setattr("clientsdk.publishers.kafka.IN_FLIGHT_BYTES", 2 * SIZE - 20)
    for number in range(20):
        publisher.publish(number, message(bytes(60)))
    assert publisher._held <= 2 * SIZE
    publisher._pending[-1] = publisher._pending[-1]._replace(future=_Stuck())
    with pytest.raises(PublishError, match="acknowledge"):
        publisher.publish(0, message(bytes(60)))
    assert publisher._held == 0
    with pytest.raises(PublishError, match="reached"):
        publisher.sync()


@pytest.mark.real_randomness
@pytest.mark.parametrize("module", ["kafka", "kafka.protocol.schemas"])
def test_the_sdk_does_not_import_kafka_and_its_absence_is_told(module):
    """An app that PyInstaller packed can have kafka-python without its schemas."""
    fault = f"lacks {module} (PyInstaller needs --collect-data kafka to pack it)"
    if module == "kafka":
        fault = "is not installed"
    script = (
        "import sys, clientsdk\n"
        "assert not {'kafka', 'ssl'} & set(sys.modules)\n"
        f"sys.modules[{module!r}] = None\n"
        "try:\n    clientsdk.KafkaPublisher('a:1', 'reports-e1-p4')\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True
    )
    told = f"kafka-python {fault}: pip install 'sottovoce-tools[kafka]' brings it\n"
    assert done.stdout == told


def test_every_pseudonym_has_a_producer_of_its_own_which_has_no_number(cluster, publisher):
    for each in (1, 2, 1):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    first, second = (producer_of(publisher, pseudonym(each)) for each in (1, 2))
    assert first is not second
    for producer in (first, second):
        assert producer.config["enable_idempotence"] is False
        assert producer.config["acks"] == -1
        assert producer.config["client_id"] == "sotto"
    publisher.close()
    assert len(taken(cluster, 3)) == 3


def test_beyond_a_few_pseudonyms_the_one_used_longest_ago_makes_room(
    cluster, monkeypatch, publisher
):
    used, ended = [], []
    end = kafka_connections.Connection.end
    monkeypatch.setattr(
        kafka_connections.Connection, "end", lambda self: (ended.append(self.producer), end(self))
    )
    for each in range(kafka_connections.LIMIT):
        publisher.publish(each, message(pseudonym=pseudonym(each)))
        used.append(producer_of(publisher, pseudonym(each)))
    publisher.publish(0, message(pseudonym=pseudonym(0)))
    # Its last message is acknowledged before it goes, without a sync.
    publisher.publish(1, message(pseudonym=pseudonym(100)))
    wait_until(lambda: ended == [used[1]])
    assert len(publisher._connections._open) == kafka_connections.LIMIT
    assert producer_of(publisher, pseudonym(0)) is used[0]
    publisher.publish(1, message(b"again", pseudonym=pseudonym(1)))
    assert producer_of(publisher, pseudonym(1)) is not used[1]
    publisher.sync()
    publisher.close()
    assert len(taken(cluster, kafka_connections.LIMIT + 3)) == kafka_connections.LIMIT + 3


@pytest.mark.parametrize("exiting", [False, True])
def test_a_connection_ends_in_a_thread_of_its_own_but_at_exit(publisher, monkeypatch, exiting):
    ended = []
    end = kafka_connections.Connection.end
    monkeypatch.setattr(
        kafka_connections.Connection,
        "end",
        lambda self: (ended.append(threading.current_thread()), end(self)),
    )
    monkeypatch.setattr(lifecycle, "_exiting", exiting)
    for each in range(kafka_connections.LIMIT + 1):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    with monkeypatch.context() as late:
        late.setattr(kafka._Sent, "acknowledged", False)
        late.setattr(
            kafka, "_wait_for", lambda sent, deadline: (KafkaTimeoutError(), sent[0].connection)
        )
        with pytest.raises(PublishError, match="in time"):
            publisher.sync()
    wait_until(lambda: len(ended) > 1)
    assert {thread is threading.current_thread() for thread in ended} == {exiting}


def test_what_one_that_makes_room_has_not_had_acknowledged_is_in_doubt(publisher):
    for each in range(kafka_connections.LIMIT):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    publisher.sync()
    publisher.publish(0, message(b"lost", pseudonym=pseudonym(0)))
    publisher._pending[-1] = publisher._pending[-1]._replace(future=_Stuck())
    for each in range(1, kafka_connections.LIMIT + 1):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    with pytest.raises(PublishError, match="reached"):
        publisher.sync()


def test_threads_of_many_pseudonyms_share_one_publisher(cluster, publisher):
    failed = []

    def send(thread):
        try:
            for number in range(3):
                publisher.publish(thread, message(bytes([number]), pseudonym(thread)))
                publisher.sync()
        except PublishError as error:
            failed.append(error)

    at_once(send, range(2 * kafka_connections.LIMIT))
    publisher.close()
    assert failed == []
    assert len(publisher._connections._open) == 0
    assert len(taken(cluster, 6 * kafka_connections.LIMIT)) == 6 * kafka_connections.LIMIT


def test_names_that_resolve_for_ever_cost_the_timeout_at_most_and_few_threads(monkeypatch):
    going_on = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: going_on.wait() or [])
    publisher = KafkaPublisher("broker.example:9092", TOPIC, timeout=0.5)
    monkeypatch.setattr(kafka_connections, "LIMIT", 2)
    before = set(threading.enumerate())
    for each, most in ((0, 1), (0, 1), (1, 2), (2, 2), (3, 2)):
        started = time.monotonic()
        with pytest.raises(PublishError, match="answered"):
            publisher.publish(0, message(pseudonym=pseudonym(each)))
        assert time.monotonic() - started < 0.5 + SLACK
        assert len(set(threading.enumerate()) - before) == most
    going_on.set()
    publisher.close()
