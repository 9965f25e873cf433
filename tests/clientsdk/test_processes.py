"""Several processes and threads on one file, and forks of all kinds."""

from __future__ import annotations

import pytest
from messages import message
from scripts import FORK, published, run

from clientsdk.ledger import read_file
from sotto.log.reader import partitions

pytestmark = pytest.mark.slow


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
from clientsdk.store.database import DURABLE
client = device(metric("colour"))
def durable():
    with client._store.transaction(DURABLE) as connection:
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
