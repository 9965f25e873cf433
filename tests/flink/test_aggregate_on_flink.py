"""``sotto aggregate`` on a real Flink session: the files that the embedded runner makes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from committed_states import empty_state
from waiting import wait_until

from benchmarks.reports import plan, weeks, write
from pipelines.bounded.run import aggregate
from pipelines.flink.rest import JobManager
from sotto.plan.durations import parse_time

pytestmark = pytest.mark.slow

REPORTS, MAX_REPORTS, RUNS = 9_000, 6_000, 2
#: A week, few enough that reports of all levels are among the first.
DEVICES = 600
PATIENCE = 600
#: After all reports, so that runs at different times decide alike which windows are complete.
AS_OF = "2023-10-01"


class World:
    """A log, an empty state, and what the embedded runner makes of the two."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.plan = folder / "plan.json"
        self.plan.write_bytes(plan().to_json())
        write(self.log, weeks(plan(), REPORTS, DEVICES))
        empty_state(folder / "empty")
        self.expected = self.files(self.embedded())

    def state(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder / "empty", self.folder / name))

    def embedded(self) -> Path:
        state = self.state("embedded")
        as_of = parse_time(AS_OF)
        done = aggregate(self.log, state, [plan()], as_of=as_of, max_reports=MAX_REPORTS)
        assert done.runs == RUNS
        return state

    def command(self, state: Path, *options: str) -> list[str]:
        ours = ("--plan", self.plan, "--log", self.log, "--state", state)
        limit = f"--max-reports={MAX_REPORTS}"
        arguments = ("aggregate", *ours, limit, "--as-of", AS_OF, *options)
        return [sys.executable, "-m", "sotto", *map(str, arguments)]

    @staticmethod
    def files(state: Path) -> dict[str, bytes]:
        """Return the manifest and all files that it names, and what attempts have left."""
        folders = ("states", "counts", "quarantine", "attempts")
        found = [path for name in folders for path in (state / name).rglob("*") if path.is_file()]
        return {
            str(path.relative_to(state)): path.read_bytes()
            for path in (*found, state / "MANIFEST.json")
        }


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_whatever_was_killed_two_workers_make_the_files_that_one_process_makes(local, world):
    """The pool, the job server and a driver are killed; the managers are in the streaming test.

    The next driver begins at once, beside the job of the first, which goes on.
    """
    for process in (local.pool, local.job_server):
        process.kill()
        local.start()
    state = world.state("flink")
    command = world.command(state, *local.options)
    first = subprocess.Popen([*command, "--parallelism=1"], stderr=subprocess.PIPE, text=True)
    assert "running after" in first.stderr.readline()
    # So that the job is within its work, not at its beginning.
    wait_until(lambda: any(path.is_file() for path in (state / "attempts").rglob("*")))
    first.kill()
    first.communicate()
    done = subprocess.run(
        [*command, "--parallelism=2"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{REPORTS:,} reports" in done.stdout
    assert done.stderr.count("sotto: job: done after ") == RUNS
    assert world.files(state) == world.expected
    # The job server sends no files: it names what it sends in the pipeline's settings.
    for job in JobManager(local.address).jobs():
        with urllib.request.urlopen(f"{local.address}/jobs/{job.id}/jobmanager/config") as answer:
            said = {one["key"]: one["value"] for one in json.load(answer)}
        assert not said.get("pipeline.jars")
