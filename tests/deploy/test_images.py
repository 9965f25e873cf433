"""Flink in containers is the Flink of the scripts, and its job is submitted when it must be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from programs import fetched

from deploy import jars
from deploy.flink import settings
from deploy.flink.cluster import LocalFlink, Ports
from deploy.images import job, node
from pipelines.flink.rest import FlinkError, JobManager, JobStatus
from sotto_cli import _parsed

ADDRESSES = {
    "jobmanager.rpc.address",
    "jobmanager.bind-host",
    "rest.address",
    "rest.bind-address",
    "taskmanager.host",
    "taskmanager.bind-host",
    "io.tmp.dirs",
}


def test_settings_are_those_of_a_session_save_addresses() -> None:
    native = settings.configuration(node.SHARED, node.REST, node.RPC, 2)
    container = node.configuration("10.0.0.7", 2)
    assert set(native) == set(container)
    assert {name for name in native if native[name] != container[name]} == ADDRESSES
    assert container["taskmanager.host"] == "10.0.0.7"


@pytest.mark.parametrize("role", node.ROLES)
def test_commands_are_those_of_a_session(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fetched():
        jars.java()
    folders = [Path("/cache/flink"), Path("/cache/beam")]
    monkeypatch.setattr(node, "archives", lambda: folders)
    session = LocalFlink(tmp_path)
    ports = Ports(node.REST, node.RPC, node.JOB, node.ARTIFACTS, node.POOL)
    monkeypatch.setattr(LocalFlink, "ports", ports)
    (tmp_path / "taskmanager.name").write_text("one")
    process = {
        node.MANAGER: session.job_manager,
        node.WORKER: session.task_manager,
        node.SERVER: session.job_server,
    }[role]
    shared = f"{tmp_path.resolve()}/artifacts"
    native = [
        word.replace(shared, str(node.SHARED / "artifacts"))
        .replace(str(tmp_path.resolve()), str(node.OWN))
        .replace("--job-host=127.0.0.1", "--job-host=jobserver")
        .replace("=127.0.0.1:", "=jobmanager:")
        for word in session._command(process, folders)
    ]
    if role == node.WORKER:
        assert native[-2] == "-D"
        native = native[:-2]
    assert node.command(role) == native
    names = set(session._environment())
    # Which an image sets for all.
    assert set(node.environment()) == names - {"PYTHONPATH"}


@pytest.mark.real_randomness
def test_the_stage_that_fetches_archives_has_all_that_this_imports(tmp_path: Path) -> None:
    dockerfile = jars.ROOT / "deploy" / "images" / "flink.Dockerfile"
    _, stage, _ = dockerfile.read_text("utf-8").split("\nFROM")
    for name in re.findall(r"^COPY (\w+) ", stage, re.MULTILINE):
        (tmp_path / name).symlink_to(jars.ROOT / name)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import deploy.flink.archives"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def manager(states: Sequence[str] = (), free: int = 2) -> Any:
    """Return a job manager with jobs in some states."""
    jobs = [JobStatus("id", "sotto-a", state, 1, 1, 0) for state in states]
    return SimpleNamespace(slots=lambda: free, jobs=lambda: jobs)


def nobody() -> int:
    raise FlinkError("no job manager answers")


def looked(shared: Path, manager: Any) -> list[list[str]]:
    """Return the commands that a look comes to."""
    given: list[list[str]] = []

    def run(words: Sequence[str]) -> int:
        given.append(list(words))
        return 0

    assert job.look(["--topic", "x"], shared, manager, run) == 0
    return given


def test_a_job_is_submitted_once_and_again_when_flink_has_forgotten_it(tmp_path: Path) -> None:
    assert looked(tmp_path, SimpleNamespace(slots=nobody)) == []
    assert looked(tmp_path, manager(free=0)) == []
    assert looked(tmp_path, manager()) == [["stream", "--topic", "x"]]
    for state in ("RUNNING", "RESTARTING", "CREATED"):
        # It is waited for, with whatever slots are left.
        assert looked(tmp_path, manager([state], free=0)) == [["stream", "--topic", "x"]]
    names = ["checkpoints/a/chk-9", "checkpoints/b/chk-3", "savepoints/savepoint-a-1"]
    for second, name in enumerate(names):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "_metadata").touch()
        os.utime(folder / "_metadata", (second, second))
        again = [["stream", "--topic", "x", f"--savepoint_path={folder}"]]
        assert looked(tmp_path, manager()) == again
    # One that is not complete yet.
    (tmp_path / "checkpoints/b/chk-4").mkdir()
    assert looked(tmp_path, manager(["FAILED"])) == again


def test_checkpoints_of_ended_jobs_are_removed_once_an_hour(monkeypatch: Any) -> None:
    waited, given = list[float](), []

    def run(words: Sequence[str]) -> int:
        given.append(_parsed(words))
        if len(given) == 1:
            raise KeyError("start-time")
        sys.exit()

    monkeypatch.setattr("time.sleep", waited.append)
    with pytest.raises(SystemExit):
        job.sweep(node.SHARED, JobManager("http://jobmanager:8081"), run)
    assert waited == [3600, 3600]
    folder = node.configuration("10.0.0.7", 2)["state.checkpoints.dir"]
    assert (given[1].checkpoints.as_uri(), given[1].flink) == (folder, "http://jobmanager:8081")


def test_a_submission_that_fails_is_told(tmp_path: Path) -> None:
    assert job.look([], tmp_path, manager(), lambda _: 2) == 2
