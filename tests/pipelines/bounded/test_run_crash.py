"""Runs that are killed, in real processes: nothing is lost, nothing counts twice.

What is compared is everything: after the restart every committed file has the bytes that it has
after a run that nobody disturbed, and the database the same rows.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest
from committed_states import committed, counted, projected
from report_logs import faulty, honest, write
from run_child import MAX_REPORTS, SHORT, STOPPED, run
from run_reference import expected
from step_plans import plans, registry

from pipelines.bounded.driver import STEPS
from pipelines.bounded.run import aggregate
from pipelines.sources.frozen import FrozenLog
from pipelines.storage import states as storedstates
from pipelines.storage.directory import StateDirectory

SEED = 20_131_201


class World:
    """A log, an empty state directory for it, and what an undisturbed run makes of the two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = write(folder / "log", honest(10, 3, 11) + faulty(12))
        self.empty, self.done = folder / "empty", folder / "done"
        directory = StateDirectory(self.empty)
        with directory.lock():
            directory.open()
        shutil.copytree(self.empty, self.done)
        self.result = aggregate(self.log, self.done, plans(), max_reports=MAX_REPORTS)
        assert self.result.runs >= 3
        self.number = 0

    def new_state(self) -> Path:
        self.number += 1
        state = self.folder / f"state-{self.number}"
        shutil.copytree(self.empty, state)
        return state

    def check(self, state: Path) -> None:
        """Finish, and compare everything with the undisturbed run."""
        aggregate(self.log, state, plans(), max_reports=MAX_REPORTS)
        assert committed(state) == committed(self.done)
        assert projected(state) == projected(self.done)


@pytest.fixture(scope="module", autouse=True)
def _():
    """Let runs of this process write both snapshots and logs too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storedstates, "SHORT", SHORT)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("crash"))
    assert counted(made.done) == expected(made.log, registry()).counts
    return made


@pytest.fixture(scope="module")
def server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["run_child", "pipelines.bounded.run"])
    return context


def started(
    server: ForkServerContext, world: World, state: Path, *where: str | int
) -> ForkServerProcess:
    process = server.Process(target=run, args=(str(world.log), str(state), *where))
    process.start()
    return process


def status(process: ForkServerProcess) -> int | None:
    process.join(120)
    code = process.exitcode
    process.close()
    return code


def test_a_run_takes_these_steps(world):
    seen: list[str] = []
    kept: set[str] = set()
    state = world.new_state()

    def note(step: str) -> None:
        seen.append(step)
        kept.update(path.name for path in state.iterdir() if path.is_dir() and any(path.iterdir()))

    done = aggregate(world.log, state, plans(), max_reports=MAX_REPORTS, checkpoint=note)
    assert seen == [*STEPS] * done.runs
    assert kept == {"plans", "attempts", "states", "logs", "counts", "quarantine"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "occurrence"), [(step, 1 + number % 2) for number, step in enumerate(STEPS)]
)
def test_a_run_stopped_at_any_step_goes_on(world, server, step, occurrence):
    state = world.new_state()
    assert status(started(server, world, state, step, occurrence)) == STOPPED
    world.check(state)


@pytest.mark.slow
@pytest.mark.parametrize("occurrence", range(1, 30, 6))
def test_a_run_stopped_within_any_write_goes_on(world, server, occurrence):
    state = world.new_state()
    assert status(started(server, world, state, "write", occurrence)) == STOPPED
    world.check(state)


@pytest.mark.slow
def test_a_run_killed_again_and_again_goes_on(world, server):
    source, kills = random.Random(SEED), 0
    state = world.new_state()
    for attempt in range(60):
        process = started(server, world, state)
        # Longer and longer, so that every part of a run is met and an end comes.
        time.sleep(source.random() * 0.1 * (attempt + 1))
        process.kill()
        code = status(process)
        if code == 0:
            break
        assert code == -9, f"seed {SEED}"
        kills += 1
    else:
        pytest.fail(f"never finished; seed {SEED}")
    assert kills > 3
    world.check(state)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["begun", "MANIFEST.json written"])
def test_a_restart_takes_what_was_undertaken_though_the_log_has_grown(tmp_path, server, step):
    world = World(tmp_path)
    state = world.new_state()
    directory = StateDirectory(state)
    intent = FrozenLog(world.log, directory.manifest()).take(MAX_REPORTS)
    assert intent is not None
    assert status(started(server, world, state, step, 1)) == STOPPED
    write(world.log, honest(3, 1, 99))
    stops = iter([True])
    aggregate(world.log, state, plans(), stop=lambda: next(stops))
    manifest = directory.manifest()
    assert (manifest.generation, manifest.clock) == (1, intent.clock)
    assert manifest.positions == intent.ends
    aggregate(world.log, state, plans())
    assert counted(state) == expected(world.log, registry()).counts


@pytest.mark.slow
def test_a_killed_run_lets_its_lock_go(world, server):
    state = world.new_state()
    assert status(started(server, world, state, "written", 1)) == STOPPED
    with StateDirectory(state).lock():
        pass
