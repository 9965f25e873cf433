"""The records that a run takes: all lanes merged by append time, each once, cut to size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_logs import append

from pipelines.sources import frozen as source
from pipelines.sources.frozen import FrozenLog
from pipelines.sources.log import EmbeddedLog
from pipelines.storage import files
from pipelines.storage.intent import Intent
from pipelines.storage.manifest import Manifest
from sotto.errors import AggregationError
from sotto.log import reader
from sotto.log.frames import frame
from sotto.log.reader import LATEST, Block, Corrupt, LogReader, LogRecord
from sotto.log.writer import LogWriter
from sotto.wire.format import Row, encode_message

ROW = bytes(40 + 8 + 42)
MANIFEST = Manifest(state="", key=bytes(16))
FRAME_OF_30 = frame(ROW, 30)


def write(log: Path, lanes: list[list[int]], body: bytes = ROW, **options: int) -> None:
    """Append one-row messages with these append times, a list a lane."""
    for number, times in enumerate(lanes):
        sent = [(time, body + at.to_bytes(8, "little")) for at, time in enumerate(times)]
        append(log, sent, f"{number:03}", **options)


def read(log: Path, intent: Intent) -> list[tuple[str, int, int]]:
    """Return lane, position and append time of every record that an intent takes."""
    return [
        (item.partition, found.position, found.append)
        for item in intent.items
        for found in LogReader(log / item.partition).records(item.start, item.end, item.floor)
        if isinstance(found, LogRecord)
    ]


def take_all(log: Path, limit: int, manifest: Manifest = MANIFEST) -> list[Intent]:
    """Take a log to its end from one frozen view of it."""
    frozen, intents = FrozenLog(log, manifest), []
    while (intent := frozen.take(limit)) is not None:
        intents.append(intent)
    # The header of a segment without records is not worth a run.
    assert frozen.size in {16 * number for number in range(8)}
    return intents


def after(manifest: Manifest, intent: Intent) -> Manifest:
    return Manifest(
        state="",
        key=bytes(16),
        generation=intent.generation,
        clock=intent.clock,
        positions={**manifest.positions, **intent.ends},
        last={**manifest.last, **intent.last},
    )


def take_one_by_one(log: Path, limit: int) -> list[Intent]:
    """Take a log to its end as runs in processes of their own would."""
    manifest, intents = MANIFEST, []
    while (intent := FrozenLog(log, manifest).take(limit)) is not None:
        intents.append(intent)
        manifest = after(manifest, intent)
    return intents


lanes = st.lists(st.lists(st.integers(-5, 20), max_size=12), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(lanes, st.integers(1, 12), st.integers(60, 500), st.integers(100, 400))
def test_everything_is_taken_once_in_the_order_of_time(times, limit, segment_bytes, item_bytes):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "ITEM_BYTES", item_bytes)
        log = Path(folder)
        write(log, times, segment_bytes=segment_bytes)
        intents = take_all(log, limit)
        assert intents == take_one_by_one(log, limit)
        everything = [
            (lane.path.name, found.position, found.append)
            for lane in map(LogReader, sorted(log.iterdir()))
            for found in lane.records()
        ]
        taken = [read(log, intent) for intent in intents]
        assert sorted(record for part in taken for record in part) == sorted(everything)
        clock = -(10**9)
        for intent, part in zip(intents, taken, strict=True):
            assert 1 <= len(part) <= limit
            assert min(append for _, _, append in part) >= clock
            clock = intent.clock
            assert max(append for _, _, append in part) == clock
            for item in intent.items:
                assert item.end - item.start <= max(item_bytes, len(ROW) + 8 + 16 + 16)


def stretches(blocks: Iterable[Block]) -> tuple[list[tuple[int, bytes]], list[Corrupt]]:
    """Return append times and bodies of the records of blocks, and the stretches that are none."""
    records, corrupt = [], []
    for block in blocks:
        for at, length, time in zip(block.offsets, block.lengths, block.append, strict=True):
            records.append((int(time), block.buffer[at : at + length]))
        corrupt += block.corrupt
    return records, corrupt


@settings(max_examples=150, deadline=None)
@given(
    times=lanes,
    limit=st.integers(1, 12),
    segment_bytes=st.integers(60, 1000),
    item_bytes=st.integers(100, 1000),
    block_bytes=st.integers(200, 1000),
    room=st.sampled_from([500, 1000, 2000, 1 << 20]),
    trusted=st.sampled_from([12, LATEST]),
    since=st.sampled_from([None, 5]),
    flipped=st.lists(st.integers(0, 10**6), max_size=4),
)
def test_what_is_kept_of_a_damaged_log_is_what_would_be_read_again(
    times, limit, segment_bytes, item_bytes, block_bytes, room, trusted, since, flipped
):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "ITEM_BYTES", item_bytes)
        patch.setattr(source, "KEPT_BYTES", room)
        patch.setattr(reader, "BLOCK_BYTES", block_bytes)
        log = Path(folder)
        write(log, times, segment_bytes=segment_bytes)
        files = sorted(log.glob("*/*.seg"))
        for place in flipped:
            content = bytearray(files[place % len(files)].read_bytes())
            content[place % len(content)] ^= 0x10
            files[place % len(files)].write_bytes(content)
        frozen = FrozenLog(log, MANIFEST, trusted=trusted, since=since, keep=True)
        while (intent := frozen.take(limit)) is not None:
            assert intent.last == {
                name: last._replace(header=frozen.source.partition(name).header(last.position))
                for name, last in intent.last.items()
            }
            for item in intent.items:
                given = item.start, item.end, item.floor, intent.trusted or LATEST
                again = stretches(frozen.source.partition(item.partition).blocks(*given))
                assert stretches(frozen.partition(item.partition).blocks(*given)) == again
            for each in frozen._partitions:
                kept = each._kept._kept
                assert all(one.end > each.taken for one in kept.get(each.name, []))
                held = sum(one.block.size for blocks in kept.values() for one in blocks)
                assert held + each._kept._room == room


def test_each_stretch_of_a_log_is_read_once(tmp_path, monkeypatch):
    write(tmp_path, [[10, 20, 30], [12, 22]])
    read_pieces, read = LogReader._pieces, []

    def note(self: LogReader, start: int, end: int | None) -> Iterator[object]:
        read.append((self.path.name, start))
        return read_pieces(self, start, end)

    monkeypatch.setattr(LogReader, "_pieces", note)
    # A log that ends with a whole record is not read for its end either.
    monkeypatch.setattr(reader, "sound_size", None)
    frozen = FrozenLog(tmp_path, MANIFEST, keep=True)
    intent = frozen.take(100)
    for item in intent.items:
        _ = list(frozen.partition(item.partition).blocks(item.start, item.end, item.floor))
    assert sorted(read) == [("000", 0), ("001", 0)]


def test_a_late_lane_never_falls_behind_the_committed_clock(tmp_path):
    write(tmp_path, [[10, 20]])
    (first,) = take_all(tmp_path, 100)
    write(tmp_path, [[], [5, 15, 30]])
    (second,) = take_all(tmp_path, 100, after(MANIFEST, first))
    assert [append for _, _, append in read(tmp_path, second)] == [20, 20, 30]
    assert (first.clock, second.clock, second.generation) == (20, 30, 2)


def test_as_of_a_time_before_what_is_committed_is_refused(tmp_path):
    write(tmp_path, [[10, 20]])
    (intent,) = take_all(tmp_path, 100)
    with pytest.raises(AggregationError, match="is before 1970-01-01 00:00"):
        FrozenLog(tmp_path, after(MANIFEST, intent), as_of=19)


@pytest.mark.parametrize("torn", [b"", FRAME_OF_30[:20]], ids=len)
def test_what_is_appended_later_is_left(tmp_path, torn):
    write(tmp_path, [[10, 20]])
    with open(tmp_path / "000" / f"{0:020d}.seg", "ab") as segment:
        segment.write(torn)
    frozen = FrozenLog(tmp_path, MANIFEST)
    with LogWriter(tmp_path, "000", fsync="never", segment_bytes=350) as writer:
        # The second one is in a new segment.
        writer.append(ROW, 25)
        writer.append(ROW, 30)
        intent = frozen.take(100)
        assert intent is not None
        assert len(read(tmp_path, intent)) == 2
        assert frozen.take(100) is None


def test_a_large_message_is_taken_whatever_the_limit(tmp_path):
    write(tmp_path, [[1, 2]], body=bytes(10_000))
    assert [len(read(tmp_path, intent)) for intent in take_all(tmp_path, 1)] == [1, 1]


def test_reports_are_never_fewer_than_a_message_can_have(tmp_path):
    """However many runs and rows, and however short: a limit is kept, and tightly."""
    row = Row(0, bytes(16), bytes(16), 0, b"\0")
    messages = [
        encode_message(bytes(32), 0, [(0, [row] * rows)] * runs)
        for runs, rows in [(1, 1), (1, 9), (5, 1), (3, 4), (40, 1)]
    ]
    append(tmp_path, enumerate([*messages, b"x", messages[0][:-1], b"SO" * 30]))
    frozen = FrozenLog(tmp_path, MANIFEST)
    numbers = []
    while (intent := frozen.take(1)) is not None:
        numbers.append(intent.clock)
    assert numbers == list(range(8))
    for limit, clock in ((9, 0), (10, 1), (15, 2), (26, 2), (27, 3), (66, 3), (67, 4), (68, 5)):
        intent = FrozenLog(tmp_path, MANIFEST).take(limit)
        assert intent.clock == clock


@pytest.mark.parametrize(("period", "most"), [(10, 4), (30, 5), (1000, 6)])
def test_a_run_says_how_many_reports_one_period_brings_at_most(tmp_path, period, most):
    write(tmp_path, [[-1, 3, 9, 20], [5, 8, 31]])
    intent = FrozenLog(tmp_path, MANIFEST, period=period).take(100)
    assert intent.reports == most


def test_no_log_and_empty_lanes_give_nothing(tmp_path):
    assert take_all(tmp_path / "none", 5) == []
    write(tmp_path, [[], []])
    assert take_all(tmp_path, 5) == []


def test_a_missing_lane_is_refused_and_missing_old_segments_are_not(tmp_path):
    write(tmp_path / "log", [[10, 20, 30]], segment_bytes=150)
    (intent,) = take_all(tmp_path / "log", 100)
    manifest = after(MANIFEST, intent)
    first, *_ = sorted((tmp_path / "log" / "000").glob("*.seg"))
    first.unlink()
    assert take_all(tmp_path / "log", 100, manifest) == []
    with pytest.raises(AggregationError, match="another log"):
        FrozenLog(tmp_path / "none", manifest)


def test_damage_is_taken_once_and_cannot_move_the_clock(tmp_path):
    write(tmp_path, [[10, 20, 30], [12, 22]], segment_bytes=150)
    first, second, *_ = sorted((tmp_path / "000").glob("*.seg"))
    broken = bytearray(first.read_bytes())
    # The append time of the only record in it becomes one of the far future.
    broken[16 + 8 + 7] = 0x7F
    first.write_bytes(broken)
    second.unlink()
    intents = take_all(tmp_path, 1)
    assert intents == take_one_by_one(tmp_path, 1)
    assert [intent.clock for intent in intents] == [12, 22, 30]
    stretches = [
        found
        for intent in intents
        for item in intent.items
        for found in LogReader(tmp_path / item.partition).records(item.start, item.end, item.floor)
        if isinstance(found, Corrupt)
    ]
    assert [len(stretch.body) > 0 for stretch in stretches] == [True, False]


def test_a_damaged_end_of_a_lane_is_taken(tmp_path):
    write(tmp_path, [[10, 20]], segment_bytes=150)
    last = sorted((tmp_path / "000").glob("*.seg"))[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\xff")
    # Writing goes on in a new segment, so that the damage is no longer the end.
    write(tmp_path, [[]])
    (intent,) = take_all(tmp_path, 100)
    assert intent.clock == 10
    assert intent == take_one_by_one(tmp_path, 100)[0]


@pytest.mark.parametrize(
    "times", [[20, 30], [10, 20, 30]], ids=["nothing before it", "a record before it"]
)
@pytest.mark.parametrize(
    "torn", [b"\1", b"\1\0\0\0", FRAME_OF_30[:20], FRAME_OF_30[:-1] + b"!"], ids=len
)
def test_a_torn_end_is_no_damage_and_what_is_written_in_its_place_is_taken(tmp_path, torn, times):
    write(tmp_path, [[5, 10], []], segment_bytes=150)
    damaged, *_, last = sorted((tmp_path / "000").glob("*.seg"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    if times[0] != 10:
        last.write_bytes(last.read_bytes()[:16])
    last.write_bytes(last.read_bytes() + torn)
    frozen = FrozenLog(tmp_path, MANIFEST)
    # Writing goes on between the look at the ends and the reading, and cuts off what is torn.
    write(tmp_path, [[20, 30]])
    intent = frozen.take(100)
    assert intent is not None
    assert frozen.take(100) is None
    again = FrozenLog(tmp_path, after(MANIFEST, intent)).take(100)
    seen = [
        found
        for each in (intent, again)
        if each
        for item in each.items
        for found in LogReader(tmp_path / item.partition).records(item.start, item.end)
    ]
    assert [found.append for found in seen if isinstance(found, LogRecord)] == times
    # A writer keeps a frame of which all is there, and goes on behind it: that is damage.
    kept = [torn] if len(torn) == len(FRAME_OF_30) else []
    damage = [found.body for found in seen if isinstance(found, Corrupt)]
    assert damage == [damaged.read_bytes()[16:], *kept]


def test_what_is_taken_is_forced_to_disk(tmp_path, monkeypatch):
    write(tmp_path, [[10, 20, 30], [5]], segment_bytes=150)
    first = FrozenLog(tmp_path, MANIFEST, as_of=20).take(100)
    assert first is not None
    forced: list[str] = []
    fsync = files.os.fsync

    def note(descriptor: int) -> None:
        forced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(files.os, "fsync", note)
    EmbeddedLog(tmp_path).make_durable(first)
    segments = {
        lane: sorted(path.relative_to(tmp_path) for path in (tmp_path / lane).glob("*.seg"))
        for lane in ("000", "001")
    }
    taken = [*segments["000"][:2], *segments["001"]]
    assert sorted(forced) == sorted([".", "000", "001", *map(str, taken)])


def test_damage_before_any_record_has_no_clock(tmp_path):
    (tmp_path / "000").mkdir()
    (tmp_path / "000" / f"{0:020d}.seg").write_bytes(bytes([90]) * 100)
    write(tmp_path, [[]])
    (intent,) = take_all(tmp_path, 100)
    assert (intent.clock, intent.last) == (None, {})
    write(tmp_path, [[10]])
    (following,) = take_all(tmp_path, 100, after(MANIFEST, intent))
    assert following.clock == 10


@given(
    st.lists(st.lists(st.integers(0, 9)).map(sorted), min_size=1, max_size=3),
    st.integers(0, 11),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_a_range_of_time_is_taken_whole_and_what_came_before_it_never(lanes, since, limit):
    with TemporaryDirectory() as folder:
        log = Path(folder)
        write(log, lanes)
        frozen, manifest, taken = FrozenLog(log, MANIFEST, since=since), MANIFEST, []
        while (intent := frozen.take(limit)) is not None:
            taken += read(log, intent)
            manifest = after(manifest, intent)
        assert sorted(time for *_, time in taken) == sorted(
            time for lane in lanes for time in lane if time >= since
        )
        # A later run, which names no time, does not go back to what was left out.
        assert not taken or FrozenLog(log, manifest).take(limit) is None
