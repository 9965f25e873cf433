"""The project's own Flink: starts, runs jobs, loses a process, stops, and says what is wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy import jars
from deploy.errors import DeployError
from deploy.flink import __main__ as command
from deploy.flink import archives as archives_module
from deploy.flink.archives import archives as flink_archives
from deploy.flink.cluster import LocalFlink
from deploy.flink.settings import REFLECTION

pytestmark = pytest.mark.slow


def told(session: LocalFlink, path: str) -> dict:
    with urllib.request.urlopen(session.address + path, timeout=10) as answer:
        return json.load(answer)


def listening(pid: int) -> set[str]:
    """Return the addresses at which a process listens."""
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return {
        line.split()[3].rpartition(":")[0] for line in said.splitlines() if f"pid={pid}," in line
    }


def test_it_runs_a_job(local):
    program = jars.java()
    modules = subprocess.run(
        [program, "--list-modules"], capture_output=True, text=True, check=True
    )
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("the job cannot be compiled: this Java is a runtime alone, without a compiler")
    port = local.address.rpartition(":")[2]
    client = [program, "-Xmx192m", *REFLECTION, "-cp", f"{flink_archives()}/*"]
    done = subprocess.run(
        [*client, str(Path(__file__).with_name("Numbers.java")), port],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split()[-1:] == ["300"], done.stdout + done.stderr
    (job,) = told(local, "/jobs/overview")["jobs"]
    assert (job["name"], job["state"]) == ("numbers", "FINISHED")


def test_a_task_manager_that_was_killed_is_started_again(local):
    manager, task_manager = local.job_manager.pid, local.task_manager.pid
    local.task_manager.kill()
    assert local.running
    local.start()
    assert local.job_manager.pid == manager
    assert local.task_manager.pid != task_manager
    name = (local.folder / "taskmanager.name").read_text("ascii")
    (found,) = [one for one in told(local, "/taskmanagers")["taskmanagers"] if one["id"] == name]
    assert found["slotsNumber"] == 2


def test_of_two_starts_one_starts_it_again_where_it_was_and_needs_no_network(local, monkeypatch):
    monkeypatch.setattr(archives_module, "fetch", lambda _: pytest.fail("a network is needed"))
    address = local.address
    assert local.stop()
    assert not local.running
    assert not local.stop()
    with ThreadPoolExecutor(2) as callers:
        started = sorted(callers.map(lambda _: local.start(), range(2)))
    assert started == [False, True]
    assert local.address == address


def test_it_listens_on_loopback_alone(local):
    found = listening(local.job_manager.pid) | listening(local.task_manager.pid)
    assert found
    assert all(re.fullmatch(r"127\.0\.0\.1|\[::ffff:127\.0\.0\.1\]", one) for one in found), found


def test_ports_are_not_shared(archives, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match=f"port {port} cannot be used .*give another"):
            LocalFlink(tmp_path).start(port=port)


def test_one_that_ends_at_once_says_why_and_leaves_nothing(archives, tmp_path, monkeypatch):
    monkeypatch.setattr("deploy.flink.settings.configuration", lambda *_: {"rest.port": "none"})
    session = LocalFlink(tmp_path)
    with pytest.raises(DeployError, match=r"the (job|task)manager ended: .*\.log"):
        session.start()
    assert not session.running


def test_another_process_that_has_its_id_by_now_is_left_alone(tmp_path):
    session = LocalFlink(tmp_path)
    (tmp_path / "jobmanager.pid").write_text(str(os.getpid()), encoding="ascii")
    assert not session.running
    assert not session.stop()
    assert not (tmp_path / "jobmanager.pid").exists()


def test_no_slots_are_refused(tmp_path):
    with pytest.raises(DeployError, match="slots 0 must be at least 1"):
        LocalFlink(tmp_path, slots=0)


def test_the_command_tells_where_it_answers(local, monkeypatch, capsys):
    monkeypatch.setattr(command, "STATE", local.folder)
    monkeypatch.setattr("sys.argv", ["flink", "start"])
    assert command.main() == 0
    assert capsys.readouterr().out == f"running already, on {local.address}\n"


def test_flink_is_pinned_in_full():
    source = Path(archives_module.__file__).parent
    names = [
        line.split("  ")[1] for line in (source / "jars.sha256").read_text("ascii").splitlines()
    ]
    assert names == sorted(set(names))
    version = "2.2.1"
    required = (source / "requirements.txt").read_text("ascii")
    assert re.search(rf"^apache-flink-libraries=={version} ", required, re.MULTILINE)
    assert f"flink-dist-{version}.jar" in names
