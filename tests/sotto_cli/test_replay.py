"""``sotto replay``: tables become devices, and what they send becomes a log.

And what the devices' ledgers say of it, also of constant metrics and top items.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_records import records_of
from plan_texts import plan_head

from sotto.errors import FormatError, ParameterError
from sotto.log.reader import LogReader, partitions
from sotto.plan.compile import parse_plan
from sotto.plan.durations import parse_time
from sotto.plan.registry import Registry
from sotto.wire.decode import decode
from sotto.wire.format import decode_message
from sotto_cli import main
from sotto_cli.simulation.devices import Schedule, SortedLog
from sotto_cli.simulation.playback import AUDIT_HEAD, Replay, write_audit
from sotto_cli.simulation.table import WRONG_TYPE, Columns, read_recordings

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY

FRAME = plan_head("replayed", (33, 900))
PLAN = f"""{FRAME}
  colour:
    type: category
    domain: [red, blue]
    outside: other
    window: 7d
    ladder: &ladder [{{epsilon: 1}}, {{epsilon: 2, after: 1d}}]
  size:
    type: number
    range: [0, 10]
    outside: clip
    missing: true
    window: 7d
    repeat: {{once: reservoir}}
    ladder: [{{epsilon: 1, after: 7d}}, {{epsilon: 2, after: 8d}}]
  good: {{type: boolean, window: 7d, ladder: *ladder}}
"""
KINDS = f"""{FRAME}
  model:
    type: category
    domain: [red, blue]
    outside: other
    window: 7d
    mechanism: grr
    repeat: {{constant: true}}
    ladder: [{{epsilon: 1}}, {{epsilon: 2, after: 1d}}, {{epsilon: 3, after: 1d}}]
  page:
    type: top_item
    domain: [home, search, cart]
    outside: other
    clip: 20
    window: 7d
    mechanism: permute_and_flip
    ladder: [{{epsilon: 1}}, {{epsilon: 30, after: 1d}}]
"""
#: At this epsilon an answer is a lie less than once in a million times.
SURE = "stored: true, window: 7d, ladder: [{epsilon: 1}, {epsilon: 17, after: 1d}]"
DAYS = "range: [0, 7], points: 8, outside: clip"
MEASURES = f"""{plan_head("measured", (200, 2000), segments="{os: [linux, mac]}")}
  exports: {{type: ordinal, edges: [0, 1, 2, 5], measure: {{count: export}}, {SURE}}}
  often: {{type: ordinal, {DAYS}, measure: {{days: export}}, {SURE}}}
  days: {{type: ordinal, {DAYS}, measure: {{days: app}}, {SURE}}}
  step: {{type: ordinal, measure: {{furthest: [cart, paid]}}, {SURE}}}
  age: {{type: ordinal, measure: {{age: 7d, up_to: 3}}, {SURE}}}
  total: {{type: ordinal, {DAYS}, measure: {{sum: load}}, {SURE}}}
  dark: {{type: boolean, missing: true, measure: {{last: dark}}, {SURE}}}
  used:
    type: boolean
    measure: {{used: export}}
    window: 7d
    ladder: [{{epsilon: 1}}, {{epsilon: 17, after: 1d}}, {{epsilon: 18, after: 1d}}]
"""
HEAD = "who,when,colour,size,good\n"
#: A Thursday, when periods of seven days begin.
START = parse_time("2013-01-03")


@pytest.fixture
def plan():
    return parse_plan(PLAN).compile()


@pytest.fixture
def columns(plan):
    return Columns.of_plan(plan, "who", "when")


def table(devices, rows, every=9 * HOUR):
    """Return a CSV in which each device records every nine hours, devices after one another."""
    lines = [
        f"device-{device},{START + row * every + device},"
        f"{('red', 'blue', 'green')[row % 3]},{row % 11},{('yes', 'no')[row % 2]}\n"
        for device in range(devices)
        for row in range(rows)
    ]
    return HEAD + "".join(lines)


def read(path, plan, text, columns):
    path.write_text(text)
    return read_recordings(path, plan, columns)


def rows(log):
    """All reports of a log: when each arrived, its metric, and what it says."""
    return [
        (append, run.metric, row)
        for append, body in messages(log)
        for run in decode_message(body).groups
        for row in run.rows
    ]


def messages(log):
    return sorted((record.append, record.body) for record in records_of(log))


class TestReading:
    def test_cells(self, tmp_path, plan):
        columns = Columns.of_plan(plan, "who", "when", nulls=["NA"])
        text = HEAD + "".join(
            f"a,2013-01-0{cells}\n" for cells in ("1,,,maybe", "2,NA,nan,1", "3,NA ,1_0,T")
        )
        found = read(tmp_path / "t.csv", plan, text, columns)
        assert found.values["colour"].tolist() == [None, None, "NA "]
        assert found.values["size"].tolist() == [None, WRONG_TYPE, WRONG_TYPE]
        assert found.values["good"].tolist() == [WRONG_TYPE, True, True]

    def test_devices_are_numbered_as_they_appear_and_sorted_by_time(self, tmp_path, plan, columns):
        rows = ("z", 5), ("a", 9), ("z", 3), ("a", 2), ("m", 1)
        text = HEAD + "".join(f"{who},{START + row},red,{row},1\n" for who, row in rows)
        found = read(tmp_path / "t.csv", plan, text, columns)
        assert found.starts.tolist() == [0, 2, 4, 5]
        assert found.row.tolist() == [2, 0, 3, 1, 4]
        assert (found.time - START).tolist() == found.values["size"].tolist() == [3, 5, 2, 9, 1]

    def test_gzip_and_parquet_read_like_csv(self, tmp_path, plan, columns):
        text = table(3, 4)
        plain = read(tmp_path / "t.csv", plan, text, columns)
        packed = tmp_path / "t.csv.gz"
        packed.write_bytes(gzip.compress(text.encode()))
        typed = tmp_path / "t.parquet"
        rows = [line.split(",") for line in text.splitlines()[1:]]
        who, when, colour, size, good = zip(*rows, strict=True)
        pq.write_table(
            pa.table(
                {
                    "who": pa.array(who).dictionary_encode(),
                    "when": pa.array([int(w) for w in when], pa.timestamp("ms", "UTC")),
                    "colour": pa.array(colour),
                    "size": pa.array([int(s) for s in size], pa.int8()),
                    "good": pa.array([g == "yes" for g in good]),
                    "unused": pa.array(who),
                }
            ),
            typed,
        )
        for path in (packed, typed):
            other = read_recordings(path, plan, columns)
            assert (other.time == plain.time).all()
            assert (other.starts == plain.starts).all()
            for name, values in plain.values.items():
                assert other.values[name].tolist() == values.tolist()

    @pytest.mark.parametrize(
        ("content", "name", "error", "says"),
        [
            ("who,when,colour,size\n", "t.csv", ParameterError, "no column 'good'.*'colour'"),
            ("anna,9,yes\n", "t.csv", ParameterError, "^(?!.*anna).*commas between them"),
            ("who,when,colour,size,good,who\n", "t.csv", ParameterError, "several.*'who'"),
            ("", "t.csv", FormatError, "is empty"),
            ("junk", "t.parquet", FormatError, "cannot be read"),
            ("junk", "t.txt", ParameterError, "must end in"),
        ],
    )
    def test_errors(self, tmp_path, plan, columns, content, name, error, says):
        with pytest.raises(error, match=says):
            read(tmp_path / name, plan, content, columns)

    @pytest.mark.parametrize(
        ("text", "time"),
        [
            ("1970-01-01", 0),
            ("1970-01-02T01:00+01:00", DAY),
            ("-5", -5),
            ("1969-12-31 23:59:59.999", -1),
            (17, 17),
        ],
    )
    def test_times(self, text, time):
        assert parse_time(text) == time

    @pytest.mark.parametrize("text", ["", "5.0", "noon", "2013-13-01", 5.0, True, None])
    def test_no_times(self, text):
        with pytest.raises(ParameterError, match="time"):
            parse_time(text)


class TestLanes:
    def test_a_full_buffer_becomes_a_sorted_lane(self, tmp_path):
        times = [(7 * i) % 101 for i in range(100)]
        with SortedLog(tmp_path, "x", buffer_bytes=30 * 170) as log:
            for number, time in enumerate(times):
                log.add(time, b"%06d" % number)
        written = partitions(tmp_path)
        assert [lane.name for lane in written] == [f"x-{i:04d}" for i in range(len(written))]
        assert len(written) > 3
        for lane in written:
            reader = LogReader(lane)
            appends = [record.append for record in reader.records(0, reader.end())]
            assert appends == sorted(appends)
        assert messages(tmp_path) == sorted((t, b"%06d" % n) for n, t in enumerate(times))
        assert (log.messages, log.written) == (100, 600)


class TestSharing:
    def test_every_device_goes_to_one_process(self, tmp_path, plan, columns):
        text = HEAD + "".join(
            f"{device},{START + row},red,1,1\n"
            for device in range(9)
            for row in range(1 + device**2)
        )
        found = read(tmp_path / "t.csv", plan, text, columns)
        shares = found.deal(3)
        assert sorted(np.concatenate(shares).tolist()) == list(range(9))
        rows = [len(found.subset(share)) for share in shares]
        assert sum(rows) == len(found)
        assert max(rows) < 2 * min(rows)


class TestPlaying:
    def test_every_level_is_delivered_in_time(self, tmp_path, plan, columns):
        found = read(tmp_path / "t.csv", plan, table(3, 50), columns)
        played = Replay(tmp_path / "log", processes=1).run(plan, found)
        assert played.unsent == 0
        levels = defaultdict(set)
        for append, body in messages(tmp_path / "log"):
            message = decode_message(body)
            assert len({row.pseudonym for run in message.groups for row in run.rows}) == 1
            for run in message.groups:
                delays = plan.metrics[run.metric].delays
                for row in run.rows:
                    levels[row.chain].add(row.level)
                    due = row.event + delays[row.level] + HOUR
                    assert due <= append < due + HOUR + DAY
        assert set(map(len, levels.values())) == {2}
        chains = sum(line.spent for line in played.audit) // 2_000_000
        assert len(levels) == chains

    def test_messages_are_signed_where_the_plan_says_so(self, tmp_path, columns):
        plan = parse_plan(PLAN + "authentication: required\n").compile()
        found = read(tmp_path / "t.csv", plan, table(3, 50), columns)
        played = Replay(tmp_path / "log", processes=1).run(plan, found)
        sent = list(messages(tmp_path / "log"))
        lengths = np.array([len(body) for _, body in sent])
        decoded = decode(
            b"".join(body for _, body in sent),
            np.cumsum(lengths) - lengths,
            lengths,
            np.array([append for append, _ in sent]),
            Registry([plan]),
        )
        assert decoded.rejects == []
        names = {row.pseudonym.hex() for _, _, row in rows(tmp_path / "log")}
        assert names == {line.pseudonym for line in played.audit}

    def test_each_row_is_sent_in_the_segment_that_it_names(self, tmp_path):
        plan = parse_plan(PLAN + "segments: {os: [linux, mac]}\n").compile()
        columns = Columns.of_plan(plan, "who", "when", segments={"os": "system"})
        path = tmp_path / "t.csv"
        systems = b"linux", b"mac", b"beos", b"", b"\xff"
        path.write_bytes(
            b"who,when,colour,size,good,system\n"
            + b"".join(b"a,%d,red,1,1,%b\n" % (START + i * WEEK, s) for i, s in enumerate(systems))
        )
        found = read_recordings(path, plan, columns)
        said = "bytes that are no UTF-8 text in column 'system': row 6; such cells count as other"
        assert [str(each) for each in found.problems] == [said]
        Replay(tmp_path / "log", processes=1).run(plan, found)
        cells = {
            (row.event - START) // WEEK: message.cell
            for _, body in messages(tmp_path / "log")
            for message in [decode_message(body)]
            for group in message.groups
            for row in group.rows
        }
        assert cells == {0: 0, 1: 1, 2: 2, 3: 2, 4: 2}

    def test_until_stops_all_clocks(self, tmp_path, plan, columns):
        """Each device's last report is early with probability 1/4, those of all below 1e-11."""
        found = read(tmp_path / "t.csv", plan, table(20, 25), columns)
        stop = START + 8 * DAY
        replay = Replay(tmp_path / "log", Schedule(until=stop), processes=1)
        played = replay.run(plan, found)
        appends = [append for append, _ in messages(tmp_path / "log")]
        assert stop - 2 * DAY < max(appends) < stop
        assert played.unsent > 0
        assert played.outcomes["size", "accepted"] == int((found.time < stop).sum())

    def test_cells_that_cannot_be_recorded_are_counted(self, tmp_path, plan, columns):
        path = tmp_path / "t.parquet"
        pq.write_table(
            pa.table(
                {
                    "who": ["a"] * 4,
                    "when": [START + i * WEEK for i in range(4)],
                    "colour": pa.array([1, 2, None, 4]),
                    "size": pa.array([None, 1.5, None, 2.5]),
                    "good": pa.array([True, None, False, True]),
                }
            ),
            path,
        )
        found = read_recordings(path, plan, columns)
        played = Replay(tmp_path / "log", processes=1).run(plan, found)
        assert played.skipped == {
            ("colour", "wrong type"): 3,
            ("colour", "empty cell"): 1,
            ("good", "empty cell"): 1,
        }
        assert played.outcomes == {("size", "accepted"): 4, ("good", "accepted"): 3}

    @pytest.mark.real_randomness
    def test_two_processes(self, tmp_path, plan, columns):
        found = read(tmp_path / "t.csv", plan, table(5, 20), columns)
        finished = []
        replay = Replay(tmp_path / "log", processes=2, buffer_bytes=4000)
        played = replay.run(plan, found, finished.append)
        assert sum(finished) == 5 * 20
        assert {p.name[:9] for p in partitions(tmp_path / "log")} == {"replay-00", "replay-01"}
        # every draw: buffers of 4,000 bytes are too small for one each.
        assert len(partitions(tmp_path / "log")) > 2
        assert {line.device for line in played.audit} == set(range(5))
        assert played.unsent == 0
        assert len(messages(tmp_path / "log")) == played.messages

    @pytest.mark.real_randomness
    def test_progress_that_comes_too_late_is_told_at_the_end(
        self, tmp_path, plan, columns, monkeypatch
    ):
        monkeypatch.setattr("sotto_cli.simulation.playback._report", lambda queue, progress: None)
        found = read(tmp_path / "t.csv", plan, table(2, 3), columns)
        finished = []
        Replay(tmp_path / "log", processes=2).run(plan, found, finished.append)
        assert finished == [6]

    def test_nothing_true_and_no_name_is_written(self, tmp_path, plan, columns):
        text = HEAD + "".join(f"Zaphod,{START + i},Magrathea,7.25,yes\n" for i in range(5))
        found = read(tmp_path / "t.csv", plan, text, columns)
        played = Replay(tmp_path / "log", processes=1).run(plan, found)
        write_audit(tmp_path / "audit.csv", played.audit)
        written = [*(tmp_path / "log").rglob("*.seg"), tmp_path / "audit.csv"]
        assert len(written) == 2
        for path in written:
            content = path.read_bytes()
            assert b"Zaphod" not in content
            assert b"Magrathea" not in content


DEVICES, ROWS = 25, 60


@pytest.fixture(scope="module")
def kinds():
    return parse_plan(KINDS).compile()


@pytest.fixture(scope="module")
def recordings(kinds, tmp_path_factory):
    """Each device names one page most of the time, another model each time; three weeks long."""
    lines = [
        f"device-{device},{START + row * 8 * HOUR},{('red', 'blue')[row % 2]},"
        f"{('home', 'search', 'cart', 'elsewhere')[0 if row % 5 else device % 4]}\n"
        for device in range(DEVICES)
        for row in range(ROWS)
    ]
    path = tmp_path_factory.mktemp("kinds") / "table.csv"
    text = "who,when,model,page\n" + "".join(lines)
    return read(path, kinds, text, Columns.of_plan(kinds, "who", "when"))


@pytest.fixture(scope="module")
def whole(kinds, recordings, tmp_path_factory):
    """A replay of all recordings, and what was sent."""
    log = tmp_path_factory.mktemp("whole") / "log"
    return Replay(log, processes=1).run(kinds, recordings), rows(log)


class TestConstantMetricsAndTopItems:
    def test_what_devices_have_spent_is_what_can_be_counted(self, kinds, whole):
        played, sent = whole
        newest = {}
        for _, metric, row in sent:
            cost = kinds.metrics[metric].mechanism.certified(row.level)
            if cost > newest.get(row.chain, (b"", 0))[1]:
                newest[row.chain] = (row.pseudonym, cost)
        counted = defaultdict(int)
        for pseudonym, cost in newest.values():
            counted[pseudonym.hex()] += cost
        assert counted == {line.pseudonym: line.spent for line in played.audit}
        assert all(line.spent == line.reserved == kinds.cost for line in played.audit)
        assert len(played.audit) == 3 * DEVICES
        assert played.unsent == 0
        assert played.outcomes == {
            ("model", "accepted"): 3 * DEVICES,
            ("model", "period_full"): (ROWS - 3) * DEVICES,
            ("page", "accepted"): ROWS * DEVICES,
        }

    def test_one_model_for_life_and_one_page_a_period(self, whole):
        _, found = whole
        chains = {(metric, row.chain) for _, metric, row in found}
        assert Counter(metric for metric, _ in chains) == {0: 3 * DEVICES, 1: 3 * DEVICES}
        assert {row.level for _, metric, row in found if metric == 0} == {0, 1}
        for append, metric, row in found:
            if metric == 1:
                # The last step of the period, and it arrives when the period is over.
                assert (row.event + HOUR) % WEEK == 0
                assert append >= row.event + HOUR

    def test_counts_of_a_period_that_is_cut_off_are_not_sent(self, kinds, recordings, tmp_path):
        cut_off = Replay(tmp_path / "log", Schedule(until=START + 3 * DAY), processes=1)
        played = cut_off.run(kinds, recordings)
        assert {metric for _, metric, _ in rows(tmp_path / "log")} == {0}
        page, model = kinds.metric("page").cost, kinds.metric("model").cost
        assert {(line.reserved, line.spent) for line in played.audit} == {(page + model, model)}


class TestMeasures:
    """Each period in which a device has a row is answered: from its rows, and from nothing else."""

    def answers(self, tmp_path, text):
        """Return what device ``a`` answers, by week and metric, and the segment of each answer."""
        plan = parse_plan(MEASURES).compile()
        columns = Columns.of_plan(plan, "who", "when", {"step": "reached"}, segments={"os": "os"})
        found = read(tmp_path / "t.csv", plan, text, columns)
        replay = Replay(tmp_path / "log", Schedule(send_every=6 * HOUR), processes=1, seed=27)
        played, said = replay.run(plan, found), defaultdict(dict)
        for _, body in messages(tmp_path / "log"):
            message = decode_message(body)
            for metric, row in ((g.metric, r) for g in message.groups for r in g.rows):
                if row.level == 1:
                    name, week = plan.metrics[metric].name, (row.event - START) // WEEK
                    said[week][name] = plan.metrics[metric].labels[row.payload[0]]
                    said[week]["os"] = message.cell
        return played, dict(said)

    def test_rows_are_uses_and_cells_are_what_is_fed(self, tmp_path):
        """Rows of weeks 0, 2 and 3; in the idle week between the device sends, and is not used."""
        text = "who,when,os,export,reached,load,dark\n" + "".join(
            f"a,{START + at},{rest}\n"
            for at, rest in [
                (2 * DAY, "linux,2,cart,3,yes"),
                (3 * DAY, "linux,,,1,no"),
                (3 * DAY + HOUR, "linux,yes,elsewhere,,"),
                (4 * DAY, "linux,0,paid,1.2,"),
                (2 * WEEK + DAY, "mac,,,,"),
                (2 * WEEK + DAY + HOUR, "mac,no,often,,"),
                (3 * WEEK + DAY, "mac,yes,,,"),
            ]
        )
        played, said = self.answers(tmp_path, text)
        first = {"exports": "2 to 4", "often": "2", "days": "3", "step": "paid", "age": "0"}
        last = {"exports": "0", "often": "0", "days": "1", "step": "none", "age": "2"}
        used_once = {"exports": "1", "often": "1", "age": "3 or more", "used": "true"}
        assert said == {
            0: first | {"total": "5", "dark": "false", "used": "true", "os": 0},
            2: last | {"total": "0", "dark": "missing", "used": "false", "os": 1},
            3: last | {"total": "0", "dark": "missing", "os": 1} | used_once,
        }
        assert played.unsent == 0
        assert {line.period - START // WEEK for line in played.audit} == {0, 2, 3}
        assert all(line.spent == line.reserved for line in played.audit)
        assert played.outcomes == {
            ("export", "accepted"): 5,
            ("step", "accepted"): 4,
            ("load", "accepted"): 3,
            ("dark", "accepted"): 2,
        }
        assert played.skipped[("export", "empty cell")] == 2

    def test_cells_of_the_wrong_type(self, tmp_path):
        text = f"who,when,os,export,reached,load,dark\na,{START},mac,1.5,cart,much,no\n"
        played, said = self.answers(tmp_path, text)
        assert played.skipped == {("export", "wrong type"): 1, ("load", "wrong type"): 1}
        assert said[0]["exports"] == "0"
        assert said[0]["step"] == "cart"


class TestCommand:
    def arguments(self, tmp_path, text):
        (tmp_path / "plan.yaml").write_text(PLAN)
        (tmp_path / "t.csv").write_text(text)
        return [
            "replay",
            *("--plan", str(tmp_path / "plan.yaml")),
            *("--input", str(tmp_path / "t.csv")),
            *("--device-column", "who", "--time-column", "when"),
            *("--out", str(tmp_path / "log"), "--processes", "1"),
        ]

    def test_a_replay(self, tmp_path, capsys):
        text = table(2, 5) + ",0,red,1,1\nx,2013-01-09,red,huge,1\n"
        given = [*self.arguments(tmp_path, text), "--devices", str(tmp_path / "d.csv")]
        assert main(given) == 1
        out, err = capsys.readouterr()
        assert "12 rows, 3 devices, 1 rows skipped" in out
        assert "size: wrong type" in out
        assert "warning: no device id in column 'who': row 12; such rows are skipped" in err
        assert "warning: wrong type in column 'size': row 13; such cells are skipped" in err
        assert "huge" not in out + err
        head, *lines = (tmp_path / "d.csv").read_text().splitlines()
        assert head == ",".join(AUDIT_HEAD)
        assert [len(line.split(",")[2]) for line in lines] == [32] * 3
        assert f"warning: {tmp_path / 'd.csv'} joins each device" in err
        assert "It re-identifies" in err
        assert (tmp_path / "d.csv").stat().st_mode & 0o777 == 0o600

    def test_devices_answer_in_their_turns_or_for_a_trial_in_every_period(self, tmp_path, capsys):
        """A row a week for 40 weeks: each device has one turn in each cycle of four."""
        given = self.arguments(tmp_path, table(3, 40, WEEK))
        text = PLAN.replace("period: 7d", "period: 7d\npanel: 1/4", 1)
        (tmp_path / "plan.yaml").write_text(text)
        for options, accepted in ((), False), (("--ignore-panels",), True):
            out = tmp_path / f"log-{accepted}"
            assert main([*given, "--out", str(out), *options]) == 0
            rows = {}
            for line in capsys.readouterr().out.splitlines():
                name, *cells = line.split()
                rows[name] = cells
            told = dict(zip(rows["recorded"], rows["colour"], strict=True))
            if accepted:
                assert told == {"accepted": "120"}
            else:
                # The table begins and ends within a cycle.
                assert 3 * 9 <= int(told["accepted"]) <= 3 * 11
                assert int(told["accepted"]) + int(told["not_in_panel"]) == 120
            # The aggregator is given the same plan.
            fingerprint = parse_plan(text).compile().fingerprint
            assert {decode_message(body).fingerprint for _, body in messages(out)} == {fingerprint}

    @pytest.mark.real_randomness
    def test_a_seed_gives_the_same_log_and_says_what_that_means(self, tmp_path, capsys):
        given = self.arguments(tmp_path, table(4, 20))
        logs = []
        for out, options in (("a", ["--seed", "7"]), ("b", ["--seed", "7"]), ("c", [])):
            assert main([*given, "--out", str(tmp_path / out), *options]) == 0
            assert ("protects nobody" in capsys.readouterr().err) is bool(options)
            logs.append([path.read_bytes() for path in sorted((tmp_path / out).rglob("*.seg"))])
        # Another log has other chain ids, of 128 bits each.
        assert logs[0] == logs[1] != logs[2]
        assert main([*given, "--out", str(tmp_path / "d"), "--seed", "7", "--processes", "2"]) == 0
        assert messages(tmp_path / "d") == messages(tmp_path / "a")

    def test_another_column(self, tmp_path, capsys):
        given = self.arguments(tmp_path, table(1, 3).replace("colour", "color"))
        assert main(given) == 2
        assert "no column 'colour'" in capsys.readouterr().err
        assert main([*given, "--map", "colour=color", "--until", "2000-01-01"]) == 1
        assert main([*given, "--map", "colour=color"]) == 0

    @pytest.mark.parametrize(
        ("extra", "says"),
        [
            (["--map", "hue=colour"], "no metric or measure 'hue'; it has colour, size, good"),
            (["--input", "no-such.csv"], "--input no-such.csv must be a file"),
        ],
    )
    def test_errors(self, tmp_path, capsys, extra, says):
        assert main([*self.arguments(tmp_path, table(1, 1)), *extra]) == 2
        error = capsys.readouterr().err
        assert error.startswith("sotto: error: ")
        assert says in error
        assert not (tmp_path / "log").exists()

    def test_a_log_is_never_replayed_into_twice(self, tmp_path, capsys):
        given = self.arguments(tmp_path, table(1, 1))
        assert main(given) == 0
        assert main(given) == 2
        assert "is not empty" in capsys.readouterr().err
