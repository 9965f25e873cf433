"""Lanes: append times, where messages go, and who is ticked by whom."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from drain_logs import START
from streaming_logs import EPOCHS, deployment, honest
from streaming_runner import LANES, Backend

from pipelines.streaming.batches import block_of, numbers
from pipelines.streaming.clock import ClockKeeper, Record
from pipelines.streaming.deployment import Lane
from pipelines.streaming.letters import TICK_HEAD, UNREADABLE, Port
from sotto.errors import ParameterError
from sotto.logreader import EARLIEST
from sotto.topics import ReportTopic
from sotto.wire import HEADER, MAGIC, SIGNED_VERSION, VERSION

LANE = Lane("reports-e1-p2", 0)
NOW = 1_800_000_000_000
BACK = Lane("reports-requeue", 0)


def keeper(lane: Lane) -> ClockKeeper:
    backend = Backend()
    backend.key = (LANES, lane)
    return ClockKeeper(deployment("two", requeue="reports-requeue"), backend.states(LANES))


def given(
    keeper: ClockKeeper, lane: Lane, times: list[int], *, appended: bool = True, first: int = 0
) -> list[tuple[int, bool]]:
    """Give empty messages to a lane; return their append times and whether they are damaged."""
    records = [Record(first + at, time, appended, b"") for at, time in enumerate(times)]
    (letter,) = keeper.take(lane, records)
    assert letter.key == UNREADABLE
    block = block_of([letter.body])
    sound = [(int(append), False) for append in block.append]
    return sound + [(each.append, True) for each in block.corrupt]


def clock(keeper: ClockKeeper, lane: Lane) -> int:
    first = next(iter(keeper.tick(lane, NOW)))
    return int(TICK_HEAD.unpack_from(first.body)[1])


def test_append_times_never_fall() -> None:
    kept = keeper(LANE)
    assert clock(kept, LANE) == EARLIEST
    assert given(kept, LANE, [5, 9, 7, -3]) == [(time, False) for time in [5, 9, 9, 9]]
    assert given(kept, LANE, [8, 12], first=4) == [(9, False), (12, False)]
    assert clock(kept, LANE) == 12


def test_records_count_in_the_order_of_their_offsets() -> None:
    kept = keeper(LANE)
    records = [Record(at, time, True, b"") for at, time in enumerate([5, 9, 7])]
    (letter,) = kept.take(LANE, records[::-1])
    assert block_of([letter.body]).append.tolist() == [5, 9, 9]


def test_records_that_come_after_later_ones_keep_their_times() -> None:
    kept = keeper(LANE)
    given(kept, LANE, [50, 60], first=10)
    assert given(kept, LANE, [20, 30]) == [(20, False), (30, False)]
    assert clock(kept, LANE) == 60
    assert given(kept, LANE, [55], first=12) == [(60, False)]


def test_a_record_with_its_senders_time_is_damage_and_moves_no_clock() -> None:
    kept = keeper(LANE)
    assert given(kept, LANE, [10**15], appended=False) == [(EARLIEST, True)]
    given(kept, LANE, [7], first=1)
    assert given(kept, LANE, [10**15], appended=False, first=2) == [(7, True)]
    assert clock(kept, LANE) == 7


def test_what_is_given_back_keeps_its_time_and_moves_no_clock() -> None:
    kept = keeper(BACK)
    assert given(kept, BACK, [9, 3], appended=False) == [(9, False), (3, False)]
    assert given(kept, BACK, [4], first=2) == [(4, True)]
    assert clock(kept, BACK) == EARLIEST


def test_a_message_goes_to_the_shard_that_it_says() -> None:
    messages = [one.message for one in honest(4, 1, seed=3)]
    records = [Record(at, START, True, message) for at, message in enumerate(messages)]
    found = {letter.key: block_of([letter.body]) for letter in keeper(LANE).take(LANE, records)}
    assert len(found) > 1
    for shard, block in found.items():
        sent = [each for each in messages if HEADER.unpack_from(each)[3] == shard]
        assert block.buffer.startswith(b"".join(sent))
        assert block.lengths.tolist() == [len(each) for each in sent]


def test_letters_are_no_longer_than_need_be() -> None:
    messages = [bytes(size) for size in (300_000, 800_000, 10, 1 << 20, 7)]
    records = [Record(at, START, True, message) for at, message in enumerate(messages)]
    bodies = [letter.body for letter in keeper(LANE).take(LANE, records)]
    assert [numbers(body)[0] for body in bodies] == [2, 2, 1]
    block = block_of(bodies)
    assert block.lengths.tolist() == [len(message) for message in messages]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"SO",
        HEADER.pack(b"XX", VERSION, 0, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, SIGNED_VERSION + 1, 0, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, VERSION, 1, 1, 1, bytes(32)),
        HEADER.pack(MAGIC, VERSION, 0, 4, 1, bytes(32)),
    ],
)
def test_a_message_that_says_no_shard_goes_to_its_own_place(message: bytes) -> None:
    (letter,) = keeper(LANE).take(LANE, [Record(0, START, True, message)])
    assert (letter.port, letter.key) == (Port.SHARDS, UNREADABLE)


def test_a_signed_message_goes_to_the_shard_that_it_says() -> None:
    message = HEADER.pack(MAGIC, SIGNED_VERSION, 0, 1, 1, bytes(32))
    (letter,) = keeper(LANE).take(LANE, [Record(0, START, True, message)])
    assert (letter.port, letter.key) == (Port.SHARDS, 1)


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
