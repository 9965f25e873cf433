"""The sender in the background: when it starts, what it sends, and what it never holds up."""

from __future__ import annotations

import logging
import threading
import time
from unittest.mock import Mock

import pytest
from device_plans import DAY, counted, metric, plan, reports, seeded
from scripts import FORK, run
from slow_publishers import (
    PATIENCE,
    RESOLUTION,
    VAST,
    Failing,
    Noting,
    Stuck,
    StuckSyncing,
    quick_plan,
    wait_until,
    wait_until_due,
)
from waiting import at_once

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome, Publisher
from clientsdk.sending import backoff, worker
from clientsdk.sending.tasks import FlushTask
from sotto.errors import ParameterError, PublishError, StoreError

#: A plan of one level: on a busy machine the newer of two would go instead.
ONCE = quick_plan(metric("colour", "every", 100_000, ladder=[(500_000, 0)]))


@pytest.fixture
def hasty(monkeypatch):
    """Let no attempt be waited for."""
    monkeypatch.setattr(backoff, "FIRST", 0.005)
    monkeypatch.setattr(backoff, "LONGEST", 0.01)


def device(publisher, *, state=NO_LIFETIME_BOUND, compiled=None, **options):
    client = Client(compiled or quick_plan(), state=state, publisher=publisher, **options)
    client.give_consent()
    return client


def senders():
    return [thread for thread in threading.enumerate() if thread.name == "sotto-sender"]


@pytest.mark.real_randomness
def test_making_a_client_opens_no_socket_and_starts_no_thread(path):
    code = """
import warnings
warnings.simplefilter("ignore")
seen = []
sys.addaudithook(lambda event, _: seen.append(event))
publisher = KafkaPublisher("127.0.0.1:1", "reports-e1-p4")
with Client(plan(), state=path, publisher=publisher) as client:
    assert client.record("colour", "a") is Outcome.NO_CONSENT
    client.give_consent()
assert "sqlite3.connect" in seen
assert not [event for event in seen if event.startswith(("socket.", "_thread.start"))], seen
assert threading.active_count() == 1
"""
    run(code, path)


@pytest.mark.real_randomness
@pytest.mark.parametrize("background", [False, True])
def test_a_client_that_is_dropped_before_anything_waits_is_gone_at_once(path, background):
    code = """
import gc, weakref
gc.disable()
clients = [Client(plan(), state=path, publisher=MemoryPublisher(), background=BACKGROUND)]
clients[0].give_consent()
store = weakref.ref(clients[0]._store)
clients.clear()
assert store() is None
"""
    run(code.replace("BACKGROUND", str(background)), path)


def test_three_lines_send_by_themselves(path):
    publisher = Noting()
    with device(publisher, state=path) as client:
        assert senders() == []
        assert client.record("colour", "a") is Outcome.ACCEPTED
        assert len(senders()) == 1
        assert senders()[0].daemon
        publisher.wait_for(1)
        wait_until(lambda: client.next_due() is None)
    assert senders() == []
    # Both levels are due at once on a very busy machine, and then the newer goes alone.
    assert [report.level for report in reports(publisher.messages)] in ([0, 1], [1])


def test_nobody_waits_for_a_lock_that_another_thread_took_first(monkeypatch):
    (taken := threading.Lock()).acquire()
    client = device(Noting())
    monkeypatch.setattr(threading, "Lock", lambda: taken)
    client._worker.idle = False
    client._worker.after_fork_in_child()
    assert client._worker.idle


def test_what_is_recorded_later_and_due_sooner_wakes_the_thread():
    publisher = Noting()
    late = metric("late", ladder=[(500_000, DAY)])
    soon = metric("soon", ladder=[(500_000, 0)])
    with device(publisher, compiled=quick_plan(late, soon)) as client:
        client.record("late", "a")
        wait_until(lambda: client._worker._asleep_until > 0)
        client.record("soon", "a")
        publisher.wait_for(1)
    assert [report.metric for report in reports(publisher.messages)] == [1]


def due_twice(publisher, **options):
    """A client with a report due of each of two pseudonyms."""
    compiled = plan(metric("one"), metric("two"), ceilings=VAST)
    client = seeded(compiled, publisher=publisher, **options)
    client.record("one", "a")
    client.clock.advance(days=7)
    client.record("two", "a")
    client.clock.advance(hours=3)
    return client


def test_a_random_while_passes_between_two_pseudonyms(monkeypatch):
    monkeypatch.setattr(backoff, "chance", lambda: 0.25)
    client = due_twice(MemoryPublisher(), background=True)
    sender = client._worker
    hour = client.plan.resolution
    assert sender._step() == worker.Pause(min(worker.WATCH, hour / 4000), interruptible=True)
    assert len(client.publisher.messages) == 1
    # A quarter of the window has to pass; a look in between sends nothing.
    client.clock.advance(ms=hour // 4 - 60_000)
    assert sender._step() == worker.Pause(60.0, interruptible=True)
    assert len(client.publisher.messages) == 1
    client.clock.advance(minutes=1)
    assert sender._step() == worker.Pause(0.0)
    assert len(client.publisher.messages) == 2
    assert sender._step() == worker.Pause(worker.WATCH, interruptible=True)
    client.close()


def test_what_is_sent_at_the_end_is_no_other_pseudonym_s(monkeypatch):
    monkeypatch.setattr(backoff, "chance", lambda: 0.5)
    client = due_twice(MemoryPublisher(), background=True)
    client._worker._step()
    client._worker._round()
    assert client.close().remaining == 1
    assert len(client.publisher.messages) == 1


def test_a_hint_of_the_receiver_is_heeded(monkeypatch):
    asked = []
    monkeypatch.setattr(backoff, "delay", lambda *of: asked.append(of) or 0.0)
    monkeypatch.setattr(backoff, "chance", lambda: 0.0)
    errors = [PublishError("later", retry_after=7.5), PublishError("down"), RuntimeError("bug")]
    publisher = Failing(*errors)
    with device(publisher) as client:
        client.record("colour", "a")
        publisher.wait_for(4)
    assert asked == [(1, 7.5, 600.0), (2, None, 600.0), (3, None, 600.0)]


@pytest.mark.usefixtures("hasty")
def test_one_warning_however_often_it_fails_and_nothing_of_a_foreign_error(path, caplog):
    publisher = Failing(*(RuntimeError("Qzx7 a message") for _ in range(20)))
    with device(publisher, state=path) as client:
        client.record("colour", "a")
        publisher.wait_for(21)
    (told,) = [record for record in caplog.records if record.name == "clientsdk"]
    assert told.levelno == logging.WARNING
    assert (
        told.getMessage() == "reports are kept, to be sent later: the publisher raised RuntimeError"
    )
    assert told.exc_info is None


@pytest.mark.parametrize("publisher", [Stuck(), StuckSyncing()], ids=["publish", "sync"])
def test_recording_never_waits_for_the_network(path, publisher):
    client = device(publisher, state=path)
    client.record("colour", "a")
    assert publisher.entered.wait(PATIENCE)
    assert {client.record("colour", "b") for _ in range(200)} == {Outcome.ACCEPTED}
    assert client.ledger().reserved == 201 * client.plan.metrics[0].mechanism.certified(1)
    assert client.withdraw_consent()
    assert client.record("colour", "b") is Outcome.NO_CONSENT
    assert client.next_due() is None
    assert not publisher.let_go.is_set()
    publisher.let_go.set()
    assert client.close(PATIENCE).remaining == 0


def test_close_returns_in_time_and_what_remains_is_sent_by_the_next(path):
    publisher = Stuck()
    client = device(publisher, state=path, compiled=ONCE)
    client.record("colour", "a")
    assert publisher.entered.wait(PATIENCE)
    (stuck,) = senders()
    started = time.monotonic()
    result = client.close(0.05)
    assert time.monotonic() - started < PATIENCE / 2
    assert (result.sent, result.remaining) == (0, 1)
    assert "time was up" in str(result.error)
    assert client.close().remaining == 0
    assert client.record("colour", "a") is Outcome.CLOSED
    publisher.let_go.set()
    stuck.join(PATIENCE)
    assert not stuck.is_alive()
    with device(MemoryPublisher(), state=path, compiled=ONCE, background=False) as client:
        assert client.flush().sent == 1
        assert client._outgoing.sender._publisher.messages == publisher.messages


def test_close_ends_a_long_wait_at_once(monkeypatch):
    monkeypatch.setattr(backoff, "FIRST", 1e9)
    monkeypatch.setattr(backoff, "LONGEST", 1e9)
    publisher = Failing(PublishError("no broker"))
    client = device(publisher)
    client.record("colour", "a")
    publisher.wait_for(1)
    result = client.close(PATIENCE)
    assert senders() == []
    # The last attempt has failed, and there was no other.
    assert (result.sent, result.remaining, len(publisher.messages)) == (0, 1, 1)


def test_close_sends_what_is_due_first(monkeypatch, path):
    monkeypatch.setattr(worker.Worker, "_scale", lambda *_: 1e9)
    publisher = Noting()
    client = device(publisher, state=path, compiled=ONCE)
    client.record("colour", "a")
    wait_until_due(client)
    result = client.close(PATIENCE)
    assert (result.sent, result.remaining) == (1, 0)


def test_the_last_round_of_a_closed_client_ends_in_no_traceback(monkeypatch, path):
    monkeypatch.setattr(worker.Worker, "_scale", lambda *_: 1e9)
    monkeypatch.setattr(
        worker.Worker, "_until_due", Mock(side_effect=StoreError("the client is closed"))
    )
    tracebacks = []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    publisher = Failing(PublishError("no broker"))
    client = device(publisher, state=path, compiled=ONCE)
    client.record("colour", "a")
    wait_until_due(client)
    client.close(PATIENCE)
    assert (len(publisher.messages), tracebacks) == (1, [])


def test_flush_returns_in_time_whatever_the_publisher_does():
    publisher = Stuck()
    client = device(publisher, background=False)
    client.record("colour", "a")
    wait_until_due(client)
    result = client.flush(timeout=0.05)
    assert (result.sent, result.remaining) == (0, 1)
    assert "time was up" in str(result.error)
    # The one that is stuck has the turn.
    assert client.flush(timeout=0).remaining == 1
    publisher.let_go.set()
    publisher.wait_for(1)
    assert client.flush(timeout=PATIENCE).error is None
    client.close()


def test_no_message_is_begun_once_the_time_is_up():
    publisher = MemoryPublisher()
    client = due_twice(publisher)
    result = client._outgoing.flush(FlushTask(0.0))
    assert (result.sent, result.remaining, publisher.messages) == (0, 2, [])
    assert client.flush(timeout=PATIENCE).sent == 2
    for wrong in (-1, float("nan")):
        with pytest.raises(ParameterError, match="timeout"):
            client.flush(timeout=wrong)
        with pytest.raises(ParameterError, match="timeout"):
            client.close(timeout=wrong)
    client.close()


def test_a_publisher_may_record_flush_and_close():
    """In the thread itself, which must not wait for itself."""
    done = threading.Event()
    outcomes = []

    class Hooked(MemoryPublisher):
        def publish(self, shard, message):
            super().publish(shard, message)
            outcomes.append(client.record("colour", "a"))
            with pytest.raises(StoreError, match="same thread"):
                client.flush()
            outcomes.append(client.flush(timeout=0.01).remaining)
            client.close()
            done.set()

    client = device(Hooked())
    client.record("colour", "a")
    assert done.wait(PATIENCE)
    accepted, remaining = outcomes
    # On a busy machine what was just recorded is due by then.
    assert accepted is Outcome.ACCEPTED
    assert remaining in (1, 2)
    client._worker._thread.join(PATIENCE)


@pytest.mark.parametrize("refused", ["start", "__init__"])
def test_without_a_thread_to_be_had_values_are_kept(refused, path, monkeypatch, caplog):
    """Subinterpreters refuse to make a daemon thread, a full machine to start one."""
    publisher = Noting()
    client = device(publisher, state=path)

    with monkeypatch.context() as patch:
        failing = Mock(side_effect=RuntimeError("can't start new thread"))
        patch.setattr(threading.Thread, refused, failing)
        assert {client.record("colour", "a") for _ in range(3)} == {Outcome.ACCEPTED}
        assert "time was up" in str(client.flush(timeout=0.01).error)
    assert caplog.messages == ["no thread can be started to send: what is recorded is kept"]
    client.record("colour", "a")
    publisher.wait_for(1)
    client.close()


def test_threads_record_while_the_background_sends_and_one_closes(path):
    publisher = Noting()
    client = device(publisher, state=path, compiled=ONCE)
    outcomes: list[Outcome] = []
    going = threading.Event()

    def work():
        for _ in range(300):
            outcomes.append(client.record("colour", "a"))
        while not going.is_set():
            outcomes.append(client.record("colour", "a"))
            time.sleep(0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    publisher.wait_for(3)
    client.flush(timeout=PATIENCE)
    client.close(PATIENCE)
    going.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert set(outcomes) <= {Outcome.ACCEPTED, Outcome.STORE_FULL, Outcome.CLOSED}
    with device(publisher, state=path, compiled=ONCE, background=False) as client:
        while client.next_due() is not None:
            client.flush()
            time.sleep(RESOLUTION / 1000)
        ledger = client.ledger()
    sent = reports(publisher.messages)
    assert len(sent) == len({report.chain for report in sent}) == outcomes.count(Outcome.ACCEPTED)
    assert ledger.spent == ledger.reserved == sum(counted(sent, [ONCE]).values())


def test_threads_that_record_first_at_once_start_one_sender():
    publisher = Noting()
    client = device(publisher)
    together = threading.Barrier(8, timeout=PATIENCE)

    def work(_):
        together.wait()
        client.record("colour", "a")

    at_once(work, range(8))
    publisher.wait_for(1)
    assert len(senders()) == 1
    client.close(PATIENCE)
    assert senders() == []


def test_a_publisher_that_exits_is_a_failure_that_is_said_and_tried_again(path, caplog):
    publisher = Mock(Publisher, publish=Mock(side_effect=[SystemExit, None]))
    with device(publisher, state=path, compiled=ONCE) as client:
        client.record("colour", "a")
        wait_until(lambda: client.stats().sent)
    assert len({*map(str, publisher.publish.call_args_list)}) == 1
    assert [each.rpartition(": ")[2] for each in caplog.messages] == ["a flush raised SystemExit"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sender_that_died_is_replaced():
    class Deadly(Noting):
        def publish(self, shard, message):
            super().publish(shard, message)
            if len(self.messages) == 1:
                raise BaseException("out of memory")

    publisher = Deadly()
    with device(publisher, compiled=ONCE) as client:
        client.record("colour", "a")
        publisher.wait_for(1)
        client._worker._thread.join(PATIENCE)
        client.record("colour", "a")
        publisher.wait_for(2)
    first, *later = publisher.messages
    assert set(reports([first])) <= set(reports(later))


QUICK = """
from slow_publishers import *
def quick(publisher, **options):
    once = quick_plan(metric("colour", "every", 1000, ladder=[(500_000, 0)]))
    client = Client(once, state=path, publisher=publisher, **options)
    client.give_consent()
    return client
"""


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
@pytest.mark.parametrize("moment", ["before", "amid", "after"])
def test_parent_and_child_have_a_thread_each(path, kind, moment):
    """A server that loads the app before it forks its workers, among others."""
    code = """
publisher = Stuck() if sys.argv[2] == "amid" else Noting()
client = quick(publisher)
if sys.argv[2] != "before":
    client.record("colour", "a")
    if sys.argv[2] == "amid":
        assert publisher.entered.wait(PATIENCE)
    else:
        publisher.wait_for(1)
        # A fork without hooks amid a transaction leaves the child without a store.
        wait_until(lambda: client._worker._asleep_until > 0)
def work():
    mine = client._outgoing.sender._publisher = Noting()
    assert sys.argv[-1] == "no hooks" or (threading.active_count() == 1 and client._worker.idle)
    assert client.record("colour", "b") is Outcome.ACCEPTED
    if sys.argv[2] == "amid":
        # The parent has the turn; nothing goes twice.
        assert client.flush(timeout=0.05).sent == 0
    else:
        mine.wait_for(1)
    assert client.close(PATIENCE).error is None
    assert not client._worker._thread.is_alive()
pid = fork(work)
wait(pid)
if sys.argv[2] == "amid":
    publisher.let_go.set()
client.record("colour", "c")
publisher.wait_for(1)
client.close(PATIENCE)
"""
    run(QUICK + FORK + code, path, moment, kind)


@pytest.mark.real_randomness
def test_signal_handlers_record_flush_and_close(path):
    code = """
import signal
publisher = Noting()
client = quick(publisher)
handled = []
def handle(*_):
    handled.append(client.record("colour", "a"))
    if len(handled) % 10 == 0:
        try:
            client.flush(timeout=0.001)
        except Exception as error:
            assert "in use by the same thread" in str(error)
    # Not in the middle of this one: they would nest without end where each takes longer.
    signal.setitimer(signal.ITIMER_REAL, 0.002)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.002)
end = time.monotonic() + PATIENCE
while len(handled) < 300 and time.monotonic() < end:
    client.record("colour", "b")
signal.setitimer(signal.ITIMER_REAL, 0)
closed = []
def close(*_):
    try:
        closed.append(client.close(0.1))
    except Exception as error:
        # In the middle of a recording.
        assert "in use by the same thread" in str(error)
        signal.setitimer(signal.ITIMER_REAL, 0.002)
signal.signal(signal.SIGALRM, close)
signal.setitimer(signal.ITIMER_REAL, 0.002)
end = time.monotonic() + PATIENCE
while not closed:
    client.record("colour", "b")
    # What closes comes in between, sooner or later.
    time.sleep(0.001)
    assert time.monotonic() < end
assert client.record("colour", "b") is Outcome.CLOSED
assert set(handled) <= {*Outcome} - {Outcome.NO_CONSENT, Outcome.INVALID}
os._exit(0)
"""
    run(QUICK + code, path)
