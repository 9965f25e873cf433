"""Checkpoints of jobs that have ended go once they cannot be needed any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.flink.rest import JobManager, JobStatus
from pipelines.maintenance import checkpoints
from pipelines.maintenance.checkpoints import KEEP
from sotto_cli import main

NOW = 1_800_000_000_000
OLD, LATER, RUNS, EMPTY = (letter * 32 for letter in "abcd")


def made(folder: Path, job: str, number: int, at: int, complete: bool = True) -> None:
    """Make a checkpoint that was completed at a time, ms."""
    path = folder / job / f"chk-{number}"
    path.mkdir(parents=True)
    (path / "state").write_bytes(b"pseudonyms")
    if complete:
        (path / "_metadata").touch()
        os.utime(path / "_metadata", (at / 1000, at / 1000))
    os.utime(folder / job, (at / 1000, at / 1000))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made(tmp_path, OLD, 3, NOW - 3 * KEEP)
    made(tmp_path, LATER, 3, NOW - KEEP + 1000)
    made(tmp_path, EMPTY, 1, NOW - 2 * KEEP, complete=False)
    (tmp_path / "ours").mkdir()
    os.utime(tmp_path / "ours", (0, 0))
    monkeypatch.setattr(checkpoints, "now_ms", lambda: NOW)
    return tmp_path


def run_jobs(monkeypatch, *ids: str) -> None:
    jobs = [JobStatus(OLD, "sotto-a", "CANCELED", 0, 1, 0)]
    jobs += [JobStatus(id, "sotto-a", "RUNNING", 1, 1, 1) for id in ids]
    monkeypatch.setattr(JobManager, "jobs", lambda self: jobs)


def swept(folder: Path, *more: str) -> int:
    return main(["retain", "--checkpoints", str(folder), "--flink", "http://flink:8081", *more])


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_old_checkpoints_of_ended_jobs_go_once_a_running_job_has_a_later_one(
    folder, monkeypatch, capsys
):
    made(folder, RUNS, 9, NOW - 1000)
    run_jobs(monkeypatch, RUNS)
    before = left(folder)
    assert swept(folder, "--dry-run") == 0
    assert left(folder) == before
    said = capsys.readouterr().out
    assert f"{folder / OLD}\n{folder / EMPTY}\n" in said
    assert "checkpoints of 2 ended jobs would be removed" in said
    assert swept(folder) == 0
    assert left(folder) == before - {OLD, EMPTY}
    assert swept(folder, "--keep", "1s") == 0
    assert left(folder) == {RUNS, "ours"}


def test_nothing_goes_that_may_be_needed(folder, monkeypatch, capsys):
    """A job that its manager forgot goes on from the checkpoints that it has left."""
    before = left(folder)
    run_jobs(monkeypatch)
    assert swept(folder, "--keep", "1s") == 2
    # One that runs, and has not come to a checkpoint.
    made(folder, RUNS, 1, NOW, complete=False)
    run_jobs(monkeypatch, RUNS)
    assert swept(folder, "--keep", "1s") == 2
    assert "submit the job first" in capsys.readouterr().err
    # Its only one is older than that of a job that ended since.
    made(folder, RUNS, 2, NOW - 2 * KEEP)
    assert swept(folder, "--keep", "1s") == 0
    assert left(folder) == (before | {RUNS}) - {OLD}
