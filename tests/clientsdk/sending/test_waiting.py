"""The attack of a collector that puts one pseudonym off, and looks whose traffic pauses with it."""

from __future__ import annotations

import hashlib
import math
import random

import pytest
from device_plans import DAY, HOUR, START, VAST, WEEK, metric, plan

from clientsdk import NO_LIFETIME_BOUND, MemoryPublisher, draws
from clientsdk.sending import backoff, sender
from clientsdk.sending.lock import Pseudonym, Rest, Wait
from clientsdk.sending.tasks import FlushTask
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PublishError
from sotto.wire.format import decode_message, pseudonym_of

PLAN = plan(
    metric("colour", "every", 20, ladder=[(500_000, 0), (1_000_000, DAY), (1_500_000, 3 * DAY)]),
    ceilings=VAST,
    resolution=HOUR,
)


class Answering(MemoryPublisher):
    """A collector that fails for the first pseudonym which it sees, and notes what comes when."""

    def __init__(self, clock: FakeClock, error: Exception | None) -> None:
        super().__init__()
        self._clock, self._error = clock, error
        self.target: bytes | None = None
        self.came: list[tuple[int, bytes, bytes]] = []

    def publish(self, shard: int, message: bytes) -> None:
        self.target = self.target or pseudonym_of(message)
        self.came.append((self._clock.now, pseudonym_of(message), message))
        if self._error is not None and pseudonym_of(message) == self.target:
            raise self._error


def device_at(seed: int, moment: FakeClock, publisher: MemoryPublisher, state) -> SeededClient:
    client = SeededClient(
        PLAN, seed=seed, clock=moment, publisher=publisher, state=state, background=True
    )
    # The test drives what the thread would do.
    client._worker.idle = False
    return client


def watched(
    seed: int, error: Exception | None, state, monkeypatch, *, records: int = 6, sleeps: int = 0
) -> Answering:
    """Two weeks of a device that records in three periods, and restarts or sleeps at times."""
    clock = FakeClock(START)
    drawn = random.Random(seed)
    publisher = Answering(clock, error)

    def chance() -> float:
        """The same at the same moment, however often something was drawn before."""
        digest = hashlib.sha256(f"{seed} {clock.now}".encode()).digest()
        return int.from_bytes(digest[:6], "little") / (1 << 48)

    monkeypatch.setattr(backoff, "chance", chance)
    longest = backoff.LONGEST_HINT + backoff.LONGEST
    monkeypatch.setattr(
        backoff, "delay", lambda failures, hint, *_: min((hint or 0) + 2.0**failures, longest)
    )
    for each in (sender, draws):
        monkeypatch.setattr(each, "uniform_below", lambda n, _: math.floor(chance() * n))
    events = sorted(
        [(START + drawn.randrange(14 * DAY), "record") for _ in range(records)]
        + [(START + drawn.randrange(14 * DAY), "sleep") for _ in range(sleeps)]
    )
    client = device_at(seed, clock, publisher, state)
    client.give_consent()
    client.record("colour", "a")
    asleep = 0
    for moment, what in [*events, (START + 20 * DAY, "end")]:
        while clock.now < moment:
            pause = client._worker._step() if clock.now >= asleep else None
            seconds = (asleep - clock.now) / 1000 if pause is None else pause.seconds
            clock.now = min(moment, clock.now + max(1, round(1000 * seconds)))
        if what == "record":
            client.record("colour", "b")
        elif what == "sleep":
            # Nothing runs for hours: several pseudonyms are due then.
            asleep = clock.now + 9 * HOUR
            if state is not NO_LIFETIME_BOUND:
                client.close()
                client = device_at(seed + 1000, clock, publisher, state)
    client.close()
    return publisher


def test_what_one_pseudonym_is_answered_changes_nothing_of_the_others(tmp_path, monkeypatch):
    """Exactly: the same reports of all others at the same milliseconds, answered or put off."""
    errors = {
        "an hour": PublishError("later", retry_after=3600),
        "no hint": PublishError("the collector has hung up"),
        "another error": RuntimeError("not understood"),
    }

    def device(name):
        return watched(0, errors.get(name), tmp_path / f"{name}.db", monkeypatch, sleeps=2)

    undisturbed = device("undisturbed")
    others = of_others(undisturbed)
    assert len(others) > 5
    for name in errors:
        disturbed = device(name)
        assert of_others(disturbed) == others, name
    assert len(disturbed.came) > len(undisturbed.came)


def of_others(publisher: Answering) -> list[tuple[int, list[tuple[int, int]]]]:
    """When messages of all pseudonyms but the target's came, with their levels and event times."""
    return [
        (moment, [(row.level, row.event) for row in decode_message(message).groups[0].rows])
        for moment, name, message in publisher.came
        if name != publisher.target
    ]


def due_twice(publisher, clock, state=NO_LIFETIME_BOUND):
    client = SeededClient(PLAN, seed=1, clock=clock, publisher=publisher, state=state)
    client.record("colour", "a")
    clock.advance(days=7)
    client.record("colour", "a")
    clock.advance(hours=3)
    return client


def flushed(client) -> FlushTask:
    task = FlushTask(one_pseudonym=True, window=HOUR, backs_off=True)
    client._outgoing.flush(task)
    return task


def test_neither_retries_nor_levels_due_meanwhile_change_when_others_go(monkeypatch):
    """A device that records much and sleeps often: several pseudonyms rest, wait and come due."""
    errors = PublishError("no hint"), PublishError("later", retry_after=80_000)
    for seed in range(2):
        undisturbed, *disturbed = (
            watched(seed, each, NO_LIFETIME_BOUND, monkeypatch, records=18, sleeps=6)
            for each in (None, *errors)
        )
        for error, each in zip(errors, disturbed, strict=True):
            assert of_others(undisturbed) == of_others(each), f"{error}, seed {seed}"


def test_a_failure_of_the_device_is_waited_for_however_often_a_receiver_refused(monkeypatch):
    """All pseudonyms would wait with it."""
    delays = []
    monkeypatch.setattr(backoff, "chance", lambda: 0.0)
    clock = FakeClock(START)
    publisher = Answering(clock, PublishError("later"))
    client = device_at(1, clock, publisher, NO_LIFETIME_BOUND)
    client.give_consent()
    client.record("colour", "a")
    clock.advance(days=1)
    for _ in range(9):
        client._worker._step()
    assert len(publisher.came) == 9
    monkeypatch.setattr(backoff, "delay", lambda failures, *_: delays.append(failures) or 1.0)
    monkeypatch.setattr(client._worker, "_next_due", lambda _: 1 / 0)
    client._worker._step()
    assert delays == [1]
    client.close()


def test_what_cannot_be_drawn_yet_keeps_no_thread_awake(monkeypatch):
    """A count that is over and could not be settled stays due, and nothing is to be done for it."""
    clock = FakeClock(START)
    client = device_at(1, clock, Answering(clock, PublishError("later")), NO_LIFETIME_BOUND)
    client.give_consent()
    client.record("colour", "a")
    clock.advance(days=1)
    monkeypatch.setattr(client._outgoing._counter, "next_due", lambda: START)
    monkeypatch.setattr(backoff, "delay", lambda *_: 100.0)
    assert client._worker._step().seconds == pytest.approx(100.0)
    client.close()


@pytest.mark.parametrize("ahead", [3 * DAY, 2**62])
def test_a_damaged_end_of_a_wait_or_a_rest_holds_nothing_back(ahead, tmp_path):
    clock = FakeClock(START)
    publisher = Answering(clock, None)
    with due_twice(publisher, clock, tmp_path / "device.db") as client:
        lock = client._outgoing.sender._lock
        assert lock.take(0)
        names = [Pseudonym(START // WEEK + number, False) for number in (0, 1)]
        lock.rest = Rest(names[0], clock.now, clock.now + ahead)
        lock.waits = {name: Wait(clock.now, clock.now + ahead, 1) for name in names}
        lock.release()
        for _ in range(3):
            flushed(client)
            clock.advance(hours=2)
        assert len({name for _, name, _ in publisher.came}) == 2
