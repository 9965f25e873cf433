"""Devices with other operating systems' files, as far as Linux can pretend to be them."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest
from publishing import Collector
from scripts import HERE, ROOT

from sotto import files

pytestmark = pytest.mark.slow

WINDOWS = """
import os, sys
sys.path[:0] = [sys.argv[1], sys.argv[2], os.path.join(sys.argv[1], "tests")]
import pretended_windows
pretended_windows.pretend()
from device_plans import *
from waiting import wait_until
from clientsdk import *
from clientsdk.publishers.http import HttpPublisher
from scripts import logged
from sotto.log.writer import LogWriter
import clientsdk, http.client, sqlite3, ssl, time
os.chdir(sys.argv[3])
# Only now: parts of the standard library would look for what only Windows has.
sys.platform = "win32"

class Device(Client):
    def __init__(self, publisher, state="device.db", **options):
        self.clock = FakeClock(START)
        options.setdefault("background", False)
        compiled = plan(metric("colour", "every", 100), ceilings=VAST)
        super().__init__(compiled, clock=self.clock, publisher=publisher, state=state, **options)
        self.give_consent()

def written():
    return [record.body for record in logged("log")]
"""


def run(code: str, folder: object, *arguments: object, warning: str = "") -> str:
    command = [sys.executable, "-W", "error", "-c", WINDOWS + code, ROOT, HERE, folder, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == warning
    return done.stdout


@pytest.mark.real_randomness
def test_a_device_records_sends_to_a_log_and_starts_again(tmp_path):
    code = """
for lifetime in range(3):
    with Device(EmbeddedLogPublisher("log")) as client:
        assert client.consent == "given"
        assert client.record("colour", "a") == "accepted"
        client.clock.advance(days=2)
        result = client.flush()
        assert (result.sent, result.remaining, result.error) == (1, 0, None), result
        client._outgoing.sender._publisher.close()
    assert len(written()) == lifetime + 1
assert not os.path.exists("log/lock")
with Device(EmbeddedLogPublisher("log")) as client:
    assert client.withdraw_consent()
    assert client.next_due() is None
"""
    run(code, tmp_path)


@pytest.mark.real_randomness
def test_a_thread_sends_what_is_due(tmp_path):
    code = """
with Device(EmbeddedLogPublisher("log"), background=True) as client:
    client.record("colour", "a")
    client.clock.advance(days=2)
    client.record("colour", "b")
    wait_until(lambda: client.stats().sent)
assert written()
"""
    run(code, tmp_path)


@pytest.mark.real_randomness
def test_a_device_posts_to_a_collector(tmp_path):
    code = """
publisher = HttpPublisher(sys.argv[4])
with Device(publisher) as client:
    client.record("colour", "a")
    client.clock.advance(days=2)
    print(client.flush().sent)
publisher.close()
"""
    with Collector() as server:
        told = run(code, tmp_path, server.url)
    assert (told, len(server.bodies)) == ("1\n", 1)


@pytest.mark.real_randomness
def test_one_process_sends_at_a_time_and_the_guard_is_written_by_one(tmp_path):
    code = """
from clientsdk.sending.lock import SendLock
from clientsdk.store import rollback_guard, schema
first, second = Device(MemoryPublisher()), Device(MemoryPublisher())
one, other = SendLock("device.db"), SendLock("device.db")
assert one.take(0) and not other.take(0)
one.rest = (1, True), 5, 7
assert one.rest == ((1, True), 5, 7)
one.release()
assert other.take(0) and other.rest == ((1, True), 5, 7)
other.release()
schema.PATIENCE = 0.05
with rollback_guard.locked("device.db"):
    # Others still read it.
    assert rollback_guard.read("device.db").generation >= 1
    try:
        rollback_guard.replace("device.db", rollback_guard.UNREADABLE)
    except Exception as error:
        assert "another process holds its lock" in str(error), error
    else:
        raise AssertionError
with LogWriter("log", "a") as log:
    log.append(b"a\\r\\n\\x1a")
    try:
        LogWriter("log", "a")
    except Exception as error:
        assert "in use: give another name" in str(error)
    else:
        raise AssertionError
assert written() == [b"a\\r\\n\\x1a"]
"""
    run(code, tmp_path)


@pytest.mark.real_randomness
def test_a_damaged_file_is_set_aside(tmp_path):
    code = """
with Device(MemoryPublisher()) as client:
    client.record("colour", "a")
with open("device.db", "r+b") as file:
    file.write(b"not a database" * 100)
with Device(MemoryPublisher()) as client:
    print(client.consent.value, client.record("colour", "a").value)
assert os.path.exists("device.db-damaged-1")
"""
    lost = (
        "the device's store 'device.db' was damaged, lost, or of an earlier release: its budget "
        "period counts as spent\n"
    )
    assert run(code, tmp_path, warning=lost) == "given over_budget\n"


@pytest.mark.parametrize("path", ["C:\\\\Users\\\\me\\\\a b.db", "\\\\\\\\server\\\\share\\\\a.db"])
def test_the_paths_of_windows_are_uris(path, monkeypatch):
    from clientsdk.store import schema

    monkeypatch.setattr(schema.os, "sep", "\\")
    path = path.replace("\\\\", "\\")
    found = schema.uri_of(path)
    assert found in ("file:///C:/Users/me/a b.db?mode=rw", "file:////server/share/a.db?mode=rw")


@pytest.mark.parametrize("lacking", [False, True])
def test_macos_forces_files_through_the_cache_of_the_disk(lacking, monkeypatch, tmp_path):
    calls = []

    def command(descriptor: int, number: int) -> None:
        calls.append(number)
        if lacking:
            raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(files, "_FULL", 51)
    monkeypatch.setattr(fcntl, "fcntl", command)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    files.force(files.open_file(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    assert calls == ([51, "fsync"] if lacking else [51])

    def full(descriptor: int, number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fcntl, "fcntl", full)
    with pytest.raises(OSError, match="No space"):
        files.force(files.open_file(tmp_path / "file", os.O_RDWR))
