"""Killed with -9 at random instants, and full disks, under load."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from contextlib import closing

import pytest
from device_plans import CONSTANT, DAY, START, WEEK, counted, items, metric, plan, reports, string
from scripts import published, run, start

from clientsdk.ledger import read_file

KILLS = 60
VAST = {"period": 10**12, "lifetime": 10**12}
METRICS = [
    metric("colour", "every", 100_000),
    string("word", kind="every", limit=100_000),
    metric("kept", "reservoir"),
    metric("model", "constant", ladder=CONSTANT),
    items(),
]

#: Records and flushes for ever; says "a" for each value accepted and "f" for each flush done.
LOAD = """
METRICS = [metric("colour", "every", 100_000), string("word", kind="every", limit=100_000),
           metric("kept", "reservoir"), metric("model", "constant", ladder=CONSTANT), items()]
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = device(*METRICS, now=int(sys.argv[3]), publisher=publisher)
os.write(1, b"s")
while True:
    for name in ("colour", "word", "kept", "colour"):
        if client.record(name, "a") is Outcome.ACCEPTED and name != "kept":
            os.write(1, b"a")
    client.record("model", "a"), client.record("app", "b")
    client.clock.advance(hours=5)
    assert client.flush().error is None
    os.write(1, b"f")
"""


def life(path, log, now, rng):
    """Run the load and kill it at a random instant; return values said to be accepted."""
    process = start(LOAD, path, log, now)
    descriptor = process.stdout.fileno()
    said = os.read(descriptor, 1)
    assert said == b"s", process.stderr.read()
    # Most crashes come in the middle of something; some at the very first step.
    time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
    process.kill()
    process.wait()
    while chunk := os.read(descriptor, 1 << 16):
        said += chunk
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()
    process.stderr.close()
    return said.count(b"a")


def promised(path):
    """What the chains in the file cost at their last rungs, by period."""
    totals = {}
    for chain in read_file(path).pending:
        totals[chain.period] = totals.get(chain.period, 0) + chain.reserved
    return totals


@pytest.mark.slow
def test_killed_at_random_instants(tmp_path):
    """Never a value without a charge, never two payloads a key, never a ledger that forgets."""
    seed = 20_250_101
    print(f"seed {seed}")
    rng = random.Random(seed)
    path, log = tmp_path / "device.db", tmp_path / "log"
    compiled = plan(*METRICS, ceilings=VAST)
    response = compiled.metric("model").permanent
    accepted, now = 0, START
    before = {}
    for kill in range(KILLS):
        accepted += life(path, log, now, rng)
        now += rng.choice([0, DAY // 2, 2 * DAY])
        ledger = read_file(path)
        now = max(now, ledger.period * WEEK)
        after = {p.number: (p.reserved, p.spent) for p in ledger.periods}
        for number, (reserved, spent) in before.items():
            assert after[number][0] >= reserved
            assert after[number][1] >= spent
        for number, cost in promised(path).items():
            assert cost <= after[number][0]
        assert all(spent <= reserved for reserved, spent in after.values())
        taken = sum(
            count
            for period in ledger.periods
            for name, count in period.recordings.items()
            if name != "trial/kept"
        )
        assert taken >= accepted
        before = after
        if kill % 10 == 0:
            totals = counted(reports(published(log, torn=True)), [compiled])
            assert sum(totals.values()) <= sum(period.spent for period in ledger.periods)
        assert [charge.cost for charge in ledger.permanent] in ([], [response])
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert accepted > KILLS
    finish = """
METRICS = [metric("colour", "every", 100_000), string("word", kind="every", limit=100_000),
           metric("kept", "reservoir"), metric("model", "constant", ladder=CONSTANT), items()]
publisher = EmbeddedLogPublisher(sys.argv[2], fsync="never")
client = device(*METRICS, now=int(sys.argv[3]), publisher=publisher)
lapsed = 0
for _ in range(30):
    client.clock.advance(days=1)
    lapsed += client.flush().lapsed
print(lapsed, client.next_due())
"""
    assert run(finish, path, log, now) == "0 None\n"
    ledger = read_file(path)
    totals = counted(reports(published(log, torn=True)), [compiled])
    assert sorted(totals.values()) == sorted(p.spent for p in ledger.periods if p.spent)
    assert ledger.spent == response + sum(p.spent - p.degraded_spent for p in ledger.periods)


def test_a_file_system_that_is_full(tmp_path):
    """The limit on the size of a file is the nearest that a process without a disk can come."""
    code = """
import resource
client = device(metric("colour", "every", 100_000))
for _ in range(50):
    assert client.record("colour", "a") is Outcome.ACCEPTED
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
largest = max(file.stat().st_size for file in path.parent.glob(path.name + "*"))
resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 10_000, hard))
outcomes = [client.record("colour", "a") for _ in range(2000)]
taken = outcomes.count(Outcome.ACCEPTED)
assert set(outcomes) == {Outcome.ACCEPTED, Outcome.STORE_FULL}, set(outcomes)
assert outcomes[-1] is Outcome.STORE_FULL
assert client.ledger().periods[0].recordings == {"trial/colour": 50 + taken}
assert len(client.ledger().pending) == 50 + taken
client.clock.advance(hours=3)
result = client.flush()
assert (result.sent, client.publisher.messages) == (0, [])
assert isinstance(result.error, Exception)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert client.record("colour", "a") is Outcome.ACCEPTED
assert client.flush().sent == 50 + taken
client.close()
"""
    run(code, tmp_path / "device.db")
