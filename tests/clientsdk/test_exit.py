"""How a process ends: within a second, whatever the broker does, and with nothing lost."""

from __future__ import annotations

import subprocess
import time
from unittest.mock import patch

import pytest
from device_plans import reports
from scripts import published, run, start
from slow_publishers import RESOLUTION

from clientsdk.ledger import read_file
from deploy.process import start_seconds

pytestmark = pytest.mark.slow

#: Seconds from the last line of a script to the end of its process, on a machine that is not busy
#: with other things. What is not bounded takes ten.
LIMIT = 1.0
#: One that is for a moment is given another chance.
CHANCES = 20

SCRIPT = """
import socket, subprocess, warnings
from slow_publishers import *
from clientsdk.sending import worker
warnings.simplefilter("ignore")
kind, number = sys.argv[2], int(sys.argv[3])
worker.SETTLING = 0.0
held = []

def address():
    if kind == "dead":
        return "127.0.0.1:1"
    held.append(socket.create_server(("127.0.0.1", 0), backlog=0))
    place = held[-1].getsockname()
    while kind == "drop" and len(held) < 9:
        # The queue of connections is full: further attempts are dropped without a word.
        held.append(socket.socket())
        held[-1].setblocking(False)
        held[-1].connect_ex(place)
    return f"127.0.0.1:{place[1]}"

over_http = sys.argv[4] == "http"

class Entered(HttpPublisher if over_http else KafkaPublisher):
    def __init__(self, place):
        super().__init__(*(["http://" + place] if over_http else [place, "reports-e1-p4"]))
        self.entered = threading.Event()

    def publish(self, shard, message):
        self.entered.set()
        super().publish(shard, message)

publishers, clients = [Entered(address()) for _ in range(number)], []
for each, publisher in enumerate(publishers):
    client = Client(quick_plan(), state=f"{path}-{each}", publisher=publisher)
    client.give_consent()
    client.record("colour", "a")
    clients.append(client)
for publisher in publishers:
    assert publisher.entered.wait(PATIENCE)
"""

END = """
print(time.monotonic(), flush=True)
"""


def seconds_to_end(code, *arguments):
    """How long a process takes to end after its last line, and what it says meanwhile."""
    process = start(code + END, *arguments, stdin=subprocess.DEVNULL)
    try:
        last = float(process.stdout.readline() or "nan")
        process.wait(600)
        ended = time.monotonic()
    finally:
        process.kill()
        out, err = process.communicate()
    assert process.returncode == 0, err
    return ended - last, out + err


def shortest(code, tmp_path, *arguments):
    taken = []
    for attempt in range(CHANCES):
        path = tmp_path / f"device-{attempt}"
        seconds, said = seconds_to_end(code, path, *arguments)
        if seconds <= start_seconds(LIMIT):
            return path, said
        taken.append(seconds)
    return pytest.fail(f"too long: {taken}")


@pytest.mark.real_randomness
@pytest.mark.parametrize(("over", "number"), [("kafka", 4), ("http", 2)])
@pytest.mark.parametrize("kind", ["dead", "silent", "drop"])
def test_exit_takes_a_second_at_most(tmp_path, kind, over, number):
    """The receiver is dead, takes connections and says nothing, or drops every packet."""
    path, said = shortest(SCRIPT, tmp_path, kind, number, over)
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert said.count("reports are kept") <= 1  # every draw: said once a process.
    for each in range(number):
        (chain,) = pending(path.with_name(f"{path.name}-{each}"))
        assert chain.charged
        assert chain.delivered == 0


def pending(path):
    with patch("sotto.plan.checks.MIN_RESOLUTION", RESOLUTION):
        return read_file(path).pending


STALLED = """
import os, signal, warnings
from slow_publishers import *
from clientsdk.sending import worker
warnings.simplefilter("ignore")
worker.SETTLING = 0.0
broker, broker_id = Broker(sys.argv[2], api_version=(2, 3)), int(sys.argv[3])
entered = threading.Event()

class Entered(KafkaPublisher):
    def publish(self, shard, message):
        if client.ledger().pending[0].delivered:
            os.kill(broker_id, signal.SIGSTOP)
            while Path(f"/proc/{broker_id}/stat").read_text().split()[2] != "T":
                time.sleep(0.001)
            entered.set()
        super().publish(shard, message)

publisher = Entered(broker, "reports-e1-p4")
client = Client(quick_plan(), state=path, publisher=publisher)
client.give_consent()
end = time.monotonic() + PATIENCE
while not entered.is_set():
    assert time.monotonic() < end
    # Where little else gets done, both levels are due at once, and go together.
    if not client.ledger().pending:
        client.record("colour", "a")
    entered.wait(0.05)
"""

CLUSTER = """
from confluent_kafka import Producer
played = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
(server,) = played.list_topics("reports-e1-p4", timeout=300).brokers.values()
print(f"{server.host}:{server.port}", flush=True)
sys.stdin.read()
"""


@pytest.mark.real_randomness
def test_exit_takes_a_second_at_most_where_a_broker_has_stopped_amid_it(tmp_path):
    """It has taken the first level; then its connections stay open and nothing answers."""
    taken = []
    while not taken or taken[-1] > start_seconds(LIMIT):
        assert len(taken) < CHANCES, taken  # every draw: attempts at being quick enough.
        cluster = start(CLUSTER, tmp_path / "none", stdin=subprocess.PIPE)
        try:
            address = cluster.stdout.readline().strip()
            path = tmp_path / f"device-{len(taken)}"
            seconds, said = seconds_to_end(STALLED, path, address, cluster.pid)
        finally:
            cluster.kill()
            cluster.communicate()
        assert "Traceback" not in said
        (chain,) = pending(path)
        assert (chain.charged, chain.delivered) == (2, 1)
        taken.append(seconds)


QUICK = """
from slow_publishers import *
from clientsdk.sending import worker
worker.Worker._scale = lambda *_: 1e9
publisher = EmbeddedLogPublisher(sys.argv[2])
client = Client(quick_plan(), state=path, publisher=publisher)
client.give_consent()
due = lambda: wait_until_due(client)
"""

ENDS = {
    "the end of the script": "client.record('colour', 'a'); due()",
    "a thread that outlives the main thread": """
def work():
    threading.main_thread().join()
    client.record("colour", "a")
    due()
threading.Thread(target=work).start()
""",
    "a child of multiprocessing": """
import multiprocessing
def work():
    client.record("colour", "a")
    due()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
    "a worker of a pool": """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
def work():
    client.record("colour", "a")
    due()
with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    pool.submit(work).result()
""",
    "a child that ends as programs do": """
pid = os.fork()
if pid == 0:
    client.record("colour", "a")
    due()
    sys.exit(0)
wait(pid)
""",
}


@pytest.mark.real_randomness
@pytest.mark.parametrize("end", ENDS)
def test_what_is_due_at_the_end_is_sent_if_that_is_quick(tmp_path, end):
    """A command that runs for a moment sends what is due by then."""
    path, log = tmp_path / "device.db", tmp_path / "log"
    for _ in range(CHANCES):
        run(QUICK + ENDS[end], path, log)
        if reports(published(log)):
            break
    assert {report.level for report in reports(published(log))} <= {0, 1}
    assert reports(published(log))


@pytest.mark.real_randomness
def test_what_the_end_was_too_short_for_is_sent_by_the_next_process(tmp_path):
    path, log = tmp_path / "device.db", tmp_path / "log"
    run(QUICK + "client.record('colour', 'a'); os._exit(0)", path, log)
    assert reports(published(log)) == []
    run(QUICK + "client.flush(); time.sleep(0.3); client.flush()", path, log)
    assert {report.level for report in reports(published(log))} <= {0, 1}
    assert reports(published(log))
