"""The tools' command under other interpreters: what needs no package that they may lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import needed

from clientsdk.testing import small_plan

pytestmark = [pytest.mark.slow, pytest.mark.real_randomness]

ROOT = Path(__file__).parents[2]
COMMANDS = ("--version", "plan check plan.json", "plan disclose plan.json")


def said(python: str, folder: Path) -> list[str]:
    """Return what the commands print under an interpreter, of warnings nothing."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return [
        subprocess.run(
            [python, "-m", "sotto", *command.split()],
            cwd=folder,
            env=environment,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
        for command in COMMANDS
    ]


@pytest.mark.parametrize("python", ["python3.12", "python3.13", "python3.14"])
def test_commands_say_the_same_under_other_pythons(python, tmp_path):
    (tmp_path / "plan.json").write_bytes(small_plan().to_json())
    assert said(needed(python), tmp_path) == said(sys.executable, tmp_path)
