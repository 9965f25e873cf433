"""The project's own Flink: starts, stops, says what is wrong."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.errors import DeployError
from deploy.flink import __main__ as command
from deploy.flink import cluster
from deploy.flink.archives import JOB_SERVER, SOURCE
from deploy.flink.cluster import LocalFlink, Ports
from deploy.ports import free_ports
from deploy.process import Process

pytestmark = pytest.mark.slow


def listening(pid: int) -> set[str]:
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return {
        line.split()[3].rpartition(":")[0] for line in said.splitlines() if f"pid={pid}," in line
    }


def test_of_two_starts_one_starts_it_where_it_was(tmp_path, monkeypatch):
    session, started = LocalFlink(tmp_path), []
    entered, go_on = threading.Event(), threading.Event()

    def start(self, missing, folders, say):
        entered.set()
        assert go_on.wait(600)
        started.extend(missing)

    monkeypatch.setattr(cluster, "archives", list)
    monkeypatch.setattr(Process, "pid", property(lambda self: 1 if self in started else None))
    monkeypatch.setattr(LocalFlink, "_start", start)
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(session.start)
        assert entered.wait(600)
        second = callers.submit(session.start)
        go_on.set()
        assert (first.result(600), second.result(600)) == (True, False)
    assert started == list(session.parts)
    # One that was killed is started again, where it was, and no other.
    address, killed = session.address, started.pop(1)
    assert session.start()
    assert (session.address, started[-1], len(started)) == (address, killed, len(session.parts))
    started.clear()
    assert session.start()
    assert session.address == address


def test_it_listens_on_loopback_alone_save_for_beam_s_services(local):
    """Those are the job server's, and the task manager's while a pipeline runs."""
    found = set()
    for process in (local.job_manager, local.task_manager, local.pool):
        assert listening(process.pid), process.name
        found |= listening(process.pid)
    assert all(re.fullmatch(r"127\.0\.0\.1|\[::ffff:127\.0\.0\.1\]", one) for one in found), found


def test_ports_are_not_shared(archives, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match=f"port {port} cannot be used .*give another"):
            LocalFlink(tmp_path).start(Ports(port, *free_ports(4)))


def test_the_command_tells_where_it_answers(local, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["flink", "start", f"--folder={local.folder}"])
    assert command.main() == 0
    out = capsys.readouterr().out
    assert f"running already, on {local.address}\n" in out
    assert f"--job_endpoint={local.job_endpoint}" in out


def test_the_command_stops_the_session_of_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["flink", "stop", f"--folder={tmp_path}"])
    assert command.main() == 0
    assert capsys.readouterr().out == "no session is running\n"


def test_both_parts_are_pinned_in_full():
    for source in (SOURCE, JOB_SERVER):
        names = pinned(source)
        assert names == sorted(set(names))
    version = "1.19.3"
    required = (SOURCE / "requirements.txt").read_text("ascii")
    assert re.search(rf"^apache-flink-libraries=={version} ", required, re.MULTILINE)
    assert f"flink-dist-{version}.jar" in pinned(SOURCE)
    assert "beam-runners-flink-1.19-2.62.0.jar" in pinned(JOB_SERVER)
    # Flink's own classes must be of one version.
    assert not [name for name in pinned(JOB_SERVER) if name.startswith("flink-")]


def pinned(source: Path) -> list[str]:
    lines = (source / "jars.sha256").read_text("ascii").splitlines()
    return [line.split("  ")[1] for line in lines]
