"""Several processes on one file send one at a time."""

from __future__ import annotations

import os
import signal
import stat

import pytest
from device_plans import reports
from scripts import published, run, start

from clientsdk.sending.lock import SUFFIX, SendLock


@pytest.mark.real_randomness
def test_senders_in_the_background_of_several_workers_send_nothing_twice(path, tmp_path):
    """They wake at the same moment."""
    code = """
from slow_publishers import *
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = Client(quick_plan(), state=path, publisher=publisher)
client.give_consent()
workers = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        for _ in range(20):
            assert client.record("colour", "a") is Outcome.ACCEPTED
            time.sleep(0.02)
        wait_until(lambda: client.next_due() is None)
        client.close(PATIENCE)
        os._exit(0)
    workers.append(pid)
for pid in workers:
    wait(pid)
"""
    run(code, path, tmp_path / "log")
    sent = reports(published(tmp_path / "log"))
    assert len(sent) == len({(report.chain, report.level) for report in sent})
    assert len({report.chain for report in sent}) == 60


@pytest.mark.real_randomness
def test_a_process_that_is_killed_has_no_turn(path):
    first = start(
        """
from clientsdk.sending.lock import SendLock
assert SendLock(path).take(0)
print("taken", flush=True)
time.sleep(600)
""",
        path,
    )
    try:
        assert first.stdout.readline() == "taken\n"
        turn = SendLock(path)
        assert not turn.take(0.0)
        assert not turn.take(0.05)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    assert turn.take(0.0)
    turn.release()


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
def test_a_child_neither_ends_nor_keeps_its_parents_turn(path, kind):
    code = """
import ctypes
from clientsdk.sending.lock import SendLock
fork = {"hooks": os.fork, "no hooks": ctypes.PyDLL(None).fork}[sys.argv[2]]
turn, other = SendLock(path), SendLock(path)
assert turn.take(0)
go, given_back = os.pipe(), os.pipe()
pid = fork()
if pid == 0:
    try:
        turn.release()
        assert not other.take(0)
        assert not turn.take(0)
        os.write(go[1], b"x")
        os.read(given_back[0], 1)
        assert turn.take(0)
        turn.release()
    except BaseException:
        os._exit(1)
    os._exit(0)
os.read(go[0], 1)
assert not other.take(0)
turn.release()
# The child still lives.
assert other.take(0)
other.release()
os.write(given_back[1], b"x")
wait(pid)
"""
    run(code, path, kind)


def test_turns_of_one_process(path, tmp_path):
    first, second = SendLock(path), SendLock(path)
    assert first.take(0)
    assert first.take(0)
    assert not second.take(0)
    first.release()
    first.release()
    assert second.take(0)
    second.release()
    file = path.with_name(path.name + SUFFIX)
    assert (file.stat().st_size, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    assert SendLock(None).take(0)


def test_where_there_is_no_place_for_a_lock_the_turn_is_anybodys(tmp_path):
    turn = SendLock(tmp_path / "nowhere" / "device.db")
    assert turn.take(0)
    turn.release()
