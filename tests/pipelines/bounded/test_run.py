"""Aggregating whole logs: against the rules, however they are cut, and when something is wrong."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from committed_states import committed, counted, projected, rejects
from crashes import Killed, after_runs, aggregate, kill_at
from report_logs import START, Device, Sent, append, faulty, honest, write
from run_reference import expected
from step_plans import DAY, HOUR, PERIOD, category, plan, plans, registry

from pipelines.aggregation import decode as parts
from pipelines.bounded.run import RunResult
from pipelines.results.tables import WINDOWS
from pipelines.sinks.base import SinkError
from pipelines.sinks.sql import Results, of_state
from pipelines.storage import files
from pipelines.storage import states as storedstates
from pipelines.storage.directory import LastRun, Problem, StateDirectory
from sotto.errors import AggregationError, ParameterError
from sotto.log.reader import LogReader, LogRecord, partitions
from sotto.plan.registry import Registry
from sotto.wire.format import Row, decode_message

pytestmark = pytest.mark.slow

WRITE = os.write
CANDIDATES = {plans()[1].fingerprint: {"path": ("home", "away")}}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run") / "log", honest(30, 4, 1) + faulty(2))


@pytest.fixture(scope="module")
def truth(log):
    return expected(log, registry())


@pytest.fixture(scope="module")
def one_run(log, tmp_path_factory):
    state = tmp_path_factory.mktemp("run") / "state"
    return state, aggregate(log, state, plans(), candidates=CANDIDATES)


@pytest.fixture(scope="module")
def five_runs(log, tmp_path_factory):
    state = tmp_path_factory.mktemp("run") / "state"
    result = aggregate(log, state, plans(), candidates=CANDIDATES, max_reports=110)
    assert result.runs == 5
    return state, result


@pytest.fixture(params=["one_run", "five_runs"])
def aggregated(request):
    return request.getfixturevalue(request.param)


def check_against_rules(state, result, truth):
    """Compare counts, audits and tally with those of the rules."""
    assert counted(state) == truth.counts
    audits = StateDirectory(state).manifest().audit()
    assert truth.audits == {
        period: (t.pseudonyms, t.accepted, t.observed, t.revoked) for period, t in audits.items()
    }
    assert result.tally.counted == truth.fates["counted"]
    assert result.tally.reports == truth.fates["reports"]


def test_counts_and_audits_are_those_of_the_rules(aggregated, truth):
    check_against_rules(*aggregated, truth)


def test_no_report_vanishes(aggregated, truth):
    _, result = aggregated
    tally, rejects = result.tally, result.rejects
    undecodable = {"malformed", "unknown_plan", "impossible_level"}
    refused = sum(number for reason, number in rejects.items() if reason not in undecodable)
    assert tally.reports == tally.counted + tally.superseded + tally.duplicates + refused
    for reason in (*undecodable, "late", "future"):
        assert rejects[reason] == truth.fates[reason] > 0
    assert rejects["revoked"] == truth.fates["revoked"] > 0
    assert tally.duplicates > 0
    assert tally.revoked == 2


def outcome(state, result):
    """Return what does not depend on how a log is cut."""
    content = projected(state, without=("revision",))
    del content["meta"]
    kept = Counter[str]()
    for row in content.pop("quarantine"):
        kept[str(row["reason"])] += row["rows"]
    tally = StateDirectory(state).manifest().tally
    assert (result.tally, result.rejects) == (tally, kept)
    return content, sorted(each.message for each in rejects(state)), tally, kept


def test_cutting_a_log_changes_nothing(one_run, five_runs):
    assert outcome(*one_run) == outcome(*five_runs)


def test_quarantine_keeps_bytes_and_reasons(one_run):
    found = [(each.reason.label, each.message) for each in rejects(one_run[0])]
    assert ("malformed", b"no report") in found
    rows = [
        (reason, row.event)
        for reason, message in found
        if reason in ("late", "future")
        for run in decode_message(message).groups
        for row in run.rows
    ]
    assert rows == [("future", START + DAY)] * 2 + [("late", START)] * 3


def test_only_what_is_committed_is_kept(five_runs):
    state, _ = five_runs
    manifest = StateDirectory(state).manifest()
    named = {"MANIFEST.json"}
    named |= {f"plans/{plan.fingerprint.hex()}.json" for plan in plans()}
    named |= {f"plans/{fingerprint.hex()}.candidates" for fingerprint in CANDIDATES}
    for (period, part), held in manifest.states.items():
        if held.snapshot is not None:
            named.add(f"states/{period}.{part}.{held.snapshot.generation}")
        named |= {f"logs/{period}.{part}.{log.generation}" for log in held.logs}
    named |= {f"counts/{page}.{generation}" for page, generation in manifest.pages.items()}
    named |= {f"published/{page}.{each.generation}" for page, each in manifest.published.items()}
    named |= {f"quarantine/{entry.generation}" for entry in manifest.quarantine}
    assert set(committed(state)) == named
    assert manifest.first_open is not None
    assert {period for period, _ in manifest.states} == {
        period for period in manifest.audit() if period >= manifest.first_open
    }
    assert set(manifest.periods) == set(manifest.audit()) - {p for p, _ in manifest.states}


def test_a_state_directory_is_its_owner_s_unless_it_was_made_otherwise(tmp_path):
    log, found = write(tmp_path / "log", honest(1, 1, 1)), {}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    before = os.umask(0o022)
    try:
        for name in ("made", "shared"):
            aggregate(log, tmp_path / name, plans())
            found[name] = (tmp_path / name).stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert found == {"made": 0o700, "shared": 0o750}


def test_as_of_is_what_a_shorter_log_gives(tmp_path):
    sent = honest(8, 2, 3)
    moment = START + PERIOD + DAY
    log = write(tmp_path / "log", sent)
    shorter = write(tmp_path / "shorter", [one for one in sent if one.append <= moment])
    aggregate(log, tmp_path / "one", plans(), as_of=moment)
    aggregate(shorter, tmp_path / "two", plans())
    assert counted(tmp_path / "one") == counted(tmp_path / "two") != {}
    aggregate(log, tmp_path / "one", plans())
    assert counted(tmp_path / "one") == expected(log, registry()).counts


def test_a_window_is_estimated_again_only_when_it_changes(tmp_path):
    device = Device(plans()[0], random.Random(4))
    colour = device.plan.metric("colour")
    early, late = device.chain(colour, START, 1), device.chain(colour, START + 4 * DAY, 1)
    log = write(tmp_path / "log", early, lanes=1)
    aggregate(log, tmp_path / "state", plans())
    append(log, [*late, *early])
    aggregate(log, tmp_path / "state", plans())
    revisions = [row["revision"] for row in projected(tmp_path / "state")["windows"]]
    assert revisions == [1, 2]


def test_a_window_whose_reports_are_all_taken_back_has_no_results(tmp_path):
    device = Device(plans()[0], random.Random(4))
    colour = device.plan.metric("colour")
    event = START - START % HOUR
    row = Row(0, device.pseudonym, bytes(16), event, b"\0")
    log = write(tmp_path / "log", [device.send(event + DAY, colour, row)], lanes=1)
    aggregate(log, tmp_path / "state", plans())
    assert len(projected(tmp_path / "state")["windows"]) == 1
    write(log, [device.send(event + DAY, colour, row._replace(payload=b"\1"))], lanes=1)
    assert aggregate(log, tmp_path / "state", plans()).rejects == {"revoked": 2}
    content = projected(tmp_path / "state")
    assert (content["windows"], content["estimates"]) == ([], [])


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "log", honest(16, 1, 7))


def test_a_database_that_is_deleted_is_made_again(small, tmp_path):
    state = tmp_path / "state"
    aggregate(small, state, plans(), max_reports=30)
    before = projected(state)
    (state / "results.db").unlink()
    assert aggregate(small, state, plans()).runs == 0
    assert projected(state) == before
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    aggregate(small, state, plans(), elsewhere)
    assert projected(elsewhere) == before


def test_a_database_of_another_generation_is_brought_up_to_date(small, tmp_path):
    state = tmp_path / "state"
    aggregate(small, state, plans(), max_reports=30, stop=after_runs(1))
    (state / "results.db").rename(tmp_path / "old.db")
    old = f"sqlite:///{tmp_path / 'old.db'}"
    aggregate(small, state, plans(), max_reports=30)
    assert projected(old)["meta"][0]["projected_generation"] == 1
    aggregate(small, state, plans(), old)
    assert projected(old) == projected(state)


def test_results_of_a_copy_that_went_another_way_are_made_anew(small, tmp_path):
    state, copy = tmp_path / "state", tmp_path / "copy"
    database = f"sqlite:///{tmp_path / 'results.db'}"
    aggregate(small, state, plans(), database, max_reports=20, stop=after_runs(1))
    shutil.copytree(state, copy)
    aggregate(small, state, plans(), database, max_reports=30, stop=after_runs(1))
    aggregate(small, copy, plans(), max_reports=20)
    aggregate(small, copy, plans(), database)
    assert projected(database) == projected(copy)


def test_a_plan_may_be_added_and_is_kept(tmp_path):
    first, second = plans()
    state = tmp_path / "state"
    sent = honest(6, 1, 7)
    log = write(tmp_path / "log", [one for one in sent if one.message[8:40] == first.fingerprint])
    aggregate(log, state, [first])
    append(log, sent)
    aggregate(log, state, [second, first])
    assert counted(state) == expected(log, Registry([first, second])).counts
    before = committed(state)
    for given in ([second], []):
        assert aggregate(log, state, given).runs == 0
        assert committed(state) == before
    StateDirectory(state).plans.path(first.fingerprint_hex).unlink()
    with pytest.raises(AggregationError, match=f"step version 1.*{first.fingerprint_hex}.*--plan"):
        aggregate(log, state)


def test_a_plan_that_comes_late_cannot_count_into_a_closed_period(tmp_path):
    """The state of a closed period is gone: its rows could be counted twice."""
    short = plan(1, 4, category("colour", 3, 0.5))
    long = plan(2, 4, category("colour", 3, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8))
    source = random.Random(5)
    old, other, new = (Device(each, source) for each in (short, short, long))
    # Without the second plan, the first period is over 8 days after its end.
    end = START - START % PERIOD + PERIOD + PERIOD + DAY
    sent = old.chain(short.metrics[0], START)
    sent += [one._replace(append=end + DAY) for one in other.chain(short.metrics[0], end)]
    log = write(tmp_path / "log", sent, lanes=1)
    state = tmp_path / "state"
    aggregate(log, state, [short])
    append(log, [(end + DAY, message) for _, message in new.chain(long.metrics[0], START)])
    result = aggregate(log, state, [short, long])
    assert result.rejects == {"late": 8}
    assert result.tally.counted == 0


def test_quarantine_is_removed_after_its_retention(tmp_path):
    state = tmp_path / "state"
    log = write(tmp_path / "log", [Sent(START, b"no report")], lanes=1)
    aggregate(log, state, plans())
    assert (state / "quarantine" / "1").exists()
    for day, kept in ((29, True), (30, False)):
        append(log, [(START + day * DAY, b"no report either")])
        aggregate(log, state, plans())
        assert (state / "quarantine" / "1").exists() == kept
    assert projected(state, without=("collector",))["quarantine"] == [
        {"generation": 0, "reason": "malformed", "rows": 3, "requeued": 0}
    ]


def test_a_damaged_log_is_quarantined_and_the_rest_counted(tmp_path):
    device = Device(plans()[0], random.Random(4))
    sent = [one for _ in range(3) for one in device.chain(device.plan.metrics[0], START, 1)]
    log = write(tmp_path / "log", sent, lanes=1)
    (segment,) = (log / "lane-0").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[16 + 16 + 60] ^= 1
    segment.write_bytes(content)
    result = aggregate(log, tmp_path / "state", plans())
    assert result.rejects == {"corrupt_log": 1}
    assert result.tally.counted == 2


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [flipped, None])
@pytest.mark.parametrize("folder", ["states", "logs", "counts"])
def test_damaged_state_is_an_error(small, tmp_path, monkeypatch, folder, damage):
    if folder == "states":
        monkeypatch.setattr(storedstates, "SHORT", 0)
    state = tmp_path / "state"
    aggregate(small, state, plans())
    paths = list((state / folder).iterdir())
    for path in paths:
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage(path.read_bytes()))
    manifest = (state / "MANIFEST.json").read_bytes()
    write(small, honest(6, 1, 8))
    with pytest.raises(AggregationError, match="|".join(re.escape(path.name) for path in paths)):
        aggregate(small, state, plans())
    assert (state / "MANIFEST.json").read_bytes() == manifest


def test_missing_pieces_are_errors(small, tmp_path):
    state = tmp_path / "state"
    with pytest.raises(AggregationError, match="no log"):
        aggregate(tmp_path / "none", state, plans())
    with pytest.raises(AggregationError, match="no plans"):
        aggregate(small, state, [])
    assert not state.exists()
    with pytest.raises(AggregationError, match="max_reports"):
        aggregate(small, state, plans(), max_reports=0)
    with pytest.raises(ParameterError, match="publish must be a list"):
        aggregate(small, state, plans(), publish=lambda generation: None)


@pytest.mark.parametrize(
    "folder", ["plans", "states", "logs", "counts", "quarantine", "results.db"]
)
def test_a_directory_that_nobody_aggregated_into_is_not_taken_over(small, tmp_path, folder):
    state = tmp_path / "state"
    kept = state / folder if folder == "results.db" else state / folder / "12"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(AggregationError, match=r"MANIFEST\.json is missing"):
        aggregate(small, state, plans())
    assert [path for path in state.rglob("*") if path.is_file() and path.name != "LOCK"] == [kept]


def test_only_names_that_runs_give_are_removed(small, tmp_path):
    state = tmp_path / "state"
    aggregate(small, state, plans())
    before = committed(state)
    strangers = "notes.tmp a.new plans/a.tmp counts/a.csv quarantine/a.eml states/a logs/a"
    ours = "MANIFEST.json.new attempts/a/b counts/3.2 quarantine/2 states/-1.0.2 logs/-1.0.2"
    (state / "attempts" / "a").mkdir(parents=True)
    for name in (*strangers.split(), *ours.split()):
        (state / name).write_text("x")
    aggregate(small, state, plans())
    assert set(committed(state)) == {*before, *strangers.split()}


class FullDisk:
    """Lets so many writes succeed and then none; the first that fails may write its half."""

    def __init__(self, writes: int, half: bool) -> None:
        self.left, self.half = writes, half

    def __call__(self, descriptor: int, data: memoryview) -> int:
        self.left -= 1
        if self.left >= 0:
            return WRITE(descriptor, data)
        if self.left == -1 and self.half:
            WRITE(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_last_commit(tmp_path, monkeypatch):
    """At every single write: an error, the last commit, and success with the next run."""
    sent = honest(20, 1, 7)
    log = write(tmp_path / "log", sent[: len(sent) // 2])
    before, undisturbed = tmp_path / "before", tmp_path / "undisturbed"
    aggregate(log, before, plans())
    shutil.copytree(before, undisturbed)
    write(log, [*sent[len(sent) // 2 :], Sent(START, b"no report")])
    enough = FullDisk(100, half=False)
    assert aggregated_on(monkeypatch, enough, log, undisturbed) is not None
    # After the commit, a note on which nothing depends is written twice.
    needed = 100 - enough.left - 2
    assert needed == 12, (
        "intent, manifest; with headers a log, a page, what is published, quarantine, summary"
    )
    for writes in range(needed):
        state = tmp_path / f"state-{writes}"
        shutil.copytree(before, state)
        disk = FullDisk(writes, half=writes % 2 == 0)
        assert aggregated_on(monkeypatch, disk, log, state) is None
        manifest = (state / "MANIFEST.json").read_bytes()
        assert manifest == (before / "MANIFEST.json").read_bytes()
        assert aggregated_on(monkeypatch, FullDisk(needed + 2, half=False), log, state) is not None
        assert committed(state) == committed(undisturbed)
        assert projected(state) == projected(undisturbed)


def aggregated_on(
    monkeypatch: pytest.MonkeyPatch, disk: FullDisk, log: Path, state: Path
) -> RunResult | None:
    """Run to a disk that becomes full; None if that is what stopped it."""
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", disk)
        try:
            return aggregate(log, state, plans())
        except AggregationError as error:
            if "No space left" not in str(error):
                raise
    return None


def test_an_interrupted_run_is_finished_as_it_began(small, tmp_path):
    state = tmp_path / "state"
    with pytest.raises(Killed):
        aggregate(small, state, plans(), checkpoint=kill_at("begun"))
    with pytest.raises(AggregationError, match="interrupted run"):
        aggregate(small, state, plans(), as_of=START + DAY)
    assert StateDirectory(state).manifest().generation == 0
    other = write(tmp_path / "other", honest(1, 1, 8), lanes=1)
    with pytest.raises(AggregationError, match="another log"):
        aggregate(other, state, plans())
    assert aggregate(small, state, plans()).runs == 1
    assert counted(state) == expected(small, registry()).counts


def test_records_from_the_future_are_quarantined_and_hold_up_no_others(small, tmp_path):
    """Stamped years ahead, amid others of their partition: the others count as without them."""
    now = START + 100 * DAY
    undisturbed = expected(small, registry()).counts
    (lane, *_) = partitions(small)
    records = list(LogReader(lane).records())
    shutil.rmtree(lane)
    mixed = [(now + 3000 * DAY, b"ahead")]
    for each in records:
        assert isinstance(each, LogRecord)
        mixed += [(each.append, each.body), (now + 3000 * DAY, each.body)]
    append(small, mixed, lane.name)
    state = tmp_path / "state"
    result = aggregate(small, state, plans(), clock=lambda: now, max_reports=50)
    assert result.runs > 1
    assert result.future == {lane.name: len(records) + 1}
    assert result.rejects["future"] == len(records) + 1
    assert (
        f"{len(records) + 1:,} records of partition {lane.name} bear a time ahead"
        in (result.lines()[-1])
    )
    assert counted(state) == undisturbed
    assert StateDirectory(state).manifest().clock < now
    last = LastRun.of(state)
    assert (last.future, last.future_in) == (len(records) + 1, lane.name)
    # The note stays where nothing new comes.
    assert aggregate(small, state, clock=lambda: now).future == {}
    assert LastRun.of(state).future == len(records) + 1


@pytest.mark.parametrize(("ahead", "rejected"), [(DAY, 0), (DAY + 1, 1)])
def test_records_within_the_grace_of_the_plans_are_taken(small, tmp_path, ahead, rejected):
    now = START + 100 * DAY
    append(small, [(now + ahead, b"no report")], "fast")
    result = aggregate(small, tmp_path / "state", plans(), clock=lambda: now)
    assert result.rejects.get("future", 0) == rejected
    assert result.rejects.get("malformed", 0) == 1 - rejected


def test_an_interrupted_run_rejects_the_same_records_from_the_future(small, tmp_path):
    state, now = tmp_path / "state", START + 100 * DAY
    append(small, [(now + 50 * DAY, b"no report")], "wrong")
    with pytest.raises(Killed):
        aggregate(small, state, plans(), checkpoint=kill_at("begun"), clock=lambda: now)
    result = aggregate(small, state, plans(), clock=lambda: now + 60 * DAY)
    assert result.rejects == {"future": 1}


def test_a_machine_whose_clock_is_behind_counts_nothing(small, tmp_path):
    """Otherwise it would reject all that comes as from the future."""
    state = tmp_path / "state"
    aggregate(small, state, plans(), clock=lambda: START + 100 * DAY)
    append(small, [(START + 100 * DAY, b"no report")], "more")
    with pytest.raises(AggregationError, match=r"records up to [0-9: -]+ have .* set the clock"):
        aggregate(small, state, plans(), clock=lambda: START - 10 * DAY)
    assert aggregate(small, state, plans(), clock=lambda: START + 101 * DAY).runs == 1


def test_a_database_that_is_away_stops_no_counting(small, tmp_path, monkeypatch):
    """It is brought up to date once it is back, also one that was never there."""
    state = tmp_path / "state"

    def away(*_: object) -> int:
        raise SinkError("the database cannot be used: no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Results, "projected", away)
        first = aggregate(small, state, plans(), max_reports=10, stop=after_runs(1))
    assert (first.runs, first.unpublished) == (1, "the database cannot be used: no answer")
    with monkeypatch.context() as patch:
        patch.setattr(Results, "project", away)
        result = aggregate(small, state, plans(), max_reports=10)
    last = StateDirectory(state).manifest().generation
    assert result.runs == last - 1 > 1
    assert result.unpublished == "the database cannot be used: no answer"
    assert LastRun.of(state).problem == Problem.DATABASE
    assert aggregate(small, state, plans()).unpublished == ""
    assert projected(state)["meta"][0]["projected_generation"] == last
    assert LastRun.of(state).failed is None


def test_progress_ends_at_the_whole(small, tmp_path):
    seen: list[tuple[int, ...]] = []
    aggregate(
        small, tmp_path / "state", plans(), max_reports=30, progress=lambda *at: seen.append(at)
    )
    assert seen == sorted(seen)
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1]
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("reports", "chains", "number"),
    [(200, 12, 4), (10**6, 12, 4), pytest.param(10**6, 200, 1, id="by the reports of one period")],
)
def test_into_however_many_parts_a_period_is_cut(
    log, truth, tmp_path, monkeypatch, reports, chains, number
):
    monkeypatch.setattr(parts, "CHAINS", chains)
    state, seen = tmp_path / "state", []

    def note(step: str) -> None:
        if step == "committed":
            manifest = StateDirectory(state).manifest()
            seen.append(dict(manifest.parts))
            assert {period for period, _ in manifest.states} == set(manifest.parts)
            assert all(part < manifest.parts[period] for period, part in manifest.states)

    result = aggregate(log, state, plans(), max_reports=reports, checkpoint=note)
    check_against_rules(state, result, truth)
    assert result.rejects["revoked"] == truth.fates["revoked"]
    known: dict[int, int] = {}
    for open_periods in seen:
        # A period keeps the number that it was given first.
        assert all(known.setdefault(*each) == each[1] for each in open_periods.items())
    assert max(known.values()) == number, "at most as many as the plans have shards"


def test_a_window_is_complete_once_its_last_level_and_the_grace_are_over(tmp_path):
    """By the log's time, without a report that changes it, in what the run publishes."""
    (known, *_) = plans()
    metric = known.metric("colour")
    last = metric.delays[-1] + known.resolution + known.grace
    sent = honest(6, 1, 3)
    aggregate(write(tmp_path / "log", sent), tmp_path / "state", plans())
    rows = Results(of_state(tmp_path / "state")).table(WINDOWS)
    start = min(row["window_start"] for row in rows if row["metric"] == "colour")
    until = start + metric.window + last
    early = write(tmp_path / "early", [each for each in sent if each.append < until - DAY])
    for as_of, complete, generation in ((until - 1, False, 1), (until, True, 2), (until, True, 2)):
        assert aggregate(early, tmp_path / "again", plans(), as_of=as_of).generation == generation
        found = Results(of_state(tmp_path / "again")).table(WINDOWS)
        of_first = [row for row in found if row["window_start"] == start]
        assert {row["complete"] for row in of_first if row["metric"] == "colour"} == {complete}
