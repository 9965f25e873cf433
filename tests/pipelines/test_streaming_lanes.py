"""Lanes: append times, where messages go, and who is ticked by whom."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from drain_logs import START
from streaming_logs import EPOCHS, deployment, honest
from streaming_runner import LANES, Backend

from pipelines.streaming.clock import ClockKeeper
from pipelines.streaming.deployment import Lane
from pipelines.streaming.letters import MESSAGE_HEAD, TICK_HEAD, UNREADABLE, Letter, Port
from sotto.errors import ParameterError
from sotto.logreader import EARLIEST
from sotto.topics import ReportTopic
from sotto.wire import HEADER, MAGIC, VERSION

LANE = Lane("reports-e1-p2", 0)
NOW = 1_800_000_000_000
BACK = Lane("reports-requeue", 0)


def keeper(lane: Lane) -> ClockKeeper:
    backend = Backend()
    backend.key = (LANES, lane)
    return ClockKeeper(deployment("two", requeue="reports-requeue"), backend.states(LANES))


def said(letter: Letter) -> tuple[int, bool]:
    _, append, damaged = MESSAGE_HEAD.unpack_from(letter.body)
    return append, damaged


def clock(keeper: ClockKeeper, lane: Lane) -> int:
    first = next(iter(keeper.tick(lane, NOW)))
    return int(TICK_HEAD.unpack_from(first.body)[1])


def test_append_times_never_fall() -> None:
    kept = keeper(LANE)
    assert clock(kept, LANE) == EARLIEST
    times = [5, 9, 7, -3, 9, 12]
    letters = [kept.record(LANE, at, time, True, b"") for at, time in enumerate(times)]
    assert [said(letter) for letter in letters] == [(t, False) for t in [5, 9, 9, 9, 9, 12]]
    assert clock(kept, LANE) == 12


def test_a_record_with_its_senders_time_is_damage_and_moves_no_clock() -> None:
    kept = keeper(LANE)
    assert said(kept.record(LANE, 0, 10**15, False, b"")) == (EARLIEST, True)
    kept.record(LANE, 1, 7, True, b"")
    assert said(kept.record(LANE, 2, 10**15, False, b"")) == (7, True)
    assert clock(kept, LANE) == 7


def test_what_is_given_back_keeps_its_time_and_moves_no_clock() -> None:
    kept = keeper(BACK)
    letters = [kept.record(BACK, at, time, False, b"") for at, time in enumerate([9, 3])]
    assert [said(letter) for letter in letters] == [(9, False), (3, False)]
    assert said(kept.record(BACK, 2, 4, True, b""))[1]
    assert clock(kept, BACK) == EARLIEST


def test_a_message_goes_to_the_shard_that_it_says() -> None:
    kept = keeper(LANE)
    messages = [one.message for one in honest(4, 1, seed=3)]
    keys = [kept.record(LANE, 0, START, True, message).key for message in messages]
    assert keys == [HEADER.unpack_from(message)[3] for message in messages]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"SO",
        HEADER.pack(b"XX", VERSION, 0, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, VERSION + 1, 0, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, VERSION, 1, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, VERSION, 0, 4, 1, bytes(32)),
    ],
)
def test_a_message_that_says_no_shard_goes_to_its_own_place(message: bytes) -> None:
    letter = keeper(LANE).record(LANE, 0, START, True, message)
    assert (letter.port, letter.key) == (Port.SHARDS, UNREADABLE)


@pytest.mark.parametrize("epochs", list(EPOCHS))
def test_every_shard_and_slot_is_ticked(epochs: str) -> None:
    told = deployment(epochs, slots=7, requeue="reports-requeue", requeue_partitions=2)
    reached: dict[Port, list[int]] = {port: [] for port in Port}
    for lane in told.lanes:
        backend = Backend()
        backend.key = (LANES, lane)
        for letter in ClockKeeper(told, backend.states(LANES)).tick(lane, NOW):
            reached[letter.port].append(letter.key)
    assert {*reached[Port.SHARDS]} == {UNREADABLE, *range(4)}
    assert sorted(reached[Port.WINDOWS]) == list(range(7))
    assert len(reached[Port.BOOKS]) == len(told.lanes)
    for shard in range(4):
        for lane in told.lanes_of(shard):
            assert shard in told.shards_of(lane)


def test_a_deployment_that_cannot_be_is_refused() -> None:
    for topics in ((), (ReportTopic("a", 1, 1), ReportTopic("b", 1, 1))):
        with pytest.raises(ParameterError, match="epochs of one name"):
            replace(deployment("two"), topics=topics)
    with pytest.raises(ParameterError, match="slots 0"):
        deployment("two", slots=0)


def test_keepers_need_no_engine() -> None:
    """The job's environment has another Beam than drains, and no databases."""
    code = """
import sys
import pipelines.streaming.books, pipelines.streaming.clock
import pipelines.streaming.shards, pipelines.streaming.windows
print({"apache_beam", "pyflink", "sqlalchemy", "kafka", "pydantic"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
