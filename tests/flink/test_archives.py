"""Flink's archives: what pip brings, and what is said if it does not. pip is played."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from deploy.errors import UnavailableError
from deploy.flink import archives


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A pip that brings a package with some files, or fails; the arguments it was given."""
    monkeypatch.setenv("SOTTO_CACHE", str(tmp_path))
    calls = []

    def play(files=(), error=""):
        def run(command, **_):
            calls.append(command)
            to = Path(next(part for part in command if part.startswith("--dest="))[7:])
            if not error:
                with tarfile.open(to / "a-1.tar.gz", "w:gz") as package:
                    for name in files:
                        package.addfile(tarfile.TarInfo(name))
            return subprocess.CompletedProcess(command, 1 if error else 0, "", error)

        monkeypatch.setattr(archives.jars.subprocess, "run", run)
        return calls

    return play


def test_only_flink_and_its_logging_are_taken(pip, tmp_path):
    taken = ["a-1/deps/lib/flink-dist-1.jar", "a-1/deps/lib/log4j-api-2.jar"]
    left = ["a-1/deps/lib/flink-csv-1.jar", "a-1/deps/opt/flink-dist-1.jar", "a-1/deps/lib/log4j"]
    calls = pip([*left, *taken])
    archives.fetch(tmp_path / "taken")
    found = sorted(path.name for path in (tmp_path / "taken").iterdir())
    assert found == ["flink-dist-1.jar", "log4j-api-2.jar"]
    assert "--require-hashes" in calls[0]
    assert not list(tmp_path.glob("fetching-*"))


def test_a_fetch_that_fails_says_why(pip, tmp_path):
    pip(error="WARNING: retrying\nERROR: No matching distribution found\n")
    with pytest.raises(UnavailableError, match="with a network, try again: No matching distrib"):
        archives.fetch(tmp_path / "taken")
