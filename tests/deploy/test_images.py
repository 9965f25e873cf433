"""Flink in containers is the Flink of the scripts, and its job is submitted when it must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy import jars
from deploy.errors import MissingToolError
from deploy.flink import settings
from deploy.flink.cluster import LocalFlink
from deploy.images import job, node
from pipelines.flink.jobfolder import JobFolder, Known
from pipelines.flink.rest import FlinkError, Job, JobManager

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
def test_commands_are_those_of_a_session(role: str, tmp_path: Path) -> None:
    try:
        program = jars.java()
    except MissingToolError as error:
        pytest.skip(str(error))
    session = LocalFlink(tmp_path)
    (tmp_path / "taskmanager.name").write_text("one")
    process = session.job_manager if role == node.MANAGER else session.task_manager
    native = [
        word.replace(str(tmp_path.resolve()), str(node.OWN))
        for word in session._command(process, program)
    ]
    if role != node.MANAGER:
        assert native[-2] == "-D"
        native = native[:-2]
    assert node.command(role) == native
    names = set(session.client) | set(session._environment())
    assert set(node.environment()) == names
    for name, value in (session.client | session._environment()).items():
        assert node.environment()[name] == value.replace(str(tmp_path.resolve()), str(node.OWN))


class Manager(JobManager):
    """A job manager with some jobs, or none that answers."""

    def __init__(self, jobs: Sequence[Job] = (), free: int = 2, answers: bool = True) -> None:
        super().__init__("http://jobmanager:8081")
        self._jobs, self._free, self._answers = list(jobs), free, answers

    def slots(self) -> int:
        if not self._answers:
            raise FlinkError("nobody answers")
        return self._free

    def jobs(self) -> list[Job]:
        return self._jobs


def looked(folder: JobFolder, manager: JobManager) -> list[list[str]]:
    """Return the commands that a look comes to."""
    given: list[list[str]] = []

    def run(words: Sequence[str]) -> int:
        given.append(list(words))
        return 0

    assert job.look(["--state", "x"], folder, manager, run) == 0
    return given


def test_a_job_is_submitted_once_and_again_when_flink_has_forgotten_it(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert looked(folder, Manager(answers=False)) == []
    assert looked(folder, Manager(free=0)) == []
    assert looked(folder, Manager()) == [["flink", "run", "--state", "x"]]
    known = Known("abc", flink="http://jobmanager:8081", id="1")
    folder.remember(known)
    for state in ("RUNNING", "RESTARTING", "CREATED"):
        assert looked(folder, Manager([Job("1", known.group, state, 1, 1)])) == []
    again = [["flink", "run", "--state", "x", "--from", "latest"]]
    assert looked(folder, Manager()) == again
    assert looked(folder, Manager([Job("1", known.group, "FAILED", 0, 1)])) == again
    assert looked(folder, Manager([Job("1", "another", "RUNNING", 1, 1)])) == again
