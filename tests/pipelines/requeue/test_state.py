"""Requeue: what was rejected for want of a plan counts as if the plan had been there."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from committed_states import committed, counted, projected, rejects
from crashes import Killed, kill_at
from hypothesis import given, settings
from hypothesis import strategies as st
from report_logs import START, Device, Sent, write
from requeued import BOTH, CANDIDATES, FIRST_PLAN, LATE_PLAN, audits, reports
from step_plans import DAY

from pipelines.bounded.driver import STEPS
from pipelines.bounded.run import aggregate
from pipelines.exporter.committed import committed as watched
from pipelines.requeue.state import requeue
from pipelines.sinks.quarantine import CURABLE
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError, ParameterError
from sotto.wire.format import Row
from sotto.wire.reasons import Reason

pytestmark = pytest.mark.slow

#: The time of requeues that are to leave the same bytes.
NOW = START + 100 * DAY


class World:
    """A log, aggregated with one plan missing; and as if that had been there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = write(folder / "log", reports(12, 5))
        self.before, self.known = folder / "before", folder / "known"
        aggregate(self.log, self.before, [FIRST_PLAN], candidates=CANDIDATES, max_reports=60)
        aggregate(self.log, self.known, BOTH, candidates=CANDIDATES)
        self.number = 0
        self.done = self.copy()
        requeue(self.done, BOTH, candidates=CANDIDATES, clock=lambda: NOW)

    def copy(self) -> Path:
        self.number += 1
        state = self.folder / f"state-{self.number}"
        shutil.copytree(self.before, state)
        return state


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("requeue"))


def test_it_is_as_if_the_plan_had_been_there(world):
    state = world.copy()
    before = StateDirectory(state).manifest()
    assert counted(state) != counted(world.known)
    seen: list[tuple[int, int]] = []
    result = requeue(state, BOTH, candidates=CANDIDATES, progress=lambda *told: seen.append(told))
    assert counted(state) == counted(world.known)
    assert audits(state) == audits(world.known)
    tables = [projected(each, without=("revision",)) for each in (state, world.known)]
    for name in ("windows", "estimates", "periods"):
        assert tables[0][name] == tables[1][name]
    manifest = StateDirectory(state).manifest()
    assert manifest.tally.reports == StateDirectory(world.known).manifest().tally.reports
    assert seen == [(0, result.size), (result.size, result.size)]
    # The log's clock and lanes are where they were.
    assert (manifest.clock, manifest.positions) == (before.clock, before.positions)
    assert (manifest.last, manifest.first_open) == (before.last, before.first_open)


def test_what_is_requeued_stays_in_quarantine_with_a_mark(world):
    state = world.copy()
    before = rejects(state)
    result = requeue(state, BOTH)
    assert rejects(state)[: len(before)] == before
    of_plan = [each for each in before if LATE_PLAN.fingerprint in each.message[:40]]
    of_plan = [each for each in of_plan if each.reason == Reason.UNKNOWN_PLAN]
    assert result.size == sum(each.rows for each in of_plan) > 0
    rows = projected(state)["quarantine"]
    unknown = [row for row in rows if row["reason"] == "unknown_plan"]
    assert sum(int(str(row["requeued"])) for row in unknown) == result.size
    # One message names a plan that nobody has.
    assert sum(int(str(row["rows"])) for row in unknown) == result.size + 1
    assert dict(watched(state).manifest.requeued) == {"unknown_plan": result.size}


class Ahead:
    """A log, aggregated by a clock that is behind most of it; and by one that is right."""

    def __init__(self, folder: Path) -> None:
        sent = reports(12, 5)
        self.log = write(folder / "log", sent)
        self.state, self.known = folder / "state", folder / "known"
        times = [one.append for one in sent]
        self.now, self.end = times[len(times) // 2], times[-1]
        aggregate(self.log, self.state, BOTH, clock=lambda: self.now)
        aggregate(self.log, self.known, BOTH, clock=lambda: self.end)

    def fates(self, state: Path) -> Counter[tuple[Reason, int]]:
        """Return the reports of records that were read, by reason and append time."""
        found = Counter[tuple[Reason, int]]()
        for each in rejects(state):
            found[each.reason, each.append] += each.rows
        return +found


def test_records_ahead_of_the_clock_count_once_they_are_not(tmp_path):
    """Each by its own time, as if the clock had been right; some of a generation before others."""
    case = Ahead(tmp_path)
    ahead = [each for each in rejects(case.state) if each.reason == Reason.FUTURE and not each.rows]
    assert len(ahead) > 10
    assert min(each.append for each in ahead) > case.now + DAY
    assert requeue(case.state, clock=lambda: case.now).size == 0
    between = (case.now + DAY + case.end) // 2
    part = requeue(case.state, clock=lambda: between).size
    rest = [each for each in rejects(case.state) if each.append > between]
    assert 0 < part < len(ahead)
    assert {(each.reason, each.rows) for each in rest} == {(Reason.FUTURE, 0)}
    assert counted(case.state) != counted(case.known)
    assert requeue(case.state, clock=lambda: case.end).size == len(ahead) - part
    assert counted(case.state) == counted(case.known)
    assert audits(case.state) == audits(case.known)
    # Those with several rows were one each, as nobody had read them.
    assert case.fates(case.state) == case.fates(case.known)
    assert requeue(case.state, clock=lambda: case.end).size == 0


def test_reports_ahead_of_their_own_record_are_not_requeued(tmp_path):
    device, event = Device(FIRST_PLAN, random.Random(7)), START + 5 * DAY
    metric = FIRST_PLAN.metrics[0]
    early = device.chain(metric, event)[0]._replace(append=event - DAY)
    aggregate(write(tmp_path / "log", [early]), tmp_path / "state", [FIRST_PLAN])
    assert [each.reason for each in rejects(tmp_path / "state")] == [Reason.FUTURE]
    assert requeue(tmp_path / "state", reasons=[Reason.FUTURE]).size == 0


@settings(max_examples=3, deadline=None)
@given(st.data())
def test_requeued_at_any_moment_it_comes_to_the_same(data):
    """The plan is loaded, and what it cures requeued, between any two runs."""
    sent = reports(6, data.draw(st.integers(0, 2**16)))
    times = [one.append for one in sent]
    cuts = sorted(data.draw(st.lists(st.sampled_from(times), max_size=2)))
    loaded = data.draw(st.integers(0, len(cuts)))
    again = data.draw(st.sets(st.integers(0, len(cuts))))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = write(folder / "log", sent)
        aggregate(log, folder / "known", BOTH)
        state = folder / "state"
        for number, cut in enumerate([*cuts, times[-1]]):
            there = [FIRST_PLAN] if number < loaded else BOTH
            aggregate(log, state, there, as_of=cut)
            if number in again:
                requeue(state, there)
        requeue(state, BOTH, max_reports=20)
        assert counted(state) == counted(folder / "known")
        assert audits(state) == audits(folder / "known")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_it_is_finished(world, step):
    """By the next requeue, or by the next run if one comes first."""
    state = world.copy()
    again = partial(requeue, state, BOTH, candidates=CANDIDATES, clock=lambda: NOW)
    with pytest.raises(Killed):
        again(checkpoint=kill_at(step))
    if STEPS.index(step) % 2:
        aggregate(world.log, state, BOTH, candidates=CANDIDATES)
    again()
    assert committed(state) == committed(world.done)
    assert projected(state) == projected(world.done)


def test_an_interrupted_requeue_wants_its_plan(world):
    """The state directory has it, unless somebody has removed it."""
    state = world.copy()
    with pytest.raises(Killed):
        requeue(state, BOTH, checkpoint=kill_at("begun"))
    kept = StateDirectory(state).plans.path(LATE_PLAN.fingerprint_hex)
    document = kept.read_bytes()
    kept.unlink()
    with pytest.raises(AggregationError, match=f"missing: {LATE_PLAN.fingerprint.hex()}"):
        aggregate(world.log, state, [FIRST_PLAN])
    kept.write_bytes(document)
    aggregate(world.log, state)
    assert counted(state) == counted(world.known)


def test_an_interrupted_run_is_finished_first(world, tmp_path):
    with pytest.raises(Killed):
        aggregate(world.log, tmp_path / "state", [FIRST_PLAN], checkpoint=kill_at("begun"))
    with pytest.raises(AggregationError, match="sotto aggregate"):
        requeue(tmp_path / "state", BOTH)


def test_a_plan_that_a_run_was_given_need_not_be_given_again(world):
    state = world.copy()
    aggregate(world.log, state, [LATE_PLAN])
    assert requeue(state).runs
    assert counted(state) == counted(world.known)


def test_it_waits_for_a_run(world):
    state = world.copy()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with StateDirectory(state).lock():
            held.set()
            done.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(600)
    with pytest.raises(AggregationError, match="another run holds"):
        requeue(state, BOTH)
    threading.Timer(0.1, done.set).start()
    assert requeue(state, BOTH, wait=600).size > 0
    thread.join()


def test_only_reasons_that_are_cured_and_asked_for_are_taken(world):
    for reason in set(Reason) - set(CURABLE):
        with pytest.raises(ParameterError, match=f"rejected as {reason.label}"):
            requeue(world.before, BOTH, reasons=[reason])
    assert requeue(world.copy(), BOTH, reasons=[Reason.UNKNOWN_VERSION]).size == 0


def test_a_file_that_has_gone_or_is_damaged_is_told(world):
    state = world.copy()
    directory = StateDirectory(state)
    file = directory.files.quarantine(directory.manifest().quarantine[0])
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(AggregationError, match=r"not finished.*damaged"):
        requeue(state, BOTH)
    file.unlink()
    with pytest.raises(AggregationError, match="is gone"):
        requeue(state, BOTH)


class Attack:
    """Aggregates chosen records into a state directory, at first without the late plan."""

    def __init__(self, folder: Path) -> None:
        self.log, self.state = folder / "log", folder / "state"
        self.device = Device(LATE_PLAN, random.Random(7))
        self.colour = LATE_PLAN.metric("colour")

    def aggregate(self, *sent: Sent, known: bool = False) -> None:
        write(self.log, [*sent], lanes=1)
        aggregate(self.log, self.state, BOTH if known else [FIRST_PLAN])

    def requeue(self) -> dict[str, int]:
        return requeue(self.state, BOTH).rejects

    @property
    def total(self) -> int:
        return sum(sum(map(sum, window)) for window in counted(self.state).values())


@pytest.fixture
def attack(tmp_path):
    return Attack(tmp_path)


def test_a_closed_period_stays_closed(attack):
    report = attack.device.chain(attack.colour, START + DAY, upto=1)
    later = Device(FIRST_PLAN, random.Random(8)).chain(
        FIRST_PLAN.metric("colour"), START + 60 * DAY, upto=1
    )
    attack.aggregate(*report, *later)
    before, audit = counted(attack.state), audits(attack.state)
    assert attack.requeue() == {"late": 1}
    assert (counted(attack.state), audits(attack.state)) == (before, audit)
    # Nor is what that has put into quarantine taken again.
    assert requeue(attack.state, BOTH).runs == 0


def test_a_revoked_pseudonym_stays_revoked(attack):
    """It contradicts itself under a plan that is known, and has sent more under the other."""
    device, colour = attack.device, attack.colour
    (held,) = device.chain(colour, START + DAY, upto=1)
    attack.aggregate(held)
    row = Row(0, device.pseudonym, bytes(16), START, b"\0")
    liar = Device(FIRST_PLAN, random.Random(9))
    liar.pseudonym = device.pseudonym
    of_first = FIRST_PLAN.metric("colour")
    attack.aggregate(
        liar.send(START + DAY, of_first, row),
        liar.send(START + DAY, of_first, row._replace(payload=b"\1")),
    )
    assert attack.requeue() == {"revoked": 1}
    assert attack.total == 0


def test_what_was_held_contradicts_what_was_sent_instead(attack):
    """A device that randomizes anew while its plan is unknown is found out."""
    device, colour = attack.device, attack.colour
    row = Row(0, device.pseudonym, bytes(16), START, b"\0")
    attack.aggregate(device.send(START + DAY, colour, row))
    attack.aggregate(device.send(START + 2 * DAY, colour, row._replace(payload=b"\1")), known=True)
    assert attack.total == 1
    assert attack.requeue() == {"revoked": 2}
    assert attack.total == 0
