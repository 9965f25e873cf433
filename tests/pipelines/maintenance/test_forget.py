"""A pseudonym is forgotten: as if it had never reported, and as if it never will."""

from __future__ import annotations

import io
import os
import random
import shutil
from functools import cache, partial
from pathlib import Path

import pytest
from committed_states import committed, counted, projected, rejects
from crashes import Killed, kill_at, status_of_child
from report_logs import START, Device, Sent, append, write
from requeued import audits, reports
from step_plans import DAY, PERIOD, plans

from pipelines.bounded.driver import STEPS, Driver
from pipelines.bounded.run import aggregate
from pipelines.maintenance.backup import backup, restore
from pipelines.maintenance.forget import forget, held
from pipelines.requeue.state import requeue
from pipelines.storage.directory import StateDirectory
from pipelines.storage.ledger import pseudonym_ledger
from sotto.errors import AggregationError, FormatError, ParameterError
from sotto.wire.format import pseudonym_of
from sotto.wire.reasons import Reason
from sotto_cli import main

pytestmark = pytest.mark.slow


@cache
def everything() -> list[Sent]:
    """Reports of good devices and bad ones, before any budget period is closed."""
    return reports(12, 41)


def whose(sent: Sent) -> bytes | None:
    try:
        return pseudonym_of(sent.message)
    except FormatError:
        return None


class World:
    """A log of devices, aggregated; and one without the devices that are to be forgotten."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        self.log = write(folder / "log", everything())
        self.state = folder / "state"
        aggregate(self.log, self.state, plans(), max_reports=60)
        everybody = sorted(filter(None, set(map(whose, everything()))))
        self.held = {each: pseudonym_ledger(self.state, each.hex()) for each in everybody}
        live = [each for each, found in self.held.items() if found and not found[0].revoked]
        revoked = [each for each, found in self.held.items() if found and found[0].revoked]
        self.names = (*live[:3], revoked[0])
        self.gone = [each.hex() for each in self.names]
        others = [one for one in everything() if whose(one) not in self.names]
        self.without = folder / "without"
        aggregate(write(folder / "others", others), self.without, plans())
        self.done = self.copy()
        forget(self.done, self.gone, clock=lambda: START)

    def copy(self) -> Path:
        self.number += 1
        return Path(shutil.copytree(self.state, self.folder / f"state-{self.number}"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("forget"))


def test_it_is_as_if_they_had_never_reported(world):
    assert counted(world.done) == counted(world.without) != counted(world.state)
    assert audits(world.done) == audits(world.without)
    tables = [projected(each, without=("revision",)) for each in (world.done, world.without)]
    for name in ("windows", "estimates", "periods"):
        assert tables[0][name] == tables[1][name]
    tally = StateDirectory(world.done).manifest().tally
    assert tally.counted == StateDirectory(world.without).manifest().tally.counted
    assert tally.reports == StateDirectory(world.state).manifest().tally.reports


def test_nothing_of_them_is_left_and_of_others_nothing_is_lost(world):
    for path in world.done.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for name in world.names:
            assert name not in content, path
            assert name.hex().encode() not in content, path
    before = rejects(world.state)
    theirs = [any(name in each.message for name in world.names) for each in before]
    assert any(theirs)
    assert [
        each._replace(message=b"") if gone else each
        for each, gone in zip(before, theirs, strict=True)
    ] == rejects(world.done)[: len(before)]
    for name, found in held(world.done, world.gone).items():
        assert (found.ledgers, found.quarantined, found.forgotten) == ((), 0, True), name


def test_what_they_send_later_is_a_number(world):
    """Whether it comes once more, for the first time, late, or under a plan that is not there."""
    state, log = world.copy(), world.folder / "later"
    forget(state, world.gone)
    shutil.copytree(world.log, log)
    again = [one for one in everything() if whose(one) in world.names]
    last = max(one.append for one in everything())
    late = [Sent(last + at, one.message) for at, one in enumerate(again)]
    append(log, late)
    result = aggregate(log, state, plans())
    assert counted(state) == counted(world.without)
    assert result.rejects == {"forgotten": len(late)}
    kept = [each for each in rejects(state) if each.reason == Reason.FORGOTTEN]
    assert all(each.message == b"" for each in kept)
    assert requeue(state, plans()).size == 0
    assert not any(name in path.read_bytes() for name in world.names for path in files(state))


def files(state: Path) -> list[Path]:
    return [path for path in state.rglob("*") if path.is_file()]


def test_a_tombstone_goes_once_everything_later_is_late(world):
    state, log = world.copy(), world.folder / "much-later"
    forget(state, world.gone, clock=lambda: START)
    assert len(StateDirectory(state).manifest().forgotten) == len(world.gone)
    shutil.copytree(world.log, log)
    last = max(one.append for one in everything())
    again = next(one for one in everything() if whose(one) == world.names[0])
    append(log, [Sent(last + 60 * DAY, b"no report")])
    aggregate(log, state, plans())
    assert not StateDirectory(state).manifest().forgotten
    before = counted(state)
    append(log, [Sent(last + 61 * DAY, again.message)])
    assert "late" in aggregate(log, state, plans()).rejects
    assert counted(state) == before


def test_a_tombstone_waits_for_a_run_that_is_far_behind_the_device(world):
    """The pseudonym is of a period that no run has come to, and will come to one by one."""
    state, log = world.copy(), world.folder / "far-behind"
    shutil.copytree(world.log, log)
    device, now = Device(plans()[0], random.Random(5)), START + 30 * PERIOD
    sent = device.chain(plans()[0].metrics[0], now)
    forget(state, [device.pseudonym.hex()], clock=lambda: now)
    append(log, sent)
    before = counted(state)
    result = aggregate(log, state, max_reports=1)
    assert result.runs == len(sent) > 1
    assert result.rejects == {"forgotten": len(sent)}
    assert counted(state) == before


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_it_is_finished(world, step):
    """By the next forget, or by the next run if one comes first."""
    state = world.copy()
    with pytest.raises(Killed):
        forget(state, world.gone, checkpoint=kill_at(step), clock=lambda: START)
    if STEPS.index(step) % 2:
        aggregate(world.log, state)
    forget(state, world.gone, clock=lambda: START)
    assert committed(state) == committed(world.done)
    assert projected(state) == projected(world.done)


def test_twice_changes_nothing_and_what_is_no_pseudonym_is_not_repeated(world, tmp_path):
    state = world.copy()
    generation = forget(state, world.gone)
    once = committed(state)
    assert forget(state, [world.gone[0].upper()]) == generation
    assert committed(state) == once
    for wrong in ([], ["dark"], ["0" * 31 + "g"]):
        with pytest.raises(ParameterError) as error:
            forget(state, wrong)
        assert "dark" not in str(error.value)
    with pytest.raises(AggregationError, match="holds no run"):
        forget(tmp_path, world.gone)
    with pytest.raises(Killed):
        aggregate(world.log, tmp_path / "new", plans(), checkpoint=kill_at("begun"))
    with pytest.raises(AggregationError, match="sotto aggregate"):
        forget(tmp_path / "new", world.gone)


def test_the_command_reads_a_file_or_a_pipe_and_shows_no_name_whole(
    world, tmp_path, capsys, monkeypatch
):
    state, request = world.copy(), tmp_path / "request.txt"
    request.write_text("\n".join(world.gone), encoding="ascii")
    given = ["forget", "--state", str(state), "--file"]
    before = committed(state)
    assert main([*given, str(request), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert committed(state) == before
    monkeypatch.setattr("sys.stdin", io.StringIO(world.gone[0] + "\n"))
    assert main([*given, "-"]) == 0
    assert main([*given, str(request)]) == 0
    shown += capsys.readouterr().out
    assert "forgotten already" in shown
    assert "they stay in the log or topic" in shown
    for name in world.gone:
        assert name[:8] in shown
        assert name not in shown
    assert counted(state) == counted(world.without)
    request.write_text("\n", encoding="ascii")
    assert main([*given, str(request)]) == 2
    assert "no pseudonym in it" in capsys.readouterr().err


def test_a_restored_backup_brings_nobody_back(world, tmp_path):
    """It is restored where it was made, and elsewhere only with the option ``--forgotten``."""
    state, file = world.copy(), tmp_path / "state.tar"
    backup(state, file)
    with pytest.raises(Killed):
        forget(state, world.gone, checkpoint=kill_at("noted"), clock=lambda: START)
    forget(state, world.gone, clock=lambda: START)
    note = state.with_name(f"{state.name}.forgotten")
    assert note.stat().st_mode & 0o077 == 0
    assert not any(name.hex().encode() in note.read_bytes() for name in world.names)
    shutil.rmtree(state)

    there, given = tmp_path / "there", ["restore", str(file), "--state"]
    assert main([*given, str(there)]) == 2
    assert not there.exists()
    assert main([*given, str(there), "--forgotten", str(note)]) == 0
    assert main([*given, str(state)]) == 0
    shutil.rmtree(state)
    assert main([*given, str(state)]) == 0
    for each in (there, state):
        assert sorted(path.name for path in each.iterdir() if path.is_file()) == ["MANIFEST.json"]
        assert not any(name in path.read_bytes() for name in world.names for path in files(each))
        assert counted(each) == counted(world.without)
        assert audits(each) == audits(world.without)
        aggregate(world.log, each)
        shown = [projected(one, without=("revision",)) for one in (each, world.without)]
        assert shown[0]["estimates"] == shown[1]["estimates"]
        assert all(found.forgotten for found in held(each, world.gone).values())
    with_all = ["--forgotten", "none"]
    assert main([*given, str(tmp_path / "all"), *with_all]) == 0
    assert counted(tmp_path / "all") == counted(world.state)


@pytest.mark.real_randomness
def test_a_restore_that_is_killed_while_it_forgets_is_done_again(world, tmp_path, monkeypatch):
    state, file = world.copy(), tmp_path / "state.tar"
    backup(state, file)
    forget(state, world.gone, clock=lambda: START)
    note = state.with_name(f"{state.name}.forgotten")
    there = tmp_path / "there"
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "commit", lambda *_: os._exit(9))
        assert status_of_child(partial(restore, file, there, forgotten=note)) == 9
    assert not there.exists()
    restore(file, there, forgotten=note)
    assert counted(there) == counted(world.without)
