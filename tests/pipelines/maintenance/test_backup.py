"""A backup is whole and is made beside runs; what is restored from it counts nothing twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from committed_states import committed, counted, projected
from crashes import MAX_REPORTS, Killed, aggregate, kill_at, status_of_child
from report_logs import append, faulty, honest, write
from step_plans import plans

from pipelines.maintenance import backup as module
from pipelines.maintenance.backup import backup, check, restore
from pipelines.sinks.sql import Results
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError
from sotto_cli import main

pytestmark = pytest.mark.slow

SENT = sorted(honest(8, 2, 61) + faulty(62))


class World:
    """A state directory of the first half of a log, a backup of it, and the whole log counted."""

    def __init__(self, folder: Path) -> None:
        half = len(SENT) // 2
        self.first = write(folder / "first", SENT[:half], lanes=1)
        self.log = Path(shutil.copytree(self.first, folder / "log"))
        append(self.log, SENT[half:])
        self.half = folder / "half"
        aggregate(self.first, self.half, plans(), max_reports=MAX_REPORTS)
        self.file = folder / "half.tar"
        backup(self.half, self.file)
        self.done = Path(shutil.copytree(self.half, folder / "done"))
        aggregate(self.log, self.done, max_reports=MAX_REPORTS)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("backup"))


def test_a_restored_directory_goes_on_where_the_backup_was_made(world, tmp_path):
    found = restore(world.file, tmp_path / "state")
    manifest = StateDirectory(world.half).manifest()
    assert (found.state, found.generation) == (manifest.state, manifest.generation)
    for name, content in committed(tmp_path / "state").items():
        assert content == (world.half / name).read_bytes(), name
    aggregate(world.log, tmp_path / "state", max_reports=MAX_REPORTS)
    assert committed(tmp_path / "state") == committed(world.done)
    assert projected(tmp_path / "state") == projected(world.done)


def test_what_is_being_done_is_done_again(world, tmp_path):
    state = Path(shutil.copytree(world.half, tmp_path / "state"))
    with pytest.raises(Killed):
        aggregate(world.log, state, max_reports=MAX_REPORTS, checkpoint=kill_at("synced"))
    backup(state, tmp_path / "interrupted.tar")
    aggregate(world.log, state, max_reports=MAX_REPORTS)
    assert committed(state) == committed(world.done)
    restore(tmp_path / "interrupted.tar", tmp_path / "again")
    aggregate(world.log, tmp_path / "again", max_reports=MAX_REPORTS)
    assert counted(tmp_path / "again") == counted(world.done)

    with pytest.raises(AggregationError, match="another run holds"), StateDirectory(state).lock():
        backup(state, tmp_path / "held.tar")


def test_files_that_a_run_removes_meanwhile_stay_in_the_backup(world, tmp_path, monkeypatch):
    state = Path(shutil.copytree(world.half, tmp_path / "state"))
    whole = module._write

    def write_later(*given: object) -> None:
        # The directory is not held any more.
        aggregate(world.log, state, max_reports=MAX_REPORTS)
        whole(*given)

    monkeypatch.setattr(module, "_write", write_later)
    backup(state, tmp_path / "state.tar")
    assert committed(state) == committed(world.done)
    assert not (state / "backup").exists()
    restore(tmp_path / "state.tar", tmp_path / "again")
    assert counted(tmp_path / "again") == counted(world.half)


def test_on_a_file_system_without_links_files_are_copied(world, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    backup(world.half, tmp_path / "state.tar")
    assert check(tmp_path / "state.tar") == check(world.file)


@pytest.mark.real_randomness
@pytest.mark.parametrize("moment", ["linked", "written", "checked"])
def test_a_backup_that_is_killed_leaves_no_file_under_its_name(
    world, tmp_path, monkeypatch, moment
):
    state = Path(shutil.copytree(world.half, tmp_path / "state"))
    name = {"linked": "_digest", "written": "check", "checked": "_about"}[moment]
    with monkeypatch.context() as patch:
        patch.setattr(module, name, lambda *_: os._exit(9))
        assert status_of_child(lambda: backup(state, tmp_path / "state.tar")) == 9
    assert not (tmp_path / "state.tar").exists()
    assert (state / "backup").exists()
    aggregate(world.log, state, max_reports=MAX_REPORTS)
    # Data that a commit removes, such as a forgotten pseudonym, does not stay in hard links.
    assert not (state / "backup").exists()
    assert backup(state, tmp_path / "state.tar") == check(tmp_path / "state.tar")
    assert committed(state) == committed(world.done)


@pytest.mark.real_randomness
def test_a_restore_that_is_killed_leaves_no_directory(world, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "_check_whole", lambda _: os._exit(9))
        assert status_of_child(lambda: restore(world.file, tmp_path / "state")) == 9
    assert not (tmp_path / "state").exists()
    restore(world.file, tmp_path / "state")
    assert counted(tmp_path / "state") == counted(world.half)


def test_damage_is_noticed_wherever_it_is(world, tmp_path):
    content = world.file.read_bytes()
    damaged = tmp_path / "damaged.tar"
    for at in range(0, len(content), len(content) // 7 + 1):
        flipped = content[at : at + 1].translate(bytes(255 - each for each in range(256)))
        damaged.write_bytes(content[:at] + flipped + content[at + 1 :])
        if flipped != b"\xff":
            with pytest.raises(AggregationError):
                restore(damaged, tmp_path / "state")
        assert not (tmp_path / "state").exists() or flipped == b"\xff"
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
    for cut in (0, 600, len(content) // 2):
        damaged.write_bytes(content[:cut])
        with pytest.raises(AggregationError, match="no backup"):
            check(damaged)
    assert not any(path.name.endswith(".partial") for path in tmp_path.iterdir())


def test_nothing_is_overwritten(world, tmp_path):
    with pytest.raises(AggregationError, match="exists already"):
        backup(world.half, world.file)
    with pytest.raises(AggregationError, match="exists already"):
        restore(world.file, world.half)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AggregationError, match="to a new directory"):
        restore(world.file, tmp_path / "empty")
    with pytest.raises(AggregationError, match="holds no run"):
        backup(tmp_path, tmp_path / "none.tar")
    with pytest.raises(AggregationError, match="must be outside"):
        backup(world.half, world.half / "plans" / "state.tar")


@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_somebody_has_put_beside_a_backup_gets_nothing_of_it(world, tmp_path, link):
    planted, partial = tmp_path / "planted", tmp_path / "new.tar.partial"
    planted.write_text("kept")
    partial.symlink_to(planted) if link else os.link(planted, partial)
    backup(world.half, tmp_path / "new.tar")
    assert planted.read_text() == "kept"
    assert (tmp_path / "new.tar").lstat().st_mode & 0o777 == 0o600


def test_results_that_are_ahead_are_made_again_once_that_is_said(world, tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'all.db'}"
    state = Path(shutil.copytree(world.half, tmp_path / "lost"))
    aggregate(world.log, state, database=url, max_reports=MAX_REPORTS)
    new = str(tmp_path / "state")
    restore(world.file, new)
    with pytest.raises(AggregationError, match="restored"):
        aggregate(world.first, new, database=url)
    shutil.rmtree(new)
    given = ["restore", str(world.file), "--state", new, "--database", url]
    assert main([*given, "--forgotten", "none"]) == 0
    assert "results of tests.example are made again" in capsys.readouterr().out
    aggregate(world.log, new, database=url, max_reports=MAX_REPORTS)
    assert projected(url) == projected(world.done)
    with Results(url) as results:
        assert results.invalidate("nobody's") is None


def test_the_commands_say_what_a_backup_has(world, tmp_path, capsys):
    out = str(tmp_path / "state.tar")
    assert main(["backup", "--state", str(world.half), "--out", out]) == 0
    assert main(["backup", "--check", out]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert f"generation {check(out).generation}" in first
    assert main(["backup", "--state", str(world.half)]) == 2
    assert "--out is missing" in capsys.readouterr().err
