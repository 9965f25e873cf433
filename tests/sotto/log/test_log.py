"""The log: whole records survive whatever happens to the bytes around them."""

import errno
import os
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotto.errors import FormatError, ParameterError, PublishError
from sotto.log import frames
from sotto.log import reader as logreader
from sotto.log.frames import HEADER, MAX_BODY, frame
from sotto.log.reader import Corrupt, LogReader, LogRecord, partitions, segments
from sotto.log.writer import LogWriter


def write(directory, bodies, partition="a", **options):
    with LogWriter(directory, partition, **options) as log:
        return [log.append(body, append_time=at) for at, body in enumerate(bodies)]


def read(directory, start=0, end=None):
    reader = LogReader(Path(directory) / "a")
    found = list(reader.records(start, end))
    assert_blocks_agree(reader, start, end, found)
    return found


def assert_blocks_agree(reader, start, end, found):
    records, corrupt = [], []
    for block in reader.blocks(start, end):
        for offset, length, append in zip(
            block.offsets.tolist(), block.lengths.tolist(), block.append.tolist(), strict=True
        ):
            position = block.position + offset - 16
            records.append(LogRecord(position, append, block.buffer[offset : offset + length]))
        corrupt += block.corrupt
    assert records == [item for item in found if isinstance(item, LogRecord)]
    assert corrupt == [item for item in found if isinstance(item, Corrupt)]


def segment_files(directory):
    return sorted((Path(directory) / "a").glob("*.seg"))


def bodies_of(found):
    return [item.body for item in found if isinstance(item, LogRecord)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=60), max_size=20),
    st.integers(17, 300),
    st.integers(0, 19),
)
def test_what_is_written_is_read(bodies, segment_bytes, cut):
    with tempfile.TemporaryDirectory() as directory:
        positions = write(directory, bodies, segment_bytes=segment_bytes, fsync="never")
        found = read(directory)
        assert found == [
            LogRecord(position, at, body)
            for at, (position, body) in enumerate(zip(positions, bodies, strict=True))
        ]
        cut = min(cut, len(bodies))
        end = positions[cut - 1] + 16 + len(bodies[cut - 1]) if cut else 0
        assert bodies_of(read(directory, 0, end)) + bodies_of(read(directory, end)) == bodies
        assert all(
            path.stat().st_size <= max(segment_bytes, 16 + 76) for path in segment_files(directory)
        )


def test_a_segment_has_the_bytes_of_the_specification(tmp_path):
    write(tmp_path, [b"first"])
    (path,) = segment_files(tmp_path)
    head, checksum = b"SOTTOLOG\1" + bytes(7), zlib.crc32(bytes(8) + b"first")
    assert path.read_bytes() == head + struct.pack("<IIq", 5, checksum, 0) + b"first"


@pytest.mark.parametrize("left", range(16 + 9))
def test_a_torn_record_is_cut_off_when_the_partition_is_opened(tmp_path, left):
    positions = write(tmp_path, [b"first", b"secondone"])
    (path,) = segment_files(tmp_path)
    os.truncate(path, positions[1] + left)
    assert bodies_of(read(tmp_path)) == [b"first"]
    assert write(tmp_path, [b"third"]) == [positions[1]]
    assert [type(item) for item in read(tmp_path)] == [LogRecord, LogRecord]
    assert bodies_of(read(tmp_path)) == [b"first", b"third"]
    assert len(segment_files(tmp_path)) == 1


@pytest.mark.parametrize("left", range(17))
def test_a_torn_segment_header_is_written_again(tmp_path, left):
    write(tmp_path, [b"x"] * 5, segment_bytes=60)
    os.truncate(segment_files(tmp_path)[-1], left)
    assert len(bodies_of(read(tmp_path))) == 4
    write(tmp_path, [b"y"], segment_bytes=60)
    assert bodies_of(read(tmp_path)) == [b"x"] * 4 + [b"y"]
    assert all(isinstance(item, LogRecord) for item in read(tmp_path))


def test_zeros_after_a_power_loss_are_cut_off(tmp_path):
    write(tmp_path, [b"first"])
    (path,) = segment_files(tmp_path)
    os.truncate(path, path.stat().st_size + 5000)
    assert bodies_of(read(tmp_path)) == [b"first"]
    write(tmp_path, [b"second"])
    assert read(tmp_path) == [LogRecord(16, 0, b"first"), LogRecord(37, 0, b"second")]


BODIES = [b"alpha", b"b", b"gamma-gamma", bytes(7), b"epsilon"]


def damaged_logs():
    with tempfile.TemporaryDirectory() as directory:
        positions = write(directory, BODIES, segment_bytes=80)
        for path in segment_files(directory):
            sound = path.read_bytes()
            for at in range(len(sound)):
                for flip in (1, 0x80):
                    damaged = bytearray(sound)
                    damaged[at] ^= flip
                    path.write_bytes(damaged)
                    yield directory, positions, int(path.stem) + at
            for at in range(len(sound)):
                path.write_bytes(sound[:at])
                yield directory, positions, int(path.stem) + at
            path.write_bytes(sound)


def test_damage_anywhere_loses_what_is_damaged_and_nothing_before_or_in_other_segments():
    for directory, positions, at in damaged_logs():
        found = read(directory, 0, positions[-1] + 16 + len(BODIES[-1]))
        whole = {record.position: record.body for record in found if isinstance(record, LogRecord)}
        bases = [int(path.stem) for path in segment_files(directory)]
        segment = max(base for base in bases if base <= at)
        for position, body in zip(positions, BODIES, strict=True):
            if position + 16 + len(body) <= at and at >= segment + 16:
                assert whole[position] == body
            if max(base for base in bases if base <= position) != segment:
                assert whole[position] == body
        # A body that is read at a position is what was written there.
        assert whole.items() <= dict(zip(positions, BODIES, strict=True)).items()


def test_damage_to_a_body_or_its_checksum_loses_one_record():
    for directory, positions, at in damaged_logs():
        reader = LogReader(Path(directory) / "a")
        hit = [i for i, position in enumerate(positions) if position + 4 <= at < position + 17]
        sizes = [path.stat().st_size for path in segment_files(directory)]
        if not hit or sum(sizes) != positions[-1] + 16 + len(BODIES[-1]):
            continue
        found = read(directory, 0, positions[-1] + 16 + len(BODIES[-1]))
        assert bodies_of(found) == BODIES[: hit[0]] + BODIES[hit[0] + 1 :]
        (corrupt,) = [item for item in found if isinstance(item, Corrupt)]
        assert corrupt.position == positions[hit[0]]
        assert len(corrupt.body) == 16 + len(BODIES[hit[0]])
        assert reader.end() <= positions[-1] + 16 + len(BODIES[-1])


def test_every_byte_of_a_damaged_range_is_in_a_record_or_yielded_as_corrupt():
    for directory, positions, _ in damaged_logs():
        end = positions[-1] + 16 + len(BODIES[-1])
        covered = set()
        for item in read(directory, 0, end):
            extra = 16 if isinstance(item, LogRecord) else 0
            span = set(range(item.position, item.position + extra + len(item.body)))
            assert not covered & span
            covered |= span
        there = set()
        for path in segment_files(directory):
            base, size = int(path.stem), path.stat().st_size
            header = 16 if path.read_bytes()[:16] == HEADER else 0
            there |= set(range(base + header, min(base + size, end)))
        assert covered == there


@pytest.mark.slow
def test_a_damaged_partition_can_be_written_and_loses_nothing_by_it():
    for directory, _, _ in damaged_logs():
        before = bodies_of(read(directory))
        files = {path: path.read_bytes() for path in segment_files(directory)}
        (position,) = write(directory, [b"new"])
        found = read(directory)
        after = bodies_of(found)
        assert after[-1] == b"new"
        assert found[-1].position == position
        assert [body for body in after if body in before] == before
        for path in segment_files(directory):
            if path in files:
                path.write_bytes(files[path])
            else:
                path.unlink()


@pytest.mark.parametrize("damage", ["length", "checksums"])
def test_damage_that_is_no_torn_record_stays_and_is_said(tmp_path, damage):
    positions = write(tmp_path, [b"x" * 20] * 4)
    (path,) = segment_files(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "length":
        data[positions[1] : positions[1] + 4] = b"\xff" * 4
    else:
        for position in positions[1:]:
            data[position + 4] ^= 1
    path.write_bytes(data)
    assert len(read(tmp_path)) == 1
    assert write(tmp_path, [b"new"]) == [len(data) + 16]
    assert path.read_bytes() == data
    first, corrupt, new = read(tmp_path)
    assert first == LogRecord(positions[0], 0, b"x" * 20)
    assert corrupt == Corrupt(positions[1], 0, bytes(data[positions[1] :]))
    assert new == LogRecord(len(data) + 16, 0, b"new")


@pytest.mark.parametrize("length", [0, MAX_BODY + 1, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_loses_the_rest_of_its_segment(tmp_path, length):
    positions = write(tmp_path, [b"x" * 50] * 9, segment_bytes=220)
    first = segment_files(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[positions[1] : positions[1] + 4] = length.to_bytes(4, "little")
    first.write_bytes(data)
    found = read(tmp_path)
    assert [item.position for item in found if isinstance(item, LogRecord)] == [
        positions[0],
        *positions[3:],
    ]
    assert found[1] == Corrupt(positions[1], 0, bytes(data[positions[1] :]))


def test_nobody_searches_damage_for_frames(tmp_path):
    forged = frame(b"forged", 10**15)
    positions = write(tmp_path, [b"\0" * 8 + forged, b"next"])
    (path,) = segment_files(tmp_path)
    for length in (0, 1, 2, 24, 10**6, 2**24):
        data = bytearray(path.read_bytes())
        data[16:20] = length.to_bytes(4, "little")
        path.write_bytes(data)
        assert b"forged" not in bodies_of(read(tmp_path, 0, positions[1] + 20))


def test_a_huge_sparse_segment_is_read_in_bounded_pieces(tmp_path):
    positions = write(tmp_path, [b"x"] * 3)
    (path,) = segment_files(tmp_path)
    os.truncate(path, 20 << 20)
    (tmp_path / "a" / f"{20 << 20:020d}.seg").write_bytes(HEADER + frame(b"after", 7))
    found = read(tmp_path)
    assert bodies_of(found) == [b"x"] * 3 + [b"after"]
    stretches = [item for item in found if isinstance(item, Corrupt)]
    assert max(len(item.body) for item in stretches) <= logreader.BLOCK_BYTES
    assert sum(len(item.body) for item in stretches) == (20 << 20) - positions[-1] - 17


def test_a_missing_segment_is_said(tmp_path):
    positions = write(tmp_path, [b"x" * 50] * 9, segment_bytes=220)
    lost = segment_files(tmp_path)[1]
    lost.unlink()
    found = read(tmp_path)
    assert found[3] == Corrupt(int(lost.stem), 2, b"")
    assert [item.position for item in found if isinstance(item, LogRecord)] == positions[
        :3
    ] + positions[6:]
    assert len(found) == 7


def test_append_times_never_fall(tmp_path):
    times = [5, 3, 9, -(2**63), 8, 2**63 - 1]
    with LogWriter(tmp_path, "a", segment_bytes=40) as log:
        for time in times:
            log.append(b"x", time)
    reader = LogReader(tmp_path / "a")
    assert [item.append for item in reader.records()] == [5, 5, 9, 9, 9, 2**63 - 1]
    assert [item.append for item in reader.records(clock=7)] == [7, 7, 9, 9, 9, 2**63 - 1]
    assert [block.clock for block in reader.blocks(clock=7)] == [7, 7, 9, 9, 9, 2**63 - 1]
    # A collector that starts compares its clock with the last record, whatever came before it.
    with LogWriter(tmp_path, "b") as log:
        for time in (5, 2**62, 3):
            log.append(b"x", time)
    (segment,) = segments(tmp_path / "b")
    assert logreader.last_append(segment) == 3


def test_a_reader_sees_whole_records_while_one_is_being_written(tmp_path):
    positions = write(tmp_path, [b"first"])
    (path,) = segment_files(tmp_path)
    whole = frame(b"second", 9)
    reader = LogReader(tmp_path / "a")
    end = reader.end()
    for size in range(1, len(whole)):
        path.write_bytes(path.read_bytes()[:end] + whole[:size])
        assert reader.end(end) == reader.end() == end
    path.write_bytes(path.read_bytes()[:end] + whole)
    assert reader.end(end) == end + len(whole)
    assert list(reader.records(end)) == [LogRecord(end, 9, b"second")]
    assert positions == [16]


@pytest.mark.parametrize("known", [False, True])
def test_a_partition_without_records_that_is_removed_while_it_is_read_is_empty(
    tmp_path, monkeypatch, known
):
    writer, reader = LogWriter(tmp_path, "a", locked=False), LogReader(tmp_path / "a")
    end = reader.end() if known else None

    def listed(partition):
        found = segments(partition)
        writer.retire()
        return found

    monkeypatch.setattr("sotto.log.reader.segments", listed)
    if not known:
        assert reader.end() == 0
    assert list(reader.records(0, end)) == []
    assert partitions(tmp_path) == ()


def test_a_segment_that_is_removed_while_it_is_read_is_missing(tmp_path, monkeypatch):
    write(tmp_path, [b"first", b"second", b"third"], segment_bytes=40)
    reader, paths = LogReader(tmp_path / "a"), segment_files(tmp_path)
    end = reader.end()

    def listed(partition):
        found = segments(partition)
        paths[1].unlink()
        return found

    monkeypatch.setattr("sotto.log.reader.segments", listed)
    found = list(reader.records(0, end))
    assert [item.body for item in found] == [b"first", b"", b"third"]
    assert isinstance(found[1], Corrupt)


def test_what_follows_a_damaged_record_is_seen_once_it_is_whole(tmp_path):
    write(tmp_path, [b"first", b"second"])
    (path,) = segment_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reader = LogReader(tmp_path / "a")
    end = reader.end()
    assert end == 37
    path.write_bytes(data + frame(b"third", 3))
    assert [type(item) for item in reader.records(end)] == [Corrupt, LogRecord]


@pytest.mark.real_randomness
def test_one_writer_a_partition(tmp_path):
    with LogWriter(tmp_path, "a") as log:
        with pytest.raises(PublishError, match="in use"):
            LogWriter(tmp_path, "a")
        code = (
            "import sys; from sotto.log.writer import LogWriter\n"
            "from sotto.errors import PublishError\n"
            "try: LogWriter(sys.argv[1], 'a')\n"
            "except PublishError: sys.exit(7)"
        )
        assert (
            subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 7
        )
        write(tmp_path, [b"other partition"], partition="b")
        log.append(b"still mine", 0)
    write(tmp_path, [b"mine now"])
    assert [path.name for path in partitions(tmp_path)] == ["a", "b"]
    assert partitions(tmp_path / "none") == ()


@pytest.mark.real_randomness
def test_a_child_process_does_not_write(tmp_path):
    with LogWriter(tmp_path, "a") as log:
        log.append(b"parent", 0)
        child = os.fork()
        if child == 0:
            try:
                log.append(b"child", 0)
            except PublishError:
                log.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(PublishError, match="in use"):
            LogWriter(tmp_path, "a")
        log.append(b"parent again", 0)
    assert bodies_of(read(tmp_path)) == [b"parent", b"parent again"]


@pytest.mark.parametrize(("segment_bytes", "position"), [(1 << 20, 37), (40, 53)])
@pytest.mark.parametrize("written", range(0, 30, 3))
def test_a_full_disk_leaves_whole_records(tmp_path, monkeypatch, written, segment_bytes, position):
    """Also where it fills up at the header of a new segment, or just behind that."""
    with LogWriter(tmp_path, "a", segment_bytes=segment_bytes) as log:
        log.append(b"first", 0)
        real, left = os.pwrite, written

        def full(descriptor, data, offset):
            nonlocal left
            if left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            size = real(descriptor, bytes(data)[: min(left, 2)], offset)
            left -= size
            return size

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(PublishError, match="No space left"):
            log.append(b"a record of some length", 1)
        # A new segment stays once its header is whole.
        whole = [37, 16] if position == 53 and written >= 16 else [37]
        assert [path.stat().st_size for path in segment_files(tmp_path)] == whole
        monkeypatch.undo()
        log.append(b"second", 2)
    assert read(tmp_path) == [LogRecord(16, 0, b"first"), LogRecord(position, 2, b"second")]


def broken(*_):
    raise OSError(errno.EIO, "Input/output error")


def test_a_record_that_cannot_be_cut_off_closes_the_writer(tmp_path, monkeypatch):
    log = LogWriter(tmp_path, "a")
    real = os.pwrite

    def torn(descriptor, data, offset):
        if offset > 20:
            broken()
        return real(descriptor, bytes(data)[:5], offset)

    monkeypatch.setattr(os, "pwrite", torn)
    monkeypatch.setattr(os, "ftruncate", broken)
    with pytest.raises(PublishError, match="Input/output"):
        log.append(b"first", 0)
    monkeypatch.undo()
    with pytest.raises(PublishError, match="opened again"):
        log.append(b"second", 0)
    log.close()
    write(tmp_path, [b"third"])
    assert read(tmp_path) == [LogRecord(16, 0, b"third")]


def test_a_failed_fsync_closes_the_writer(tmp_path, monkeypatch):
    log = LogWriter(tmp_path, "a")
    log.append(b"first", 0)
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(PublishError, match="forced"):
        log.sync()
    monkeypatch.undo()
    with pytest.raises(PublishError, match="opened again"):
        log.append(b"second", 0)
    log.close()


@pytest.mark.parametrize(("mode", "forced"), [("always", 3), ("batch", 0), ("never", 0)])
def test_when_bytes_are_forced_to_disk(tmp_path, monkeypatch, mode, forced):
    calls = []
    real = os.fsync
    log = LogWriter(tmp_path, "a", fsync=mode)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append(real(descriptor)))
    for _ in range(3):
        log.append(b"x", 0)
    assert len(calls) == forced
    log.sync()
    assert len(calls) == forced + (mode != "never")
    log.close()
    log.close()
    with pytest.raises(PublishError, match="closed"):
        log.append(b"x", 0)


@pytest.mark.real_randomness
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    code = (
        "import sys\n"
        "from sotto.log.writer import LogWriter\n"
        "log = LogWriter(sys.argv[1], 'a', segment_bytes=5000)\n"
        "number = 0\n"
        "while True:\n"
        "    log.append(b'%d' % number * 50, 0); print(number, flush=True); number += 1\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        for _ in range(300):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = 300 + len(writer.stdout.read().split())
    write(tmp_path, [b"after"])
    bodies = bodies_of(read(tmp_path))
    assert bodies[-1] == b"after"
    assert len(bodies) - 1 in (acknowledged, acknowledged + 1)
    assert bodies[:-1] == [b"%d" % number * 50 for number in range(len(bodies) - 1)]


def test_the_clock_gives_append_times(tmp_path):
    with LogWriter(tmp_path, "a", clock=iter([7, 9]).__next__) as log:
        log.append(b"x")
        log.append(b"x", append_time=8)
        log.append(b"x")
    assert [record.append for record in read(tmp_path)] == [7, 8, 9]


def test_what_cannot_be_a_record_is_refused(tmp_path):
    with LogWriter(tmp_path, "a") as log:
        for body, time in ((b"", 0), (bytes(MAX_BODY + 1), 0), (b"x", 2**63)):
            with pytest.raises(FormatError):
                log.append(body, time)
        log.append(bytes(MAX_BODY), 0)
    assert [len(body) for body in bodies_of(read(tmp_path))] == [MAX_BODY]


@pytest.mark.parametrize(
    ("partition", "options", "message"),
    [
        *((name, {}, "partition") for name in ("", ".", "..", "a/b", "-a", "a" * 65, "ä", "a\n")),
        ("a", {"fsync": "sometimes"}, "fsync"),
        ("a", {"segment_bytes": 16}, "segment_bytes"),
    ],
)
def test_bad_names_and_options_are_refused(tmp_path, partition, options, message):
    with pytest.raises(ParameterError, match=message):
        LogWriter(tmp_path, partition, **options)


def test_a_directory_that_cannot_be_used_is_an_error_of_publishing(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PublishError, match="opened"):
        LogWriter(tmp_path / "file", "a")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=100), st.integers(0, 400))
def test_any_bytes_are_a_log_that_can_be_read(data, more, cut):
    with tempfile.TemporaryDirectory() as directory:
        partition = Path(directory) / "a"
        partition.mkdir()
        content = HEADER + data
        (partition / f"{0:020d}.seg").write_bytes(content)
        (partition / f"{len(content):020d}.seg").write_bytes(more)
        read(directory, 0, min(cut, len(content) + len(more)))
        read(directory, min(cut, 200))
        write(directory, [b"new"])
        assert bodies_of(read(directory))[-1] == b"new"


def test_scans_stop_where_nothing_can_follow():
    data = frame(b"one", 1) + frame(b"two", 2)
    found = frames.scan(data, 0, len(data))
    assert found == ([16, 35], [], len(data), False)
    assert [frames.record(data, offset) for offset in found.offsets] == [(1, 3), (2, 3)]
    assert frames.scan(data, 0, len(data) - 1).end == 19
    assert frames.scan(data + bytes(16), 0, len(data) + 16).lost


def test_a_partition_whose_writer_died_before_its_first_segment_is_empty(tmp_path):
    (tmp_path / "partition").mkdir()
    reader = LogReader(tmp_path / "partition")
    assert list(reader.records(0, 0)) == []
    assert reader.end(0) == 0
