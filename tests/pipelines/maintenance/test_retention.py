"""Segments that are counted and old go; what a run, a requeue or an audit may need stays."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from committed_states import committed, counted, projected
from crashes import aggregate
from report_logs import START, Sent, append, faulty, honest, write
from step_plans import DAY, plans

from pipelines.maintenance import retention
from pipelines.maintenance.retention import Removable, retain
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError, ParameterError
from sotto.log.frames import FRAME, HEADER
from sotto.log.reader import partitions, segments
from sotto_cli import main

pytestmark = pytest.mark.slow

SENT = sorted(honest(6, 3, 71) + faulty(72))
NOW = SENT[-1].append


class World:
    """A log of small segments, counted; and a record from long after."""

    def __init__(self, folder: Path) -> None:
        self.log, self.state = folder / "log", folder / "state"
        write(self.log, SENT, segment_bytes=2000)
        append(self.log, [Sent(NOW + 5 * DAY, b"no report")], segment_bytes=2000)
        aggregate(self.log, self.state, plans())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return World(tmp_path_factory.mktemp("retention"))


@pytest.fixture
def world(made, tmp_path):
    shutil.copytree(made.log.parent, tmp_path, dirs_exist_ok=True)
    found = object.__new__(World)
    found.log, found.state = tmp_path / "log", tmp_path / "state"
    return found


def names(log: Path) -> dict[str, list[str]]:
    return {path.name: [each.path.name for each in segments(path)] for path in partitions(log)}


def test_what_is_left_is_the_end_of_the_log_and_counts_go_on(world, made):
    before, counts = names(world.log), counted(world.state)
    dry = retain(world.state, world.log, dry_run=True, clock=lambda: START)
    assert names(world.log) == before
    seen: list[tuple[int, int]] = []
    found = retain(
        world.state, world.log, progress=lambda *told: seen.append(told), clock=lambda: START
    )
    assert found == dry
    assert len(found.segments) > 3
    assert seen[-1] == (found.size, found.size)
    for name, left in names(world.log).items():
        assert left == before[name][-len(left) :]
        assert left
    assert retain(world.state, world.log, clock=lambda: START) == Removable()
    # Messages that come later are counted as if all were there.
    late = [each._replace(append=NOW + 6 * DAY) for each in SENT[-20:]]
    for log, state in ((world.log, world.state), (made.log, made.state)):
        state = Path(shutil.copytree(state, state.with_name("later")))
        log = Path(shutil.copytree(log, log.with_name("later-log")))
        append(log, late, segment_bytes=2000)
        aggregate(log, state)
    one, other = (each.state.with_name("later") for each in (world, made))
    assert committed(one) == committed(other)
    assert counted(one) == counted(world.state) == counts
    assert projected(one) == projected(other)


def test_nothing_goes_that_is_young_or_not_counted_and_the_horizon_is_the_least(world, tmp_path):
    assert retain(world.state, world.log, 3650 * DAY, clock=lambda: START) == Removable()
    with pytest.raises(ParameterError, match="for at least"):
        retain(world.state, world.log, DAY)
    shutil.rmtree(world.state)
    aggregate(world.log, world.state, plans(), as_of=SENT[len(SENT) // 3].append)
    manifest = StateDirectory(world.state).manifest()
    found = retain(world.state, world.log, clock=lambda: START)
    for path in found.segments:
        assert int(path.stem) < manifest.positions[path.parent.name]
    aggregate(world.log, world.state)
    other = tmp_path / "other"
    with pytest.raises(AggregationError, match="holds no run"):
        retain(other, world.log)
    with pytest.raises(AggregationError, match="no log"):
        retain(world.state, other)


def test_a_damaged_time_makes_no_segment_older(world):
    """The first record of each segment says that it is of 1970; its checksum says otherwise."""
    before = retain(world.state, world.log, 3650 * DAY, dry_run=True, clock=lambda: START)
    for partition in partitions(world.log):
        for segment in segments(partition):
            with segment.path.open("r+b") as file:
                file.seek(len(HEADER) + FRAME.size - 8)
                file.write(bytes(8))
    found = retain(world.state, world.log, 3650 * DAY, dry_run=True, clock=lambda: START)
    assert found == before == Removable()


def test_killed_anywhere_what_is_left_is_a_log(world, monkeypatch):
    """A removal that ends at a random segment is gone on with; runs do not notice."""
    whole = retention.files.sync_directory
    wanted = retain(world.state, world.log, dry_run=True, clock=lambda: START).segments
    stop = random.Random(9).randrange(1, len(wanted))

    def die(path: Path) -> None:
        if sum(not each.exists() for each in wanted) == stop:
            raise KeyboardInterrupt
        whole(path)

    monkeypatch.setattr(retention.files, "sync_directory", die)
    with pytest.raises(KeyboardInterrupt):
        retain(world.state, world.log, clock=lambda: START)
    monkeypatch.undo()
    assert aggregate(world.log, world.state).runs == 0
    rest = retain(world.state, world.log, clock=lambda: START).segments
    assert rest == wanted[stop:]
    assert aggregate(world.log, world.state).runs == 0


def test_quarantine_goes_by_the_clock_of_the_machine_where_no_report_comes(world):
    rejected = {row["reason"]: row["rows"] for row in projected(world.state)["quarantine"]}
    assert retain(world.state, clock=lambda: NOW + 6 * DAY) == Removable()
    counts = counted(world.state)
    found = retain(world.state, clock=lambda: NOW + 365 * DAY)
    assert found.rejects == sum(rejected.values()) > 0
    assert list((world.state / "quarantine").iterdir()) == []
    rows = projected(world.state)["quarantine"]
    assert {row["reason"]: row["rows"] for row in rows} == rejected
    assert {row["generation"] for row in rows} == {0}
    assert counted(world.state) == counts
    assert aggregate(world.log, world.state).runs == 0


def test_the_command_and_a_job_that_follows(world, capsys):
    given = ["retain", "--state", str(world.state), "--log", str(world.log)]
    assert main([*given, "--dry-run"]) == 0
    assert "segments of the log would be removed" in capsys.readouterr().out
    assert main([*given, "--keep", "1h"]) == 2
    assert main(["retain", "--state", str(world.state), "--keep", "90d"]) == 2
    assert main(["aggregate", *given[1:], "--log-retention", "90d"]) == 2
    assert "--log-retention goes with --log and --follow" in capsys.readouterr().err
