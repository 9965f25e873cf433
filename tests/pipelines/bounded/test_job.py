"""The Beam graph: what runs twice writes the same, and one process can run many."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from committed_states import committed
from report_logs import faulty, honest, write
from step_plans import registry

from pipelines.beam import runners
from pipelines.bounded import job
from pipelines.bounded.job import Job
from pipelines.sources import source_of
from pipelines.sources.frozen import FrozenLog
from pipelines.storage.directory import StateDirectory
from pipelines.storage.intent import Intent
from pipelines.storage.manifest import Manifest, advance
from pipelines.storage.output import JobOutput


class World:
    """A log, of which the first half is committed and the second half undertaken."""

    def __init__(self, folder: Path) -> None:
        self.log = write(folder / "log", honest(12, 2, 21) + faulty(22))
        self.directory = StateDirectory(folder / "state")
        with self.directory.lock():
            manifest = self.directory.open()
            frozen = FrozenLog(self.log, manifest)
            first, second = frozen.take(60), frozen.take(10_000)
            assert first is not None
            assert second is not None
            self.intent: Intent = second
            self.manifest = advance(manifest, first, self.run_job(manifest, first), registry())
            self.directory.files.sync(self.manifest)
            self.directory.write_manifest(self.manifest, lambda step: None)

    def job(self, manifest: Manifest, intent: Intent) -> Job:
        return Job.of(source_of(self.log), self.directory.files, registry(), manifest, intent)

    def run_job(self, manifest: Manifest, intent: Intent) -> JobOutput:
        made = self.job(manifest, intent)
        written = job.run(made, intent.items)
        made.files.place(made.attempt, written.files)
        return written

    def run(self) -> dict[str, bytes]:
        """Run the second half and return all files of the state that there are then."""
        self.run_job(self.manifest, self.intent)
        return {
            name: content
            for name, content in committed(self.directory.path).items()
            if not name.startswith("attempts/")
        }


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_job_that_runs_again_writes_the_same(world):
    once = world.run()
    assert world.run() == once


def test_bundles_that_run_again_write_the_same(world, tmp_path, monkeypatch):
    once = world.run()
    state = world.directory.path
    shutil.rmtree(state)
    state.mkdir()
    for name, content in once.items():
        (state / name).parent.mkdir(exist_ok=True)
        if "2" not in name.split(".")[-1] and "quarantine/2" not in name:
            (state / name).write_bytes(content)
    monkeypatch.setattr(runners, "FnApiRunner", lambda: FnApiRunner(bundle_repeat=2))
    assert world.run() == once


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_jobs(world):
    def objects() -> int:
        world.run()
        gc.collect()
        return len(gc.get_objects())

    before = max(objects(), objects())
    assert min(objects() for _ in range(3)) - before < 500
