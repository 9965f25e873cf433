"""Parts that all local services share: programs in the background, ports, folders."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from deploy import ports
from deploy.errors import DeployError
from deploy.flink.cluster import LocalFlink
from deploy.process import START_VARIABLE, Process, start_seconds, wait_until_ready

WAITS = "import sys; sys.stdin.read(); import time; time.sleep(600)"


@pytest.mark.real_randomness
@pytest.mark.parametrize("name", ["plain", "with a space", "b\u00fcro"])
def test_one_is_known_to_others_and_ended(tmp_path, monkeypatch, name):
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / name
    folder.mkdir()
    mark = str(folder / "settings")
    starter = Process(folder, "program", mark)
    starter.start([sys.executable, "-c", WAITS, mark], {})
    try:
        other = Process(folder, "program", mark)
        assert other.pid == starter.pid is not None
        assert Process(folder, "program", "something else").pid is None
    finally:
        starter.kill()
    assert other.pid is None
    assert starter.pid is None


@pytest.mark.real_randomness
def test_a_child_is_known_before_its_command_line_can_be_read(tmp_path):
    """Amid a start the system shows none, or that of the parent."""
    process = Process(tmp_path, "program", "not in its command line")
    process.start([sys.executable, "-c", WAITS], {})
    try:
        assert process.pid is not None
    finally:
        process.kill()
    assert process.pid is None


def test_starts_may_take_longer_on_a_busy_machine_and_as_long_as_is_said(monkeypatch):
    monkeypatch.delenv(START_VARIABLE, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0, 0))
    assert start_seconds(60) == 60
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0, 0, 0))
    assert start_seconds(60) == 240
    monkeypatch.setenv(START_VARIABLE, "1000")
    assert start_seconds(60) == 1000
    for wrong in ("soon", "nan", "0"):
        monkeypatch.setenv(START_VARIABLE, wrong)
        with pytest.raises(DeployError, match=f"a positive number of seconds; got '{wrong}'"):
            start_seconds(60)


@pytest.mark.real_randomness
def test_one_that_ends_or_is_never_ready_is_reported_with_its_last_error(tmp_path):
    process = Process(tmp_path, "program", "mark")
    process.start([sys.executable, "-c", "print('fine'); raise SystemExit('an ERROR here')"], {})
    with pytest.raises(DeployError, match=r"the program ended: an ERROR here .*program\.log"):
        wait_until_ready([process], lambda: False, 60)
    process.start([sys.executable, "-c", WAITS, "mark"], {})
    try:
        wait_until_ready([process], lambda: True, 0)
        with pytest.raises(DeployError, match="the program is not ready in 0 s, which"):
            wait_until_ready([process], lambda: False, 0)
    finally:
        process.kill()


def test_free_ports_differ_and_nobody_has_them(monkeypatch):
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        # Whatever chance says, the taken one, and what was given before, are met and passed by.
        first, second, third = ports.free_ports(3)
        ports._given.difference_update((first, second))
        chosen = iter([port, first, port, first, third, second])
        monkeypatch.setattr(ports.secrets, "choice", lambda _: next(chosen))
        assert ports.free_ports(2) == [first, second]
        assert next(chosen, None) is None
        with pytest.raises(DeployError, match=f"port {port} cannot be used"):
            ports.require_free(port)


def test_checkpoints_are_nobody_elses(tmp_path: Path) -> None:
    """They hold pseudonyms and payloads."""
    LocalFlink(tmp_path / "flink")._configure(None)
    for name in ("checkpoints", "savepoints", "tmp"):
        assert (tmp_path / "flink" / name).stat().st_mode & 0o007 == 0
