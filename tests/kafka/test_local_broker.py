"""The project's own broker: starts, stops, and says what is wrong."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy import jars
from deploy.errors import DeployError
from deploy.kafka import __main__ as command
from deploy.kafka.broker import LocalBroker
from deploy.kafka.probe import answers

pytestmark = pytest.mark.slow


def test_two_do_not_run_in_one_folder_and_ports_are_not_shared(local, tmp_path):
    with pytest.raises(DeployError, match="running already"):
        LocalBroker(local.folder).start()
    port = int(local.servers.rpartition(":")[2])
    with pytest.raises(DeployError, match=f"port {port} cannot be used .*give another"):
        LocalBroker(tmp_path).start(port=port)


def test_another_process_that_has_its_id_by_now_is_left_alone(tmp_path):
    broker = LocalBroker(tmp_path)
    (tmp_path / "broker.pid").write_text(str(os.getpid()), encoding="ascii")
    assert not broker.running
    assert not broker.stop()
    assert not (tmp_path / "broker.pid").exists()


def test_one_that_ends_at_once_says_why_and_leaves_nothing(archives, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "deploy.kafka.broker.common",
        lambda data, client, controller: {"process.roles": "broker", "log.dirs": data},
    )
    broker = LocalBroker(tmp_path)
    with pytest.raises(DeployError, match=r"formatted|the broker ended"):
        broker.start()
    assert not broker.running


def test_the_command_tells_what_is_running(local, monkeypatch, capsys):
    monkeypatch.setattr(command, "STATE", local.folder.parent)
    monkeypatch.setattr(command, "PROFILES", [local.folder.name])
    monkeypatch.setattr(command, "LocalBroker", lambda folder, profile: local)
    monkeypatch.setattr("sys.argv", ["kafka", "start", "--profile", local.folder.name])
    assert command.main() == 0
    assert capsys.readouterr().out == f"running already, on {local.servers}\n"


def test_secrets_are_its_owners_alone(secured):
    files = [path for path in secured.folder.rglob("*") if path.name != "data"]
    for name in ("server.properties", "client.json", "devices.json", "server.pem"):
        (path,) = [path for path in files if path.name == name]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list((secured.folder / "keys").glob("*.key"))
    password = secured.client_file.read_text("utf-8").split('"password": "')[1].split('"')[0]
    assert password not in secured.log_file.read_text("utf-8")


def test_the_password_is_in_no_command_line(tmp_path, monkeypatch):
    seen = []

    def run(command, **_):
        (file,) = [Path(word[1:]) for word in command if word.startswith("@")]
        seen.append((command, file.read_text("ascii"), stat.S_IMODE(file.stat().st_mode)))
        return subprocess.CompletedProcess(command, 0, "", "")

    broker = LocalBroker(tmp_path / 'a "folder"', "tls")
    broker.folder.mkdir()
    passwords = {"sotto": "the password", "devices": "another password"}
    broker._write_configuration((1, 2), passwords)
    monkeypatch.setattr("deploy.kafka.broker.subprocess.run", run)
    broker._format("java", ["a.Tool"])
    ((command, told, mode),) = seen
    for user, password in passwords.items():
        assert f'"SCRAM-SHA-512=[name={user},password={password}]"' in told.splitlines()
        assert password not in " ".join(command)
    assert mode == 0o600
    assert list(broker.folder.glob("format*")) == []


def test_of_two_starts_at_once_one_is_told(tmp_path, monkeypatch):
    living = []
    entered, go_on = threading.Event(), threading.Event()

    def start(self, ports):
        entered.set()
        assert go_on.wait(600)
        living.append(self)

    monkeypatch.setattr(LocalBroker, "running", property(lambda self: bool(living)))
    monkeypatch.setattr(LocalBroker, "_start", start)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(LocalBroker(tmp_path).start)
        assert entered.wait(600)
        second = threads.submit(LocalBroker(tmp_path).start)
        go_on.set()
        with pytest.raises(DeployError, match="running already"):
            second.result(600)
        first.result(600)
    assert len(living) == 1


@pytest.mark.parametrize("name", ["one,two", "b\u00fcro"])
def test_folders_that_kafka_could_not_use_are_refused(tmp_path, name):
    with pytest.raises(DeployError, match="no such path"):
        LocalBroker(tmp_path / name).start()


def test_nothing_secret_is_committed():
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "deploy", "*.pem", "*.key", "*.jks", "*.p12"],
        cwd=jars.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert not [name for name in tracked if name.endswith((".pem", ".key", ".jks", ".p12"))]


def test_the_probe_believes_no_stranger():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not answers("127.0.0.1", port, None, seconds=0.1)
    assert not answers("127.0.0.1", 1, None)
