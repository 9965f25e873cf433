"""Publishing to a real broker: in the clear, over TLS, and while it is dead, slow or refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aggregated import configure, new_topic, read_all
from messages import SOMEBODY, message, pseudonym
from waiting import wait_until

from clientsdk import Broker, KafkaPublisher
from clientsdk.publishers import kafka_connections
from clientsdk.testing import FakeClock, SeededClient, small_plan
from sotto.errors import PublishError
from sotto.wire.format import GROUP, HEADER, MAX_MESSAGE, ROW, Row, decode_message, encode_message

pytestmark = pytest.mark.slow

#: Each of which has a connection of its own.
DEVICES = 45
#: The environment of processes that import what these tests do.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}


def device(seed, publisher):
    """A device with one report that is due."""
    client = SeededClient(
        small_plan(), seed=seed, clock=FakeClock(), publisher=publisher, leaks_values=True
    )
    client.record("colour", "red")
    client.clock.advance(hours=3)
    return client


def keys(records):
    """Idempotency keys and payloads of all rows."""
    return [
        (row.pseudonym, run.metric, row.chain, row.level, row.payload)
        for record in records
        for run in decode_message(record.value).groups
        for row in run.rows
    ]


def largest_message():
    """Return a message that is as long as one can be, in rows of equal width."""
    room = MAX_MESSAGE - HEADER.size - GROUP.size
    count = next(n for n in range(20, room) if room % n == 0 and room // n < 60_000)
    row = Row(0, SOMEBODY, bytes(16), 0, bytes(room // count - ROW.size))
    made = encode_message(bytes(32), 0, [(0, [row] * count)])
    assert len(made) == MAX_MESSAGE
    return made


@pytest.mark.parametrize("profile", ["local", "secured"])
def test_each_message_is_in_its_shards_partition_with_the_brokers_time(profile, request):
    broker = Broker.from_file(request.getfixturevalue(profile).client_file)
    topic = new_topic(broker)
    publisher = KafkaPublisher(broker, topic, timeout=600)
    before = time.time_ns() // 1_000_000
    for shard in range(64):
        publisher.publish(shard, message(bytes([shard]) * 30))
    publisher.sync()
    after = time.time_ns() // 1_000_000
    publisher.close()
    records = read_all(broker, topic)
    assert sorted(record.value[-1] for record in records) == list(range(64))
    assert all(record.partition == record.value[-1] % topic.partitions for record in records)
    # every draw: the broker's time.
    assert all(before - 1 <= record.timestamp <= after + 1 for record in records)
    assert {record.timestamp_type for record in records} == {1}


def open_to(broker):
    """How many connections this process has to a broker."""
    (_, port) = broker.addresses[0]
    links = (Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    own = {os.readlink(link) for link in links if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        row[3] == "01"
        and int(row[2].rpartition(":")[2], 16) == port
        and f"socket:[{row[9]}]" in own
        for row in rows
    )


def test_a_connection_without_messages_is_closed_and_opened_again(broker, topic, monkeypatch):
    monkeypatch.setattr(kafka_connections, "_IDLE", 1000)
    publisher = KafkaPublisher(broker, topic, timeout=600)
    for each in (1, 2):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    publisher.sync()
    wait_until(lambda: not open_to(broker))
    publisher.publish(0, message(b"again", pseudonym=pseudonym(1)))
    publisher.close()
    assert len(read_all(broker, topic)) == 3


def test_the_largest_message_passes(broker, topic, monkeypatch):
    monkeypatch.setattr("sotto.kafka.producers.COMPRESSION", None)
    publisher = KafkaPublisher(broker, topic, timeout=600)
    # Runs are of at most 65,535 bytes a payload: the largest message has many rows.
    largest = largest_message()
    publisher.publish(0, largest)
    publisher.close()
    assert [record.value for record in read_all(broker, topic)] == [largest]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": "wrong"}, "does not let us in: check user, password"),
        ({"user": None, "password": None}, "does not let us in"),
        ({"ca": None}, "is not trusted .*give the authority that signed it as ca"),
        ({"ca": None, "user": None, "password": None}, "whether it wants TLS"),
    ],
)
def test_who_is_not_let_in_is_told_and_keeps_his_reports(secured, change, said):
    known = Broker.from_file(secured.client_file)
    fields = {"ca": known.ca, "user": known.user, "password": known.password, **change}
    publisher = KafkaPublisher(Broker(known.servers, **fields), "reports-e1-p4", timeout=8)
    result = device(1, publisher).flush()
    assert (result.sent, result.remaining) == (0, 1)
    with pytest.raises(PublishError, match=said):
        publisher.publish(0, message(b"x"))
    publisher.close()


def test_an_unknown_topic_is_told_and_not_made(broker):
    publisher = KafkaPublisher(broker, "unknown-e1-p4", timeout=4)
    for _ in range(2):
        with pytest.raises(
            PublishError, match=r"knows no topic unknown-e1-p4.*sotto topics create"
        ):
            publisher.publish(0, message(b"x"))
    publisher.close()


class _Bursts(threading.Thread):
    """Sends distinct messages, many between two syncs, and the same ones again after an error."""

    def __init__(self, broker, topic):
        super().__init__()
        self._publisher = KafkaPublisher(broker, topic, timeout=4)
        self.acknowledged: set[bytes] = set()
        self.enough = threading.Event()

    def run(self):
        deadline = time.monotonic() + 300
        number = 0
        while not self.enough.is_set():
            burst = [message((number + at).to_bytes(8, "big")) for at in range(50)]
            while not sent(self._publisher, *burst):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            self.acknowledged.update(burst)
            number += len(burst)
            self.enough.wait(0.05)
        self._publisher.close()


def test_a_broker_killed_while_it_is_sent_to_loses_nothing_acknowledged(local, broker, topic):
    """Devices, one after another, whose every report is distinct, and bursts beside them."""
    bursts_topic = new_topic(broker)
    bursts = _Bursts(broker, bursts_topic)
    publisher = KafkaPublisher(broker, topic, timeout=4)
    waiting = [device(seed, publisher) for seed in range(DEVICES)]
    longest, some_sent, failed = 0.0, threading.Event(), threading.Event()

    def send():
        nonlocal longest
        deadline = time.monotonic() + 300
        while waiting and time.monotonic() < deadline:
            started = time.monotonic()
            result = waiting[0].flush()
            longest = max(longest, time.monotonic() - started)
            if result.sent:
                waiting.pop(0)
                if len(waiting) < DEVICES * 2 // 3:
                    some_sent.set()
                # Some are sent, or not, to a dead broker, however late it is killed.
                if len(waiting) <= 9:
                    assert killed.wait(300)
            else:
                failed.set()
                time.sleep(0.05)

    killed, sender = threading.Event(), threading.Thread(target=send)
    sender.start()
    bursts.start()
    assert some_sent.wait(300)
    local.kill()
    killed.set()
    assert failed.wait(300)
    local.start()
    sender.join(600)
    bursts.enough.set()
    bursts.join(600)
    publisher.close()
    assert not waiting
    assert longest < 60  # every draw: a time.
    found = keys(read_all(broker, topic))
    assert len({key[:4] for key in found}) == len(set(found)) == DEVICES
    assert {record.value for record in read_all(broker, bursts_topic)} == bursts.acknowledged


def sent(publisher, *messages):
    """Whether messages have been acknowledged."""
    try:
        for at, each in enumerate(messages):
            publisher.publish(at, each)
        publisher.sync()
    except PublishError:
        return False
    return True


def wait_until_stopped(process):
    """Wait until no thread of a process that was sent SIGSTOP runs any more."""
    threads = Path(f"/proc/{process}/task")

    def states():
        return {path.read_text().rpartition(") ")[2][0] for path in threads.glob("*/stat")}

    wait_until(lambda: states() <= {"T"})


def test_a_slow_broker_costs_the_timeout_and_what_it_took_comes_again_as_the_same_bytes(
    local, broker, topic
):
    publisher = KafkaPublisher(broker, topic, timeout=6)
    wait_until(lambda: sent(publisher, message(b"connected")))
    client = device(7, publisher)
    local.signal(signal.SIGSTOP)
    try:
        wait_until_stopped(local.pid)
        started = time.monotonic()
        result = client.flush()
        # However busy the machine is; the client would try for two minutes by itself.
        assert time.monotonic() - started < 100
        assert (result.sent, result.remaining) == (0, 1)
        assert isinstance(result.error, PublishError)
    finally:
        local.signal(signal.SIGCONT)
    wait_until(lambda: client.flush().sent)
    publisher.close()
    messages = [record.value for record in read_all(broker, topic)]
    assert len(set(messages) - {message(b"connected")}) == 1


def test_a_broker_that_refuses_says_which_setting_and_the_reports_stay(broker, topic, monkeypatch):
    monkeypatch.setattr("sotto.kafka.producers.COMPRESSION", None)
    configure(broker, topic, "max.message.bytes", "60")
    publisher = KafkaPublisher(broker, topic, timeout=60)
    client = device(8, publisher)
    result = client.flush()
    assert (result.sent, result.remaining) == (0, 1)
    assert "raise max.message.bytes" in str(result.error)
    assert read_all(broker, topic) == []
    configure(broker, topic, "max.message.bytes", "2000000")
    assert client.flush().sent == 1
    publisher.close()
    assert len(keys(read_all(broker, topic))) == 1


LEAVING = """
import sys
from clientsdk import KafkaPublisher
from messages import message
publisher = KafkaPublisher(sys.argv[1], sys.argv[2], timeout=600)
publisher.publish(0, message(b"first"))
publisher.sync()
print("connected", flush=True)
sys.stdin.readline()
for shard in range(100):
    publisher.publish(shard, message(b"never acknowledged"))
print("leaving", flush=True)
"""


def test_a_process_leaves_within_a_second_whatever_the_broker_does(local, broker, topic):
    with subprocess.Popen(
        [sys.executable, "-c", LEAVING, broker.servers, str(topic)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "connected\n"
            local.signal(signal.SIGSTOP)
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "leaving\n"
            # Within a second if the machine has time, and long before the timeout.
            process.wait(300)
        finally:
            local.signal(signal.SIGCONT)
        assert (process.returncode, process.stderr.read()) == (0, "")


FORKING = """
import os, sys
from clientsdk import Broker, KafkaPublisher
from clientsdk.publishers import kafka_connections
from messages import message
publisher = KafkaPublisher(Broker.from_file(sys.argv[1]), sys.argv[2], timeout=600)

def send(sent):
    publisher.publish(0, message(sent))
    publisher.sync()

send(b"before")
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        if number:
            send(b"child %d" % number)
        # As an app's child ends: exit handlers run, objects are taken down.
        sys.exit(0)
    children.append(child)
    send(b"parent %d" % number)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
send(b"after")
publisher.close()
"""


def test_children_leave_the_parents_encrypted_connection_alone(secured):
    broker = Broker.from_file(secured.client_file)
    topic = new_topic(broker)
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(secured.client_file), str(topic)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = [b"after", b"before", b"child 1", b"child 2"]
    expected += [b"parent %d" % number for number in range(3)]
    found = sorted(record.value for record in read_all(broker, topic))
    assert found == sorted(map(message, expected))
