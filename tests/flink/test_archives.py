"""Flink's archives: what pip brings, and what is said if it does not. pip is played."""

from __future__ import annotations

import sys

import pytest

from deploy.errors import UnavailableError
from deploy.flink import archives

#: Brings a package of some files, or fails; notes its arguments.
PIP = """#!{python}
import json, sys, tarfile
files, error, calls = {said!r}
open(calls, "a").write(json.dumps(sys.argv) + "\\n")
(to,) = [part[7:] for part in sys.argv if part.startswith("--dest=")]
if error:
    sys.exit(error)
with tarfile.open(to + "/a-1.tar.gz", "w:gz") as package:
    for name in files:
        package.addfile(tarfile.TarInfo(name))
"""


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A program in the place of the Python that runs pip; where it notes its arguments."""
    monkeypatch.setenv("SOTTO_CACHE", str(tmp_path))
    program, calls = tmp_path / "python", tmp_path / "calls"

    def play(files=(), error=""):
        said = (list(files), error, str(calls))
        program.write_text(PIP.format(python=sys.executable, said=said), encoding="ascii")
        program.chmod(0o700)
        monkeypatch.setattr(archives.sys, "executable", str(program))
        return calls

    return play


def test_only_flink_and_its_logging_are_taken(pip, tmp_path):
    taken = ["a-1/deps/lib/flink-dist-1.jar", "a-1/deps/lib/log4j-api-2.jar"]
    left = ["a-1/deps/lib/flink-csv-1.jar", "a-1/deps/opt/flink-dist-1.jar", "a-1/deps/lib/log4j"]
    calls = pip([*left, *taken])
    archives.fetch(tmp_path / "taken")
    found = sorted(path.name for path in (tmp_path / "taken").iterdir())
    assert found == ["flink-dist-1.jar", "log4j-api-2.jar"]
    assert "--require-hashes" in calls.read_text("ascii")
    assert not list(tmp_path.glob("fetching-*"))


def test_a_fetch_that_fails_says_why(pip, tmp_path):
    pip(error="WARNING: retrying\nERROR: No matching distribution found\n")
    with pytest.raises(UnavailableError, match="with a network, try again: No matching distrib"):
        archives.fetch(tmp_path / "taken")
