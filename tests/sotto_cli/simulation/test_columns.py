"""Tables that are not as they should be: what is wrong is named, and the rest is played back."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_texts import plan_head

from sotto.errors import FormatError, ParameterError
from sotto.plan.compile import parse_plan
from sotto_cli import main
from sotto_cli.simulation.cells import has_offset, time_parser
from sotto_cli.simulation.table import Columns, read_recordings

PLAN = (
    plan_head("replayed", (33, 900))
    + """\
  colour: {type: category, domain: [red], outside: other, window: 7d, ladder: [{epsilon: 1}]}
  size: {type: number, range: [0, 9], outside: clip, window: 7d, ladder: [{epsilon: 1}]}
"""
)
HEAD = b"who,when,colour,size\n"
GOOD = b"good,2025-06-02T00:00Z,red,1\n"
TIME = 1_748_822_400


@pytest.fixture
def plan():
    return parse_plan(PLAN).compile()


@pytest.fixture
def read(tmp_path, plan):
    def read(content, name="t.csv", unit="ms"):
        path = tmp_path / name
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        elif content is not None:
            path.write_bytes(content)
        return read_recordings(path, plan, Columns.of_plan(plan, "who", "when", time_unit=unit))

    return read


def problems(recordings):
    return [(each.what, each.column, each.count, each.places) for each in recordings.problems]


#: A device, a time, a text and a number, each in a row of its own.
UNREADABLE = [
    ("device id that is no UTF-8 text", "who", 1, (3,)),
    ("unparsable time", "when", 1, (4,)),
    ("bytes that are no UTF-8 text", "colour", 1, (5,)),
    ("bytes that are no UTF-8 text", "size", 1, (6,)),
]


@pytest.mark.parametrize(
    ("rows", "found", "left"),
    [
        # Twenty digits; more than any integer has; a word; infinite; far away.
        (
            b"a,12345678901234567890,red,1\nb,%b,red,1\nc,noon,red,1\nd,inf,red,1\n"
            b"e,-99999999999999,red,1\n" % (b"9" * 5000),
            [("unparsable time", "when", 5, (3, 4, 5, 6, 7))],
            1,
        ),
        (
            b"a\xff,2025-06-02T00Z,red,1\nb,2025\xc3,red,1\nc,2025-06-02T00Z,r\xe9d,1\nd,2025-06-02T00Z,a,\xff\n",
            UNREADABLE,
            3,
        ),
        (
            b"a\0,2025-06-02T00Z,red,1\nb,2025\0,red,1\nc,2025-06-02T00Z,re\0d,1\nd,2025-06-02T00Z,a,\0\n",
            UNREADABLE,
            3,
        ),
        # A blank line is none; a row with a cell of two lines, or with odd quotes, is one.
        (
            b'\na,2025-06-02T00Z,red\nb,2025-06-02T00Z,red,1,2\nc,2025-06-02T00Z,"re\nd",x\nd,,red,1\n'
            b'"e"' + b"x" * 1_100_000 + b',2025-06-02T00Z,"r"ed,1\n,2025-06-02T00Z,red,1\n',
            [
                ("wrong number of cells", None, 2, (3, 4)),
                ("no device id", "who", 1, (8,)),
                ("no time", "when", 1, (6,)),
                ("wrong type", "size", 1, (5,)),
            ],
            3,
        ),
        (
            b"".join(b"d,%d,red,1\n" % (TIME * (1 + 999 * (each < 6))) for each in range(12)),
            [("time outside 2000 to 2100", "when", 6, tuple(range(9, 15)))],
            13,
        ),
        # Other capitals, and another unit: as a device, which cannot say so, would take them.
        (
            b"a,2025-06-02T00Z,Red,1000\nb,2025-06-02T00Z,RED,2000\nc,2025-06-02T00Z,dark,3\n",
            [("value outside the plan's domain or range", "colour", 3, (3, 4, 5))],
            4,
        ),
        (
            b"a,2025-06-02T00:00,red,1\nb,2025-06-02 01:00:00,red,1\nc,2025-06-02,red,1\n",
            [("time without an offset, beside others with one", "when", 3, (3, 4, 5))],
            4,
        ),
    ],
)
def test_what_is_wrong_is_named_by_row_and_the_rest_is_read(read, rows, found, left):
    recordings = read(HEAD + GOOD + rows)
    assert problems(recordings) == found
    assert len(recordings) == left
    assert len(recordings) + sum(recordings.skipped.values()) == recordings.rows


def test_a_file_is_refused_if_a_quote_swallows_the_rest_of_it(read):
    last = HEAD + GOOD + b'a,2025-06-02T00Z,red,"1\n'
    for text in (HEAD + b'"' + b"x" * (1 << 21), HEAD.replace(b"s", b'"s'), last, last + last):
        for more in (b"\n" + GOOD, b""):
            with pytest.raises(FormatError, match="a quote is not closed"):
                read(text + more)


def test_seconds_are_read_where_they_are_asked_for(read):
    rows = b"a,%d,red,1\nb,%d.5,red,1\nc,1.748822400e9,red,1\nd,2025-06-02,red,1\n"
    recordings = read(HEAD + rows % (TIME, TIME), unit="s")
    assert recordings.time.tolist() == [1000 * TIME, 1000 * TIME + 500, 1000 * TIME, 1000 * TIME]
    assert recordings.problems == ()
    for unit, many in (("us", 10**6), ("ns", 10**9)):
        assert time_parser(unit)(str(TIME * many)) == 1000 * TIME


def test_rows_of_parquet_are_counted_from_one(read):
    ends = b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"
    broken = [None, pa.py_buffer(ends), pa.py_buffer(b"a\xffb")]
    who, when = pa.Array.from_buffers(pa.string(), 3, broken), [TIME + 0.5, TIME, float("nan")]
    table = {"who": who, "when": when, "colour": ["red", "red", None], "size": [1.0] * 3}
    recordings = read(table, "t.parquet", "s")
    assert recordings.time.tolist() == [1000 * TIME + 500]
    assert problems(recordings) == [
        ("device id that is no UTF-8 text", "who", 1, (2,)),
        ("no time", "when", 1, (3,)),
    ]
    assert str(recordings.problems[1]) == ("no time in column 'when': row 3; such rows are skipped")
    other = {"who": ["a"], "when": [1], "colour": [["red"]], "size": [1.0]}
    for wrong, says in ((other, "column 'colour'"), ({"id": ["a"]}, "the input has 'id'")):
        with pytest.raises(ParameterError, match=says):
            read(wrong, "t.parquet")


def test_files_that_are_cut_off_or_something_else(read, tmp_path):
    table = {"who": ["a"], "when": [1000 * TIME], "colour": ["red"], "size": [1.0]}
    read(table, "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    footer = whole[:-60] + b"\xff" * 50 + whole[-10:]
    for damaged in (whole[: len(whole) // 2], footer, whole[:8] + b"\xff" * 80 + whole[88:]):
        with pytest.raises(FormatError, match="damaged"):
            read(damaged, "t.parquet")
    packed = gzip.compress(HEAD + GOOD * 100)
    with pytest.raises(FormatError, match="damaged"):
        read(packed[: len(packed) // 2], "t.csv.gz")
    with pytest.raises(FormatError, match="no UTF-8 text"):
        read((HEAD + GOOD).decode().encode("utf-16"))
    assert len(read(b"\xef\xbb\xbf" + HEAD + GOOD)) == 1


@pytest.mark.parametrize(
    ("cell", "offset"),
    [
        ("2025-06-02T00:00Z", True),
        ("2025-06-02 00:00+02", True),
        ("2025-06-02T00:00:00.5-0230", True),
        ("2025-06-02T00:00", False),
        ("2025-06-02", False),
        ("1748822400000", None),
        (5, None),
    ],
)
def test_offsets(cell, offset):
    assert has_offset(cell) is offset


def test_the_command_warns_never_quotes_and_says_so_by_its_status(tmp_path, capsys):
    (tmp_path / "plan.yaml").write_text(PLAN)
    given = ["replay", "--plan", str(tmp_path / "plan.yaml"), "--processes", "1"]
    given += ["--device-column", "who", "--time-column", "when"]
    for name, rows, status, says in (
        ("good", GOOD, 0, ""),
        (
            "bad",
            GOOD + b"hidden\xff,1,red,1\nb,%d,red,1\n" % TIME,
            1,
            "--time-unit says what numbers",
        ),
        (
            "seconds",
            GOOD + b"b,%d,red,1\nb,4102444800000,red,1\n" % TIME * 2,
            2,
            "(s, ms, us or ns",
        ),
        ("none", b"", 1, "no row of"),
    ):
        (tmp_path / f"{name}.csv").write_bytes(HEAD + rows)
        files = ["--input", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / name)]
        assert main([*given, *files]) == status
        out, err = capsys.readouterr()
        assert says in err
        assert "hidden" not in out + err
        assert str(TIME) not in out + err
