"""A job that goes back to a checkpoint tells nothing that says less than what it has told."""

from __future__ import annotations

import random

import pytest
from drain_logs import START
from streaming_logs import EPOCHS, Logs, deployment, honest, shard_said, streamed
from streaming_runner import LANES, Backend, Record, Runner
from test_streaming_windows import NOW, Books, Slot

from pipelines.published import Document, HealthDocument, WindowDocument
from pipelines.streaming import clock
from pipelines.streaming.catching import CatchingUp
from pipelines.streaming.clock import ClockKeeper
from pipelines.streaming.deployment import Lane
from pipelines.streaming.ledger import Told
from pipelines.streaming.letters import BEHIND, LANE, LANE_HEAD, Port
from pipelines.streaming.settling import SETTLED
from pipelines.written import Tally

QUIET = 5_000
LEASE = 3_000


class Read:
    """A lane, of which one process after another reads."""

    def __init__(self, topic: str = "reports-e1-p2") -> None:
        self.lane = Lane(topic, 0)
        self.backend = Backend()
        self.backend.key = (LANES, self.lane)
        self.told = deployment("two", requeue="reports-requeue", quiet=QUIET)
        self.offset = 0
        self.start()

    def start(self) -> None:
        self.keeper = ClockKeeper(self.told, self.backend.states(LANES))

    def record(self, append: int, appended: bool = True) -> None:
        list(self.keeper.take(self.lane, [clock.Record(self.offset, append, appended, b"")]))
        self.offset += 1

    def behind(self, now: int) -> bool:
        """Tell whether a tick says so; if so, to all slots and to the books."""
        letters = list(self.keeper.tick(self.lane, now))
        said = [(each.port, each.key) for each in letters if each.body == BEHIND]
        everyone = [*((Port.WINDOWS, slot) for slot in range(3)), (Port.BOOKS, 0)]
        assert said in ([], everyone)
        # Whoever is told must not have been ticked before.
        ports = [each.port for each in letters if each.body[:1] != BEHIND]
        first = [each.body == BEHIND for each in letters if each.port in (Port.WINDOWS, Port.BOOKS)]
        assert not said or (first[0] and ports)
        return bool(said)


def test_a_lane_is_behind_until_it_gives_what_came_after_the_start() -> None:
    read = Read()
    read.record(NOW - 90_000)
    assert not read.behind(NOW - 80_000)
    read.start()
    assert read.behind(NOW)
    for at in range(20):
        read.record(NOW - 80_000 + at)
        assert read.behind(NOW + 4_000 * at)
    read.record(NOW)
    assert not read.behind(NOW + 90_000)
    read.record(NOW + 1)
    assert not read.behind(NOW + 90_001)


def test_a_lane_that_gives_nothing_is_not_behind_for_long() -> None:
    for topic, appended in (("reports-e1-p2", True), ("reports-requeue", False)):
        read = Read(topic)
        read.record(NOW - 90_000, appended)
        read.start()
        assert read.behind(NOW)
        read.record(NOW - 80_000, appended)
        assert read.behind(NOW + QUIET - 1)
        assert read.behind(NOW + 2 * QUIET - 2)
        assert not read.behind(NOW + 2 * QUIET - 1)


def test_no_lane_is_behind_for_more_than_some_minutes() -> None:
    read = Read()
    read.record(NOW - SETTLED)
    read.start()
    for at in range(0, SETTLED, 4_000):
        read.record(NOW - SETTLED + at)
        assert read.behind(NOW + at)
    read.record(NOW - 1)
    assert not read.behind(NOW + SETTLED)


def test_a_new_lane_is_never_behind() -> None:
    """Whatever is in the topic already: nothing has been told of it."""
    read = Read()
    read.record(NOW - SETTLED)
    assert not read.behind(NOW)
    assert not Read().behind(NOW)


def behind(slot: Slot, now: int) -> None:
    assert slot.take(BEHIND, now) == []


def test_a_window_waits_while_a_lane_is_behind() -> None:
    slot = Slot()
    slot.change(0, 5)
    assert slot.tick(START, NOW) == [("early", 5)]
    slot.start()
    slot.change(0, -2, NOW + 40_000)
    assert slot.tick(START, NOW + 40_000) == []
    for at in range(42_000, 80_000, 2_000):
        behind(slot, NOW + at)
        assert slot.tick(START, NOW + at) == []
    slot.change(0, 3, NOW + 80_000)
    assert slot.tick(START, NOW + 78_000 + LEASE - 1) == []
    assert slot.tick(START, NOW + 78_000 + LEASE) == [("early", 6)]


def test_a_window_that_ends_does_not_wait() -> None:
    slot = Slot()
    slot.change(0, 5)
    slot.start()
    for shard in range(3):
        assert slot.opened(shard, 2801, NOW) == []
    behind(slot, NOW)
    assert slot.opened(3, 2801, NOW) == [("on_time", 5)]


def test_the_books_wait_while_a_lane_is_behind() -> None:
    books = Books()
    books.hear(0, Told(None, Tally(9), {}, 0, {}))
    assert len(books.tick(NOW)) == 2
    books.hear(0, Told(None, Tally(5), {}, 0, {}))
    assert list(books.keeper.take(BEHIND, NOW + 40_000)) == []
    assert books.tick(NOW + 40_000 + LEASE - 1) == []
    books.hear(0, Told(None, Tally(9), {}, 0, {}))
    (_, health) = books.tick(NOW + 40_000 + LEASE)
    assert isinstance(health, HealthDocument)
    assert health.health["reports"] == 9


def test_restored_books_wait_for_what_lanes_say() -> None:
    from pipelines.streaming.books import BookKeeper

    books = Books()
    books.hear(0, Told(None, Tally(9), {}, 0, {}))
    books.keeper = BookKeeper(deployment("two"), books.backend.states(Port.BOOKS))
    body = LANE_HEAD.pack(LANE, START, 1) + b"reports-e1-p2/0"
    assert list(books.keeper.take(body, NOW)) == []
    assert len(list(books.keeper.take(body, NOW + LEASE))) == 2


def honest_logs() -> Logs:
    """Return records of which nothing is ever taken back."""
    (topic,) = EPOCHS["two"]
    logs: Logs = {Lane(str(topic), number): [] for number in range(topic.partitions)}
    for append, message in sorted(honest(16, 2, seed=5)):
        lane = Lane(str(topic), topic.partition(shard_said(message)))
        logs[lane].append(Record(append, message))
    assert min(map(len, logs.values())) > 40
    return logs


def reports(document: Document) -> int:
    """Return what only rises, if nothing is taken back."""
    if isinstance(document, HealthDocument):
        return int(str(document.health["reports"]))
    if isinstance(document, WindowDocument):
        return int(str(document.window["n"]))
    return 0


def key(document: Document) -> object:
    if isinstance(document, WindowDocument):
        names = ("plan", "version", "metric", "window_start")
        return tuple(document.window[name] for name in names)
    return type(document)


def fallen(runner: Runner) -> int:
    """Return how many documents say less than the ones of their key before them."""
    most: dict[object, int] = {}
    number = 0
    for document in runner.panes:
        number += reports(document) < most.get(key(document), 0)
        most[key(document)] = max(most.get(key(document), 0), reports(document))
    return number


def killed_and_restored(lanes: tuple[Lane, ...], logs: Logs) -> Runner:
    """Let a job go back far behind what it has told, and read it again bit by bit."""
    runner = Runner(deployment("two", rows=5), logs, random.Random(3))
    ahead = {lane: len(logs[lane]) for lane in lanes}

    def read(number: int) -> None:
        for lane in lanes:
            runner.read(lane, number)
        runner.deliver()
        runner.tick(1_000)
        runner.deliver()

    for _ in range(10):
        read(2)
    runner.checkpoint()
    for lane in lanes:
        runner.read(lane, ahead[lane])
    for _ in range(8):
        read(0)
    runner.restart(0)
    for _ in range(40):
        read(2)
    runner.finish()
    return runner


def test_documents_say_no_less_after_a_restore() -> None:
    logs = honest_logs()
    lanes = tuple(logs)
    runner = killed_and_restored(lanes, logs)
    assert fallen(runner) == 0
    undisturbed = Runner(deployment("two", rows=5), logs, random.Random(4))
    undisturbed.finish()
    assert streamed(runner) == streamed(undisturbed)


def test_without_waiting_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = honest_logs()
    monkeypatch.setattr(CatchingUp, "behind", lambda *_: False)
    assert fallen(killed_and_restored(tuple(logs), logs)) > 3
