"""Forks of every kind, while everything is going on: nothing twice, nothing lost, no deadlock."""

from __future__ import annotations

import mmap
import sys
from collections import Counter

import pytest
from device_plans import VAST, counted, metric, plan, reports
from scripts import FORK, published, run

from clientsdk import lifecycle
from clientsdk.ledger import read_file

pytestmark = pytest.mark.slow

KINDS = pytest.mark.parametrize("kind", ["hooks", "no hooks"])


def check(path, log, *metrics):
    """The ledger is what was counted, and no report was published twice."""
    ledger = read_file(path)
    sent = reports(published(log))
    compiled = plan(*metrics, ceilings=VAST)
    assert sum(counted(sent, [compiled]).values()) == ledger.spent == ledger.reserved
    times = Counter((each.chain, each.level) for each in sent)
    assert set(times.values()) == {1}
    assert ledger.pending == ()
    assert (ledger.damaged, ledger.restored, ledger.carried) == (0, 0, 0)
    return ledger, sent


@pytest.mark.real_randomness
@KINDS
def test_no_child_draws_what_another_draws(path, kind):
    """Ids and outputs come from the operating system, with nothing kept between draws."""
    code = """
from mechanisms.randomness import SystemSource
source = SystemSource()
source.bits(64)
client = device(string("word", kind="every", limit=1000))
client.record("word", "a")
def work():
    drawn = b"".join(source.bits(64).to_bytes(8, "little") for _ in range(4))
    os.write(drawing[1], drawn)
    for _ in range(5):
        assert client.record("word", "a") is Outcome.ACCEPTED
drawing = os.pipe()
reap(*[fork(work) for _ in range(8)])
work()
drawn = os.read(drawing[0], 1 << 16)
words = {drawn[at : at + 8] for at in range(0, len(drawn), 8)}
assert len(words) == len(drawn) // 8 == 36
import sqlite3
connection = sqlite3.connect(path)
rows = connection.execute("SELECT id, payloads FROM chain").fetchall()
connection.close()
assert len(rows) == 46
for column in zip(*rows):
    assert len(set(column)) == 46, column
"""
    run(FORK + code, path, "", kind)


@pytest.mark.real_randomness
@KINDS
def test_forks_while_threads_record_and_send(path, tmp_path, kind):
    """Without hooks the child has its store, or it has none; it never waits for its parent."""
    code = """
if sys.argv[-1] == "no hooks":
    # The interpreter's lock is copied as it is at that moment: nobody is to ask for it meanwhile.
    sys.setswitchinterval(1000)
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = device(metric("colour", "every", 100_000), publisher=publisher)
stop, taken, said = threading.Event(), [0], os.pipe()
def record():
    while not stop.is_set():
        taken[0] += client.record("colour", "a") is Outcome.ACCEPTED
        time.sleep(0.0005)
def send():
    while not stop.is_set():
        client.flush()
        # Slowly: a child that has to wait records at the time of its fork, and must not be late.
        client.clock.advance(seconds=20)
        time.sleep(0.0005)
threads = [threading.Thread(target=record), threading.Thread(target=send)]
[thread.start() for thread in threads]
def work():
    outcomes = {client.record("colour", "b") for _ in range(5)}
    assert outcomes in ({Outcome.ACCEPTED}, {Outcome.STORE_FULL}), outcomes
    os.write(said[1], b"aaaaa" if outcomes == {Outcome.ACCEPTED} else b"-")
    if sys.argv[-1] == "hooks":
        client.flush()
forks, stuck, heard = 0, 0, b""
try:
    # On a busy machine the parent is amid a transaction most of the time.
    while forks < (15 if sys.argv[-1] == "hooks" else 40) or b"a" not in heard:
        patience = 300 if sys.argv[-1] == "hooks" else 20
        status = os.waitpid(fork(work, patience=patience), 0)[1]
        # A thread of the parent that was just taking the interpreter's lock stops the whole child,
        # rarely. One that waited for the store would hit most children.
        assert status == 0 or os.WTERMSIG(status) == signal.SIGALRM, status
        forks, stuck = forks + 1, stuck + (status != 0)
        most = 0 if sys.argv[-1] == "hooks" else max(8, forks // 5)
        assert stuck <= most, f"{stuck} of {forks} wait for ever"
        if status == 0:
            heard += os.read(said[0], 100)
finally:
    stop.set()
    [thread.join() for thread in threads]
assert b"-" not in heard or sys.argv[-1] == "no hooks"
assert client.record("colour", "a") is Outcome.ACCEPTED
client.clock.advance(days=8)
assert client.flush().remaining == 0
client.close()
print(taken[0] + 1 + heard.count(b"a"))
"""
    out = run(FORK + code, path, tmp_path / "log", kind, timeout=900)
    ledger, _ = check(path, tmp_path / "log", metric("colour", "every", 100_000))
    assert sum(sum(each.recordings.values()) for each in ledger.periods) == int(out)


@pytest.mark.real_randomness
def test_a_fork_without_hooks_amid_a_fork_with_them(path):
    """Whoever held the guard is a thread of the parent: the child goes on without it."""
    code = """
from clientsdk import lifecycle
lifecycle.PATIENCE = 0.05
client = device(metric("colour", "every", 9))
inside, done = threading.Event(), threading.Event()
def hold():
    with lifecycle.NoFork():
        inside.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
def work():
    assert client.record("colour", "a") is Outcome.ACCEPTED
    reap(fork(lambda: client.record("colour", "a"), hooks=True))
    device(metric("colour", "every", 9)).close()
pid = fork(work, hooks=False)
reap(pid)
done.set()
thread.join()
assert client.record("colour", "a") is Outcome.ACCEPTED
assert client.ledger().periods[0].recordings == {"trial/colour": 3}
"""
    run(FORK + code, path, "", "no hooks")


@pytest.mark.real_randomness
@pytest.mark.parametrize("module", ["clientsdk.sending.parts", "sotto.plan.segments"])
def test_a_fork_waits_for_what_a_new_client_imports(path, module):
    """Its child would wait for the rest of the import for ever."""
    code = """
from importlib.machinery import PathFinder
inside = threading.Event()
class Slow:
    def find_spec(self, name, path, target=None):
        if name == module:
            spec = PathFinder.find_spec(name, path)
            execute = spec.loader.exec_module
            def slowly(made):
                inside.set()
                time.sleep(0.2)
                execute(made)
            spec.loader.exec_module = slowly
            return spec
def make():
    device(metric("colour", "every", 9), segments={}).close()
sys.modules.pop(module, None)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=make)
thread.start()
inside.wait()
reap(fork(make, hooks=True))
thread.join()
"""
    run(FORK + f"module = {module!r}" + code, path, "")


@pytest.mark.real_randomness
def test_a_fork_that_waits_for_a_store_keeps_new_ones_away(path):
    """Made meanwhile, a store would be open in both processes."""
    code = """
from clientsdk import lifecycle
from clientsdk.store.database import WRITE
lifecycle.PATIENCE = 0.02
sys.unraisablehook = lambda found: os._exit(9)
client = device(metric("colour", "every", 6))
inside, forked = threading.Event(), threading.Event()
made = []
def hold():
    with client._store.transaction(WRITE):
        inside.set()
        forked.wait(0.3)
def make():
    made.append(device(metric("colour", "every", 6)))
threads = [threading.Thread(target=hold), threading.Thread(target=make)]
threads[0].start()
inside.wait()
before = client._store.database.before_fork
def late():
    threads[1].start()
    before()
    assert not made
client._store.database.before_fork = late
reap(fork(lambda: client.record("colour", "a"), hooks=True))
for thread in threads:
    thread.join()
assert made[0].record("colour", "a") is Outcome.ACCEPTED
"""
    run(FORK + code, path, "")


@pytest.mark.real_randomness
def test_other_programs_started_while_threads_record(path, tmp_path):
    """By vfork and posix_spawn: they share the parent's memory until they are another program."""
    code = """
import subprocess
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = device(metric("colour", "every", 100_000), publisher=publisher)
stop, taken = threading.Event(), [0]
def record():
    while not stop.is_set():
        taken[0] += client.record("colour", "a") is Outcome.ACCEPTED
        client.clock.advance(seconds=30)
        client.flush()
thread = threading.Thread(target=record)
thread.start()
try:
    for _ in range(15):
        subprocess.run(["true"], check=True, close_fds=True)
        subprocess.run(["true"], check=True, close_fds=False)
        reap(os.posix_spawn("/bin/true", ["true"], os.environ))
finally:
    stop.set()
    thread.join()
client.clock.advance(days=9)
assert client.flush().remaining == 0
client.close()
print(taken[0])
"""
    out = run(FORK + code, path, tmp_path / "log", timeout=900)
    ledger, _ = check(path, tmp_path / "log", metric("colour", "every", 100_000))
    assert sum(sum(each.recordings.values()) for each in ledger.periods) == int(out)


@pytest.mark.real_randomness
def test_what_is_started_inherits_no_file_of_the_device(path):
    """Else a program that goes on for long would keep a lock, or a file that was erased."""
    code = """
client = device(metric("colour"))
client.record("colour", "a")
client.clock.advance(hours=3)
assert client.flush().sent == 1
import subprocess
script = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
script += " if os.path.exists(f'/proc/self/fd/{n}')])"
found = subprocess.run([sys.executable, "-c", script], close_fds=False, capture_output=True,
                       text=True, check=True).stdout
assert path.name not in found, found
"""
    run(FORK + code, path)


#: Systems other than Linux have no memory that a fork wipes.
MEMORIES = pytest.mark.parametrize("memory", ["wiped", "kept"])
MEMORY = """
from clientsdk import lifecycle
if sys.argv[2] == "kept":
    lifecycle.wiped_by_forks = lambda: None
"""


@pytest.mark.real_randomness
@MEMORIES
@KINDS
def test_generations_of_processes_each_notice_their_fork(path, memory, kind):
    code = """
client = device(metric("colour", "every", 100))
unforked = client._store.database._unforked
assert (unforked is None) == (sys.argv[2] == "kept" or sys.platform != "linux")
def work(left):
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client._store.database.process == os.getpid()
    if left:
        reap(fork(lambda: work(left - 1)))
    assert client.record("colour", "a") is Outcome.ACCEPTED
work(3)
assert client.ledger().periods[0].recordings == {"trial/colour": 8}
assert len({chain.chain for chain in client.ledger().pending}) == 8
"""
    run(FORK + MEMORY + code, path, memory, kind)


@pytest.mark.real_randomness
@MEMORIES
def test_a_child_forked_without_hooks_in_the_middle_of_a_recording_commits_nothing(path, memory):
    """By a signal handler, say, which then returns there in both processes."""
    code = """
import ctypes
from clientsdk import draws
client = device(metric("colour", "every", 1000))
assert client.record("colour", "a") is Outcome.ACCEPTED
pids, system = [], draws.urandom
def forking(size):
    if not pids:
        pids.append(ctypes.PyDLL(None).fork())
    return system(size)
draws.urandom = forking
outcome = client.record("colour", "a")
if pids == [0]:
    os._exit(outcome is not Outcome.STORE_FULL)
assert os.waitpid(pids[0], 0)[1] == 0
assert outcome is Outcome.ACCEPTED
ledger = client.ledger()
assert (len(ledger.pending), ledger.reserved) == (2, 4_000_000)
"""
    run(MEMORY + code, path, memory)


@pytest.mark.real_randomness
@MEMORIES
def test_every_thread_of_a_child_forked_without_hooks_notices(path, memory):
    """Also the one that looks while another has begun to look."""
    code = """
from clientsdk.store import database
client = device(metric("colour", "every", 9))
client.record("colour", "a")
def work():
    found, asked = [], database.getpid
    def slow():
        if threading.current_thread() is threading.main_thread() and not found:
            other = threading.Thread(target=lambda: found.append(client._store.database.forked()))
            other.start()
            other.join()
        return asked()
    database.getpid = slow
    assert client._store.database.forked()
    assert found == [True]
    database.getpid = asked
    assert client.record("colour", "a") is Outcome.ACCEPTED
reap(fork(work))
assert client.ledger().periods[0].recordings == {"trial/colour": 2}
"""
    run(FORK + MEMORY + code, path, memory, "no hooks")


def test_memory_of_a_system_that_takes_any_advice_is_not_relied_on(monkeypatch):
    """As older user-mode emulators do, which follow none of it."""
    taken = []

    class Memory(mmap.mmap):
        def madvise(self, *advice):
            taken.append(advice)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(mmap, "mmap", Memory)
    assert lifecycle.wiped_by_forks() is None
    assert len(taken) == 2
