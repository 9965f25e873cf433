"""Rules of sending and erasing that hold between plans, clients and copies of one file."""

from __future__ import annotations

from unittest.mock import Mock

from device_plans import DAY, START, Calling, plan, reports

from clientsdk import MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PublishError


def statements(client):
    """All SQL that a client executes from now on."""
    seen = []
    client._store.database.connection.set_trace_callback(seen.append)
    return seen


def test_charges_are_committed_so_that_they_survive_a_loss_of_power(tmp_path):
    client = SeededClient(plan(), seed=1, state=tmp_path / "device.db", clock=FakeClock(START))
    seen = statements(client)
    client.record("colour", "a")
    assert [each for each in seen if "synchronous" in each] == ["PRAGMA synchronous = NORMAL"]
    client.clock.advance(hours=3)
    seen.clear()
    client.flush()
    charge = next(i for i, each in enumerate(seen) if each.startswith("UPDATE ledger SET spent"))
    modes = [each for each in seen[:charge] if "synchronous" in each]
    assert modes[-1] == "PRAGMA synchronous = FULL"
    # On macOS, through the disk's cache.
    assert client._store.database.connection.execute("PRAGMA fullfsync").fetchone() == (1,)


def test_a_new_period_and_a_withdrawal_rewrite_the_whole_file(tmp_path):
    """A page that was split may keep copies of rows that moved elsewhere and were erased there."""
    client = SeededClient(plan(), seed=1, state=tmp_path / "device.db", clock=FakeClock(START))
    seen = statements(client)
    client.record("colour", "a")
    assert "VACUUM" not in seen
    client.clock.advance(days=7)
    client.flush()
    assert seen.count("VACUUM") == 1
    client.withdraw_consent()
    assert seen.count("VACUUM") == 2


def test_a_delivery_does_not_count_for_a_level_that_another_client_charged_meanwhile(
    tmp_path, monkeypatch
):
    """On a system without locks, where both send at once."""
    monkeypatch.setattr("clientsdk.sending.lock.try_lock", lambda descriptor: True)
    path, clock = tmp_path / "device.db", FakeClock(START)

    refuse = Mock(side_effect=PublishError("no broker"))

    def flush():
        assert other.flush().remaining == 1

    later = FakeClock(START + DAY * 2)
    other = SeededClient(plan(), seed=2, state=path, clock=later, publisher=Calling(before=refuse))
    client = SeededClient(plan(), seed=1, state=path, clock=clock, publisher=Calling(flush))
    client.record("colour", "a")
    clock.advance(hours=3)
    client.flush()
    (chain,) = client.ledger().pending
    assert (chain.charged, chain.delivered) == (2, 0)
    client._outgoing.sender._publisher = publisher = MemoryPublisher()
    clock.advance(days=1)
    assert client.flush().sent == 1
    assert [report.level for report in reports(publisher.messages)] == [1]
