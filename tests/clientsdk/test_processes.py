"""Several processes and threads on one file, and forks of all kinds."""

from __future__ import annotations

import pytest
from device_plans import VAST, counted, metric, plan, reports
from messages import message
from scripts import FORK, published, run, start

from clientsdk.ledger import read_file
from sotto.log.writer import partitions

pytestmark = pytest.mark.slow


@pytest.mark.real_randomness
def test_processes_on_one_file_never_overspend_together(path):
    """Each counts what it was promised; the ledger holds them all, under the ceiling."""
    code = """
client = device(metric("colour", "every", 1000), ceilings=(300, 1000))
outcomes = [str(client.record("colour", "a")) for _ in range(300)]
client.close()
print(outcomes.count("accepted"), *set(outcomes))
"""
    workers = [start(code, path) for _ in range(3)]
    accepted = 0
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode == 0, err
        number, *others = out.split()
        accepted += int(number)
        assert set(others) <= {"accepted", "over_budget"}
    ledger = read_file(path)
    cost = plan(metric("colour")).metric("colour").mechanism.certified(2)
    assert accepted == 300_000_000 // cost == len(ledger.pending)
    assert ledger.reserved == accepted * cost
    assert len({chain.chain for chain in ledger.pending}) == accepted


@pytest.mark.real_randomness
def test_processes_that_record_and_flush_at_once(path, tmp_path):
    log = tmp_path / "log"
    code = """
import random
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = device(metric("colour", "every", 40), metric("kept", "reservoir"), publisher=publisher)
rng = random.Random(os.getpid())
for step in range(60):
    client.record("colour", rng.choice("abc"))
    client.record("kept", rng.choice("abc"))
    client.clock.now = START + step * 5 * HOUR + rng.randrange(HOUR)
    if step % 3 == 0:
        assert client.flush().error is None
print("done")
"""
    workers = [start(code, path, log) for _ in range(3)]
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert (worker.returncode, out) == (0, "done\n"), err
    rest = """
publisher = EmbeddedLogPublisher(sys.argv[2])
client = device(metric("colour", "every", 40), metric("kept", "reservoir"), publisher=publisher)
client.clock.now = START + 25 * DAY
for _ in range(30):
    assert client.flush().error is None
    client.clock.advance(days=1)
assert client.next_due() is None
"""
    run(rest, path, log)
    ledger = read_file(path)
    compiled = plan(metric("colour", "every", 40), metric("kept", "reservoir"), ceilings=VAST)
    totals = counted(reports(published(log)), [compiled])
    assert sorted(totals.values()) == sorted(p.spent for p in ledger.periods if p.spent)
    # every draw: an invariant of the ledger.
    assert all(period.spent <= period.reserved for period in ledger.periods)


# Forks.


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
def test_a_child_goes_on_when_its_parent_has_closed_the_store(path, kind):
    """Without care the parent's close deletes the log with the child's commits."""
    code = """
client = device(metric("colour", "every", 100))
client.record("colour", "a")
ready, go = os.pipe(), os.pipe()
def work():
    for _ in range(10):
        assert client.record("colour", "a") is Outcome.ACCEPTED
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    for _ in range(10):
        assert client.record("colour", "a") is Outcome.ACCEPTED
    # No close: it would save what is in a log that was deleted.
pid = fork(work)
os.read(ready[0], 1)
for _ in range(5):
    assert client.record("colour", "a") is Outcome.ACCEPTED
client.close()
os.write(go[1], b"x")
wait(pid)
"""
    run(FORK + code, path, kind)
    ledger = read_file(path)
    assert ledger.periods[0].recordings == {"trial/colour": 26}
    assert len({chain.chain for chain in ledger.pending}) == 26


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
def test_a_charge_in_a_child_survives_a_loss_of_power(path, kind):
    code = """
from clientsdk.store.database import TransactionAccess
client = device(metric("colour"))
def durable():
    with client._store.transaction(TransactionAccess.DURABLE) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
durable()
wait(fork(durable))
durable()
"""
    run(FORK + code, path, kind)


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
def test_a_store_in_memory_stays_with_the_parent(path, kind):
    code = """
client = device(metric("colour", "every", 9), state=NO_LIFETIME_BOUND)
client.record("colour", "a")
client.clock.advance(hours=3)
client.record("colour", "a")
assert client._store.buffer
def work():
    assert client.record("colour", "a") is Outcome.STORE_FULL
    # What the parent has noted is in its memory alone.
    assert client._store.buffer == []
    try:
        client.flush()
    except Exception as error:
        assert "forked" in str(error)
    assert client.publisher.messages == []
wait(fork(work))
client.clock.advance(hours=3)
assert client.record("colour", "a") is Outcome.ACCEPTED
assert client.flush().sent == 2
"""
    run(FORK + code, path, kind)


@pytest.mark.real_randomness
def test_a_fork_without_hooks_amid_a_transaction_leaves_the_child_without_a_store(path):
    code = """
from clientsdk.store.database import TransactionAccess
client = device(metric("colour", "every", 9))
client.record("colour", "a")
inside, done = threading.Event(), threading.Event()
def hold():
    with client._store.transaction(TransactionAccess.READ):
        inside.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
def work():
    assert client.record("colour", "a") is Outcome.STORE_FULL
pid = fork(work)
wait(pid)
done.set()
thread.join()
assert client.record("colour", "a") is Outcome.ACCEPTED
assert client.ledger().periods[0].recordings == {"trial/colour": 2}
"""
    run(FORK + code, path, "no hooks")


@pytest.mark.real_randomness
def test_a_child_writes_a_partition_of_its_own(path, tmp_path):
    log = tmp_path / "log"
    code = """
publisher = EmbeddedLogPublisher(sys.argv[2])
publisher.publish(0, message(b"parent"))
wait(child(lambda: (publisher.publish(0, message(b"child")), publisher.close())))
publisher.publish(0, message(b"parent again"))
publisher.close()
"""
    run(code, path, log)
    expected = [message(sent) for sent in (b"child", b"parent", b"parent again")]
    assert sorted(body for _, body in published(log)) == sorted(expected)
    assert len(partitions(log)) == 2
