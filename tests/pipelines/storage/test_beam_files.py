"""States whose files lie on one of Beam's file systems, and jobs that outlive their driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import memory_files
import pytest
from committed_states import committed, counted, projected
from crashes import MAX_REPORTS, Killed, World, after_runs, kill_at
from memory_files import FILES
from report_logs import honest, write
from requeued import BOTH, FIRST_PLAN, reports
from run_reference import expected
from step_plans import plans, registry
from watched import exposition

from pipelines.bounded import job
from pipelines.bounded.job import Job
from pipelines.bounded.run import aggregate
from pipelines.requeue.state import requeue
from pipelines.sources import source_of
from pipelines.sources.frozen import FrozenLog
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory, StateFiles
from pipelines.storage.intent import Intent
from pipelines.storage.manifest import Manifest
from sotto.errors import AggregationError, ParameterError
from sotto.plan.registry import Registry

pytestmark = pytest.mark.slow

PLACE = "mem://bucket/sotto"


@pytest.fixture(autouse=True)
def no_files():
    yield
    FILES.clear()
    memory_files.before.clear()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("elsewhere"), PLACE)


@contextmanager
def failing(change: str, occurrence: int, error: BaseException) -> Iterator[None]:
    """Let a change of a file fail, the given one of its kind, before it is made."""
    seen = 0

    def fail(found: str, path: str) -> None:
        nonlocal seen
        seen += found == change
        if found == change and seen == occurrence:
            raise error

    memory_files.before.append(fail)
    try:
        yield
    finally:
        memory_files.before.remove(fail)


def test_files_elsewhere_are_those_that_a_local_state_has(world, tmp_path):
    """Byte for byte; the manifests differ in where the files are."""
    local = tmp_path / "local"
    shutil.copytree(world.empty, local)
    manifest = StateDirectory(local).manifest()
    files.replace(local / "MANIFEST.json", replace(manifest, files=None).to_json())
    world.aggregate(local)
    here = {
        name: content
        for name, content in committed(local).items()
        if name.startswith(("states/", "counts/", "published/", "quarantine/"))
    }
    root = f"{PLACE}/{manifest.state}/"
    assert {root + name: content for name, content in here.items()} == world.files
    assert not any((world.done / name).exists() for name in ("states", "counts", "quarantine"))
    assert projected(local) == projected(world.done)
    of_both = [StateDirectory(state).manifest() for state in (local, world.done)]
    assert of_both[0] == replace(of_both[1], files=None)


def test_everything_that_reads_a_state_finds_its_files(tmp_path):
    log, state = write(tmp_path / "log", reports(12, 41)), tmp_path / "state"
    aggregate(log, state, [FIRST_PLAN], elsewhere=PLACE)
    taken = requeue(state, BOTH)
    assert taken.size > 0
    assert counted(state) == expected(log, Registry(BOTH)).counts
    shown = exposition(state, log)
    size = sum(len(content) for name, content in FILES.items() if "/logs/" in name)
    assert f'sotto_state_bytes{{collector="tests.example",part="states"}} {float(size)}' in shown


def test_a_folder_elsewhere_is_its_owners_and_known_by_its_whole_path(tmp_path, monkeypatch):
    log, state = write(tmp_path / "log", honest(1, 1, 1)), tmp_path / "state"
    monkeypatch.chdir(tmp_path)
    aggregate(log, state, plans(), elsewhere="shared")
    manifest = StateDirectory(state).manifest()
    assert manifest.files == str(tmp_path / "shared")
    root = tmp_path / "shared" / manifest.state
    assert root.stat().st_mode & 0o777 == 0o700
    assert any((root / "counts").iterdir())
    assert {path.name for path in state.iterdir()} >= {"MANIFEST.json", "plans", "LOCK"}
    assert not (state / "counts").exists()


def test_a_state_that_was_restored_from_a_copy_removes_nothing(world):
    state, third = world.new_state(), MAX_REPORTS // 2
    aggregate(world.log, state, plans(), max_reports=third, stop=after_runs(1))
    copy = (state / "MANIFEST.json").read_bytes()
    assert aggregate(world.log, state, plans(), max_reports=third).runs == 2
    files.replace(state / "MANIFEST.json", copy)
    before = dict(FILES)
    with pytest.raises(
        AggregationError, match=r"files of generation \d, but the manifest only knows 1"
    ):
        world.aggregate(state)
    assert before == FILES


def test_where_files_are_is_said_once(tmp_path):
    log, state = write(tmp_path / "log", honest(1, 1, 1)), tmp_path / "state"
    aggregate(log, state, plans(), elsewhere=PLACE)
    with pytest.raises(
        AggregationError, match="has its files in mem://bucket/sotto, not in mem://else"
    ):
        aggregate(log, state, plans(), elsewhere="mem://else")
    assert aggregate(log, state, plans()).runs == 0
    assert aggregate(log, state, plans(), elsewhere=f"{PLACE}/").runs == 0
    aggregate(log, tmp_path / "other", plans())
    with pytest.raises(AggregationError, match="mem://else"):
        aggregate(log, tmp_path / "other", plans(), elsewhere="mem://else")
    with pytest.raises(ParameterError, match="nosuch"):
        aggregate(log, tmp_path / "third", plans(), elsewhere="nosuch://bucket")


@pytest.mark.parametrize("step", ["begun", "placed", "MANIFEST.json renamed", "committed"])
def test_a_run_killed_at_any_step_goes_on(world, step):
    state = world.new_state()
    with pytest.raises(Killed):
        world.aggregate(state, kill_at(step, 2))
    world.check(state)


@pytest.mark.parametrize(("change", "occurrence"), [("rename", 8), ("delete", 4)])
def test_a_run_killed_among_moves_or_removals_goes_on(world, change, occurrence):
    state = world.new_state()
    with failing(change, occurrence, Killed()), pytest.raises(Killed):
        world.aggregate(state)
    world.check(state)


@pytest.mark.parametrize("change", ["create", "rename", "delete"])
def test_a_file_system_that_fails_stops_a_run_with_a_reason(world, change):
    state = world.new_state()
    error = OSError("the bucket is read-only")
    with failing(change, 2, error), pytest.raises(AggregationError, match="read-only"):
        world.aggregate(state)
    world.check(state)


def test_a_missing_file_is_named(world):
    state = world.new_state()
    with pytest.raises(Killed):
        world.aggregate(state, kill_at("begun", 2))
    lost = {name: FILES.pop(name) for name in sorted(FILES) if "/logs/" in name}
    with pytest.raises(
        AggregationError, match=r"mem://.*/logs/.* is not there, though it is commit"
    ):
        world.aggregate(state)
    FILES.update(dict.fromkeys(lost, b"damaged"))
    with pytest.raises(AggregationError, match=r"mem://.*/logs/.* is damaged \(.*\): restore it"):
        world.aggregate(state)
    FILES.update(lost)
    world.check(state)


class Zombie:
    """The job of a driver that was killed when it had begun: it may still run, and end, later."""

    def __init__(self, world: World, state: Path, known: Registry) -> None:
        directory = StateDirectory(state)
        manifest = directory.manifest()
        intent = FrozenLog(world.log, manifest).take(MAX_REPORTS)
        assert intent is not None
        directory.write_intent(intent, lambda step: None)
        self.job = Job.of(source_of(world.log), directory.files, known, manifest, intent)
        self.items = intent.items

    def run(self) -> None:
        """Do all of it; on an object store, or with its folder still there."""
        files.make_folder(self.job.files.attempt(self.job.attempt))
        job.run(self.job, self.items)


@pytest.mark.parametrize(
    ("place", "known", "when"),
    [
        (None, Registry(plans()[:1]), "placed"),
        (None, Registry(plans()[:1]), "at the end"),
        (PLACE, registry(), "written"),
        (PLACE, registry(), "MANIFEST.json renamed"),
    ],
    ids=["local-placed", "local-late", "away-written", "away-committed"],
)
def test_a_job_that_outlives_its_driver_changes_nothing(world, tmp_path, place, known, when):
    """Also with other plans than the next driver has: what it writes is read by nobody."""
    state = world.new_state()
    manifest = StateDirectory(state).manifest()
    files.replace(state / "MANIFEST.json", replace(manifest, files=place).to_json())
    zombie = Zombie(world, state, known)
    ran = []

    def run(step: str) -> None:
        if step == when and not ran:
            ran.append(step)
            zombie.run()

    world.aggregate(state, run)
    if not ran:
        zombie.run()
    world.aggregate(state)
    with StateDirectory(state).lock():
        StateDirectory(state).open()
    assert projected(state)["estimates"] == projected(world.done)["estimates"]
    assert _contents(state) == {
        name.removeprefix(f"{PLACE}/{manifest.state}/"): content
        for name, content in world.files.items()
    }


def _contents(state: Path) -> dict[str, bytes]:
    """Return all files of a state that jobs have left, wherever they are."""
    manifest: Manifest = StateDirectory(state).manifest()
    if manifest.files is None:
        names = ("states/", "counts/", "published/", "quarantine/", "attempts/")
        return {n: content for n, content in committed(state).items() if n.startswith(names)}
    root = f"{manifest.files}/{manifest.state}/"
    return {name.removeprefix(root): content for name, content in FILES.items()}


def test_a_job_whose_folder_is_gone_says_so(world, tmp_path):
    """As a job of a killed driver finds it, or a worker that does not reach the state's files."""
    state = tmp_path / "state"
    shutil.copytree(world.empty, state)
    manifest = StateDirectory(state).manifest()
    nowhere = StateFiles(tmp_path / "nowhere")
    made = Job.of(source_of(world.log), nowhere, registry(), manifest, Intent(1, None, ()))
    with pytest.raises(AggregationError, match="workers"):
        made.write("states/1.2.3", [b""])
