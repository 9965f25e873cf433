"""Programs in the background."""

from __future__ import annotations

import subprocess

import pytest

from deploy.process import Process

COMMAND = ["sleep", "600"]


@pytest.fixture
def started(tmp_path):
    process = Process(tmp_path, "sleeper", "sleep 600")
    process.start(COMMAND, {})
    yield process
    process.kill()


def test_a_child_is_known_before_its_command_line_can_be_read(tmp_path):
    """Amid a start the system shows no command line, or that of the parent."""
    process = Process(tmp_path, "sleeper", "not in its command line")
    process.start(COMMAND, {})
    try:
        assert process.pid is not None
    finally:
        process.kill()
    assert process.pid is None


def test_another_finds_it_by_its_command_line(tmp_path, started):
    assert Process(tmp_path, "sleeper", "sleep 600").pid == started.pid
    assert Process(tmp_path, "sleeper", "sleep 601").pid is None


def test_one_that_has_ended_does_not_live(tmp_path, started):
    other = Process(tmp_path, "sleeper", "sleep 600")
    subprocess.run(["kill", "-9", str(started.pid)], check=True)
    started._child.wait()
    assert (started.pid, other.pid) == (None, None)
