"""Runs that are killed, in real processes: nothing is lost, nothing counts twice.

Everything is compared: after the restart every committed file has the bytes that it has after a run
that nobody disturbed, and the database the same rows.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest
from committed_states import counted
from crashes import MAX_REPORTS, World, after_runs, aggregate
from report_logs import honest, write
from run_child import SHORT, STOPPED, run
from run_reference import expected
from step_plans import plans, registry

from pipelines.bounded.driver import STEPS
from pipelines.sources.frozen import FrozenLog
from pipelines.storage import states as storedstates
from pipelines.storage.directory import StateDirectory


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
    process.join(600)
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

    done = world.aggregate(state, note)
    assert seen == [*STEPS] * done.runs
    assert kept == {"plans", "attempts", "states", "logs", "counts", "published", "quarantine"}


@pytest.mark.real_randomness
@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "occurrence"), [(step, 1 + number % 2) for number, step in enumerate(STEPS)]
)
def test_a_run_stopped_at_any_step_goes_on(world, server, step, occurrence):
    state = world.new_state()
    assert status(started(server, world, state, step, occurrence)) == STOPPED
    world.check(state)


@pytest.mark.real_randomness
@pytest.mark.slow
@pytest.mark.parametrize("occurrence", range(1, 30, 6))
def test_a_run_stopped_within_any_write_goes_on(world, server, occurrence):
    state = world.new_state()
    assert status(started(server, world, state, "write", occurrence)) == STOPPED
    world.check(state)


@pytest.mark.real_randomness
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
    aggregate(world.log, state, plans(), stop=after_runs(0))
    manifest = directory.manifest()
    assert (manifest.generation, manifest.clock) == (1, intent.clock)
    assert manifest.positions == intent.ends
    aggregate(world.log, state, plans())
    assert counted(state) == expected(world.log, registry()).counts
