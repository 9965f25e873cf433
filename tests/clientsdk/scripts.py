"""Runs Python code in processes of its own, as tests of crashes and forks must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sotto.log.reader import Corrupt, LogReader, LogRecord, partitions

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

#: Imports and functions that every script may use.
PRELUDE = """\
import os, sys, threading, time
from pathlib import Path
from device_plans import *
from messages import message
from clientsdk import *
from clientsdk.store import schema
from clientsdk.testing import FakeClock
# A disk that is busy with other things keeps nobody from his turn.
schema.PATIENCE = schema.LOCK_PATIENCE = 50.0
path = Path(sys.argv[1])

class Device(Client):
    # The real thing, with a clock to move.
    def __init__(self, compiled, now, publisher, **options):
        self.clock, self.publisher = FakeClock(now), publisher
        options.setdefault("background", False)
        super().__init__(compiled, clock=self.clock, publisher=publisher, **options)

def device(*metrics, now=START, state=path, consent=True, publisher=None, **options):
    publisher = publisher or MemoryPublisher()
    client = Device(plan(*metrics, ceilings=VAST), now, publisher, state=state, **options)
    if consent:
        client.give_consent()
    return client

def child(work, fork=os.fork):
    pid = fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid

def wait(pid):
    assert os.waitpid(pid, 0)[1] == 0
"""

#: ``fork(work)`` runs ``work`` in a child, by a fork with or without hooks as the script is told
#: last; ``reap`` waits for children.
FORK = """
import ctypes, signal
libc = ctypes.PyDLL(None)
def fork(work, hooks=sys.argv[-1] != "no hooks", patience=300):
    interval = sys.getswitchinterval()
    def mortal():
        sys.setswitchinterval(interval)
        # Whoever waits for a lock of a thread that is not here dies of it.
        signal.alarm(patience)
        work()
    if hooks:
        return child(mortal)
    # A request for the interpreter's lock, copied from a thread that is not in the child, would
    # never be taken back there.
    sys.setswitchinterval(1000)
    time.sleep(0.01)
    pid = child(mortal, libc.fork)
    sys.setswitchinterval(interval)
    return pid
def reap(*pids):
    for pid in pids:
        status = os.waitpid(pid, 0)[1]
        assert status == 0, status
signal.alarm(800)
"""


#: ``for place, whole in instants(folder, begin, opened, live, *calls)``: for every n, a device that
#: was made by ``begin`` and has a folder of its own, then ``opened`` in a child that is killed
#: before the n-th step of its ``live``, and whether that came to its end. Steps are statements, and
#: what is before and after each call of these functions of ``os``.
KILLS = """
import itertools, shutil, signal
def mortal(client, instant, calls):
    left = itertools.count(instant, -1)
    def step(*_):
        if next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    client._store.database.connection.set_trace_callback(step)
    for name in calls:
        def around(*arguments, real=getattr(os, name)):
            step()
            result = real(*arguments)
            step()
            return result
        setattr(os, name, around)
def instants(folder, begin, opened, live, *calls):
    begun = folder / "begun"
    begun.mkdir(parents=True)
    begin(begun)
    for instant in itertools.count():
        place = shutil.copytree(begun, folder / str(instant))
        def one():
            client = opened(place)
            mortal(client, instant, calls)
            live(client)
        status = os.waitpid(child(one), 0)[1]
        assert status in (0, signal.SIGKILL), status
        yield place, status == 0
        if status == 0:
            return
"""


def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start a process that runs the prelude and ``code``."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE), str(HERE.parent)]),
    }
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=HERE,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )


def run(code: str, *arguments: object, timeout: float = 900) -> str:
    """Run ``code`` to its end; return what it printed, or fail with what it said."""
    process = start(code, *arguments)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, err
    return out


def logged(directory: Path) -> list[LogRecord | Corrupt]:
    """Return all records of a log."""
    readers = [LogReader(partition) for partition in partitions(directory)]
    return [record for reader in readers for record in reader.records(0, reader.end())]


def published(directory: Path) -> list[tuple[int, bytes]]:
    """Return all messages of a log."""
    return [(0, record.body) for record in logged(directory)]
