"""Beam pipelines on a real session: results, and what a process that is killed does to them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from beamjob import KEYS

from deploy.flink.cluster import LocalFlink

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("beamjob.py")
#: How long one thing may take on a busy machine, in seconds.
PATIENCE = 240
STREAMING = [
    "--streaming",
    # Given bare, this turns chaining off: with it, no savepoint is restored at another parallelism.
    "--operator_chaining",
    "--max_parallelism=128",
    "--checkpointing_interval=1000",
    "--max_bundle_size=1000",
    "--max_bundle_time_mills=200",
]
ENDED = {"FINISHED", "CANCELED", "FAILED"}


def run(local: LocalFlink, kind: str, out: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(out), *local.options, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def asked(local: LocalFlink, path: str, method: str = "GET", body: dict | None = None) -> dict:
    request = urllib.request.Request(local.address + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.1)


def grouped(local: LocalFlink, out: Path) -> None:
    run(local, "grouped", out)
    sums = [f"{key} {sum(range(key, 1000, KEYS))}" for key in range(KEYS)]
    assert sorted(out.read_text("ascii").splitlines()) == sums


def test_another_runs_after_any_process_was_killed(local, tmp_path):
    for process in (local.task_manager, local.pool, local.job_server, local.job_manager):
        process.kill()
        local.start()
        grouped(local, tmp_path / process.name)


def test_no_files_are_sent_with_a_pipeline(local, tmp_path):
    """The job server names what it sends in the pipeline's settings."""
    grouped(local, tmp_path / "out")
    jobs = [job["jid"] for job in asked(local, "/jobs/overview")["jobs"]]
    for job in jobs:
        said = asked(local, f"/jobs/{job}/jobmanager/config")
        jars = [one["value"] for one in said if one["key"] == "pipeline.jars"]
        assert jars in ([], [""])


class Counted:
    """A pipeline that counts without end."""

    def __init__(self, local: LocalFlink, out: Path, *options: str) -> None:
        known = self._of(local)
        run(local, "counted", out, *STREAMING, *options)
        self._local, self._out = local, out
        wait_until(lambda: self._of(local) - known, "the job is there")
        (self.id,) = self._of(local) - known

    @staticmethod
    def _of(local: LocalFlink) -> set[str]:
        return {job["jid"] for job in asked(local, "/jobs/overview")["jobs"]}

    def lines(self, key: int) -> list[tuple[int, int]]:
        try:
            text = (self._out / str(key)).read_text("ascii")
        except FileNotFoundError:
            return []
        pairs = (line.split() for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return [(int(count), int(largest)) for count, largest in pairs]

    def wait_for_progress(self) -> None:
        """Wait until each key has counted beyond all that it has said so far."""
        before = [max((count for count, _ in self.lines(key)), default=0) for key in range(KEYS)]
        wait_until(
            lambda: all(self.lines(key)[-1:] > [(before[key], 0)] for key in range(KEYS)),
            f"more is counted than {before}",
        )

    def checkpoint(self) -> str | None:
        """The newest checkpoint of this run."""
        latest = asked(self._local, f"/jobs/{self.id}/checkpoints")["latest"]["completed"]
        return latest and latest["external_path"]

    def wait_for_checkpoint(self) -> str:
        before = self.checkpoint()
        wait_until(lambda: self.checkpoint() not in (before, None), "there is a checkpoint")
        found = self.checkpoint()
        assert found is not None
        return found

    def cancel(self) -> None:
        asked(self._local, f"/jobs/{self.id}?mode=cancel", "PATCH")
        wait_until(
            lambda: asked(self._local, f"/jobs/{self.id}")["state"] in ENDED, "it is cancelled"
        )

    def check(self) -> None:
        """Each number was counted once, whatever was counted again after a fault."""
        for key in range(KEYS):
            for count, largest in self.lines(key):
                assert largest == (count - 1) * KEYS + key


def test_a_job_whose_manager_was_killed_goes_on_from_its_last_checkpoint(local, tmp_path):
    job = Counted(local, tmp_path / "out", "--parallelism=1")
    job.wait_for_progress()
    found = job.wait_for_checkpoint()
    local.job_manager.kill()
    local.start()
    folder = Path(found.removeprefix("file:")).parent
    newest = max(folder.glob("chk-*"), key=lambda path: int(path.name.partition("-")[2]))
    # In another folder: the old tasks may go on for a while.
    again = Counted(local, tmp_path / "again", "--parallelism=1", f"--savepoint_path={newest}")
    again.wait_for_progress()
    again.cancel()
    job.check()
    again.check()
    assert all(again.lines(key)[0][0] > 1 for key in range(KEYS))
