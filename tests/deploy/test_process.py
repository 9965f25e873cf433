"""Programs in the background: known again, whatever their folder is called."""

from __future__ import annotations

import sys

import pytest

from deploy.process import Process

WAITS = "import sys; sys.stdin.read(); import time; time.sleep(60)"


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


def test_a_child_is_known_before_its_command_line_can_be_read(tmp_path):
    """Amid a start the system shows none, or that of the parent."""
    process = Process(tmp_path, "program", "not in its command line")
    process.start([sys.executable, "-c", WAITS], {})
    try:
        assert process.pid is not None
    finally:
        process.kill()
    assert process.pid is None
