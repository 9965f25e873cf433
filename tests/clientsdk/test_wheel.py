"""The wheel as an app gets it: in an environment of its own, without network or anything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from scripts import HERE, ROOT

from clientsdk.testing import small_plan
from sotto.plan.generate import module_text

pytestmark = pytest.mark.slow

SOURCES = (
    "mechanisms",
    "sotto",
    "clientsdk",
    "pipelines",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
QUIET = ("--quiet", "--disable-pip-version-check", "--no-index")
THREE_LINES = """\
from clientsdk import Client, EmbeddedLogPublisher
client = Client("plan.json", state="device.db", publisher=EmbeddedLogPublisher("log"))
print(client.record("colour", "red").value)
"""


def run(*command: object, cwd: Path) -> str:
    """Run a command that sees no other package and no setting of this machine's."""
    kept = {
        name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in os.environ
    }
    result = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since building leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", "built")
    run(sys.executable, "-W", "ignore", "-m", "pip", "wheel", *QUIET, *options, ".", cwd=copy)
    (built,) = (copy / "built").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The Python of a fresh environment, into which the wheel was installed from its file."""
    folder = tmp_path_factory.mktemp("app")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    # With all its dependencies: there is no index, so that any would be an error.
    run(sys.executable, "-m", "pip", "--python", python, "install", *QUIET, wheel, cwd=folder)
    return python


def test_it_depends_on_nothing_and_brings_its_types(installed, tmp_path):
    code = (
        "from importlib.metadata import distributions, requires\n"
        "from importlib.resources import files\n"
        "print(sorted(each.name for each in distributions()))\n"
        "print([each for each in requires('sotto') if 'extra' not in each])\n"
        "packages = ('clientsdk', 'sotto', 'mechanisms')\n"
        "print([(files(each) / 'py.typed').is_file() for each in packages])"
    )
    assert run(installed, "-I", "-c", code, cwd=tmp_path).splitlines() == [
        "['sotto']",
        "[]",
        "[True, True, True]",
    ]


def test_three_lines_are_enough_and_nothing_is_recorded_before_consent(installed, tmp_path):
    (tmp_path / "plan.json").write_bytes(small_plan().to_json())
    assert run(installed, "-I", "-W", "error", "-c", THREE_LINES, cwd=tmp_path) == "no_consent\n"
    assert not (tmp_path / "log").exists()


def test_a_typed_app_is_checked_against_it_strictly_and_runs(installed, tmp_path):
    shutil.copy(HERE / "typed_consumer.py", tmp_path)
    (tmp_path / "generated.py").write_text(module_text(small_plan()))
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\ncache_dir = cache\n")
    options = ("--config-file", "mypy.ini", "--python-executable", installed)
    files = ("typed_consumer.py", "generated.py")
    told = run(sys.executable, "-m", "mypy", *options, *files, cwd=tmp_path)
    assert told == "Success: no issues found in 2 source files\n"
    told = run(installed, "-W", "error", "typed_consumer.py", cwd=tmp_path).split()
    assert told[-1] == "0"
    # The same checker finds what is wrong with it.
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from clientsdk import Client\nClient('p', state=1, publisher='x')\n")
    command = [sys.executable, "-m", "mypy", *options, "wrong.py"]
    found = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.count("[arg-type]") == 2
