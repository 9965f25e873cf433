"""Charge, then publish, then mark as delivered; what is sent again is the same."""

from __future__ import annotations

import pytest
from device_plans import (
    DAY,
    HOUR,
    LADDER,
    START,
    VAST,
    WEEK,
    Calling,
    alter,
    counted,
    metric,
    plan,
    reports,
    run_out,
)

from clientsdk import MemoryPublisher, Outcome
from clientsdk.ledger import read_file
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock, SeededClient
from mechanisms.coins import shard_of
from sotto.errors import PublishError
from sotto.plan.compiled import Ceilings
from sotto.wire.format import MAX_MESSAGE, decode_message


class Flaky(MemoryPublisher):
    """Fails as often as it is told to, before or after taking the message."""

    def __init__(self, *fates):
        super().__init__()
        self.fates = list(fates)

    def publish(self, shard, message):
        fate = self.fates.pop(0) if self.fates else "take"
        if fate == "take and fail":
            super().publish(shard, message)
        if fate == "break":
            raise ZeroDivisionError
        if fate != "take":
            raise PublishError("no broker")
        super().publish(shard, message)


class Buffering(MemoryPublisher):
    """Loses what it holds when told to."""

    def __init__(self, *fates):
        super().__init__()
        self.fates = list(fates)
        self.held = []

    def publish(self, shard, message):
        self.held.append((shard, message))

    def sync(self):
        held, self.held = self.held, []
        if self.fates and self.fates.pop(0) == "lose":
            raise PublishError("lost")
        self.messages += held


def device(*metrics, seed=1, **options):
    changes = options.pop("plan", {})
    options.setdefault("clock", FakeClock(START))
    return SeededClient(plan(*metrics, **changes), seed=seed, **options)


def spent(client):
    return {bytes.fromhex(p.pseudonym): p.spent for p in client.ledger().periods if p.pseudonym}


def test_each_level_is_due_at_its_time_and_charged_before_it_leaves():
    client = device()
    client.record("colour", "a")
    certified = client.plan.metric("colour").mechanism.certified
    pseudonym = bytes.fromhex(client.ledger().periods[0].pseudonym)
    assert client.flush().sent == 0
    assert client.ledger().spent == 0
    for level, (_, after) in enumerate(LADDER):
        due = client.next_due()
        assert START + HOUR + after <= due < START + 2 * HOUR + after
        client.clock.now = due - 1
        assert client.flush().sent == 0
        client.clock.now = due
        assert client.flush().sent == 1
        assert client.ledger().spent == certified(level)
        assert client.flush().sent == 0
    assert client.next_due() is None
    sent = reports(client.publisher.messages)
    assert [report.level for report in sent] == [0, 1, 2]
    assert {report.shard for report in sent} == {shard_of(sent[0].pseudonym, 8)}
    assert {(r.pseudonym, r.event, r.fingerprint) for r in sent} == {
        (pseudonym, START, client.plan.fingerprint)
    }
    assert len({report.chain for report in sent}) == 1


def test_of_several_due_levels_the_newest_alone_is_sent():
    client = device()
    client.record("colour", "a")
    client.clock.advance(days=1, hours=3)
    assert client.flush().sent == 1
    (chain,) = client.ledger().pending
    assert (chain.charged, chain.delivered) == (2, 2)
    client.clock.advance(days=6)
    assert client.flush().sent == 1
    assert [report.level for report in reports(client.publisher.messages)] == [1, 2]
    assert client.ledger().spent == client.plan.metric("colour").mechanism.certified(2)


def test_levels_with_equal_delays():
    client = device(metric("colour", ladder=[(500_000, DAY), (1_000_000, DAY)]))
    client.record("colour", "a")
    client.clock.advance(days=2)
    assert client.flush().sent == 1
    assert [report.level for report in reports(client.publisher.messages)] == [1]


def test_charged_before_the_publisher_sees_a_byte(tmp_path):
    """Looked at from another connection, while the publisher has the message in hand."""
    path = tmp_path / "device.db"
    seen = []

    publisher = Calling(before=lambda: seen.append(read_file(path).spent))
    client = device(state=path, publisher=publisher)
    client.record("colour", "a")
    run_out(client)
    certified = client.plan.metric("colour").mechanism.certified
    assert seen == [certified(0), certified(1), certified(2)]


@pytest.mark.parametrize("fate", ["fail", "take and fail"])
def test_a_failed_publish_is_sent_again_byte_for_byte_and_charged_once(fate):
    client = device(publisher=Flaky(fate, fate))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    first = client.ledger().spent
    for remaining in (1, 1, 0):
        result = client.flush()
        assert result.sent == 1 - remaining
        assert result.remaining == remaining
        assert isinstance(result.error, PublishError) is bool(remaining)
    assert first == 0
    assert client.ledger().spent == client.plan.metric("colour").mechanism.certified(0)
    assert len(set(client.publisher.messages)) == 1


def test_a_level_in_doubt_is_superseded_by_a_newer_one_that_has_become_due():
    client = device(publisher=Flaky("take and fail"))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    assert client.flush().sent == 0
    client.clock.advance(days=1)
    assert client.flush().sent == 1
    assert [report.level for report in reports(client.publisher.messages)] == [0, 1]


def test_a_level_in_doubt_is_not_replaced_by_an_older_one_when_the_clock_is_set_back():
    client = device(publisher=Flaky("fail"))
    client.record("colour", "a")
    client.clock.advance(days=1, hours=3)
    assert client.flush().sent == 0
    client.clock.advance(days=-1)
    assert client.flush().sent == 1
    assert [report.level for report in reports(client.publisher.messages)] == [1]


@pytest.mark.parametrize("fate", ["fail", "break"])
def test_messages_before_a_failure_are_delivered(fate):
    client = device(metric("one"), metric("two"), publisher=Flaky("take", fate))
    client.record("one", "a")
    client.clock.advance(days=7)
    client.record("two", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining) == (1, 1)
    assert client.flush().sent == 1


def test_a_buffering_publisher_is_believed_only_once_it_has_synced():
    client = device(publisher=Buffering("lose", "keep"))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining, str(result.error)) == (0, 1, "lost")
    assert client.flush().sent == 1
    assert len(client.publisher.messages) == 1


class Interrupted(Buffering):
    """While it takes a message the person withdraws consent."""

    def publish(self, shard, message):
        super().publish(shard, message)
        self.withdraw()


class Dropping(Interrupted):
    def discard(self):
        self.held.clear()


@pytest.mark.parametrize("state", ["device.db", None])
@pytest.mark.parametrize("publisher", [Interrupted, Dropping])
@pytest.mark.parametrize("noted", [True, False])
def test_what_is_buffered_when_consent_is_withdrawn_is_not_synced(
    tmp_path, monkeypatch, state, publisher, noted
):
    """Neither by this client, nor, where the publisher can drop it, later by another."""
    monkeypatch.setattr("clientsdk.sending.sender.MAX_MESSAGE", 100)
    client = device(
        metric("colour", "every", 3), publisher=publisher(), state=state and tmp_path / state
    )
    held = client.publisher.held
    if noted and state:
        path = str(tmp_path / state)
        client.publisher.withdraw = lambda: rollback_guard.note_withdrawal(path)
    else:
        client.publisher.withdraw = client._store.stop
    for _ in range(3):
        client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, client.publisher.messages) == (0, [])
    assert client.publisher.held is held
    # Only the first of three was handed over.
    assert len(held) == (1 if publisher is Interrupted else 0)
    client.withdraw_consent()
    assert client.ledger().pending == ()


@pytest.mark.parametrize("broken", ["publish", "sync"])
def test_an_error_that_is_none_of_ours_is_told_and_nothing_is_lost(broken):
    """It is counted, and of what it says, or leads to, nothing is told."""

    class Broken(MemoryPublisher):
        def publish(self, shard, message):
            self.do("publish", message)
            super().publish(shard, message)

        def sync(self):
            self.do("sync", b"")

        def do(self, what, message):
            if what == broken:
                raise RuntimeError(f"a bug at {message!r}")

    client = device(publisher=Broken())
    client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining) == (0, 1)
    assert str(result.error) == "the publisher raised RuntimeError"
    assert result.error.__context__ is result.error.__traceback__ is None
    assert client.stats().send_errors == 1
    client.publisher.do = lambda what, message: None
    assert client.flush().sent == 1
    assert client.stats().due == 0


def test_chains_keep_the_pseudonym_and_the_ledger_of_their_own_period():
    client = device()
    names = []
    for _ in range(2):
        client.record("colour", "a")
        names.append(bytes.fromhex(client.ledger().periods[-1].pseudonym))
        client.clock.advance(days=7)
    run_out(client)
    sent = reports(client.publisher.messages)
    assert {(report.event // WEEK, report.pseudonym) for report in sent} == {
        (2900 + i, name) for i, name in enumerate(names)
    }
    for _, body in client.publisher.messages:
        message = decode_message(body)
        assert len({row.pseudonym for run in message.groups for row in run.rows}) == 1
    certified = client.plan.metric("colour").mechanism.certified(2)
    assert counted(sent, [client.plan]) == dict.fromkeys(names, certified)
    assert [period.spent for period in client.ledger().periods] == [certified] * 2


def test_a_chain_follows_the_plan_under_which_it_was_recorded(tmp_path):
    path = tmp_path / "device.db"
    old = plan(metric("colour"))
    new = plan(metric("extra"), metric("colour", ladder=[(250_000, 0)]), version=2)
    clock, publisher = FakeClock(START), MemoryPublisher()
    with SeededClient(old, seed=1, state=path, clock=clock, publisher=publisher) as client:
        client.record("colour", "a")
    with SeededClient(new, seed=2, state=path, clock=clock, publisher=publisher) as client:
        client.record("extra", "a")
        shown = client.preview().reports
        assert {report.metric for report in shown} == {"trial/extra", "trial/colour"}
        run_out(client)
        ledger = client.ledger()
    sent = reports(publisher.messages)
    assert [(r.level, r.metric) for r in sent if r.fingerprint == old.fingerprint] == [
        (level, 0) for level in range(3)
    ]
    assert sum(counted(sent, [old, new]).values()) == ledger.spent == ledger.reserved


def test_versions_share_one_count_a_metric_and_plans_do_not(tmp_path):
    path = tmp_path / "device.db"
    clock = FakeClock(START)
    outcomes = []
    for compiled in (plan(), plan(version=2), plan(plan="other")):
        with SeededClient(compiled, seed=1, state=path, clock=clock) as client:
            outcomes.append(str(client.record("colour", "a")))
    assert outcomes == ["accepted", "period_full", "accepted"]


def test_lateness_an_aggregator_would_refuse_is_not_sent_nor_charged():
    client = device()
    client.record("colour", "a")
    horizon = client.plan.metric("colour").horizon
    client.clock.now = START + horizon
    assert client.flush().sent == 1
    client = device()
    client.record("colour", "a")
    client.clock.now = START + horizon + 1
    result = client.flush()
    assert (result.sent, result.lapsed, client.ledger().spent) == (0, 1, 0)
    assert client.next_due() is None


@pytest.mark.parametrize("damage", ["charged = 4", "charged = -1", f"event = event + {2 * HOUR}"])
def test_a_chain_with_a_level_that_cannot_be_does_not_hold_up_the_others(path, damage):
    client = device(metric("colour"), metric("shape"), state=path)
    client.record("colour", "a")
    client.record("shape", "a")
    client.close()
    alter(path, f"UPDATE chain SET {damage} WHERE metric = 0")
    client = device(
        metric("colour"), metric("shape"), state=path, clock=FakeClock(START + 2 * HOUR)
    )
    result = client.flush()
    assert (result.sent, result.lapses.damaged, result.error) == (1, 1, None)
    assert client.ledger().pending[0].charged == 1


@pytest.mark.parametrize("low", [(1_500_000, 100_000_000), (1_500_000, 1_500_000)])
def test_a_ceiling_lowered_later_stops_what_was_to_be_released(tmp_path, low):
    """That of the period, and that of the lifetime as well."""
    path = tmp_path / "device.db"
    clock = FakeClock(START)
    with SeededClient(plan(), seed=1, state=path, clock=clock) as client:
        client.record("colour", "a")
        clock.advance(hours=3)
        assert client.flush().sent == 1
    low = Ceilings(*low)
    with SeededClient(plan(), seed=1, state=path, clock=clock, ceilings=low) as client:
        clock.advance(days=1)
        assert client.flush().sent == 1
        clock.advance(days=7)
        result = client.flush()
        assert (result.sent, result.lapsed) == (0, 1)
        ledger = client.ledger()
    assert ledger.spent == plan().metric("colour").mechanism.certified(1) <= low.period


def test_a_lowered_ceiling_pays_for_as_many_of_one_flush_as_it_can(path):
    clock, metrics = FakeClock(START), [metric(name) for name in ("one", "two", "three")]
    vast = {"ceilings": VAST}
    with device(*metrics, plan=vast, state=path, clock=clock) as client:
        for name in ("one", "two", "three"):
            assert client.record(name, "a") is Outcome.ACCEPTED
        cost = client.ledger().reserved // 3
    clock.advance(days=8)
    low = Ceilings(2 * cost + cost // 2, 9 * cost)
    with device(*metrics, plan=vast, state=path, clock=clock, ceilings=low) as client:
        result = client.flush()
        assert (result.sent, result.lapses.ceiling) == (2, 1)
        assert client.ledger().spent == 2 * cost


def test_a_lifetime_lowered_later_stops_what_a_period_would_allow(path):
    """Two values that were promised under the plan's lifetime, of which the lower one pays one."""
    clock = FakeClock(START)
    with device(state=path, clock=clock) as client:
        for _ in range(2):
            assert client.record("colour", "a") is Outcome.ACCEPTED
            clock.advance(days=7)
    low = Ceilings(2_000_000, 3_000_000)
    with device(state=path, clock=clock, ceilings=low) as client:
        run_out(client)
        assert client.ledger().spent <= low.lifetime < client.ledger().reserved


def test_long_batches_are_split_into_messages_and_transactions(monkeypatch):
    monkeypatch.setattr("clientsdk.sending.sender.BATCH", 150)
    monkeypatch.setattr("clientsdk.sending.sender.MAX_MESSAGE", 2000)
    client = device(
        metric("one", "every", 200), metric("two", "every", 200), plan={"ceilings": VAST}
    )
    for _ in range(200):
        client.record("one", "a")
        client.record("two", "b")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining) == (400, 0)
    sent = reports(client.publisher.messages)
    assert len({(report.chain, report.level) for report in sent}) == 400
    assert all(len(body) <= 2000 for _, body in client.publisher.messages)
    assert len(client.publisher.messages) >= 400 * 42 / 2000
    assert MAX_MESSAGE == 1 << 20


def test_withdrawal_between_two_messages_stops_the_second():
    client = device(metric("one"), metric("two"), publisher=Calling(), plan={"ceilings": VAST})
    client.publisher.after = client.withdraw_consent
    client.record("one", "a")
    client.clock.advance(days=7)
    client.record("two", "a")
    client.clock.advance(hours=3)
    client.flush()
    assert len(client.publisher.messages) == 1
    assert client.ledger().pending == ()
