"""Windows and books: when documents are made, what they say, and when they are no longer kept."""

from __future__ import annotations

from unittest.mock import ANY

import numpy as np
import pytest
from step_plans import DAY, HOUR, PERIOD
from streaming_logs import EPOCHS, deployment, small_plans
from streaming_runner import Backend

from mechanisms.frozen import replace
from pipelines.audit import Totals
from pipelines.counts import WindowKey
from pipelines.published import Document, HealthDocument, PeriodDocument, WindowDocument, parse
from pipelines.streaming.books import BookKeeper
from pipelines.streaming.deployment import Deployment
from pipelines.streaming.ledger import Told
from pipelines.streaming.letters import (
    CHANGE,
    CHANGE_HEAD,
    LANE,
    LANE_HEAD,
    OPENED,
    OPENED_HEAD,
    SHARD,
    SHARD_HEAD,
    TICK,
    TICK_HEAD,
    UNREADABLE,
    Letter,
    Port,
    pack_change,
    unpack_change,
)
from pipelines.streaming.settling import SETTLED
from pipelines.streaming.windows import WindowKeeper
from pipelines.written import Tally
from sotto.errors import FormatError, ParameterError
from sotto.logreader import EARLIEST
from sotto.registry import Registry

NOW = 1_700_000_000_000
START = 2800 * PERIOD
PLAN = small_plans()[0]
WINDOW = WindowKey(PLAN.fingerprint, PLAN.metric("colour").index, START).to_bytes()
END = START + 2 * DAY


class Slot:
    """One slot, to which letters are given, some time after a start."""

    def __init__(self) -> None:
        self.backend = Backend()
        self.start()
        for now in (NOW - 10 * SETTLED, NOW - 5 * SETTLED):
            self.tick(EARLIEST, now)

    def start(self) -> None:
        self.backend.key = (Port.WINDOWS, 0)
        self.keeper = WindowKeeper(
            deployment("two", every=30_000), self.backend.states(Port.WINDOWS)
        )

    def take(self, body: bytes, now: int) -> list[tuple[str, int]]:
        found = [parse(each.name, each.body) for each in self.keeper.take(0, body, now)]
        return [(each.pane, sum(each.window["reports_by_level"])) for each in found]  # type: ignore

    def change(self, level: int, by: int, now: int = NOW) -> list[tuple[str, int]]:
        change = np.zeros((3, 3), dtype=np.int64)
        change[level, 1] = by
        return self.take(CHANGE_HEAD.pack(CHANGE, WINDOW) + pack_change(change), now)

    def tick(self, clock: int, now: int) -> list[tuple[str, int]]:
        return self.take(TICK_HEAD.pack(TICK, clock), now)

    def opened(self, shard: int, period: int, now: int) -> list[tuple[str, int]]:
        return self.take(OPENED_HEAD.pack(OPENED, shard, period), now)


def test_early_on_time_and_late() -> None:
    slot = Slot()
    slot.change(0, 5)
    assert slot.tick(START + HOUR, NOW) == [("early", 5)]
    assert slot.tick(START + HOUR, NOW + 60_000) == []
    slot.change(0, 2)
    assert slot.tick(START + HOUR, NOW + 29_999) == []
    assert slot.tick(START + HOUR, NOW + 30_000) == [("early", 7)]
    assert slot.tick(END + HOUR + DAY - 1, NOW + 99_000) == []
    assert slot.tick(END + HOUR + DAY, NOW + 99_001) == [("on_time", 7)]
    assert slot.tick(END + 9 * DAY, NOW + 999_000) == []
    slot.change(0, -1)
    assert slot.tick(END + 9 * DAY, NOW + 999_001) == [("late", 6)]


def test_a_new_rung_is_told_of_at_once() -> None:
    slot = Slot()
    slot.change(0, 5)
    slot.tick(START, NOW)
    slot.change(1, 1)
    assert slot.tick(START, NOW + 1) == [("early", 6)]
    slot.change(1, 1)
    assert slot.tick(START, NOW + 2) == []
    slot.change(2, 1)
    assert slot.tick(START, NOW + 3) == [("early", 8)]


def test_time_goes_on_where_the_log_is_silent() -> None:
    slot = Slot()
    slot.change(0, 5)
    slot.tick(END, NOW)
    assert slot.tick(END, NOW + HOUR + DAY - 1) == []
    assert slot.tick(END, NOW + HOUR + DAY) == [("on_time", 5)]


def test_a_window_whose_reports_were_all_taken_back_has_no_estimates() -> None:
    slot = Slot()
    slot.change(0, 5)
    slot.tick(START, NOW)
    slot.change(0, -5)
    (letter,) = slot.keeper.take(0, TICK_HEAD.pack(TICK, START), NOW + 30_000)
    document = parse(letter.name, letter.body)
    assert isinstance(document, WindowDocument)
    assert document.estimates == ()


def test_a_window_of_too_few_reports_says_nothing_of_them_and_again_once_it_has_too_few() -> None:
    slot, plans = Slot(), [replace(each, minimum_reports=20) for each in small_plans()]
    window = WindowKey(plans[0].fingerprint, 0, START).to_bytes()
    asked = Deployment("job", Registry(plans), EPOCHS["two"], every=30_000, slots=3, rows=30)
    slot.keeper = WindowKeeper(asked, slot.backend.states(Port.WINDOWS))
    found = []
    for at, (symbol, by) in enumerate([(0, 19), (1, 1), (1, -1), (0, -19), (2, 19)]):
        now = NOW + (at + 1) * 30_000
        change = np.zeros((3, 3), dtype=np.int64)
        change[0, symbol] = by
        list(slot.keeper.take(0, CHANGE_HEAD.pack(CHANGE, window) + pack_change(change), now))
        (letter,) = slot.keeper.take(0, TICK_HEAD.pack(TICK, START), now)
        document = parse(letter.name, letter.body)
        assert isinstance(document, WindowDocument)
        found.append(document)
    why = "19 reports, the plan asks for 20"
    assert [each.window["withheld"] for each in found] == [why, None, why, ANY, why]
    assert [len(each.estimates) for each in found] == [3, 3, 3, 0, 3]
    known = [{row["value"] is not None for row in each.estimates} for each in found]
    assert known == [{False}, {True}, {False}, set(), {False}]
    # The same number of other payloads: the same document but for its revision.
    first, last = found[0], found[-1]
    assert (first.window | {"revision": 0}) == (last.window | {"revision": 0})
    assert [row | {"revision": 0} for row in first.estimates] == [
        row | {"revision": 0} for row in last.estimates
    ]


def test_revisions_rise_also_where_the_clock_is_set_back() -> None:
    slot = Slot()
    revisions = []
    for at, now in enumerate([NOW, NOW - 10**6, NOW + 10**6]):
        slot.change(0, 1)
        for letter in slot.keeper.take(0, TICK_HEAD.pack(TICK, START + at), now):
            revisions.append(parse(letter.name, letter.body).revision)
    assert revisions == [NOW, NOW + 1, NOW + 10**6]


def test_a_window_is_kept_until_every_shard_has_closed_its_last_period() -> None:
    slot = Slot()
    slot.change(0, 5)
    for shard in range(3):
        assert slot.opened(shard, 2802, NOW) == []
    slot.opened(3, 2800, NOW)
    slot.change(0, 1)
    assert slot.opened(3, 2801, NOW) == [("on_time", 6)]
    held = slot.backend.content[Port.WINDOWS, 0]
    assert (held["counts"], held["agenda"]) == ({}, {})
    with pytest.raises(FormatError, match="closed"):
        slot.change(0, 1)


def test_a_window_is_told_of_at_its_end_even_if_nothing_is_new() -> None:
    slot = Slot()
    slot.change(0, 5)
    assert slot.tick(END + 9 * DAY, NOW) == [("on_time", 5)]
    assert [slot.opened(shard, 2801, NOW + shard) for shard in range(4)][-1] == [("late", 5)]


def test_what_is_told_soon_after_a_start_is_told_again() -> None:
    """Whoever was there before may still have written, under a higher revision."""
    slot = Slot()
    slot.change(0, 5)
    assert slot.tick(START, NOW) == [("early", 5)]
    slot.start()
    assert slot.tick(START, NOW + 50) == []
    assert slot.tick(START, NOW + 50 + SETTLED) == []
    slot.start()
    assert slot.tick(START, NOW + SETTLED) == []
    slot.change(1, 1)
    assert slot.tick(START, NOW + SETTLED + 3_000) == [("early", 6)]
    assert slot.tick(START, NOW + 2 * SETTLED - 1) == []
    assert slot.tick(START, NOW + 2 * SETTLED) == [("early", 6)]
    assert slot.tick(START, NOW + 9 * SETTLED) == []


def test_another_number_of_slots_is_refused() -> None:
    slot = Slot()
    slot.opened(0, 2800, NOW)
    other = deployment("two", slots=4)
    slot.keeper = WindowKeeper(other, slot.backend.states(Port.WINDOWS))
    with pytest.raises(ParameterError, match="slots 4 must be 3"):
        slot.tick(START, NOW)


def test_counts_are_never_negative() -> None:
    slot = Slot()
    with pytest.raises(FormatError, match="negative"):
        slot.change(0, -1)


@pytest.mark.parametrize("most", [0, 127, 128, -128, -129, 2**15, -(2**31), 2**31, 2**62])
def test_changes_are_packed_as_small_as_they_are(most: int) -> None:
    change = np.array([[0, most], [1, -1]], dtype=np.int64)
    packed = pack_change(change)
    assert (unpack_change(packed) == change).all()
    assert unpack_change(packed).dtype == np.int64
    assert len(packed) == 7 + 4 * next(
        n for n in (1, 2, 4, 8) if -most - 1 < 2 ** (8 * n - 1) > most
    )


@pytest.mark.parametrize("packed", [b"", b"\1\0\1\0\0\0\1", b"\1\0\1\0\0\0\7abc"])
def test_what_is_no_change_is_refused(packed: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_change(packed)


class Books:
    """The books, to which letters are given."""

    def __init__(self) -> None:
        self.backend = Backend()
        self.backend.key = (Port.BOOKS, 0)
        self.keeper = BookKeeper(deployment("two", every=30_000), self.backend.states(Port.BOOKS))

    def hear(self, shard: int, told: Told) -> None:
        body = SHARD_HEAD.pack(SHARD, shard) + told.to_json()
        assert list(self.keeper.take(body, NOW)) == []

    def tick(self, now: int, offset: int = 0, lane: bytes = b"reports-e1-p2/0") -> list[Document]:
        body = LANE_HEAD.pack(LANE, START, offset) + lane
        letters: list[Letter] = list(self.keeper.take(body, now))
        return [parse(letter.name, letter.body) for letter in letters]


def totals(number: int) -> Totals:
    return Totals(number, 0, 0, 2 * number, 7, 8, number, 10 * number)


def test_the_books_sum_what_shards_have_told_last() -> None:
    books = Books()
    for shard in range(4):
        for number in (1, 2):
            told = Told(
                None, Tally(number * 5, 3), {"late": number}, 100, {2800: totals(shard + 1)}
            )
            books.hear(shard, told)
    books.hear(UNREADABLE, Told(None, Tally(), {"malformed": 9}))
    period, rejects, health = books.tick(NOW)
    assert isinstance(period, PeriodDocument)
    assert (period.period["pseudonyms"], period.period["most_observed"]) == (10, 40)
    assert period.period["closed"] is False
    assert rejects.rejects == {"late": 8, "malformed": 9}  # type: ignore[attr-defined]
    assert isinstance(health, HealthDocument)
    assert health.health["reports"] == 40
    assert health.health["chains"] == 20
    assert health.health["state_bytes"] == 400
    assert health.health["clock"] == START


def test_books_are_told_of_only_so_often_and_only_if_there_is_something_new() -> None:
    books = Books()
    assert len(books.tick(NOW, offset=5)) == 2
    assert books.tick(NOW + 29_999, offset=6) == []
    (_, health) = books.tick(NOW + 30_000, offset=6)
    assert health.health["offsets"] == {"reports-e1-p2/0": 6}  # type: ignore[attr-defined]
    assert books.tick(NOW + 99_000, offset=6) == []


def test_books_tell_again_what_they_told_soon_after_a_start() -> None:
    books = Books()
    books.hear(0, Told(None, Tally(), {}, 0, {2800: totals(1)}))
    told = [str(each) for each in books.tick(NOW)]
    assert len(told) == 3
    assert books.tick(NOW + SETTLED - 1) == []
    again = books.tick(NOW + SETTLED)
    assert {each.revision for each in again} == {NOW + SETTLED}
    assert [str(each).replace(str(NOW + SETTLED), str(NOW)) for each in again] == told
    assert books.tick(NOW + 9 * SETTLED) == []


def test_a_period_is_closed_once_every_shard_has_closed_it() -> None:
    books = Books()
    for shard in range(4):
        books.hear(shard, Told(2800, Tally(), {}, 0, {2800: totals(1)}))
    (period, *_) = books.tick(NOW)
    assert period.period["closed"] is False  # type: ignore[attr-defined]
    for shard in range(3):
        books.hear(shard, Told(2801, Tally(), {}, 0, {2800: totals(2)}))
    books.hear(3, Told(2801, Tally(), {}, 0, {}))
    (period, _, health) = books.tick(NOW + 30_000)
    assert period.period["closed"] is True  # type: ignore[attr-defined]
    assert period.period["pseudonyms"] == 7  # type: ignore[attr-defined]
    assert health.health["pseudonyms"] == 0  # type: ignore[attr-defined]
    assert len(books.backend.content[Port.BOOKS, 0]["periods"]) == 1
    for shard in range(4):
        books.hear(shard, Told(2802, Tally(), {}, 0, {}))
    assert len(books.tick(NOW + 60_000)) == 2
